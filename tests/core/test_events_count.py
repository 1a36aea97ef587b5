"""As many events as bodies were executed, counted by other means, in every entry form and every kind of program."""

import functools
import math
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.lax import fori_loop, scan, while_loop
from lenses import ENTRIES, assert_same_bits, places, ragged, seen, steps

import jaxtap_core as tap

CASES = {}


def case(expected):
    """Register a program: the decorated function makes ``(f, args)``; ``expected`` maps paths to step vectors."""

    def register(make):
        CASES[make.__name__] = (make, expected)
        return make

    return register


def collatz(n):
    """Number of steps from ``n`` to 1, in plain Python."""
    count = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    return count


def collatz_loop(n):
    return lax.while_loop(lambda s: s != 1, lambda s: jnp.where(s % 2 == 0, s // 2, 3 * s + 1), n)


def halve(c, x):
    return c * 0.5 + x, c - x


# -- plain loops, however they were reached


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


def nest(lengths, c):
    if not lengths:
        return c * 0.5 + 1
    n, *rest = lengths
    return lax.scan(lambda c, _: (nest(rest, c), None), c, None, length=n)[0]


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


# -- calls that are looked through


@case({"scan[0]": steps(3), "scan[0]/scan[0]": steps(3, 2)})
def inside_checkpoint():
    f = jax.checkpoint(lambda x: lax.scan(lambda c, _: (jax.checkpoint(partial(nest, (2,)))(c), None), x, None, 3)[0])
    return jax.jit(f), (1.0,)


@jax.custom_jvp
def steep(x):
    return nest((3,), x)


@steep.defjvp
def _(primals, tangents):
    return steep(*primals), tangents[0] * 2


@jax.custom_vjp
def bent(x):
    return nest((4,), x)


bent.defvjp(lambda x: (nest((2,), x), x), lambda x, g: (nest((5,), g),))


@case({"scan[0]": steps(3), "scan[1]": steps(4)})
def inside_custom_rules():
    return jax.jit(lambda x: steep(x) + bent(x)), (1.0,)


@case({"scan[0]": steps(3)})
def custom_jvp_not_jitted():
    return steep, (1.0,)


@case({"scan[0]": steps(2), "scan[1]": steps(5)})
def custom_vjp_differentiated():
    return jax.jit(jax.grad(bent)), (1.0,)


@case({"scan[0]": steps(2), "scan[0]@": steps(5)})
def custom_vjp_differentiated_not_jitted():
    return jax.grad(bent), (1.0,)


@case({"scan[0]": steps(6)})
def inside_custom_linear_solve():
    # x = b - (A - 1) x, six times from 0
    def f(b):
        a = jnp.array([[1.0, 0.1], [0.2, 1.0]])
        matvec = lambda x: a @ x
        solve = lambda mv, b: lax.fori_loop(0, 6, lambda _, x: x + b - mv(x), jnp.zeros_like(b))
        return lax.custom_linear_solve(matvec, b, solve, transpose_solve=solve)

    return jax.jit(f), (jnp.array([1.0, 2.0]),)


@case({"scan[0]": steps(7)})
def inside_custom_root():
    def newton(f, x):
        return lax.fori_loop(0, 7, lambda _, x: x - f(x) / jax.grad(f)(x), x)

    f = lambda y: lax.custom_root(lambda x: x * x - y, 1.0, newton, lambda g, y: y / g(1.0))
    return jax.jit(f), (2.0,)


@case({"scan[0]": steps(3), "scan[0]/scan[0]": steps(3, 2)})
def inner_jit_with_static_and_donated_arguments():
    inner = jax.jit(lambda n, x: nest((n,), x), static_argnums=0, donate_argnums=1)
    return jax.jit(lambda x: lax.scan(lambda c, _: (inner(2, c) + 1, None), x, None, 3)[0]), (1.0,)


@case({"scan[0]": steps(2), "scan[1]": steps(2)})
def same_inner_jit_called_twice():
    inner = jax.jit(partial(nest, (2,)))
    return jax.jit(lambda x: inner(inner(x))), (1.0,)


# -- differentiation


def loss(x):
    return lax.scan(lambda c, _: (jnp.sin(c) * x, None), x, None, length=4)[0]


@case({"scan[0]": steps(4), "scan[1]": steps(4)})
def gradient_jitted():
    return jax.jit(jax.grad(loss)), (1.1,)


@case({"scan[0]": steps(4), "scan[0]@": steps(4)})
def gradient_in_the_block():
    return lambda x: jax.grad(loss)(x), (1.1,)


@case({"scan[0]": steps(4), "scan[0]@": steps(4)})
def gradient_of_a_jitted_function_in_the_block():
    return lambda x: jax.grad(jax.jit(loss))(x), (1.1,)


@case({"scan[0]": steps(4), "scan[1]": steps(4)})
def gradient_through_a_checkpointed_body():
    f = lambda x: lax.scan(jax.checkpoint(lambda c, _: (jnp.sin(c) * x, None)), x, None, length=4)[0]
    return jax.jit(jax.grad(f)), (1.1,)


@case({"scan[0]": steps(4), "scan[1]": steps(4), "scan[2]": steps(4)})
def gradient_through_a_checkpointed_loop():
    # forward; then recomputed; then backward
    return jax.jit(jax.grad(lambda x: jnp.sin(jax.checkpoint(loss)(x)))), (1.1,)


@case({"scan[0]": steps(4)})
def forward_mode():
    return jax.jit(lambda x: jax.jvp(loss, (x,), (1.0,))), (1.1,)


@case(
    {
        "scan[0]": steps(3),
        "scan[0]/scan[0]": steps(3, 2),
        "scan[1]": steps(3),
        "scan[1]/scan[0]": steps(3, 2),
    }
)
def gradient_of_nested_scans():
    f = lambda x: lax.scan(lambda c, _: (lax.scan(lambda d, _: (jnp.sin(d), None), c, None, 2)[0], None), x, None, 3)[0]
    return jax.jit(jax.grad(f)), (1.1,)


# -- vmap


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


# -- mutable state, callbacks, flags


@case({"scan[0]": steps(4)})
def scan_that_changes_a_reference():
    def f(x):
        ref = jax.new_ref(x)

        def body(c, i):
            ref[...] = ref[...] + c
            return c * 2, ref[...]

        out = lax.scan(body, 1.0, jnp.arange(4))
        return out, ref[...]

    return jax.jit(f), (1.0,)


@case({"scan[0]": steps(3)})
def with_a_debug_callback():
    def body(c, _):
        jax.debug.callback(lambda c: None, c)
        return c + 1, None

    return jax.jit(lambda c: lax.scan(body, c, None, length=3)), (1.0,)


@case({"scan[0]": steps(3)})
def with_a_pure_callback():
    def body(c, _):
        c = jax.pure_callback(lambda c: np.float32(c + 1), jax.ShapeDtypeStruct((), jnp.float32), c)
        return c, None

    return jax.jit(lambda c: lax.scan(body, c, None, length=3)), (jnp.float32(1),)


@case({"scan[0]": steps(3)})
def with_an_io_callback():
    from jax.experimental import io_callback

    def body(c, _):
        c = io_callback(lambda c: np.float32(c + 1), jax.ShapeDtypeStruct((), jnp.float32), c, ordered=True)
        return c, None

    return jax.jit(lambda c: lax.scan(body, c, None, length=3)), (jnp.float32(1),)


@case({"scan[0]": steps(3)})
def keyword_and_static_arguments():
    @partial(jax.jit, static_argnames=("n", "how"))
    def f(x, *, n, how="plain"):
        assert how == "odd"
        return nest((n,), x)

    return partial(f, n=3, how="odd"), (1.0,)


@case({"scan[0]": steps(2), "scan[0]@": steps(3)})
def a_function_that_reads_values():
    def f(x):
        y = nest((2,), x)
        return nest((3,), x) if float(y) > 0 and bool(y > 0) and int(y) >= 0 else y

    return f, (1.0,)


@case({"scan[0]": steps(2)})
def python_flags():
    return jax.jit(lambda x, flag, name: nest((2,), x) if flag and name == "a" else x, static_argnums=(1, 2)), (
        1.0,
        True,
        "a",
    )


def programs_apart(events):
    """Like `places`, with a ``@`` for each program that had used the path before."""
    marks, found = {}, {}
    for event in events:
        programs = marks.setdefault(event.path, [])
        if (event.program, event.call) not in programs:
            programs.append((event.program, event.call))
        mark = "@" * programs.index((event.program, event.call))
        found.setdefault(event.path + mark, []).append(event.steps)
    return {path: sorted(at) for path, at in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_events_are_body_executions_in_every_entry_form(name):
    make, expected = CASES[name]
    f, args = make()
    plain = f(*args)
    for entry in ("block", "wrapped", "verbose"):  # tests below enter in every other form as well
        result, events = seen(entry, f, *args)
        got = programs_apart(events)
        assert {p.rstrip("@") + "@" * p.count("@"): s for p, s in got.items()} == got
        # which of two programs comes first is a matter of names; the numbers of steps are not
        by_path = lambda d: sorted((path.rstrip("@"), at) for path, at in d.items())
        assert by_path(got) == by_path(expected), entry
        assert_same_bits(result, plain)
        assert {e.kind for e in events} <= {"carry"}
        assert all((e.time is not None) == (entry == "verbose" or entry.endswith("live")) for e in events)


# -- values, against NumPy


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


def test_phases_of_a_gradient():
    f = jax.jit(jax.grad(lambda x: jnp.sin(jax.checkpoint(loss)(x))))
    for entry in ENTRIES:
        _, events = seen(entry, f, 1.1)
        phases = {path: {e.phase for e in events if e.path == path} for path in places(events)}
        assert phases == {"scan[0]": {"forward"}, "scan[1]": {"recompute"}, "scan[2]": {"backward"}}


def test_backward_pass_of_a_gradient_taken_in_the_block():
    for entry in ENTRIES:
        _, events = seen(entry, jax.grad(loss), 1.1)
        assert sorted((e.phase, e.steps) for e in events) == [
            (phase, (i,)) for phase in ("backward", "forward") for i in range(4)
        ]


def test_python_loop_over_a_jitted_step_counts_calls():
    step = jax.jit(partial(nest, (2,)))

    def f(x):
        for _ in range(5):
            x = step(x)
        return x

    for entry in ENTRIES:
        _, events = seen(entry, f, 1.0)
        assert sorted((e.call, e.steps) for e in events) == [(c, (i,)) for c in range(5) for i in range(2)]


def test_calls_are_counted_over_the_whole_recording_of_a_wrapped_function():
    g, rec = tap.record(jax.jit(partial(nest, (2,))))
    for x in (1.0, 2.0, 3.0):
        g(x)
    assert [(e.call, e.step) for e in rec.events] == [(c, i) for c in range(3) for i in range(2)]


# -- dtypes

DTYPES = {
    "bool": np.bool_,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int8": np.int8,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float16": np.float16,
    "float32": np.float32,
    "complex64": np.complex64,
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_observed_bit_for_bit(dtype):
    rows = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 1]]).astype(DTYPES[dtype])
    f = jax.jit(lambda c, xs: lax.scan(lambda c, x: (x, c), c, xs))
    for entry in ENTRIES:
        _, events = seen(entry, f, jnp.zeros(3, rows.dtype), jnp.asarray(rows), select="c")
        assert [e.value.dtype for e in events] == [rows.dtype] * 4
        assert np.stack([e.value for e in events]).tobytes() == rows.tobytes()


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_wide_dtypes_under_x64(dtype):
    with jax.enable_x64(True):
        rows = np.array([[1.5, 2**40 + 1, 3], [4, 5, 6]]).astype(dtype)
        f = jax.jit(lambda c, xs: lax.scan(lambda c, x: (x, c), c, xs))
        for entry in ENTRIES:
            _, events = seen(entry, f, jnp.zeros(3, dtype), jnp.asarray(rows), select="c")
            assert np.stack([e.value for e in events]).dtype == rows.dtype
            assert np.stack([e.value for e in events]).tobytes() == rows.tobytes()


@pytest.mark.parametrize("x64", [False, True])
def test_loops_of_either_width_in_one_process(x64):
    with jax.enable_x64(x64):
        for entry in ENTRIES:
            for f in (lambda n: lax.fori_loop(0, n, lambda i, s: s + i, 0), jax.jit(collatz_loop)):
                result, events = seen(entry, f, 7)
                assert result.dtype == (jnp.int64 if x64 else jnp.int32)
                assert len(events) in (7, collatz(7))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_typed_keys_are_observed_as_key_data(impl):
    key = jax.random.key(3, impl=impl)

    def body(key, _):
        key, _ = jax.random.split(key)
        return key, None

    f = jax.jit(lambda key: lax.scan(body, key, None, length=3)[0])
    expected = []
    for _ in range(3):
        key, _ = jax.random.split(key)
        expected.append(np.asarray(jax.random.key_data(key)))
    for entry in ENTRIES:
        result, events = seen(entry, f, jax.random.key(3, impl=impl), select="key")
        assert jax.dtypes.issubdtype(result.dtype, jax.dtypes.prng_key)
        assert np.array_equal([e.value for e in events], expected)


def test_typed_keys_in_a_while_with_a_predicate_a_lane():
    def f(key, n):
        return lax.while_loop(lambda s: s[1] > 0, lambda s: (jax.random.split(s[0])[0], s[1] - 1), (key, n))[0]

    keys, ns = jax.random.split(jax.random.key(0), 3), jnp.array([2, 0, 4])
    plain = jax.jit(jax.vmap(f))(keys, ns)
    for entry in ENTRIES:
        result, events = seen(entry, jax.jit(jax.vmap(f)), keys, ns)
        assert_same_bits(result, plain)
        assert len(events) == 4


def test_float0_tangents_of_integers():
    def f(x):
        body = lambda c, _: ((c[0] * 2.0, c[1] + 1), None)
        zero = np.zeros((), jax.dtypes.float0)
        return jax.jvp(lambda x, n: lax.scan(body, (x, n), None, length=3)[0], (x, 0), (1.0, zero))

    for entry in ENTRIES:
        result, events = seen(entry, f, 1.0)
        assert len(events) == 3
        assert float(result[1][0]) == 8.0
        assert result[1][1].dtype == jax.dtypes.float0


# -- outputs and primitives


def test_outputs_of_every_step_of_every_scan():
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (c + x, {"a": c, "b": x * 2}), 0.0, xs))
    expected = [{"a": a, "b": b} for a, b in ((0, 2), (1, 4), (3, 8))]
    got = []
    xs = jnp.array([1.0, 2.0, 4.0])
    with tap.record(select_ys=("a", "b")) as rec:
        f(xs)
    tap.verbose(f, on_ys=got.append, select_ys=("a", "b"))(xs)
    for events in (rec.events, got):
        assert [(e.kind, e.steps, e.value) for e in events] == [
            ("output", (i,), value) for i, value in enumerate(expected)
        ]


