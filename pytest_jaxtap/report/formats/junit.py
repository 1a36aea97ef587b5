"""PYTEST_DONT_REWRITE

``jaxtap_junit = true`` in the ini file: what was seen as properties of JUnit test cases, a line each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pytest

from pytest_jaxtap.options import Declarations, from_ini
from pytest_jaxtap.report.base import Report

if TYPE_CHECKING:
    from pytest_jaxtap.observe.watch import Watch
    from pytest_jaxtap.report.wire import Record


class JunitReport(Report):
    """Adds to the report that pytest itself writes (``--junitxml``)."""

    @classmethod
    def declare(cls, declarations: Declarations) -> None:
        text = "write findings, alerts and certificates as properties of JUnit test cases"
        declarations.ini("junit", "bool", False, text)

    @classmethod
    def asked(cls, config: pytest.Config) -> Self | None:
        return cls() if from_ini(config, "junit") else None

    def tested(self, item: pytest.Item, watch: Watch, record: Record) -> None:
        item.user_properties[:] = [*_foreign(item.user_properties), *_properties(record)]


def _properties(record: Record) -> list[tuple[str, object]]:
    told = [("jaxtap_finding", finding["story"][0]) for finding in record["findings"]]
    told += [("jaxtap_alert", alert["message"]) for alert in record["alerts"]]
    return told + [
        ("jaxtap_certificate", "identical" if certificate["identical"] else "not identical")
        for certificate in record["certificates"]
    ]


def _foreign(properties: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """The properties of others; ours of an earlier run of the same test are over."""
    return [(name, value) for name, value in properties if not name.startswith("jaxtap_")]
