"""Per-step outputs and taps on primitives: as many events as were executed, with their values."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counted import collatz_loop
from jax import lax
from lenses import places, steps

import jaxtap_core as tap


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