def test_outputs_of_scans_only():
    f = jax.jit(lambda n: (collatz_loop(n), lax.map(lambda x: x + 1, jnp.arange(3))))
    with tap.record(select_ys=lambda ys: ys[0]) as rec:
        f(6)
    assert [(e.path, e.steps, int(e.value)) for e in rec.events] == [("scan[1]", (i,), i + 1) for i in range(3)]


def count_calls(operator):
    calls = []

    @functools.wraps(operator)
    def counting(*args):
        calls.append(args)
        return operator(*args)

    return counting, calls


@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_associative_scan_combines_as_often_as_its_operator_is_called(n):
    operator, calls = count_calls(lambda a, b: lax.atan2(a, b))
    f = jax.jit(lambda xs: lax.associative_scan(operator, xs))
    heard = []
    for taps in ((tap.on("atan2"),), (tap.on("atan2", on_value=heard.append),)):
        with tap.record(taps=taps) as rec:
            f(jnp.arange(float(n)))
        assert len(rec.events) == len(calls)
        assert {e.kind for e in rec.events} <= {"primitive"}
    assert len(heard) == len(calls)


def in_predicate_and_body(n):
    return lax.while_loop(lambda x: jnp.sin(x) + x < n, lambda x: jnp.cos(x) * 0 + x + 1, 0.0)


