"""PYTEST_DONT_REWRITE

``--jaxtap-json``: everything that was found, for programs to read. ``findings.schema.json`` says
what stands in it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_jaxtap.options import Options

if TYPE_CHECKING:
    from pytest_jaxtap.report.collector import Run

VERSION = 1


def write(run: Run, options: Options) -> str | None:
    """Write the file whole or not at all; says where.

    Raises:
        OSError: the path cannot be written.
    """
    if options.json is None:
        return None
    from jaxtap_core.telemetry.files import write_atomically

    options.json.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document(run), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(str(options.json), [text.encode(), b"\n"])
    return f"findings in {options.json}"


def document(run: Run) -> dict[str, Any]:
    """The content of the file."""
    return {
        "format": "jaxtap-findings",
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "rootdir": run.rootdir,
        "environment": run.environment,
        "summary": {
            "observed": run.observed,
            "failed": len(run.failed),
            "findings": sum(len(record["findings"]) for record in run.records),
            "alerts": sum(len(record["alerts"]) for record in run.records),
        },
        "tests": run.records,
    }
