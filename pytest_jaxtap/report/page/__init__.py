"""PYTEST_DONT_REWRITE

The page of ``--jaxtap-html``: findings with their stories and source lines, what was compared with snapshots as plots,
certificates, the environment. It is one file and loads nothing from anywhere.

Where a test runs, each comparison becomes curves (`curves`, with at most 500 `points` a curve) and each place that is
named its source lines (`excerpt`). Where the run is reported, `page` fills ``page.html`` with one `article` a test;
`markup` escapes whatever is not HTML already.

A new part of a test is a function in `article`; what only the page needs of a test is added in
`pytest_jaxtap.report.formats.html`.

Texts stand in the page as HTML and can be read without scripts. What is drawn lies `packed` beside them, as does
plotly.js, until a plot is looked at; so a page with 1,000 plots opens as fast as one with none.

Sharp edges: the browser runs nothing but the two scripts whose digests stand in the policy of the page, so no element
has a handler or a style of its own; colours are in ``page.css``, for light and dark.
"""
