"""The page of ``--jaxtap-html``: what stands in it, that it loads nothing, and how a browser takes it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import browser
import jsonschema
import pytest
from inner import BAD_STEP, SQRT_LINE, lay, run

import pytest_jaxtap.report.page.curves  # see conftest.py
from pytest_jaxtap.report.page.packed import unpack

SCHEMA = Path(pytest_jaxtap.report.__file__).with_name("findings.schema.json")

TESTS = """
import os
import numpy as np

NEW = bool(os.environ.get("NEW"))

def test_bad():
    descend(1.0)

def test_good(tap_recorder, tap_snapshot):
    with tap_recorder() as rec:
        descend(1e6)
    assert rec == tap_snapshot

def test_regression(tap_snapshot):
    drift, hole = np.arange(2000.0), np.sin(np.arange(50.0))
    if NEW:
        drift[1234:] *= 1 + 1e-9
        hole[7] = np.nan
    assert {"drift": drift, "hole": hole, "same": np.ones(3), "one": 4.0 + NEW} == tap_snapshot(name="curves")

@pytest.mark.tap(bitwise=True)
def test_certified():
    descend(1e6)

@pytest.mark.tap(alert=lambda event: "high" if event.step == 1 else None, watch_nan=False)
def test_alert():
    descend(1e6)