@pytest.mark.parametrize("live", [False, True])
def test_predicates_are_evaluated_once_more_than_bodies(live):
    x, trips = 0.0, 0
    while math.sin(x) + x < 5.5:
        x, trips = x + 1, trips + 1
    heard = []
    options = {"on_value": heard.append} if live else {}
    with tap.record(taps=(tap.on("sin", **options), tap.on("cos", **options))) as rec:
        jax.jit(in_predicate_and_body)(5.5)
    assert places(rec.events) == {
        "while[0]/pred/sin[0]": steps(trips + 1),
        "while[0]/cos[0]": steps(trips),
    }
    assert len(heard) == (len(rec.events) if live else 0)
    sines = [float(e.value) for e in rec.events if "pred" in e.path]
    assert sines == pytest.approx([math.sin(i) for i in range(trips + 1)], abs=1e-6)


def test_predicates_with_a_lane_each_are_evaluated_for_all_steps():
    with tap.record(taps=(tap.on("sin"), tap.on("cos"))) as rec:
        jax.jit(jax.vmap(in_predicate_and_body))(jnp.array([2.5, 0.0, 5.5]))
    trips = []
    for n in (2.5, 0.0, 5.5):
        x = 0.0
        while math.sin(x) + x < n:
            x += 1
        trips.append(int(x))
    found = places(rec.events)
    assert found == {
        "while[0]/cos[0]": steps(max(trips)),
        "while[0]/pred/sin[0]": steps(max(trips) + 1),
    }
    active = np.sum([e.active for e in rec.events if e.path == "while[0]/cos[0]"], axis=0)
    assert active.tolist() == trips
    asked = np.sum([e.active for e in rec.events if "pred" in e.path], axis=0)
    assert asked.tolist() == [n + 1 for n in trips]


