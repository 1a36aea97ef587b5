"""PYTEST_DONT_REWRITE

``--jaxtap-github``: failures as annotations of a pull request, and a table for the summary of the
step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import pytest

from pytest_jaxtap.options import Declarations, given
from pytest_jaxtap.report.base import Report

if TYPE_CHECKING:
    from pytest_jaxtap.report.results import Results


class GithubReport(Report):
    """Workflow commands, which GitHub reads from the terminal, and a table in the file that it names."""

    @classmethod
    def declare(cls, declarations: Declarations) -> None:
        declarations.flag("github", "annotate the failures on GitHub and add a summary to the step")

    @classmethod
    def asked(cls, config: pytest.Config) -> Self | None:
        return cls() if given(config, "github") else None

    def lines(self, results: Results) -> Iterator[str]:
        """One workflow command a failed test, at the line of the test."""
        for record in results.failed:
            place = f"file={_property(record['file'])},line={record['line']}"
            title = _property(record["failure"][0])
            yield f"::error {place},title={title}::{_data(chr(10).join(record['failure']))}"

    def write(self, results: Results) -> str | None:
        """Add a table of the failures to the summary of the step, where GitHub asks for one."""
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if not path or not results.failed:
            return None
        rows = [f"| `{_cell(record['nodeid'])}` | {_cell(record['failure'][0])} |" for record in results.failed]
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
