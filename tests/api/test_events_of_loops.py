"""As many events as bodies were executed, in every entry form: loops, however they were reached."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counted import check_in_every_entry_form, collatz, collatz_loop, halve, into, nest
from jax import lax
from jax.lax import fori_loop, scan, while_loop
from lenses import ENTRIES, ragged, seen, steps

CASES = {}
case = into(CASES)


@case({"scan[0]": steps(5)})
def scan_of_five():
    return jax.jit(lambda c, xs: lax.scan(halve, c, xs)), (1.0, jnp.arange(5.0))


@case({"scan[0]": steps(5)})
def scan_not_jitted():
    return lambda c, xs: lax.scan(halve, c, xs), (1.0, jnp.arange(5.0))


@case({"scan[0]": steps(4)})
def compiled_before_the_block():
    f = jax.jit(lambda c: lax.scan(halve, c, jnp.arange(4.0)))
    f(1.0), f(2.0)
    return f, (1.0,)


@case({"scan[0]": steps(3), "while[1]": steps(4), "scan[2]": steps(2)})
def names_bound_early():
    @jax.jit
    def f(c):
        c, _ = scan(halve, c, jnp.arange(3.0))
        c = while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] * 2), (0, c))[1]
        return fori_loop(0, 2, lambda i, s: s + i, c)

    return f, (1.0,)


@case({"scan[0]": steps(6)})
def fori_loop_with_static_bounds():
    return jax.jit(lambda c: lax.fori_loop(3, 9, lambda i, s: s + i, c)), (1.0,)


@case({"while[0]": steps(6)})
def fori_loop_with_dynamic_bounds():
    return jax.jit(lambda a, b: lax.fori_loop(a, b, lambda i, s: s + i, 1.0)), (3, 9)


@case({})
def fori_loop_with_crossed_bounds():
    return jax.jit(lambda a, b: lax.fori_loop(a, b, lambda i, s: s + i, 1.0)), (9, 3)


@case({"scan[0]": steps(7)})
def map_over_rows():
    return jax.jit(lambda xs: lax.map(lambda x: x * x, xs)), (jnp.arange(7.0),)


@case({"scan[0]": steps(2)})
def map_in_batches():
    return jax.jit(lambda xs: lax.map(lambda x: x * x, xs, batch_size=3)), (jnp.arange(7.0),)


@case({"while[0]": steps(collatz(27))})
def while_of_unknown_length():
    return jax.jit(collatz_loop), (27,)


@case({"while[0]": steps(collatz(27))})
def while_not_jitted():
    return collatz_loop, (27,)


@case({})
def while_that_never_starts():
    return jax.jit(collatz_loop), (1,)


@case({"while[0]": steps(1)})
def while_of_one_step():
    return jax.jit(collatz_loop), (2,)


@case({})
def scan_of_no_step():
    return jax.jit(lambda c, xs: lax.scan(halve, c, xs)), (1.0, jnp.zeros((0,)))


@case({"scan[0]": steps(1)})
def scan_of_one_step():
    return jax.jit(lambda c, xs: lax.scan(halve, c, xs)), (1.0, jnp.zeros((1,)))


@case({"scan[0]": steps(4)})
def scan_without_inputs():
    return jax.jit(lambda c: lax.scan(lambda c, x: (c + 1, x), c, None, length=4)), (1.0,)


@case({"scan[0]": steps(4)})
def scan_with_empty_carry():
    return jax.jit(lambda xs: lax.scan(lambda c, x: (None, x * 2), None, xs)), (jnp.arange(4.0),)


@case({"scan[0]": steps(4)})
def scan_that_carries_nothing_and_makes_nothing():
    return jax.jit(lambda x: (lax.scan(lambda c, _: ((), None), (), None, length=4), x)), (1.0,)


@case({"scan[0]": steps(5)})
def scan_in_reverse():
    return jax.jit(lambda c, xs: lax.scan(halve, c, xs, reverse=True)), (1.0, jnp.arange(5.0))


@case({"scan[0]": steps(7)})
def scan_unrolled_unevenly():
    return jax.jit(lambda c, xs: lax.scan(halve, c, xs, unroll=3)), (1.0, jnp.arange(7.0))


@case({"scan[0]": steps(4)})
def scan_unrolled_whole():
    return jax.jit(lambda c, xs: lax.scan(halve, c, xs, unroll=True)), (1.0, jnp.arange(4.0))


@case({"scan[0]": steps(5)})
def scan_unrolled_in_reverse():
    f = jax.jit(lambda c, xs: lax.scan(halve, c, xs, unroll=2, reverse=True))
    return f, (1.0, jnp.arange(5.0))


# -- nesting


@case({"/".join(["scan[0]"] * d): steps(*(2, 3, 1, 2, 2)[:d]) for d in range(1, 6)})
def scans_five_deep():
    return jax.jit(partial(nest, (2, 3, 1, 2, 2))), (1.0,)


@case({"scan[0]": steps(4), "scan[0]/while[0]": ragged([collatz(n) for n in (6, 1, 7, 2)])})
def while_in_scan():
    f = jax.jit(lambda ns: lax.scan(lambda c, n: (c + collatz_loop(n), n), 0, ns))
    return f, (jnp.array([6, 1, 7, 2]),)


@case(
    {
        "while[0]": steps(3),
        "while[0]/while[0]": ragged([1, 2, 3]),
        "while[0]/scan[1]": steps(3, 2),
        "scan[1]": steps(2),
    }
)
def loops_in_while():
    @jax.jit
    def f(n):
        def body(s):
            i, x = s
            x = lax.while_loop(lambda t: t[0] <= i, lambda t: (t[0] + 1, t[1] + 1), (0, x))[1]
            x = lax.fori_loop(0, 2, lambda _, y: y * 2, x)
            return i + 1, x

        x = lax.while_loop(lambda s: s[0] < n, body, (0, 1.0))[1]
        return lax.fori_loop(0, 2, lambda _, y: y + 1, x)

    return f, (3,)


@case(
    {
        "scan[0]": steps(6),
        "scan[0]/cond[0]/b1/scan[0]": [(i, j) for i in (1, 3, 5) for j in range(2)],
    }
)
def scan_in_one_branch():
    def body(c, i):
        double = lambda c: lax.fori_loop(0, 2, lambda _, x: x * 2, c)
        return lax.cond(i % 2 == 1, double, lambda c: c + 1, c), None

    return jax.jit(lambda c: lax.scan(body, c, jnp.arange(6))[0]), (1.0,)


@case(
    {
        "scan[0]": steps(5),
        "scan[0]/cond[0]/b0/scan[0]": [(i, 0) for i in (0, 3)],
        # 1, doubled; one step to 1,000,002; less three millions, doubled: five steps
        "scan[0]/cond[0]/b1/while[0]": ragged([0, 1, 0, 0, 5]),
        "scan[0]/cond[0]/b2/scan[0]": [(2, j) for j in range(3)],
    }
)
def loops_in_every_branch_of_a_switch():
    branches = [
        lambda c: lax.fori_loop(0, 1, lambda _, x: x * 2, c),
        lambda c: lax.while_loop(lambda x: x < 1e6, lambda x: x + 1e6, c),
        lambda c: lax.fori_loop(0, 3, lambda _, x: x - 1e6, c),
    ]
    f = jax.jit(lambda c: lax.scan(lambda c, i: (lax.switch(i % 3, branches, c), None), c, jnp.arange(5))[0])
    return f, (1.0,)


@case({"cond[0]/b1/scan[0]": steps(3)})
def branch_at_top_level():
    f = lambda p, x: lax.cond(p, lambda x: nest((3,), x), lambda x: nest((5,), x) - 1, x)
    return jax.jit(f), (True, 1.0)


@case({"cond[0]/b0/scan[0]": steps(5)})
def branch_not_jitted():
    f = lambda p, x: lax.cond(p, lambda x: nest((3,), x), lambda x: nest((5,), x) - 1, x)
    return f, (False, 1.0)


@pytest.mark.parametrize("name", CASES)
def test_events_are_body_executions_in_every_entry_form(name):
    check_in_every_entry_form(*CASES[name])


def test_values_are_those_of_every_step_in_every_entry_form():
    xs = np.arange(6, dtype=np.float32)
    f = jax.jit(lambda c, xs: lax.scan(halve, c, xs))
    c, expected = np.float32(1), []
    for x in xs:
        c = np.float32(c * np.float32(0.5) + x)
        expected.append(c)
    for entry in ENTRIES:
        _, events = seen(entry, f, np.float32(1), xs, select="c")
        assert [(e.step, e.total) for e in events] == [(i, 6) for i in range(6)]
        assert [e.value for e in events] == expected
        assert all(e.value.dtype == np.float32 for e in events)


def test_reverse_scan_counts_iterations_and_ends_at_the_first_row():
    xs = jnp.array([1.0, 2.0, 4.0])
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (c + x, c), 0.0, xs, reverse=True))
    for entry in ENTRIES:
        _, events = seen(entry, f, xs, select="c")
        assert [(e.steps, float(e.value)) for e in events] == [
            ((0,), 4.0),
            ((1,), 6.0),
            ((2,), 7.0),
        ]
