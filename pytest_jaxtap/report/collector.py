"""PYTEST_DONT_REWRITE

Gathers the records of all tests where they are reported (under xdist: on the controller) and hands
them on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_jaxtap.observe.wire import Record, refused, taken
from pytest_jaxtap.options import Options


@dataclass
class Run:
    """What a report is made of.

    Attributes:
        records: one plain dict a test that has something to tell, in the order in which they ended;
            see ``findings.schema.json`` for what they hold.
        observed: number of tests that ran under the lens.
        environment: what the bits of the programs depend on, ``None`` if no program ran.
        rootdir: what the paths in the records are relative to.
        pages: by node id what only the page shows (`pytest_jaxtap.observe.record.for_page`).
    """

    records: list[Record] = field(default_factory=list)
    observed: int = 0
    environment: Record | None = None
    rootdir: str = ""
    pages: dict[str, Record] = field(default_factory=dict)

    @property
    def failed(self) -> list[Record]:
        """The records of the tests that failed for what the lens saw; not those that were expected to."""
        return [r for r in self.records if r["failure"] and r["outcome"] == "failed"]


TELLING = ("failure", "findings", "alerts", "certificates", "recordings", "comparisons", "errors")

# Writes a report, if the options ask for it, and says where.
Reporter = Callable[["Run", Options], "str | None"]


def reporters() -> tuple[Reporter, ...]:
    """All reports, loaded when the run is over."""
    from pytest_jaxtap.report import github, html_report, json_report

    return (json_report.write, html_report.write, github.write)


class Collector:
    """Takes records from pytest's reports; not registered in workers of xdist.

    Args:
        config: of the session.
        options: what the session asks for.
    """

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self._options = options
        self._rootdir = str(config.rootpath)
        self._records: dict[str, Record] = {}
        self._pages: dict[str, Record] = {}
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
            self._pages[nodeid] = record.pop("page", {})
            self._records[nodeid] = record | _circumstances(report)
        elif report.when == "teardown" and report.failed and nodeid in self._records:
            self._records[nodeid]["outcome"] = "error"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if not self._options.reports:
            return
        run = self._run()
        for report in reporters():
            try:
                written = report(run, self._options)
            except OSError as error:
                self._errors.append(str(error))
            else:
                self._written += [written] if written else []

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        run = self._run()
        if not (run.records or self._errors):
            return
        from pytest_jaxtap.report import github, terminal

        terminal.write(run, self._written, self._errors, terminalreporter)
        if self._options.github:
            for line in github.workflow_commands(run):
                terminalreporter.write_line(line)

    def _run(self) -> Run:
        records = [r for r in self._records.values() if any(r.get(part) for part in TELLING)]
        return Run(records, len(self._records), self._environment, self._rootdir, self._pages)


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
    return {
        "nodeid": report.nodeid,
        "file": report.location[0],
        "line": (report.location[1] or 0) + 1,
        "failure": [],
        "findings": [],
        "alerts": [],
        "certificates": [],
        "recordings": [],
        "files": [],
        "errors": [str(report.longrepr)],
        "outcome": "crashed",
        "duration": report.duration,
        "worker": None,
    }
