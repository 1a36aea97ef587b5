"""PYTEST_DONT_REWRITE

Telemetry compared with what was stored, bit for bit unless told otherwise: the fixture ``tap_snapshot``.

In comes whatever stands on the other side of ``==``: a recording, arrays, a pandas object, a pytree; `snapshot` makes
tracks of it (`jaxtap_core.compare.table`) and asks syrupy, for which `extension` compares them with the stored entry.
What is stored is one text file a test, written by `format` and read by `parse`; large columns are binary files beside
it (`arrays`). Out go the lines of a failure, and an account for the reports (`comparison`).

A new argument of the fixture is one of ``TapSnapshot.__call__``; a new thing in the file is written in `format`, read
in `parse`, and a new version of the schema if readers so far would mistake it.

Sharp edges: syrupy decides when to write and what is unused, and deletes visible files that it does not know, so binary
ones start with a dot. A damaged file is told, never guessed, and never overwritten.
"""