def test_eager_primitives_outside_loops():
    with tap.record(taps=(tap.on("sin"),)) as rec:
        for i in range(4):
            jnp.sin(float(i))
        lax.sin(jnp.float32(4))
    assert [e.step for e in rec.events] == [-1] * 5
    assert sorted(float(e.value) for e in rec.events) == pytest.approx(sorted(math.sin(i) for i in range(5)), abs=1e-6)


def test_primitives_in_loops_branches_and_calls():
    @jax.jit
    def f(x):
        def body(c, i):
            c = lax.cond(i % 2 == 0, jnp.sin, lambda c: jnp.sin(jnp.sin(c)), c)
            return jax.checkpoint(jnp.sin)(c), None

        return jnp.sin(lax.scan(body, x, jnp.arange(5))[0])

    with tap.record(taps=(tap.on("sin"),)) as rec:
        f(1.0)
    assert places(rec.events) == {
        "sin[0]": [()],
        "scan[0]/sin[0]": steps(5),
        "scan[0]/cond[0]/b1/sin[0]": [(0,), (2,), (4,)],
        "scan[0]/cond[0]/b0/sin[0]": [(1,), (3,)],
        "scan[0]/cond[0]/b0/sin[1]": [(1,), (3,)],
    }
    x = 1.0
    for i in range(5):
        for _ in range(2 + i % 2):
            x = math.sin(x)
    assert float(rec.events[-1].value) == pytest.approx(math.sin(x), abs=1e-5)


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize("live", [False, True])
def test_sampling_is_by_step_of_the_innermost_loop(every, live):
    f = jax.jit(lambda ns: lax.scan(lambda c, n: (collatz_loop(n) + 0 * c, jnp.sin(c * 1.0)), 0, ns))
    ns = [6, 1, 7]
    heard = []
    options = {"on_step": heard.append, "on_ys": heard.append} if live else {"select_ys": lambda ys: ys}
    with tap.record(
        sample_every=every,
        select=lambda leaves: leaves[0],
        taps=(tap.on("sin"),),
        **options,
    ) as rec:
        f(jnp.array(ns))
    sampled = lambda at: [s for s in at if s[-1] % every == 0]
    outer = sampled(steps(3))
    assert places(e for e in rec.events if e.kind == "carry") == {
        "scan[0]": outer,
        "scan[0]/while[0]": sampled(ragged([collatz(n) for n in ns])),
    }
    assert places(e for e in rec.events if e.kind == "output") == {"scan[0]": outer}
    assert places(e for e in rec.events if e.kind == "primitive") == {"scan[0]/sin[0]": outer}
    assert len(heard) == (sum(e.kind != "primitive" for e in rec.events) if live else 0)


