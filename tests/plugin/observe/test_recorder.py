"""``tap_recorder``: called like ``tap.record``, seen in the report of a failing test, gated like it."""

from __future__ import annotations

import pytest
from inner import HEADLINE, lay, outcomes, run

TESTS = """
def test_events(tap_recorder):
    with tap_recorder(select="level") as rec:
        descend(1e6)
    assert [event.step for event in rec.events] == [0, 1, 2, 3]

def test_callable(tap_recorder):
    observed, rec = tap_recorder(descend, select="level", sample_every=2)
    assert float(observed(1e6)) == float(descend(1e6))
    assert [event.step for event in rec.events] == [0, 2]

def test_attached(tap_recorder):
    with tap_recorder(select="level") as rec:
        descend(1e6)
    assert False

def test_carry_is_kept(tap_recorder):
    with tap_recorder() as rec:
        descend(1e6)
    assert len(rec.events) == 4

def test_gate_is_inherited(tap_recorder):
    with tap_recorder(select="level") as rec:
        descend(1.0)
    assert len(rec.events) == 4

def test_own_gate_is_the_tests_affair(tap_recorder):
    with tap_recorder(gate="escape") as rec:
        descend(1.0)
    assert rec.findings

@pytest.mark.tap(allow_nan=True)
def test_allowed(tap_recorder):
    with tap_recorder() as rec:
        descend(1.0)
    assert not rec.findings

def test_own_alerts_are_the_tests_affair(tap_recorder):
    with tap_recorder(alert=lambda event: True) as rec:
        descend(1e6)
    assert len(rec.alerts) == 4

def test_wrong_argument(tap_recorder):
    with pytest.raises(TypeError, match="no argument 'selekt'; did you mean 'select'"):
        tap_recorder(selekt="level")

@pytest.fixture(scope="module")
def trained(tap_recorder):
    with tap_recorder() as rec:
        descend(1e6)
    return rec

def test_in_a_fixture(trained):
    assert len(trained.events) == 4
"""


@pytest.mark.parametrize("gate", [False, True], ids=["plain", "gated"])
def test_recorder(pytester: pytest.Pytester, gate: bool) -> None:
    lay(pytester, TESTS)
    result = run(pytester, "-v", *["--jaxtap-nan"][: int(gate)])
    failed = {name for name, was in outcomes(result).items() if was != "passed"}
    assert failed == {"test_attached", *["test_gate_is_inherited"][: int(gate)]}
    result.stdout.fnmatch_lines(
        [
            "*_ test_attached _*",
            "*assert False",
            "*- jaxtap -*",
            "Recording: 4 events in 1 streams",
            "  descend, carry scan[[]0] 0/4: *999*",
            "    * 4 events * scan[[]0] 3/4: *",
        ]
    )
    if gate:
        result.stdout.fnmatch_lines(["*_ test_gate_is_inherited _*", HEADLINE])
