"""The marker: checked at collection, closest wins, before the command line and the ini file."""

from __future__ import annotations

import pytest
from inner import HEADLINE, lay, outcomes, run

WRONG = {
    "watch_nann=True": "@pytest.mark.tap has no argument 'watch_nann'; did you mean 'watch_nan'*",
    "watch_nan='sqroot'": "@pytest.mark.tap: watch_nan: *; did you mean 'sqrt'*",
    "watch_nan=3": "@pytest.mark.tap: watch_nan: *not 3*",
    "watch_inf=1": "@pytest.mark.tap: watch_inf must be True or False, not 1",
    "bitwise='yes'": "@pytest.mark.tap: bitwise must be True or False, not 'yes'",
    "max_trips='x'": "@pytest.mark.tap: max_trips must be a whole number*not 'x'",
    "expect_alert=3": "@pytest.mark.tap: expect_alert must be a regular expression, not 3",
    "expect_alert='('": "@pytest.mark.tap: expect_alert='(' is no regular expression*",
    "sample_every=0": "@pytest.mark.tap: sample_every must be a whole number*",
    "on_step=3": "@pytest.mark.tap: on_step must be a function, not 3",
    "'sqrt'": "@pytest.mark.tap takes keyword arguments*not 'sqrt'",
    "watch_nan=True, gate='born'": "@pytest.mark.tap: watch_nan and gate mean the same*",
    "watch_nan=True, allow_nan=True": "@pytest.mark.tap: allow_nan=True and a gate contradict*",
    "bitwise=True, identity='inline'": "@pytest.mark.tap: bitwise=True certifies*'inline'*",
    "watch_inf=True, inf=False": "@pytest.mark.tap: watch_inf and inf mean the same; give one of them",
    "watch_nan=['log', 3]": "@pytest.mark.tap: watch_nan: [[]'log', 3[]] is neither a level *('log', 3).",
    "ops=3": "@pytest.mark.tap: ops names the kinds of loop to observe, 'scan' and 'while' or one of them, not 3",
    "ops=()": "@pytest.mark.tap: ops names the kinds of loop *not ()",
    "carry='x'": "@pytest.mark.tap: carry must be True or False, *not 'x'",
    "sinks='run.jsonl'": "@pytest.mark.tap: sinks must be a tuple of sinks such as *, not 'run.jsonl'",
}


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "n2"])
def test_nonsense_is_a_usage_error_that_names_the_test(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    tests = "".join(
        f"@pytest.mark.tap({arguments})\ndef test_{number}(): raise SystemExit\n"
        for number, arguments in enumerate(WRONG)
    )
    lay(pytester, f"{tests}def test_sound(): raise SystemExit\n")
    result = run(pytester, *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    for number, message in enumerate(WRONG.values()):
        result.stderr.fnmatch_lines([f"ERROR: test_inner.py::test_{number}: {message}"])
    assert "test_sound" not in result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_what_the_marker_asks(pytester: pytest.Pytester) -> None:
    lay(
        pytester,
        """
tap_ = pytest.mark.tap
masked = jax.jit(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0))

@tap_(watch_nan=True)
def test_escape(): descend(1.0)

@tap_(watch_nan="outputs")
def test_outputs(): descend(1.0)

@pytest.mark.jaxtap(watch_nan="sqrt")
def test_primitive(): masked(jnp.float32(-1))

@tap_(watch_nan=("log", "sqrt"))
def test_primitives(): masked(jnp.float32(-1))

@tap_(watch_nan=True)
def test_masked(): masked(jnp.float32(-1))

@tap_(watch_inf=True)
def test_inf(): overflow(1e3)

@tap_(watch_nan=True)
def test_no_inf(): overflow(1e3)

@tap_(watch_nan="log")
@tap_(watch_nan="sqrt")  # the closer one
def test_closest(): masked(jnp.float32(-1))

@tap_(watch_nan="sqrt")
class TestClass:
    def test_inherited(self): masked(jnp.float32(-1))

    @tap_(max_trips=5)  # says nothing about NaN: what the class says still counts
    def test_added(self): masked(jnp.float32(-1))

    @tap_(allow_nan=True)
    def test_replaced(self): masked(jnp.float32(-1))

@tap_(alert=lambda event: "above 100" if event.value["level"] > 100 else None)
def test_alert(): descend(1e6)

@tap_(taps=(tap.watch_nan("sqrt"),))
def test_tap(): masked(jnp.float32(-1))

@tap_(watch_nan=True, fail_fast=True)
def test_fail_fast():
    descend(1.0)
    raise SystemExit

@tap_(max_trips=3)
def test_budget():
    jax.jit(lambda x: jax.lax.while_loop(lambda c: c > 0, lambda c: c + 1, x))(1)

@tap_
def test_recorded(): descend(1e6)
""",
    )
    result = run(pytester, "-v")
    assert outcomes(result) == {
        "test_escape": "failed",
        "test_outputs": "failed",
        "test_primitive": "failed",
        "test_primitives": "failed",
        "test_masked": "passed",
        "test_inf": "failed",
        "test_no_inf": "passed",
        "test_closest": "failed",
        "TestClass::test_inherited": "failed",
        "TestClass::test_added": "failed",
        "TestClass::test_replaced": "passed",
        "test_alert": "failed",
        "test_tap": "failed",
        "test_fail_fast": "failed",
        "test_budget": "failed",
        "test_recorded": "passed",
    }
    text = result.stdout.str()
    result.stdout.fnmatch_lines(["*_ test_alert _*", "jaxtap: alert at scan[[]0] 0/4: above 100 (model.py:*)"])
    result.stdout.fnmatch_lines(["*_ test_fail_fast _*", HEADLINE])
    assert "while[0] did not end within 3 trips" in text


EXPECTATIONS = """
expects = lambda regex, **more: pytest.mark.tap(expect_alert=regex, **more)

@expects("born: sqrt")
def test_met(): descend(1.0)

@expects("born: log")
def test_other(): descend(1.0)

@expects("NaN")
def test_nothing(): descend(1e6)

@expects("above", alert=lambda event: "above 100" if event.value["level"] > 100 else None)
def test_alert(): descend(1e6)

@expects("NaN", fail_fast=True, watch_nan=True)
def test_stopped():
    descend(1.0)
    raise SystemExit

@expects("NaN")
def test_recorder(tap_recorder):
    with tap_recorder(gate="outputs"):
        descend(1.0)

@expects("NaN")
def test_own():
    descend(1.0)
    raise LookupError
"""


def test_an_expected_alert(pytester: pytest.Pytester) -> None:
    lay(pytester, EXPECTATIONS)
    result = run(pytester, "-v", "--jaxtap-nan")
    assert outcomes(result) == {
        "test_met": "passed",
        "test_other": "failed",
        "test_nothing": "failed",
        "test_alert": "passed",
        "test_stopped": "passed",
        "test_recorder": "passed",
        "test_own": "failed",
    }
    result.stdout.fnmatch_lines(["jaxtap: no alert or finding matches 'born: log'", "  NaN entered scan*"])
    result.stdout.fnmatch_lines(["jaxtap: no alert or finding matches 'NaN'", "  there was none at all"])


def test_marker_before_flag_before_ini(pytester: pytest.Pytester) -> None:
    lay(
        pytester,
        """
@pytest.mark.tap(allow_nan=True)
def test_allowed(): descend(1.0)

@pytest.mark.tap(watch_nan=False)
def test_unwatched(): descend(1.0)

@pytest.mark.tap(watch_nan="log")
def test_other_primitive(): descend(1.0)

@pytest.mark.tap(watch_inf=False)
def test_no_inf(): overflow(1e3)

@pytest.mark.tap(max_trips=20)
def test_budget(): jax.lax.while_loop(lambda c: c < 10, lambda c: c + 1, 0)

def test_flag_budget(): jax.lax.while_loop(lambda c: c < 10, lambda c: c + 1, 0)

@pytest.mark.tap(watch_nan=True)
def test_quiet_in_ini(): descend(1.0)
""",
        "jaxtap_nan_level = log\njaxtap_max_trips = 100\njaxtap_allow_nan = test_inner.py::test_quiet_in_ini",
    )
    result = run(pytester, "-v", "--jaxtap-nan-level=escape", "--jaxtap-inf", "--jaxtap-max-trips=5")
    assert outcomes(result) == {
        "test_allowed": "passed",
        "test_unwatched": "passed",
        "test_other_primitive": "passed",
        "test_no_inf": "passed",
        "test_budget": "passed",
        "test_flag_budget": "failed",
        "test_quiet_in_ini": "failed",
    }


def test_the_marker_is_registered(pytester: pytest.Pytester) -> None:
    lay(pytester, "@pytest.mark.tap(watch_nan=True)\ndef test_it(): descend(1e6)\n")
    run(pytester, "--strict-markers").assert_outcomes(passed=1)
    text = run(pytester, "--markers").stdout.str()
    assert "@pytest.mark.tap(watch_nan=, " in text
    assert "@pytest.mark.jaxtap(watch_nan=, " in text


def test_a_marker_added_late_counts(pytester: pytest.Pytester) -> None:
    lay(
        pytester,
        """
@pytest.fixture(autouse=True)
def strict(request):
    request.node.add_marker(pytest.mark.tap(watch_nan=True))

def test_it(): descend(1.0)
""",
    )
    run(pytester).assert_outcomes(failed=1)


CLASS = """
@pytest.mark.tap(watch_nan="log", max_trips=3)
class TestK:
    @pytest.mark.tap(max_trips=30)
    def test_both(self):
        jax.lax.while_loop(lambda c: c < 10, lambda c: c + 1, 0)
        jax.jit(jnp.log)(-1.0)

    @pytest.mark.tap(watch_nan=False)
    def test_off(self):
        jax.jit(jnp.log)(-1.0)
"""


def test_of_each_argument_the_closest_marker_counts(pytester: pytest.Pytester) -> None:
    lay(pytester, CLASS)
    result = run(pytester, "-v")
    assert outcomes(result) == {"TestK::test_both": "failed", "TestK::test_off": "passed"}
    result.stdout.fnmatch_lines(["jaxtap: NaN born in log*"])