@pytest.mark.parametrize("identity", ["auto", "inline"])
@pytest.mark.parametrize("kind", ["scan", "while", "while_in_scan"])
def test_nothing_is_lost_when_buffers_run_full(kind, identity):
    n = 2500
    count = lambda n: lax.while_loop(lambda s: s < n, lambda s: s + 1, 0)
    f, total = {
        "scan": (lambda n: lax.scan(lambda c, _: (c + 1, None), 0, None, length=2500)[0], n),
        "while": (count, n),
        "while_in_scan": (
            lambda n: lax.scan(lambda c, _: (count(n // 50), None), 0, None, length=50)[0],
            n,
        ),
    }[kind]
    with tap.record(buffer_bytes=1000, identity=identity, where=lambda p: kind != "while_in_scan" or "/" in p) as rec:
        jax.jit(f)(n)
    assert len(rec.events) == total
    assert len({(e.path, e.steps) for e in rec.events}) == total
    assert all(int(e.value[next(iter(e.value))]) == e.step + 1 for e in rec.events)


def test_long_while_of_unknown_length_outgrows_its_first_buffer():
    n = 40_000
    with tap.record() as rec:
        jax.jit(lambda n: lax.while_loop(lambda s: s < n, lambda s: s + 1, 0))(n)
    assert len(rec.events) == n
    assert np.array_equal(rec.streams[0].leaves[0].array, np.arange(1, n + 1))


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({}, {"scan[0]", "scan[0]/while[0]", "while[1]"}),
        ({"where": lambda path: path.endswith("while[0]")}, {"scan[0]/while[0]"}),
        ({"max_depth": 1}, {"scan[0]", "while[1]"}),
        ({"ops": "while"}, {"scan[0]/while[0]", "while[1]"}),
        ({"ops": ("scan",)}, {"scan[0]"}),
        ({"where": lambda path: False}, set()),
    ],
)
def test_filters_choose_loops_and_never_move_addresses_or_hide_taps(options, paths):
    @jax.jit
    def f(ns):
        y = lax.scan(lambda c, n: (c + collatz_loop(n), jnp.sin(1.0 * c)), 0, ns)
        return y, collatz_loop(ns[0])

    with tap.record(select=lambda leaves: leaves[0], taps=(tap.on("sin"),), **options) as rec:
        f(jnp.array([6, 7]))
    assert set(places(e for e in rec.events if e.kind == "carry")) == paths
    assert places(e for e in rec.events if e.kind == "primitive") == {"scan[0]/sin[0]": steps(2)}
