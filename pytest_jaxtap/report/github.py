"""PYTEST_DONT_REWRITE

``--jaxtap-github``: failures as annotations of a pull request, and a table for the summary of the
step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_jaxtap.options import Options

if TYPE_CHECKING:
    from pytest_jaxtap.report.collector import Run


def workflow_commands(run: Run) -> Iterator[str]:
    """One workflow command a failed test, at the line of the test."""
    for record in run.failed:
        place = f"file={_property(record['file'])},line={record['line']}"
        title = _property(record["failure"][0])
        yield f"::error {place},title={title}::{_data(chr(10).join(record['failure']))}"


def write(run: Run, options: Options) -> str | None:
    """Add a table of the failures to the summary of the step, where GitHub asks for one.

    Raises:
        OSError: the file of the summary cannot be written.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not options.github or not path or not run.failed:
        return None
    rows = [f"| `{_cell(record['nodeid'])}` | {_cell(record['failure'][0])} |" for record in run.failed]
    table = ["### jaxtap", "", "| test | what was seen |", "| --- | --- |", *rows, ""]
    with open(path, "a", encoding="utf-8") as summary:
        summary.write("\n".join(table) + "\n")
    return f"summary of the step in {path}"


def _cell(text: str) -> str:
    return text.removeprefix("jaxtap: ").replace("|", "\\|").replace("\n", " ")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
