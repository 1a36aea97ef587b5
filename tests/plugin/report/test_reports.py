"""Reports: JSON against its schema, merged over workers that may crash; JSON Lines, JUnit, GitHub."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from inner import BAD_STEP, SQRT_LINE, lay, run

import jaxtap_core as tap
import pytest_jaxtap.report
from pytest_jaxtap.report.formats.jsonl import file_name

SCHEMA = Path(pytest_jaxtap.report.__file__).with_name("findings.schema.json")

TESTS = """
def test_bad():
    descend(1.0)

@pytest.mark.xfail
def test_xfail():
    descend(1.0)

def test_good():
    descend(1e6)

def test_plain():
    pass

@pytest.mark.tap(alert=lambda event: "high" if event.step == 1 else None, watch_nan=False)
def test_alert():
    descend(1e6)

@pytest.mark.tap(allow_nan=True)
def test_recorded(tap_recorder):
    with tap_recorder(select="level", identity="certified"):
        descend(1.0)

@pytest.mark.tap(allow_nan=True)
def test_large(tap_recorder):
    with tap_recorder(alert=lambda event: True, alert_once=True, select=lambda leaves: jnp.full(5000, leaves[0])):
        descend(1.0)

@pytest.mark.tap(max_trips=50)
def test_budget():
    jax.lax.while_loop(lambda c: c > 0, lambda c: c + 1, jnp.int32(1))
