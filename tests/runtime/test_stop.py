"""Stopping early: trip budgets with the reason why a loop does not end, and the first alert that ends a program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap_core as tap


def counted(limit):
    return lambda x: lax.while_loop(lambda c: c < limit, lambda c: c + 1, x)


def test_a_loop_within_its_budget_is_left_alone():
    with tap.record(max_trips=10):
        assert counted(10.0)(0.0) == 10.0


def test_the_budget_is_the_number_of_trips_not_one_more():
    with pytest.raises(tap.LoopBudgetExceeded), tap.record(max_trips=9):
        counted(10.0)(0.0)


WHY = {
    "too long": (lambda c: c >= 0, lambda c: c + 1, 0.0, None, 20.0),
    # 10, 9, ..., 3, 2, 2, ...: step 8 is the first that changes nothing
    "unchanged": (lambda c: c > 0, lambda c: jnp.maximum(c - 1, 2.0), 10.0, 8, 2.0),
    # 10 -> -10 -> 10: the value after step 1 is the one before step 0
    "two-cycle": (lambda c: c != 0, lambda c: -c, 10.0, 1, 10.0),
}


@pytest.mark.parametrize("verdict", WHY)
@pytest.mark.parametrize("jitted", [False, True])
def test_the_error_says_why_the_loop_does_not_end(verdict, jitted):
    predicate, body, start, since, last = WHY[verdict]

    def program(x):
        return lax.while_loop(predicate, lambda c: body(c), x)

    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=20):
        (jax.jit(program) if jitted else program)(start)
    error = caught.value
    assert (error.path, error.steps, error.verdict, error.since, error.trips) == ("while[0]", (), verdict, since, 20)
    assert {name: float(value) for name, value in error.carry.items()} == {"c": last}
    assert "test_stop.py" in str(error)


def test_a_nan_that_keeps_the_predicate_constant_is_followed_to_its_origin():
    def program(x):
        return lax.while_loop(lambda c: ~(c > 10), lambda c: jnp.sqrt(c - 1.5), x)

    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=50):
        program(3.0)
    # sqrt(3 - 1.5) = 1.22; then sqrt(1.22 - 1.5) is not a number
    error = caught.value
    assert error.verdict == "nan"
    assert np.isnan(error.carry["c"])
    assert error.finding.event.step == 1
    assert error.finding.origin.primitive == "sqrt"


def test_a_nan_that_the_predicate_never_sees_is_not_to_blame():
    def program(x):
        return lax.while_loop(lambda c: c[0] >= 0, lambda c: (c[0] + 1, jnp.log(-1.0) + c[1]), (x, x))

    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=20):
        program(0.0)
    assert caught.value.verdict == "too long"


def test_under_vmap_the_lane_that_still_runs_is_named():
    program = jax.vmap(lambda x: lax.while_loop(lambda c: c < 5, lambda c: c * 2, x))
    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=30):
        program(jnp.array([1.0, 2.0, 0.0]))
    assert caught.value.lane == (2,)


def test_the_untaken_branch_that_vmap_made_a_select_is_stopped_too():
    def one(x):
        return lax.cond(x > 0, lambda x: lax.while_loop(lambda c: c < 10, lambda c: c + x, x), lambda x: x, x)

    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=100):
        jax.vmap(one)(jnp.array([1.0, -1.0]))  # lane 1 counts down for ever in a branch it never takes
    assert caught.value.lane == (1,)


def test_inside_a_scan_the_step_is_named_and_later_loops_do_not_run():
    @jax.jit
    def program(x):
        def step(c, t):
            return lax.while_loop(lambda d: d < t, lambda d: d + 1, c - jnp.where(t > 3, jnp.inf, 0.0)), None

        return lax.scan(step, x, jnp.arange(6.0))[0]

    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=50):
        program(0.0)
    assert (caught.value.path, caught.value.steps) == ("scan[0]/while[0]", (4,))


def test_the_next_program_runs_normally():
    with tap.record(max_trips=5):
        with pytest.raises(tap.LoopBudgetExceeded):
            counted(10.0)(0.0)
        assert counted(3.0)(0.0) == 3.0
    assert counted(10.0)(0.0) == 10.0


def test_fail_fast_stops_at_the_first_nan_of_the_gate():
    @jax.jit
    def program(x):
        return lax.while_loop(lambda c: c[0] < 10**6, lambda c: (c[0] + 1, jnp.log(c[1])), (0, x))

    # log(2) = 0.69, log(0.69) = -0.37, log(-0.37) is not a number: step 2
    with pytest.raises(tap.TapAlert) as caught, tap.record(gate="escape", fail_fast=True) as rec:
        program(2.0)
    assert caught.value.finding is rec.findings[0]
    assert rec.findings[0].event.step == 2


def test_fail_fast_skips_the_steps_of_a_scan_that_are_left():
    @jax.jit
    def program(x):
        return lax.scan(lambda c, t: (jnp.log(c), c), x, None, length=50)

    seen = []
    with pytest.raises(tap.TapAlert), tap.record(gate="escape", fail_fast=True, on_step=seen.append):
        program(2.0)
    assert [event.step for event in seen] == [0, 1, 2]


def test_fail_fast_asks_a_predicate_on_the_host(capsys):
    seen = []
    program = jax.jit(lambda x: lax.while_loop(lambda c: c < 1e6, lambda c: c + 1, x))
    with (
        pytest.raises(tap.TapAlert, match="too big") as caught,
        tap.record(alert=lambda e: e.value["c"] > 5 and "too big", on_step=seen.append, fail_fast=True),
    ):
        program(0.0)
    assert [float(event.value["c"]) for event in seen] == [1, 2, 3, 4, 5, 6]
    assert caught.value.alert.event.step == 5
    assert "[tap] FAIL while[0] 5: too big (test_stop.py:" in capsys.readouterr().err


def test_fail_fast_stops_at_a_watched_primitive():
    program = jax.jit(lambda x: lax.while_loop(lambda c: c < 1e6, lambda c: c + 1 + 0 * jnp.log(5 - c), x))
    with pytest.raises(tap.TapAlert) as caught, tap.record(taps=tap.watch_nan("log"), fail_fast=True):
        program(0.0)
    assert (caught.value.alert.event.path, caught.value.alert.event.step) == ("while[0]/log[0]", 5)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "10"])
def test_a_budget_that_is_no_number_of_trips_is_refused(wrong):
    with pytest.raises(ValueError, match="max_trips must be a whole number"):
        tap.record(max_trips=wrong)


def test_a_lane_is_told_since_when_it_did_not_change_itself():
    halve = jax.jit(jax.vmap(lambda a: lax.while_loop(lambda s: s > 0.1, lambda s: s * a, 1.0)))
    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=20):
        halve(jnp.array([0.5, 1.0, 0.25]))  # lane 1 stays 1.0 from the first step on, lane 0 needs four
    error = caught.value
    assert (error.lane, error.verdict, error.since) == ((1,), "unchanged", 0)
    assert error.carry == {"s": 1.0}


def test_the_counter_of_a_fori_loop_is_no_leaf_of_the_last_carry():
    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=5):
        jax.jit(lambda n, c: lax.fori_loop(0, n, lambda i, c: c + 1, c))(10, 0.0)
    assert caught.value.carry == {"c": 5.0}


def test_a_longer_cycle_is_not_called_progress():
    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=20):
        jax.jit(lambda c: lax.while_loop(lambda c: c < 5, lambda c: (c + 1) % 3, c))(0)
    assert caught.value.verdict == "too long"
    assert "it was still changing" in str(caught.value)
