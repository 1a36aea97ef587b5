"""PYTEST_DONT_REWRITE

``--jaxtap-json``: everything that was found, for programs to read. ``findings.schema.json`` says
what stands in it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_jaxtap.report.base import FileReport

if TYPE_CHECKING:
    from pytest_jaxtap.report.results import Results

VERSION = 1


class JsonReport(FileReport):
    """The records of all tests, and what they add up to."""

    option = "json"
    help = "write findings, alerts and certificates to PATH as JSON"
    holds = "findings"

    def content(self, results: Results) -> bytes:
        text = json.dumps(document(results), indent=1, ensure_ascii=False, allow_nan=False)
        return f"{text}\n".encode()


def document(results: Results) -> dict[str, Any]:
    """The content of the file."""
    return {
        "format": "jaxtap-findings",
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "rootdir": results.rootdir,
        "environment": results.environment,
        "summary": {
            "observed": results.observed,
            "failed": len(results.failed),
            "findings": results.findings,
            "alerts": sum(len(record["alerts"]) for record in results.records),
        },
        "tests": results.records,
    }
