"""PYTEST_DONT_REWRITE

``--jaxtap-html``: one page for people, which loads nothing from anywhere: findings with their stories
and source lines, what was compared with snapshots as plots, certificates, the environment.

Texts stand in the page as HTML and can be read without scripts. What is drawn lies packed beside them,
as does plotly.js, until a plot is looked at; so a page with 1,000 plots opens as fast as one with none.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from datetime import UTC, datetime
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from pytest_jaxtap.options import Options
from pytest_jaxtap.report.html_article import article, identity, word
from pytest_jaxtap.report.markup import Markup, each, el
from pytest_jaxtap.report.packed import pack

if TYPE_CHECKING:
    from pytest_jaxtap.report.collector import Run

# The order in which tests are shown.
OUTCOMES = ("crashed", "error", "failed", "xpassed", "xfailed", "skipped", "passed")


def write(run: Run, options: Options) -> str | None:
    """Write the page whole or not at all; says where.

    Raises:
        OSError: the path cannot be written.
    """
    if options.html is None:
        return None
    from jaxtap_core.telemetry.files import write_atomically

    options.html.parent.mkdir(parents=True, exist_ok=True)
    # A name of a test may hold half a character, which no encoding has.
    write_atomically(str(options.html), [page(run).encode(errors="backslashreplace")])
    return f"page in {options.html}"


def page(run: Run) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    here, plotly = files("pytest_jaxtap.report"), get_plotlyjs()
    script = here.joinpath("page.js").read_text(encoding="utf-8")
    tests = sorted(run.records, key=lambda record: OUTCOMES.index(record["outcome"]))
    draws = any(curve["data"] for shown in run.pages.values() for one in shown.get("curves", ()) for curve in one)
    return Template(here.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        # Whatever the texts hold, the browser runs nothing but these two scripts and loads nothing.
        hashes=" ".join(f"'sha256-{_digest(text)}'" for text in (script, plotly)),
        style=here.joinpath("page.css").read_text(encoding="utf-8"),
        script=script,
        plotly=pack(plotly) if draws else "",
        title=el("title", f"jaxtap: {_summary(run)}"),
        summary=el("p", f"{_summary(run)}."),
        created=el("p", f"Made on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC in {run.rootdir}"),
        contents=_contents([record for record in tests if record["outcome"] in OUTCOMES[:3]]),
        filters=_filters(Counter(record["outcome"] for record in tests)),
        tests=each(article(record, run.pages.get(record["nodeid"], {})) for record in tests),
        environment=_environment(run),
    )


def _summary(run: Run) -> str:
    findings = sum(len(record["findings"]) for record in run.records)
    failed = sum(record["outcome"] in OUTCOMES[:3] for record in run.records)
    return f"{run.observed} tests observed, {failed} failed, {findings} findings"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _contents(failed: list[dict[str, object]]) -> Markup:
    if not failed:
        return el("p", "No test failed.")
    links = (el("li", el("a", record["nodeid"], href=f"#{identity(str(record['nodeid']))}")) for record in failed)
    return el("ul", *links)


def _filters(outcomes: Counter[str]) -> Markup:
    boxes = (
        el("label", el("input", type="checkbox", value=outcome, checked=True), f" {outcome} ({outcomes[outcome]})")
        for outcome in OUTCOMES
        if outcomes[outcome]
    )
    return each(boxes)


def _environment(run: Run) -> Markup:
    if not run.environment:
        return el("p", "No program was observed.")
    rows = (el("tr", el("th", name, scope="row"), el("td", word(value))) for name, value in run.environment.items())
    return el("table", el("caption", "What the bits of the programs depend on"), el("tbody", *rows))
