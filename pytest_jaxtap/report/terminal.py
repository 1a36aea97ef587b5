"""PYTEST_DONT_REWRITE

The section at the end of a run: what the failures of many tests have in common, and where reports
were written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pytest_jaxtap.report.results import Results
from pytest_jaxtap.report.wire import Record

MOST_CAUSES = 10


def write(results: Results, written: Sequence[str], errors: Sequence[str], reporter: Any) -> None:
    """Write the section; nothing if nothing happened."""
    causes = Counter(cause(record) for record in results.failed)
    errors = [*errors, *(error for record in results.records for error in record["errors"])]
    if not causes and not errors:
        return
    reporter.section("jaxtap")
    for text, tests in causes.most_common(MOST_CAUSES):
        reporter.write_line(f"{tests} {'test' if tests == 1 else 'tests'}: {text}")
    if len(causes) > MOST_CAUSES:
        reporter.write_line(f"and {len(causes) - MOST_CAUSES} more causes")
    for line in written:
        reporter.write_line(line)
    for error in errors:
        reporter.write_line(f"error: {error}", red=True)


def cause(record: Record) -> str:
    """What made a test fail, in words that tests with the same cause share."""
    for finding in record["findings"]:
        origin = finding["origin"]
        if origin and origin["primitive"]:
            from jaxtap_core.records.text import word

            place = origin["source"] or finding["event"]["source"]
            return f"{word(finding['kind'])} born in {origin['primitive']} at {place}"
    return record["failure"][0].removeprefix("jaxtap: ")
