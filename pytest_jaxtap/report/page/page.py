"""PYTEST_DONT_REWRITE

The whole page: ``page.html`` filled in.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from datetime import UTC, datetime
from importlib.resources import files
from string import Template

from pytest_jaxtap.report.page.article import anchor, article, cell
from pytest_jaxtap.report.page.markup import Markup, each, el
from pytest_jaxtap.report.page.packed import pack
from pytest_jaxtap.report.results import Results

# The order in which tests are shown.
OUTCOMES = ("crashed", "error", "failed", "xpassed", "xfailed", "skipped", "passed")


def page(results: Results) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    here, plotly = files("pytest_jaxtap.report.page"), get_plotlyjs()
    script = here.joinpath("page.js").read_text(encoding="utf-8")
    tests = sorted(results.records, key=lambda record: OUTCOMES.index(record["outcome"]))
    extras = {record["nodeid"]: results.extra(record["nodeid"], "html") for record in tests}
    draws = any(curve["data"] for extra in extras.values() for one in extra.get("curves", ()) for curve in one)
    return Template(here.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        # Whatever the texts hold, the browser runs nothing but these two scripts and loads nothing.
        hashes=" ".join(f"'sha256-{_digest(text)}'" for text in (script, plotly)),
        style=here.joinpath("page.css").read_text(encoding="utf-8"),
        script=script,
        plotly=pack(plotly) if draws else "",
        title=el("title", f"jaxtap: {_summary(results)}"),
        summary=el("p", f"{_summary(results)}."),
        created=el("p", f"Made on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC in {results.rootdir}"),
        contents=_contents([record for record in tests if record["outcome"] in OUTCOMES[:3]]),
        filters=_filters(Counter(record["outcome"] for record in tests)),
        tests=each(article(record, extras[record["nodeid"]]) for record in tests),
        environment=_environment(results),
    )


def _summary(results: Results) -> str:
    failed = sum(record["outcome"] in OUTCOMES[:3] for record in results.records)
    return f"{results.observed} tests observed, {failed} failed, {results.findings} findings"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _contents(failed: list[dict[str, object]]) -> Markup:
    if not failed:
        return el("p", "No test failed.")
    links = (el("li", el("a", record["nodeid"], href=f"#{anchor(str(record['nodeid']))}")) for record in failed)
    return el("ul", *links)


def _filters(outcomes: Counter[str]) -> Markup:
    boxes = (
        el("label", el("input", type="checkbox", value=outcome, checked=True), f" {outcome} ({outcomes[outcome]})")
        for outcome in OUTCOMES
        if outcomes[outcome]
    )
    return each(boxes)


def _environment(results: Results) -> Markup:
    if not results.environment:
        return el("p", "No program was observed.")
    rows = (el("tr", el("th", name, scope="row"), el("td", cell(value))) for name, value in results.environment.items())
    return el("table", el("caption", "What the bits of the programs depend on"), el("tbody", *rows))
