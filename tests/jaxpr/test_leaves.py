"""Carry leaves as their author knows them: names, order, pass-through leaves, and how a selection finds them."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from lenses import ENTRIES, seen

import jaxtap_core as tap


class Pair(NamedTuple):
    mass: Any
    energy: Any


@partial(jax.tree_util.register_dataclass, data_fields=["L", "step_size"], meta_fields=[])
@dataclass
class State:
    L: Any
    step_size: Any


def scan_over(body, init):
    return lambda: lax.scan(body, init, jnp.arange(2.0))


def while_over(body, init):
    """Two steps of ``body(carry)``, counted in the first leaf."""
    first = lambda c: jax.tree.leaves(c)[0]
    return lambda: lax.while_loop(lambda c: first(c) < 2, body, init)


def last_values(f, **options):
    """{path: {name: value at the last step}} of all leaves."""
    with tap.record(**options) as rec:
        jax.jit(f)()
    return {e.path: {k: v.tolist() for k, v in e.value.items()} for e in rec.events}


# -- names and order; every program makes two steps, and doubles whatever it changes


PROGRAMS = {
    "scalar": (
        scan_over(lambda c, x: (c * 2, None), 1.0),
        {"c": 4.0},
    ),
    "tuple": (
        scan_over(lambda c, x: ((c[0] * 2, c[1] * 2), None), (1.0, 2.0)),
        {"c[0]": 4.0, "c[1]": 8.0},
    ),
    "tuple_unpacked_by_name": (
        scan_over(lambda state, x: ((state[0] * 2, {"k": state[1]["k"] * 2}), None), (1.0, {"k": 3.0})),
        {"state[0]": 4.0, "state[1].k": 12.0},
    ),
    "dict_in_sorted_order": (
        scan_over(lambda s, x: ({"b": s["b"] * 2, "a": s["a"] * 2}, None), {"b": 1.0, "a": 2.0}),
        {"s.a": 8.0, "s.b": 4.0},
    ),
    "dataclass": (
        scan_over(lambda state, x: (State(state.L * 2, state.step_size * 2), None), State(1.0, 2.0)),
        {"state.L": 4.0, "state.step_size": 8.0},
    ),
    "named_tuple": (
        scan_over(lambda p, x: (Pair(p.mass * 2, p.energy * 2), None), Pair(1.0, 2.0)),
        {"p.mass": 4.0, "p.energy": 8.0},
    ),
    "passed_through_first": (
        scan_over(lambda c, x: ((c[0], c[1] * 2, c[2] * 2), None), (1.0, 2.0, 3.0)),
        {"c[0]": 1.0, "c[1]": 8.0, "c[2]": 12.0},
    ),
    "passed_through_in_the_middle": (
        scan_over(lambda c, x: ((c[0] * 2, c[1], c[2] * 2), None), (1.0, 2.0, 3.0)),
        {"c[0]": 4.0, "c[1]": 2.0, "c[2]": 12.0},
    ),
    "passed_through_last": (
        scan_over(lambda c, x: ((c[0] * 2, c[1] * 2, c[2]), None), (1.0, 2.0, 3.0)),
        {"c[0]": 4.0, "c[1]": 8.0, "c[2]": 3.0},
    ),
    "passed_through_twelve": (
        scan_over(
            lambda c, x: (tuple(v if i % 3 else v * 2 for i, v in enumerate(c)), None),
            tuple(float(i) for i in range(12)),
        ),
        {f"c[{i}]": float(i if i % 3 else 4 * i) for i in range(12)},
    ),
    "passed_through_in_a_dict": (
        scan_over(
            lambda s, x: ({"a": s["a"], "b": s["b"] * 2, "c": s["c"]}, None),
            {"a": 1.0, "b": 2.0, "c": 3.0},
        ),
        {"s.a": 1.0, "s.b": 8.0, "s.c": 3.0},
    ),
    "passed_through_nested": (
        scan_over(
            lambda s, x: (({"k": s[0]["k"], "l": s[0]["l"] * 2}, (s[1][0] * 2, s[1][1])), None),
            ({"k": 1.0, "l": 2.0}, (3.0, 4.0)),
        ),
        {"s[0].k": 1.0, "s[0].l": 8.0, "s[1][0]": 12.0, "s[1][1]": 4.0},
    ),
    "all_passed_through": (
        scan_over(lambda c, x: (c, x), (1.0, 2.0)),
        {"c[0]": 1.0, "c[1]": 2.0},
    ),
    "constants_are_no_leaves": (
        lambda w=7.0: lax.scan(lambda c, x: ((c[0] * w, c[1]), None), (1.0, 2.0), None, length=2),
        {"c[0]": 49.0, "c[1]": 2.0},
    ),
    "inputs_are_no_leaves": (
        lambda: lax.scan(lambda c, x: ((c[0] * x["a"], c[1]), None), (1.0, 2.0), {"a": jnp.array([2.0, 3.0])}),
        {"c[0]": 6.0, "c[1]": 2.0},
    ),
    "star_arguments": (
        scan_over(lambda *args: ((args[0][0] * 2, args[0][1]), args[1]), (1.0, 2.0)),
        {"args[0][0]": 4.0, "args[0][1]": 2.0},
    ),
    "while": (
        while_over(lambda s: {"n": s["n"] + 1, "x": s["x"] * 2}, {"n": 0, "x": 1.0}),
        {"s.n": 2, "s.x": 4.0},
    ),
    "while_passed_through": (
        while_over(lambda s: (s[0] + 1, s[1], s[2] * 2), (0, 5.0, 1.0)),
        {"s[0]": 2, "s[1]": 5.0, "s[2]": 4.0},
    ),
    "while_limit_of_the_users_own": (
        lambda: lax.while_loop(lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1]), (0, 2)),
        {"s[0]": 2, "s[1]": 2},
    ),
    "fori_hides_its_counter": (
        lambda: lax.fori_loop(0, 2, lambda i, x: x * 2 + 0 * i, 1.0),
        {"x": 4.0},
    ),
    "fori_tuple": (
        lambda: lax.fori_loop(3, 5, lambda i, s: (s[0] * 2, s[1], i), (1.0, 5.0, 0)),
        {"s[0]": 4.0, "s[1]": 5.0, "s[2]": 4},
    ),
    "fori_dynamic_hides_its_limit": (
        lambda: jax.jit(lambda n: lax.fori_loop(0, n, lambda i, x: x * 2, 1.0))(2),
        {"x": 4.0},
    ),
    "fori_dynamic_passed_through": (
        lambda: jax.jit(lambda n: lax.fori_loop(0, n, lambda i, s: (s[0] * 2, s[1]), (1.0, 5.0)))(2),
        {"s[0]": 4.0, "s[1]": 5.0},
    ),
    "fori_all_passed_through": (
        lambda: lax.fori_loop(0, 2, lambda i, x: x, 3.0),
        {"x": 3.0},
    ),
    "map_has_no_leaves": (
        lambda: lax.map(lambda x: x * 2, jnp.arange(2.0)),
        {},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_leaves_have_the_users_names_in_the_users_order(name):
    program, expected = PROGRAMS[name]
    (leaves,) = last_values(program).values()
    assert leaves == expected
    assert list(leaves) == list(expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_reducer_gets_all_leaves_in_that_order(name):
    program, expected = PROGRAMS[name]
    with tap.record(select=lambda leaves: tuple(leaves)) as rec:
        jax.jit(program)()
    assert [x.tolist() for x in rec.events[-1].value] == list(expected.values())


def test_every_entry_form_gives_the_same_leaves():
    program, expected = PROGRAMS["passed_through_nested"]
    for entry in ENTRIES:
        _, events = seen(entry, jax.jit(program))
        assert {k: v.tolist() for k, v in events[-1].value.items()} == expected


def test_order_that_cannot_be_known_is_told_once():
    program = scan_over(lambda p, x: (Pair(p.mass, p.energy * 2), None), Pair(1.0, 2.0))
    with (
        pytest.warns(UserWarning, match="order of the carry leaves") as caught,
        tap.record(select=tuple) as rec,
    ):
        jax.jit(program)()
    assert len(caught) == 1
    # carried leaves first, then those that are passed through
    assert [x.tolist() for x in rec.events[-1].value] == [8.0, 1.0]
    with warnings.catch_warnings(), tap.record() as rec:
        warnings.simplefilter("error")  # by name there is nothing to warn of
        jax.jit(program)()
    assert {k: v.tolist() for k, v in rec.events[-1].value.items()} == {
        "p.energy": 8.0,
        "p.mass": 1.0,
    }


def test_unknown_order_where_warnings_are_errors():
    program = scan_over(lambda p, x: (Pair(p.mass, p.energy * 2), None), Pair(1.0, 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tap.record(select=lambda leaves: leaves[0]) as rec:
            jax.jit(program)()
    assert [float(e.value) for e in rec.events] == [4.0, 8.0]


def test_leaves_of_differentiated_loops_are_numbered():
    f = lambda x: lax.scan(lambda c, _: (jnp.sin(c) * x, c), x, None, length=2)[0]
    with tap.record() as rec:
        jax.jit(jax.grad(f))(1.0)
    names = {e.path: list(e.value) for e in rec.events}
    assert names["scan[1]"] == [f"carry[{i}]" for i in range(len(names["scan[1]"]))]
    backward = {e.phase for e in rec.events if e.path == "scan[1]"}
    assert backward == {"backward"}


# -- per-step outputs


@pytest.mark.parametrize(
    ("ys", "names"),
    [
        (lambda c: c, ["out"]),
        (lambda c: (c, c * 2), ["out[0]", "out[1]"]),
        (lambda c: {"loss": c, "norm": [c * 2]}, ["out.loss", "out.norm[0]"]),
    ],
)
def test_outputs_have_the_users_names(ys, names):
    f = jax.jit(lambda: lax.scan(lambda c, _: (c + 1, ys(c)), 1.0, None, length=3))
    with tap.record(select_ys=names) as rec:
        f()
    assert [e.kind for e in rec.events] == ["output"] * 3
    expected = [[float(i + 1) * (k + 1) for k in range(len(names))] for i in range(3)]
    assert [[float(v) for v in e.value.values()] for e in rec.events] == expected
    assert list(rec.events[0].value) == names


# -- selections


def nested():
    init = {"state": State(1.0, 2.0), "x": (3.0, 4.0), "old": {"x": (5.0,)}}
    return lax.scan(lambda c, _: (jax.tree.map(lambda v: v * 2, c), None), init, None, length=1)


NAMES = ["c.old.x[0]", "c.state.L", "c.state.step_size", "c.x[0]", "c.x[1]"]


@pytest.mark.parametrize(
    ("select", "value"),
    [
        ("c.state.L", 2.0),
        ("state.L", 2.0),
        ("L", 2.0),
        ("step_size", 4.0),
        ("x[1]", 8.0),
        ("c.x[0]", 6.0),
        ("old.x[0]", 10.0),
        ("c['state'].L", 2.0),
        (("L", "x[1]"), {"L": 2.0, "x[1]": 8.0}),
        (["L"], {"L": 2.0}),
        ({"cov": "state.L", "eps": "step_size"}, {"cov": 2.0, "eps": 4.0}),
        (lambda leaves: leaves[1] + leaves[2], 6.0),
        (lambda leaves: {"sum": sum(leaves), "n": len(leaves)}, {"sum": 30.0, "n": 5}),
        (lambda leaves, *, path: leaves[0] * len(path), 70.0),
    ],
)
def test_selections(select, value):
    for entry in ("block", "verbose"):
        _, events = seen(entry, jax.jit(nested), select=select)
        assert jax.tree.map(float, events[0].value) == value
        assert all(isinstance(x, np.ndarray | np.generic) for x in jax.tree.leaves(events[0].value))


@pytest.mark.parametrize(
    ("select", "says"),
    [
        ("x[0]", "'x[0]' is ambiguous: ['c.old.x[0]', 'c.x[0]']"),
        ("ize", "'ize' is not a leaf"),
        ("state", "'state' is not a leaf"),
        (("L", "nothing"), "'nothing' is not a leaf"),
        ({"new": "nothing"}, "'nothing' is not a leaf"),
        (lambda leaves: leaves[7], "IndexError"),
        (lambda leaves: float(leaves[0]), "select raised"),
    ],
)
def test_a_selection_that_fits_no_loop_warns_at_the_end(select, says):
    with pytest.warns(tap.JaxtapWarning) as caught, tap.record(select=select) as rec:
        jax.jit(nested)()
        assert not caught
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "fits no loop" in message
    assert says in message
    assert all(name in message for name in NAMES)
    assert "scan[0]" in message
    assert len(rec.events) == 0


def two_loops():
    a = lax.scan(lambda first, _: (first + 1, None), 0.0, None, length=2)[0]
    return lax.scan(lambda second, _: (second + 1, None), a, None, length=3)[0]


def test_a_selection_that_fits_one_loop_skips_the_other_with_one_warning():
    f = jax.jit(two_loops)
    with pytest.warns(tap.JaxtapWarning) as caught, tap.record(select="second") as rec:
        f(), f(), f()
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "scan[0]" in message
    assert "scan[1]" not in message
    assert "its leaves: first" in message
    assert {e.path for e in rec.events} == {"scan[1]"}
    assert len(rec.events) == 9


def test_no_warning_when_no_loop_ran_where_everything_fits_or_for_loops_of_jax():
    sorted_ = lambda x: jnp.searchsorted(jnp.arange(8.0), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tap.record(select="second"):
            jax.jit(lambda x: x + 1)(1.0)
        with tap.record(select="c"):
            jax.jit(lambda x: lax.scan(lambda c, _: (c + sorted_(c), None), x, None, length=2)[0])(1.0)


def test_numbers_of_the_users_loops_do_not_depend_on_those_of_jax():
    @jax.jit
    def f(x):
        x = x + jnp.searchsorted(jnp.arange(8.0), x)
        x = lax.scan(lambda c, _: (c + 1, None), x, None, length=2)[0]
        x = x + jnp.interp(x, jnp.arange(4.0), jnp.arange(4.0) ** 2)
        return lax.fori_loop(0, 3, lambda i, c: c + 1, x)

    with tap.record() as rec:
        f(1.5)
    paths = [p for p in dict.fromkeys(e.path for e in rec.events) if not p.startswith("jax:")]
    assert paths == ["scan[0]", "scan[1]"]


def test_a_reducer_runs_on_the_device_and_only_on_sampled_steps():
    ran = []

    def select(leaves):
        jax.debug.callback(lambda c: ran.append(float(c)), leaves[0])
        return leaves[0].mean()

    f = jax.jit(lambda: lax.scan(lambda c, _: (c + 1, None), jnp.zeros(4), None, length=7))
    with tap.record(select=lambda leaves: leaves[0].mean(), sample_every=3) as rec:
        f()
    assert [(e.step, float(e.value)) for e in rec.events] == [(0, 1.0), (3, 4.0), (6, 7.0)]
    assert rec.events[0].value.shape == ()

    def costly(leaves):
        jax.debug.callback(lambda c: ran.append(float(c)), leaves[0][0])
        return leaves[0][0]

    for options in ({}, {"on_step": lambda event: None}):
        ran.clear()
        with tap.record(select=costly, sample_every=3, identity="inline", **options):
            f()
        assert sorted(ran) == [1.0, 4.0, 7.0]
