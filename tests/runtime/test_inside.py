"""A lens inside an outer ``jit``, ``vmap`` or ``grad``: live events with lanes, and the transformation unharmed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from lenses import assert_same_bits, places, steps

import jaxtap_core as tap


def trace_of(f, *args, outer=lambda g: g, **options):
    """Run ``outer(g)(*args)`` with the lens inside; gives (result, events as they were heard)."""
    heard = []
    g = tap.verbose(f, on_step=heard.append, **options)
    result = outer(g)(*args)
    jax.block_until_ready(result)
    jax.effects_barrier()
    return result, heard


def halve(x):
    return lax.scan(lambda c, _: (c / 2, None), x, None, length=3)[0]


def countdown(n):
    return lax.while_loop(lambda s: s > 0, lambda s: s - 1, n)


OUTER = {
    "jit": jax.jit,
    "jit_jit": lambda g: jax.jit(jax.jit(g)),
    "checkpoint": jax.checkpoint,
    "jvp": lambda g: lambda x: jax.jvp(g, (x,), (1.0,))[0],
    "jit_of_call": lambda g: jax.jit(lambda x: g(x + 0)),
}


@pytest.mark.parametrize("name", OUTER)
def test_events_of_a_loop_under_an_outer_transformation(name):
    result, heard = trace_of(halve, 8.0, outer=OUTER[name], select="c")
    assert result == 1
    assert [(e.path, e.steps, float(e.value)) for e in heard] == [
        ("scan[0]", (i,), v) for i, v in enumerate([4.0, 2.0, 1.0])
    ]
    assert all(e.lane is None and e.time is not None for e in heard)
    assert all(e.source.startswith("test_inside.py:") for e in heard)


def test_recording_inside_keeps_what_it_heard():
    g, rec = tap.record(halve, select="c")
    assert jax.jit(g)(8.0) == 1
    jax.effects_barrier()
    assert [float(e.value) for e in rec.events] == [4.0, 2.0, 1.0]


def test_every_call_of_the_compiled_outer_function_is_heard():
    heard = []
    f = jax.jit(tap.verbose(halve, select="c", on_step=heard.append))
    for x in (8.0, 16.0, 32.0):
        f(x)
    jax.effects_barrier()
    assert sorted(float(e.value) for e in heard) == sorted([4.0, 2.0, 1.0, 8.0, 4.0, 2.0, 16.0, 8.0, 4.0])


def test_lanes_of_vmap():
    xs = jnp.array([8.0, 80.0])
    result, heard = trace_of(halve, xs, outer=jax.vmap, select="c")
    assert result.tolist() == [1.0, 10.0]
    got = sorted((e.lane, e.steps, float(e.value)) for e in heard)
    assert got == [((k,), (i,), float(xs[k]) / 2 ** (i + 1)) for k in range(2) for i in range(3)]


@pytest.mark.parametrize("jitted", [False, True])
def test_lanes_of_nested_vmap_outermost_first(jitted):
    xs = jnp.arange(1.0, 7.0).reshape(2, 3)
    outer = lambda g: jax.vmap(jax.vmap(g))
    result, heard = trace_of(halve, xs, outer=(lambda g: jax.jit(outer(g))) if jitted else outer, select="c")
    assert np.array_equal(result, xs / 8)
    got = sorted((e.lane, e.steps, float(e.value)) for e in heard)
    assert got == [((i, j), (k,), float(xs[i, j]) / 2 ** (k + 1)) for i in range(2) for j in range(3) for k in range(3)]


def test_lanes_of_vmap_over_another_axis_and_with_an_unbatched_argument():
    f = lambda x, y: lax.scan(lambda c, _: (c + y, None), x.sum(), None, length=2)[0]
    x = jnp.arange(6.0).reshape(2, 3)
    result, heard = trace_of(f, x, 1.0, outer=lambda g: jax.vmap(g, in_axes=(1, None)), select="c")
    sums = np.arange(6.0).reshape(2, 3).sum(0)
    assert result.tolist() == (sums + 2).tolist()
    assert sorted((e.lane, e.step, float(e.value)) for e in heard) == [
        ((k,), i, sums[k] + i + 1) for k in range(3) for i in range(2)
    ]


@pytest.mark.parametrize("jitted", [False, True])
def test_a_finished_lane_emits_nothing(jitted):
    ns = jnp.array([2, 0, 5])
    outer = (lambda g: jax.jit(jax.vmap(g))) if jitted else jax.vmap
    result, heard = trace_of(countdown, ns, outer=outer, select="s")
    assert result.tolist() == [0, 0, 0]
    got = sorted((e.lane, e.steps, int(e.value)) for e in heard)
    assert got == [((k,), (i,), n - i - 1) for k, n in enumerate([2, 0, 5]) for i in range(n)]


def test_a_finished_lane_of_nested_loops_emits_nothing():
    def f(n):
        def outer(s):
            i, x = s
            return i + 1, x + lax.while_loop(lambda t: t < i, lambda t: t + 1, 0)

        return lax.while_loop(lambda s: s[0] < n, outer, (0, 0))[1]

    ns = [3, 0, 4]
    result, heard = trace_of(f, jnp.array(ns), outer=jax.vmap, select=lambda leaves: leaves[0])
    assert result.tolist() == [sum(range(n)) for n in ns]
    outer = sorted((e.lane, e.steps) for e in heard if e.path == "while[0]")
    inner = sorted((e.lane, e.steps) for e in heard if e.path == "while[0]/while[0]")
    assert outer == [((k,), (i,)) for k, n in enumerate(ns) for i in range(n)]
    assert inner == [((k,), (i, j)) for k, n in enumerate(ns) for i in range(n) for j in range(i)]


def test_lanes_take_their_own_branch():
    f = lambda p, x: lax.cond(p, halve, lambda x: x, x)
    result, heard = trace_of(f, jnp.array([True, False]), jnp.array([8.0, 8.0]), outer=jax.vmap, select="c")
    assert result.tolist() == [1.0, 8.0]
    # vmap turns the branch into a select, and runs both for every lane: documented, and at least without harm
    assert {e.path for e in heard} == {"cond[0]/b1/scan[0]"}
    assert {(e.lane, e.step) for e in heard} >= {((0,), i) for i in range(3)}


@pytest.mark.parametrize("every", [2, 3])
def test_sampling_in_lanes(every):
    result, heard = trace_of(countdown, jnp.array([2, 5]), outer=jax.vmap, select="s", sample_every=every)
    assert result.tolist() == [0, 0]
    got = sorted((e.lane, e.step) for e in heard)
    assert got == [((k,), i) for k, n in enumerate([2, 5]) for i in range(0, n, every)]


# -- differentiation


def sines(x):
    return lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=4)[0]


@pytest.mark.parametrize("jitted", [False, True])
def test_forward_events_of_a_gradient_are_those_of_the_function(jitted):
    outer = (lambda g: jax.jit(jax.grad(g))) if jitted else jax.grad
    result, heard = trace_of(sines, 1.0, outer=outer, select="c")
    x, expected, slope = 1.0, [], 1.0
    for _ in range(4):
        slope *= np.cos(x)
        x = np.sin(x)
        expected.append(x)
    assert float(result) == pytest.approx(slope, rel=1e-5)
    assert [(e.steps, e.phase) for e in heard] == [((i,), "forward") for i in range(4)]
    assert [float(e.value) for e in heard] == pytest.approx(expected, rel=1e-5)


def test_rematerialised_events_say_so():
    f = lambda x: jax.checkpoint(sines)(x) ** 2
    outer = lambda g: jax.jit(jax.grad(lambda x: g(x) * 1.0))
    result, heard = trace_of(f, 1.0, outer=outer, select="c")
    plain = jax.jit(jax.grad(f))(1.0)
    assert float(result) == pytest.approx(float(plain), rel=1e-6)
    assert sorted((e.phase, e.steps) for e in heard) == [
        (phase, (i,)) for phase in ("forward", "recompute") for i in range(4)
    ]


def test_an_outer_checkpoint_recomputes_with_the_lens_inside():
    outer = lambda g: jax.jit(jax.grad(lambda x: jax.checkpoint(g)(x) ** 2))
    result, heard = trace_of(sines, 1.0, outer=outer, select="c")
    assert sorted((e.phase, e.steps) for e in heard) == [
        (phase, (i,)) for phase in ("forward", "recompute") for i in range(4)
    ]
    assert float(result) == pytest.approx(float(jax.grad(lambda x: sines(x) ** 2)(1.0)), rel=1e-6)


def test_gradient_in_lanes():
    result, heard = trace_of(sines, jnp.array([1.0, 2.0]), outer=lambda g: jax.vmap(jax.grad(g)), select="c")
    np.testing.assert_allclose(result, jax.vmap(jax.grad(sines))(jnp.array([1.0, 2.0])), rtol=1e-6)
    assert sorted((e.lane, e.steps) for e in heard) == [((k,), (i,)) for k in range(2) for i in range(4)]


@jax.custom_jvp
def crooked(x):
    return halve(x)


@crooked.defjvp
def _(primals, tangents):
    return crooked(*primals), 100.0 * tangents[0]


@jax.custom_vjp
def bent(x):
    return halve(x)


bent.defvjp(lambda x: (halve(x), None), lambda _, g: (1000.0 * g,))


@pytest.mark.parametrize(("rule", "slope"), [(crooked, 100.0), (bent, 1000.0)])
def test_custom_rules_are_those_of_their_author(rule, slope):
    f = lambda x: lax.scan(lambda c, _: (rule(c), None), x, None, length=2)[0]
    result, heard = trace_of(f, 8.0, outer=jax.grad, select="c")
    assert result == slope**2
    assert places(e for e in heard if e.path == "scan[0]")["scan[0]"] == steps(2)
    value, _ = trace_of(f, 8.0, outer=jax.jit, select="c")
    assert value == 8 / 64
    lanes, _ = trace_of(f, jnp.array([8.0, 16.0]), outer=lambda g: jax.vmap(jax.grad(g)), select="c")
    assert lanes.tolist() == [slope**2] * 2


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev, jax.hessian])
def test_derivatives_are_those_without_the_lens(outer):
    x = jnp.array([0.3, 0.7])
    f = lambda x: sines(x) * x[::-1]
    result, heard = trace_of(f, x, outer=outer, select="c")
    np.testing.assert_allclose(result, outer(f)(x), rtol=1e-6)
    assert len(heard) >= 4


def test_values_and_structure_are_those_without_the_lens():
    def f(x, *, n, flag="a", tree=None):
        assert flag == "b"
        y = lax.scan(lambda c, _: (c + x, c), tree["z"], None, length=n)
        return {"y": y, "n": n, "none": None}

    kwargs = {"n": 3, "flag": "b", "tree": {"z": jnp.float32(1)}}
    plain = jax.jit(lambda x: f(x, **kwargs))(2.0)
    result, heard = trace_of(lambda x: f(x, **kwargs), 2.0, outer=jax.jit)
    assert_same_bits(result, plain)
    assert len(heard) == 3

    g = tap.verbose(f, on_step=heard.append)
    result = jax.jit(lambda x: g(x, **kwargs))(2.0)
    assert_same_bits(result, plain)
    jax.effects_barrier()
    assert len(heard) == 6


def test_alerts_and_taps_inside(capfd):
    f = lambda x: lax.scan(lambda c, _: (c - 1, jnp.log(c)), x, None, length=4)
    g, rec = tap.record(f, taps=(tap.watch_nan("log"),))
    jax.vmap(g)(jnp.array([1.5, 9.0]))
    jax.effects_barrier()
    assert [(a.event.lane, a.event.step) for a in rec.alerts] == [((0,), 2), ((0,), 3)]
    assert capfd.readouterr().err.count("[tap] FAIL scan[0]/log[0]") == 2


def test_a_lens_inside_and_one_around():
    heard = []
    f = jax.jit(tap.verbose(halve, select="c", on_step=heard.append))
    with tap.record() as rec:
        assert f(8.0) == 1
    assert [float(e.value) for e in heard] == [4.0, 2.0, 1.0]
    assert places(rec.events) == {"scan[0]": steps(3)}


def test_scan_over_a_wrapped_function():
    heard = []
    g = tap.verbose(halve, select="c", on_step=heard.append)
    result = jax.jit(lambda x: lax.scan(lambda c, _: (g(c), None), x, None, length=2)[0])(64.0)
    jax.effects_barrier()
    assert result == 1
    assert sorted(float(e.value) for e in heard) == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
