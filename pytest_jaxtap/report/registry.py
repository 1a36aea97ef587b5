"""PYTEST_DONT_REWRITE

All reports. A new one is a line here.
"""

from __future__ import annotations

from itertools import combinations

import pytest

from pytest_jaxtap.options import Declarations
from pytest_jaxtap.report.base import FileReport, Report
from pytest_jaxtap.report.formats.github import GithubReport
from pytest_jaxtap.report.formats.html import HtmlReport
from pytest_jaxtap.report.formats.json import JsonReport
from pytest_jaxtap.report.formats.jsonl import JsonlReport
from pytest_jaxtap.report.formats.junit import JunitReport

KNOWN: tuple[type[Report], ...] = (
    JsonReport,
    HtmlReport,
    JsonlReport,
    GithubReport,
    JunitReport,
)


def declare(declarations: Declarations) -> None:
    """Declare the options of all reports."""
    for report in KNOWN:
        report.declare(declarations)


def asked(config: pytest.Config) -> tuple[Report, ...]:
    """The reports that the command line and the ini file ask for.

    Raises:
        pytest.UsageError: one is asked for something that cannot be, or two for the same file.
    """
    reports = tuple(report for known in KNOWN if (report := known.asked(config)) is not None)
    written = [report for report in reports if isinstance(report, FileReport)]
    for one, other in combinations(written, 2):
        if one.path == other.path:
            raise pytest.UsageError(
                f"--jaxtap-{one.option} and --jaxtap-{other.option} would both be written to {one.path}: give two paths"
            )
    return reports
