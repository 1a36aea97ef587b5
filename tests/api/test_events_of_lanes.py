"""As many events as bodies were executed, in every entry form: ``vmap``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counted import check_in_every_entry_form, collatz, collatz_loop, into, nest
from jax import lax
from lenses import ENTRIES, ragged, seen, steps

CASES = {}
case = into(CASES)


@case({"scan[0]": steps(5)})
def batched_scan():
    return jax.jit(jax.vmap(lambda c: nest((5,), c))), (jnp.arange(3.0),)


LANES = (6, 1, 7, 2)


@case({"while[0]": steps(max(map(collatz, LANES)))})
def batched_while():
    return jax.jit(jax.vmap(collatz_loop)), (jnp.array(LANES),)


@case({"while[0]": steps(max(map(collatz, LANES)))})
def batched_while_not_jitted():
    return jax.vmap(collatz_loop), (jnp.array(LANES),)


@case({"while[0]": steps(5)})
def batched_fori_loop_with_bounds_a_lane():
    return jax.jit(jax.vmap(lambda n: lax.fori_loop(0, n, lambda i, x: x + i, 0))), (jnp.array([3, 5, 0]),)


@case({"while[0]": steps(4)})
def batched_while_with_one_predicate():
    f = lambda x: lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] * 2), (0, x))
    return jax.jit(jax.vmap(f)), (jnp.arange(3.0),)


@case({"scan[0]": steps(3), "scan[0]/while[0]": ragged([collatz(6), collatz(7), collatz(3)])})
def batched_while_in_scan():
    # each step the slower of two lanes decides
    f = lambda ns: lax.scan(lambda c, n: (c + collatz_loop(n), None), 0, ns)[0]
    return jax.jit(jax.vmap(f)), (jnp.array([[6, 2, 3], [1, 7, 1]]),)


@pytest.mark.parametrize("name", CASES)
def test_events_are_body_executions_in_every_entry_form(name):
    check_in_every_entry_form(*CASES[name])


def test_per_lane_while_tells_which_lanes_ran():
    trips = [collatz(n) for n in LANES]
    f = jax.jit(jax.vmap(collatz_loop))
    for entry in ENTRIES:
        _, events = seen(entry, f, jnp.array(LANES), select="s")
        active = np.array([e.active for e in events])
        assert active.dtype == bool
        assert active.sum(0).tolist() == trips
        for lane, (n, count) in enumerate(zip(LANES, trips, strict=True)):
            assert active[:, lane].tolist() == [True] * count + [False] * (len(events) - count)
            for event in events[:count]:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                assert event.value[lane] == n
            assert n == 1


def test_per_lane_loops_in_one_another_tell_which_lanes_ran():
    def f(n):
        def outer(s):
            i, x = s
            x = lax.while_loop(lambda t: t[0] < i, lambda t: (t[0] + 1, t[1] + 1), (0, x))[1]
            return i + 1, x

        return lax.while_loop(lambda s: s[0] < n, outer, (0, 0))[1]

    counts = np.array([3, 0, 5])
    inner_trips = [list(range(n)) for n in counts]  # in outer step i the inner loop runs i times
    for entry in ENTRIES:
        result, events = seen(entry, jax.jit(jax.vmap(f)), jnp.array(counts), select=lambda leaves: leaves[-1])
        assert result.tolist() == [sum(trips) for trips in inner_trips]
        outer = [e for e in events if e.path == "while[0]"]
        inner = [e for e in events if e.path == "while[0]/while[0]"]
        assert np.sum([e.active for e in outer], axis=0).tolist() == counts.tolist()
        assert np.sum([e.active for e in inner], axis=0).tolist() == [sum(trips) for trips in inner_trips]
        assert all(e.active.any() for e in events)
