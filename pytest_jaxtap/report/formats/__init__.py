"""PYTEST_DONT_REWRITE

The reports, one a file: JSON, the HTML page, recordings as JSON Lines, GitHub, JUnit.

Each declares its own option and is made where that is given; in come the tests one by one, in the process that ran
them (`tested`, `compared`), or the `Results` of the run (`write`, `lines`); out goes what the option names.

A new one is a file here, and its line in `pytest_jaxtap.report.registry`.

Sharp edge: every session imports these files to know the options, so what a report is made with is imported when it is
made.
"""
