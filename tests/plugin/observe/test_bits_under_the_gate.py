"""A test that compares bits gets production's under the gate; others are told that the last bits may differ."""

import json

import pytest
from inner import lay, run

TESTS = """
def test_snapshot(tap_snapshot):
    assert {"level": descend(100.0)} == tap_snapshot

def test_foreign(snapshot):  # of syrupy
    descend(100.0)

def test_plain():
    descend(100.0)

def test_by_hand():
    assert float(descend(100.0)) == 1.0
"""


def test_who_compares_bits_gets_productions(pytester: pytest.Pytester) -> None:
    lay(pytester, TESTS)
    run(pytester, "--snapshot-update", "-k", "test_snapshot").assert_outcomes(passed=1, deselected=3)
    result = run(pytester, "--jaxtap-nan", "--jaxtap-json=report.json")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*may not be production's*", "*bitwise=True*"])
    tests = json.loads((pytester.path / "report.json").read_text())["tests"]
    certified = {one["nodeid"].partition("::")[2] for one in tests if one["certificates"]}
    assert certified == {"test_snapshot", "test_foreign"}
    assert "may not be production's" not in run(pytester, "--jaxtap-nan-level=outputs").stdout.str()