@pytest.mark.parametrize("text", ["</script><script>document.title='x'</script>", "\\"'><img src=x onerror=alert(1)>"])
def test_hostile(text, tap_snapshot):
    assert {text: np.arange(3)} == tap_snapshot
"""


class Page(HTMLParser):
    """What a browser would make of a page, as far as the tests ask."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._within: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._within = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._within = None

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._within != "style":
            self.text += data

    def having(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of all elements of one name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def drawn(self) -> list[dict[str, Any]]:
        """The points of all plots."""
        packed = [text for attrs, text in self.scripts if attrs.get("type") == "text/plain" and "id" not in attrs]
        return [json.loads(unpack(text)) for text in packed]


@pytest.fixture
def made(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write snapshots, then a page of a run that differs from them: its path."""

    def made(*arguments: str) -> Path:
        monkeypatch.delenv("CI", raising=False)
        lay(pytester, TESTS)
        run(pytester, "--snapshot-update", "-q", "-k", "good or regression or hostile").assert_outcomes(passed=4)
        monkeypatch.setenv("NEW", "1")
        result = run(pytester, "--jaxtap-nan", "--jaxtap-html=out/page.html", *arguments)
        result.assert_outcomes(failed=3, passed=4)
        result.stdout.fnmatch_lines(["page in *page.html"])
        return pytester.path / "out" / "page.html"

    return made


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "n2"])
def test_everything_stands_in_the_page_and_nothing_is_loaded(made: Any, workers: tuple[str, ...]) -> None:
    path = made(*workers)
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]  # nothing half-written is left
    text = path.read_text()
    page = Page(text)
    _loads_nothing(page, text)
    for told in (
        f"NaN entered scan[0] at step {BAD_STEP} of 4, carry leaf 'level'",
        f"born: sqrt at model.py:{SQRT_LINE} (step)",
        "why:  sqrt of a negative number (-1)",
        f">   {SQRT_LINE:2}         return jnp.sqrt(level) - 1, None",
        "Alert in scan[0] at step 1: high",
        "Certificates: 1 identical",
        "Snapshot test_regression[curves]: different",
        "Snapshot test_good: matched",
        "drift: 766 of 2000 elements differ, first at [1234]",
        "NaN observed in 1 element, first at element 7; first difference at element 7",
        "one: 1 of 1 element differs",
        "__tap_snapshots__",
        "prng_impl",
    ):
        assert told in page.text
    # drift, hole and same; the level of test_good; a hostile one twice. A single value is not drawn.
    assert [points["first"] for points in page.drawn if points["first"] is not None] != []
    assert sorted(points["x"][-1] for points in page.drawn)[:5] == [2, 2, 2, 3, 49] and len(page.drawn) == 6
    drift = next(points for points in page.drawn if points["until"])
    assert drift["x"][drift["first"]] == 1234


def _loads_nothing(page: Page, text: str) -> None:
    (policy,) = [meta["content"] for meta in page.having("meta") if "http-equiv" in meta]
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "script-src 'unsafe" not in policy and "http" not in policy
    for name, attributes in page.elements:
        assert name not in ("link", "img", "iframe", "object", "embed", "base", "video", "audio")
        assert not {"src", "srcset", "style", "action"} & set(attributes)
        assert not any(key.startswith("on") for key in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style
    # The browser runs what has one of these digests: the script of the page, and plotly's.
    runs = [script for attributes, script in page.scripts if "type" not in attributes]
    (plotly,) = [unpack(script) for attributes, script in page.scripts if attributes.get("id") == "plotly"]
    assert len(runs) == 1
    digests = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in (runs[0], plotly)]
    assert re.findall("sha256-([^']+)", policy) == digests


def test_the_page_can_be_read_without_eyes_or_mouse(made: Any) -> None:
    page = Page(made("-k", "not zzz").read_text())
    names = [name for name, _ in page.elements]
    assert names.count("h1") == 1 and all(names.count(mark) == 1 for mark in ("header", "nav", "main", "footer"))
    levels = [int(name[1]) for name in names if re.fullmatch("h[1-6]", name)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    known = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert len(known) == sum("id" in attributes for _, attributes in page.elements)
    for _, attributes in page.elements:
        for key in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(key, next(iter(known))) in known
        assert (attributes.get("href") or "#tests")[1:] in known
    plots = [attributes for attributes in page.having("div") if attributes.get("role") == "img"]
    tables = [attributes for attributes in page.having("details") if attributes.get("class") == "values"]
    assert len(plots) == len(tables) == len(page.drawn)
    assert all(plot["aria-label"] and plot["aria-describedby"] for plot in plots)


def test_comparisons_stand_in_the_json_report_too_without_what_is_drawn(made: Any) -> None:
    path = made("--jaxtap-json=out.json")
    content = json.loads((path.parents[1] / "out.json").read_text())
    jsonschema.validate(content, json.loads(SCHEMA.read_text()))
    tests = {test["nodeid"].partition("::")[2]: test for test in content["tests"]}
    (matched,), (different,) = (tests[name]["comparisons"] for name in ("test_good", "test_regression"))
    assert (matched["outcome"], matched["compared"], matched["differences"]) == ("matched", 1, [])
    assert different["outcome"] == "different" and different["name"] == "test_regression[curves]"
    assert [found["leaf"] for found in different["differences"]] == ["drift", "hole", "one"]
    assert not {"page", "curves"} & {key for test in content["tests"] for key in test}


def test_a_worker_that_crashes_loses_its_own_test_alone(pytester: pytest.Pytester) -> None:
    lay(pytester, "def test_bad():\n    descend(1.0)\ndef test_crash():\n    import os\n    os._exit(1)\n")
    run(pytester, "--jaxtap-nan", "--jaxtap-html=page.html", "-n1")
    page = Page((pytester.path / "page.html").read_text())
    assert [article["data-outcome"] for article in page.having("article")] == ["crashed", "failed"]
    assert "born: sqrt at model.py" in page.text and "crashed while running" in page.text
    assert not page.drawn


def test_nothing_seen_is_said(pytester: pytest.Pytester) -> None:
    lay(pytester, "def test_one():\n    pass\n", ini="jaxtap_html = page.html")
    run(pytester).assert_outcomes(passed=1)
    page = Page((pytester.path / "page.html").read_text())
    assert "No test failed." in page.text and "No program was observed." in page.text


def test_without_plotly_the_option_says_what_to_install(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    lay(pytester, "def test_one():\n    pass\n")
    result = run(pytester, "--jaxtap-html=page.html")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--jaxtap-html*pip install 'pytest-jaxtap[[]html]'*"])


@pytest.mark.skipif(browser.PROGRAM is None, reason="Chromium is not installed")
def test_in_a_browser(made: Any, tmp_path: Path) -> None:
    path = made()
    with browser.Browser(tmp_path) as chromium:
        colors = set()
        for dark in (False, True):
            chromium.open(path, dark=dark)
            colors.add(chromium.run("getComputedStyle(document.body).backgroundColor"))
            # The first plot of the regression comes into view, is drawn, and says where the sides part.
            chromium.run("document.querySelector('figure.plot').scrollIntoView()")
            chromium.until("document.querySelector('figure.plot[data-drawn]')")
            drawn = chromium.run("document.querySelector('figure.plot').textContent")
            assert "first difference: element 1234" in drawn
        assert len(colors) == 2
        assert chromium.run("document.title").startswith("jaxtap: 7 tests observed, 3 failed")
        assert chromium.run("document.querySelectorAll('figure.plot[data-drawn]').length") < 6

        # The table of its values is opened with the keyboard alone.
        chromium.run("document.querySelector('.values summary').focus()")
        assert chromium.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        chromium.press("Enter", 13, "\r")
        chromium.until("document.querySelector('.values table')")
        rows = "document.querySelector('.values table').tBodies[0].rows"
        assert chromium.run(f"[...{rows}].some(row => row.textContent.startsWith('1234 (first difference)'))")

        chromium.run("document.querySelector('#filter input[value=passed]').click()")
        assert chromium.run("document.querySelector('[role=status]').textContent") == "3 of 7 tests shown"
        shown = chromium.run(
            "[...document.querySelectorAll('article')].filter(t => !t.hidden).map(t => t.dataset.outcome)"
        )
        assert shown == ["failed"] * 3
        assert chromium.said == []
        # plotly 6 tries whether the browser knows webp with a picture that stands in its own text
        assert {address for address in chromium.asked if not address.startswith("data:")} == {path.as_uri()}