"""
OPTIONS = ("--jaxtap-nan", "--jaxtap-json=out/findings.json")


def document(pytester: pytest.Pytester) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON report, found sound by its schema, and its tests by name."""
    content = json.loads((pytester.path / "out" / "findings.json").read_text())
    jsonschema.validate(content, json.loads(SCHEMA.read_text()))
    return content, {test["nodeid"].partition("::")[2]: test for test in content["tests"]}


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "n2"])
def test_json(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    lay(pytester, TESTS)
    run(pytester, *OPTIONS, *workers).assert_outcomes(failed=3, passed=4, xfailed=1)
    content, tests = document(pytester)
    assert {name: test["outcome"] for name, test in tests.items()} == {
        "test_bad": "failed",
        "test_xfail": "xfailed",
        "test_alert": "failed",
        "test_recorded": "passed",
        "test_large": "passed",
        "test_budget": "failed",
    }
    assert content["summary"] == {"observed": 8, "failed": 3, "findings": 2, "alerts": 2}
    assert content["environment"]["backend"] == "cpu"

    bad = tests["test_bad"]
    assert bad["failure"][0].startswith("jaxtap: NaN entered scan[0] at step 2 of 4")
    assert (bad["file"], bad["worker"] is None) == ("test_inner.py", not workers)
    finding = bad["findings"][0]
    assert finding["event"]["step"] == BAD_STEP
    assert finding["origin"]["source"] == f"model.py:{SQRT_LINE} (step)"
    assert finding["last_good"]["min"] == -1.0

    assert tests["test_alert"]["alerts"][0]["message"] == "high"
    assert tests["test_recorded"]["certificates"][0]["programs"][0]["verdict"] == "identical"
    assert tests["test_recorded"]["recordings"][0]["streams"] == [
        {"program": "descend", "call": 0, "path": "scan[0]", "kind": "carry", "leaves": ["level"], "events": 4}
    ]
    assert tests["test_large"]["alerts"][0]["event"]["value"].startswith("float32[5000] [")
    assert "did not end within 50 trips" in tests["test_budget"]["failure"][0]


def test_a_crashed_worker_loses_its_own_test_alone(pytester: pytest.Pytester) -> None:
    lay(pytester, f"{TESTS}\ndef test_crash():\n    import os\n    os._exit(1)\n")
    result = run(pytester, *OPTIONS, "-n1", "-k", "bad or crash or recorded")
    result.assert_outcomes(failed=2, passed=1)
    _, tests = document(pytester)
    assert {name: test["outcome"] for name, test in tests.items()} == {
        "test_bad": "failed",
        "test_recorded": "passed",
        "test_crash": "crashed",
    }
    assert "crashed while running" in tests["test_crash"]["errors"][0]


def test_nothing_is_printed_when_nothing_happened(pytester: pytest.Pytester) -> None:
    lay(pytester, "def test_good():\n    descend(1e6)\ndef test_plain():\n    pass\n")
    result = run(pytester, *OPTIONS, "--jaxtap-github")
    after = result.stdout.str().partition("collected")[2]
    assert "jaxtap" not in after
    assert "jaxtap" not in result.stderr.str()
    content, tests = document(pytester)
    assert not tests and content["summary"]["observed"] == 2


def test_a_report_that_cannot_be_written_harms_no_test(pytester: pytest.Pytester) -> None:
    file = "open('out', 'w').close()  # where the folder should be"
    lay(pytester, f"def test_good():\n    descend(1e6)\n    {file}\n")
    result = run(pytester, *OPTIONS)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*= jaxtap =*", "error: *out*"])


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "n2"])
def test_jsonl(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    lay(
        pytester,
        """
import numpy as np

def test_two(tap_recorder):
    with tap_recorder(select="level"):
        descend(1e6)
    with tap_recorder(select="level", sample_every=2):
        descend(1.0)

@pytest.mark.parametrize("x", ["a/b", "a b"])
def test_odd(tap_recorder, x):
    with tap_recorder(select="level"):
        descend(1e6)

@pytest.mark.tap
def test_marked():
    descend(1e6)

def test_nothing(tap_recorder):
    with tap_recorder(select="level"):
        pass
""",
    )
    run(pytester, "--jaxtap-jsonl=tele/metry", *workers).assert_outcomes(passed=5)
    folder = pytester.path / "tele" / "metry"
    names = {
        file_name(f"test_inner.py::{name}") + end
        for name, end in [
            ("test_two", ".jsonl"),
            ("test_two", ".2.jsonl"),
            ("test_odd[a/b]", ".jsonl"),
            ("test_odd[a b]", ".jsonl"),
            ("test_marked", ".jsonl"),
        ]
    }
    assert {path.name for path in folder.iterdir()} == names
    second = tap.read_jsonl(folder / (file_name("test_inner.py::test_two") + ".2.jsonl"))
    assert [event.step for event in second.events] == [0, 2]


def test_junit(pytester: pytest.Pytester) -> None:
    lay(pytester, TESTS)
    run(pytester, *OPTIONS, "--junitxml=unit.xml", "-o", "jaxtap_junit=true", "-k", "bad or alert")
    cases = {case.attrib["name"]: case for case in ET.parse(pytester.path / "unit.xml").iter("testcase")}
    failure = cases["test_bad"].find("failure")
    assert failure is not None
    assert failure.attrib["message"].startswith("jaxtap: NaN entered scan[0] at step 2 of 4")
    properties = [(p.attrib["name"], p.attrib["value"]) for case in cases.values() for p in case.iter("property")]
    names = [name for name, _ in properties]
    assert names == ["jaxtap_finding", "jaxtap_alert", "jaxtap_certificate"]
    assert properties[0][1].startswith("NaN entered scan[0]")
    assert [value for _, value in properties[1:]] == ["high", "identical"]


def test_junit_has_no_properties_unless_asked(pytester: pytest.Pytester) -> None:
    lay(pytester, TESTS)
    run(pytester, "--jaxtap-nan", "--junitxml=unit.xml", "-k", "bad")
    assert "jaxtap_finding" not in (pytester.path / "unit.xml").read_text()


def test_github(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = pytester.path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    lay(pytester, TESTS)
    result = run(pytester, "--jaxtap-nan", "-o", "jaxtap_github=true", "-k", "bad or xfail or alert")
    commands = [line for line in result.outlines if line.startswith("::error ")]
    assert len(commands) == 2  # what is expected to fail is no error
    assert commands[0].startswith(
        "::error file=test_inner.py,line=5,title=jaxtap%3A NaN entered scan[0] at step 2 of 4%2C carry"
    )
    assert "%0A  born: sqrt at" in commands[0]
    text = summary.read_text()
    assert text.startswith("before\n### jaxtap\n")
    assert "| `test_inner.py::test_bad` | NaN entered scan[0]" in text
    assert "test_xfail" not in text


@pytest.mark.parametrize(
    ("one", "other"),
    [("a/b.py::t", "a-b.py::t"), ("t[x/y]", "t[x y]"), ("t[" + "x" * 300 + "]", "t[" + "x" * 301 + "]")],
)
def test_file_names_are_legal_and_distinct(one: str, other: str) -> None:
    names = file_name(one), file_name(other)
    assert names[0] != names[1]
    for name in names:
        assert len(name) < 150
        assert not set(name) & set('/\\:*?"<>| []')
