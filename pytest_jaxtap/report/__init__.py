"""PYTEST_DONT_REWRITE

Reports for people and for CI, all made of the same plain records of tests.

In the process that runs a test its watch becomes a record, a plain dict (`record`), which travels on pytest's own
report (`wire`). In the process that reports the collector makes `Results` of them, and hands these to each report that
was asked for; the end of pytest's own output is written by `terminal`. ``findings.schema.json`` says what stands in a
record.

A new report is a file in `formats` with a subclass of `base.Report` that declares its own option, and its line in
`registry`; if it is one file, `base.FileReport` does all but the content.

Sharp edges: only exact plain types survive the way (`wire.plain`); what one report alone needs of a test goes into its
part of ``record["extra"]``, so that the others do not show it; what formats import at their top every session pays for.
"""
