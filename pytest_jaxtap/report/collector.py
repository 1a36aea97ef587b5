"""PYTEST_DONT_REWRITE

Gathers the records of all tests where they are reported (under xdist: on the controller) and hands
them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxtap.report.base import REPORTS
from pytest_jaxtap.report.wire import Record, blank, refused, taken

if TYPE_CHECKING:
    from pytest_jaxtap.report.results import Results

# A test with none of these has nothing to tell.
TELLING = ("failure", "findings", "alerts", "certificates", "recordings", "comparisons", "errors")


class Collector:
    """Takes records from pytest's reports; not registered in workers of xdist.

    Args:
        config: of the session.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._reports = config.stash[REPORTS]
        self._rootdir = str(config.rootpath)
        self._records: dict[str, Record] = {}
        self._extras: dict[str, Record] = {}
        self._environment: Record | None = None
        self._written: list[str] = []
        self._errors: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        refused(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        nodeid = report.nodeid
        if report.when == "???":  # the worker that ran it crashed; xdist makes this report
            self._records[nodeid] = _crashed(report)
        elif (record := taken(report)) is not None:
            self._environment = record.pop("environment", None) or self._environment
            self._extras[nodeid] = record.pop("extra")
            self._records[nodeid] = record | _circumstances(report)
        elif report.when == "teardown" and report.failed and nodeid in self._records:
            self._records[nodeid]["outcome"] = "error"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if not self._reports:
            return
        results = self._results()
        for report in self._reports:
            try:
                written = report.write(results)
            except OSError as error:
                self._errors.append(str(error))
            else:
                self._written += [written] if written else []

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not (self._records or self._errors):
            return
        from pytest_jaxtap.report import terminal

        results = self._results()
        terminal.write(results, self._written, self._errors, terminalreporter)
        for report in self._reports:
            for line in report.lines(results):
                terminalreporter.write_line(line)

    def _results(self) -> Results:
        from pytest_jaxtap.report.results import Results

        records = [r for r in self._records.values() if any(r.get(part) for part in TELLING)]
        return Results(records, len(self._records), self._environment, self._rootdir, self._extras)


def _circumstances(report: pytest.TestReport) -> Record:
    return {
        "outcome": _outcome(report),
        "duration": report.duration,
        "worker": getattr(report, "worker_id", None),
    }


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    if report.failed and report.when != "call":
        return "error"
    return report.outcome


def _crashed(report: pytest.TestReport) -> Record:
    return blank(report.nodeid, report.location) | {
        "errors": [str(report.longrepr)],
        "outcome": "crashed",
        "duration": report.duration,
        "worker": None,
    }
