"""PYTEST_DONT_REWRITE

``--jaxtap-html``: one page for people, made in `pytest_jaxtap.report.page`.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Self

import pytest

from pytest_jaxtap.report.base import FileReport
from pytest_jaxtap.report.wire import Record, attach

if TYPE_CHECKING:
    from pytest_jaxtap.observe.watch import Watch
    from pytest_jaxtap.report.comparison import Comparison
    from pytest_jaxtap.report.results import Results


class HtmlReport(FileReport):
    """Every finding with its story and source lines, every comparison as a plot, the environment."""

    option = "html"
    help = "write a page for people to PATH: findings, and plots of what was compared"
    holds = "page"

    @classmethod
    def asked(cls, config: pytest.Config) -> Self | None:
        report = super().asked(config)
        if report is not None and importlib.util.find_spec("plotly") is None:
            raise pytest.UsageError(
                "--jaxtap-html draws with plotly, which is missing: pip install 'pytest-jaxtap[html]'"
            )
        return report

    def compared(self, item: pytest.Item, comparison: Comparison) -> None:
        from pytest_jaxtap.report.page.curves import curves

        found = comparison.difference
        attach(item, "curves", [] if found is None else curves(comparison.expected, comparison.observed, found))

    def tested(self, item: pytest.Item, watch: Watch, record: Record) -> None:
        """Add ``curves``, a list for each comparison, and ``sources``, lines by place."""
        from pytest_jaxtap.report.page.excerpt import excerpts

        places = [finding["event"]["source"] for finding in record["findings"]]
        places += [finding["origin"]["source"] for finding in record["findings"] if finding["origin"]]
        places += [alert["source"] for alert in record["alerts"]]
        record["extra"][self.option] = {"curves": record.pop("curves", []), "sources": excerpts(places)}

    def content(self, results: Results) -> bytes:
        from pytest_jaxtap.report.page.page import page

        # A name of a test may hold half a character, which no encoding has.
        return page(results).encode(errors="backslashreplace")
