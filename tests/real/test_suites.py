"""A slice of optax's own test suite has the same outcomes with the plugin idle and under the gate as without it.

The slice is small, and one of its tests fails without us on some machines (it compares float32 to seven places). Whole
suites take long: run ``suites.py`` beside this file.
"""

from __future__ import annotations

from importlib import metadata

import pytest
from suites import Result, Unavailable, differences, fetch, read_outcomes, run

SLICE = ("optax/transforms/_clipping_test.py", "optax/losses/_smoothing_test.py")


@pytest.fixture(scope="module")
def optax(tmp_path_factory):
    try:
        return fetch(f"optax=={metadata.version('optax')}", tmp_path_factory.mktemp("optax"))
    except Unavailable as error:
        pytest.skip(f"{error}. With a package index within pip's reach (see `pip config list`) this test runs")


@pytest.fixture(scope="module")
def plain(optax) -> Result:
    result = run(optax, SLICE, "plain")
    assert len(result.outcomes) > 8, result.output
    return result


@pytest.mark.parametrize("way", ["idle", "nan"])
def test_outcomes_are_the_plain_ones(optax, plain, way):
    assert differences(plain, run(optax, SLICE, way)) == []


def test_every_change_of_an_outcome_is_told(tmp_path):
    before, after = tmp_path / "before.xml", tmp_path / "after.xml"
    before.write_text(junit(x="", y="<skipped/>"))
    after.write_text(junit(x='<failure message="born: log"/>'))
    results = [Result(read_outcomes(path), 1.0, 1.0, 0, "") for path in (before, after)]
    assert differences(*results) == ["a::x: passed -> failed\n    born: log", "a::y: skipped -> missing"]


def junit(**cases: str) -> str:
    inner = "".join(f'<testcase classname="a" name="{name}">{told}</testcase>' for name, told in cases.items())
    return f"<testsuite>{inner}</testsuite>"
