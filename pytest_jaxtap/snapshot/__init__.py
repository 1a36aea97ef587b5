"""PYTEST_DONT_REWRITE

Telemetry compared with what was stored, bit for bit unless told otherwise: the fixture ``tap_snapshot``.

In comes whatever stands on the other side of ``==``: a recording, arrays, a pandas object, a pytree; `snapshot` makes
tracks of it (`jaxtap_core.compare.table`) and asks syrupy, for which `extension` compares them with the stored entry.
What is stored is one text file a test, written by `format` and read by `parse`; `index` says the steps of a stream in
short, and large columns are binary files beside the text (`arrays`). Out go the lines of a failure, also of one where
nothing was compared (`explain`), and an account for the reports (`comparison`). When the tests are over, `unused` tells
syrupy which folders there are, and `verdicts` which files it must leave alone.

A new argument of the fixture is one of ``TapSnapshot.__call__``; a new thing in the file is written in `format`, read
in `parse`, and a new version of the schema if readers so far would mistake it.

Sharp edges: syrupy decides when to write and what is unused, and in its own folder deletes what it does not know, so
this has another (`verdicts.FOLDER`). A damaged file is told, never guessed, and never overwritten; what it says of its
size is believed as far as it has data.
"""
