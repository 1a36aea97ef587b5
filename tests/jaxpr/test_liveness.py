"""What production computes of a program: by pencil and paper, and against a run in which every operation says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

from jaxtap_core import _compat
from jaxtap_core.jaxpr.liveness import Liveness, liveness
from jaxtap_core.jaxpr.structure import inner_programs


class Operations:
    """The operations that the programs are made of: each its own primitive, or a callback that says it has run."""

    names = ("sin", "cos", "tan", "exp", "tanh", "sqrt", "atan", "asinh", "erf")

    def __init__(self, ran: set[str] | None = None) -> None:
        self._ran = ran

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        assert name in self.names
        if self._ran is None:
            return getattr(lax, name)

        def say(x: np.ndarray) -> np.ndarray:
            self._ran.add(name)
            return np.asarray(x * 0.9, x.dtype)

        return lambda x: jax.pure_callback(say, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")


def computed(live: Liveness, jaxpr: Any) -> set[str]:
    """The operations that live, at every depth."""
    found: set[str] = set()
    eqns = _compat.body_of(jaxpr).jaxpr.eqns
    for eqn, one in zip(eqns, live.equations, strict=True):
        if one is not None:
            found |= {eqn.primitive.name} & set(Operations.names)
            for name, program in inner_programs(eqn).items():
                found |= computed(one.inner[name], program.jaxpr)
    return found


class Case(NamedTuple):
    """A program of operations ``o`` and ``x``; by which of its outputs are used, the operations that are computed."""

    program: Callable[[Any, Any], tuple[Any, ...]]
    expected: dict[tuple[int, ...], str]


def straight(o, x):
    o.exp(x)
    return o.sin(x), o.cos(o.tan(x))


def passed_on(o, x):
    """A barrier gives each operand back; a sort moves the others as it moves the keys."""
    a, b = lax.optimization_barrier((o.sin(x), o.cos(x)))
    return a, b, *lax.sort([jnp.stack([f(x), x]) for f in (o.tan, o.exp, o.tanh)], num_keys=1)


def scan(o, x):
    def body(carry, row):
        a, b = carry
        o.exp(a)
        return (o.sin(a), b + o.cos(a)), (o.tan(b), o.atan(row))

    (a, b), (y, z) = lax.scan(body, (x, x), jnp.stack([x, x]))
    return a, b, y, z


def shift_register(o, x):
    """Of what one carry is made only shows three steps later."""
    body = lambda c, _: ((o.sin(c[1]), o.cos(c[2]), o.tan(c[3]), o.exp(c[3]), o.tanh(c[4])), None)
    return lax.scan(body, (x,) * 5, None, length=5)[0]


def circle(o, x):
    """Carries that need each other, and nobody else does."""
    body = lambda c, _: ((o.sin(c[1]), o.cos(c[0]), o.tan(c[2])), None)
    return lax.scan(body, (x,) * 3, None, length=2)[0]


def while_loop(o, x):
    """The predicate reads the first carry, which is made of the second."""
    going = lambda c: o.tanh(c[0]) < x + 2
    body = lambda c: (c[0] + 1 + 0 * o.sin(c[1]), o.cos(c[1]), o.tan(c[2]), o.exp(c[3]))
    return lax.while_loop(going, body, (x, x, x, x))


def cond(o, x):
    take = lambda x: (o.sin(x), o.cos(x), x)
    leave = lambda x: (o.tan(x), x, o.exp(x))
    y = lax.cond(o.tanh(x) < 0.6, take, leave, o.sqrt(x))
    z = lax.cond(o.atan(x) < 0.6, take, leave, x)
    return (*y, z[2])


def calls(o, x):
    f = jax.jit(lambda x, y: (o.sin(x), o.cos(y), o.exp(o.tanh(x))))
    a, b, _ = f(x, o.tan(x))
    return a, b


def checkpointed(o, x):
    a, b = jax.checkpoint(lambda x: (o.sin(x), o.cos(x)))(x)
    return a, b


def nested(o, x):
    """A branch in a loop in a call in a loop: the inner loop's carries count on their own."""

    def inner(carry, _):
        a, b, c = carry
        a = lax.cond(a.sum() < 99, lambda: (o.sin(a), o.exp(b)), lambda: (a, b))[0]
        return (a, o.cos(b), o.tan(c)), o.tanh(c)

    def outer(carry, _):
        (a, b, _), ys = jax.jit(lambda *c: lax.scan(inner, c, None, length=2))(*carry, o.sqrt(carry[0]))
        return (a, b), ys[-1]

    (a, b), ys = lax.scan(outer, (x, x), None, length=2)
    return a, b, ys


def twice(o, x):
    """One inner program, of which once the one and once the other output is used."""
    f = jax.jit(lambda x: (o.sin(x), o.cos(x)))
    return f(x)[0], f(x)[1]


CASES = {
    "straight": Case(straight, {(0,): "sin", (1,): "cos tan", (0, 1): "sin cos tan", (): ""}),
    "passed on": Case(
        passed_on, {(0,): "sin", (1,): "cos", (2,): "tan", (3,): "tan exp", (4,): "tan tanh", (1, 3): "cos tan exp"}
    ),
    "scan": Case(scan, {(0,): "sin", (1,): "sin cos", (2,): "sin cos tan", (3,): "atan", (0, 3): "sin atan", (): ""}),
    "shift register": Case(
        shift_register, {(0,): "sin cos tan exp", (1,): "cos tan exp", (3,): "exp", (4,): "tanh", (): ""}
    ),
    "circle": Case(circle, {(0,): "sin cos", (1,): "sin cos", (2,): "tan", (0, 2): "sin cos tan"}),
    "while": Case(
        while_loop, {(0,): "tanh sin cos", (1,): "tanh sin cos", (2,): "tanh sin cos tan", (3,): "tanh sin cos exp"}
    ),
    "cond": Case(
        cond,
        {
            (0,): "tanh sqrt sin tan",
            (1,): "tanh sqrt cos",
            (2,): "tanh sqrt exp",
            (3,): "atan exp",
            (): "",
        },
    ),
    "calls": Case(calls, {(0,): "sin", (1,): "cos tan", (0, 1): "sin cos tan"}),
    "checkpoint": Case(checkpointed, {(0,): "sin", (1,): "cos"}),
    "nested": Case(nested, {(0,): "sin", (1,): "cos", (2,): "sin sqrt tan tanh"}),
    "one program twice": Case(twice, {(0,): "sin", (1,): "cos", (0, 1): "sin cos"}),
}
EACH = [(name, used) for name, case in CASES.items() for used in case.expected]

INPUTS = (jnp.float32(0.5), jnp.float32(2))  # each branch is taken with one of them


def analysed(program, *args, used=None) -> tuple[Liveness, list[str]]:
    """What lives of a program, and the names of its equations."""
    jaxpr = jax.make_jaxpr(program)(*args)
    return liveness(jaxpr, used), [eqn.primitive.name for eqn in jaxpr.eqns]


@pytest.mark.parametrize(("name", "used"), EACH)
def test_what_is_computed_by_pencil_and_paper(name, used):
    case = CASES[name]
    jaxpr = jax.make_jaxpr(lambda x: case.program(Operations(), x))(INPUTS[0])
    live = liveness(jaxpr, [i in used for i in range(len(jaxpr.out_avals))])
    assert computed(live, jaxpr) == set(case.expected[used].split())


@pytest.mark.parametrize(("name", "used"), EACH)
def test_that_is_what_production_computes(name, used):
    case, ran = CASES[name], set()
    f = jax.jit(lambda x: [case.program(Operations(ran), x)[i] for i in used])
    for x in INPUTS:
        jax.block_until_ready(f(x))
    jax.effects_barrier()
    assert ran == set(case.expected[used].split())


# -- carries, results and inputs


def test_carries_that_live_are_not_all_used_after_the_loop():
    program = lambda x: shift_register(Operations(), x)[2:4]
    (loop,) = analysed(program, 1.0)[0].equations
    assert loop.results == (False, False, True, True, False)
    assert loop.carries == (False, False, True, True, False)
    (loop,) = analysed(lambda x: shift_register(Operations(), x)[1], 1.0)[0].equations
    assert loop.results == (False, True, False, False, False)
    assert loop.carries == (False, True, True, True, False)


def test_a_carry_that_the_predicate_reads_lives():
    going = lambda c: c[0] < 3
    program = lambda n, x, y: lax.while_loop(going, lambda c: (c[0] + 1, c[1] * 2, c[2] * 3), (n, x, y))[1]
    live, _ = analysed(program, 0, 1.0, 1.0)
    (loop,) = live.equations
    assert loop.results == (False, True, False)
    assert loop.carries == (True, True, False)
    assert loop.inner["body"].outputs == (True, True, False)
    assert live.inputs == (True, True, False)


def test_a_carry_that_no_step_reads_may_still_come_out_as_it_went_in():
    program = lambda n, x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(1.0)), (n, x))[1]
    assert analysed(program, 0, 1.0)[0].inputs == (True, True)


def test_inputs_of_a_loop():
    def program(a, b, c, xs, ys):
        body = lambda s, v: ((s[0] * a + v[0], s[1] * b + v[1]), s[0] * c)
        (first, _), _ = lax.scan(body, (a, b), (xs, ys))
        return first

    live, names = analysed(program, 1.0, 1.0, 1.0, jnp.ones(3), jnp.ones(3))
    assert live.inputs == (True, False, False, True, False)
    assert [name for name, one in zip(names, live.equations, strict=True) if one] == ["scan"]


def test_only_what_some_branch_reads_is_an_input_and_the_choice():
    def program(choice, x, y, z):
        branch = lambda f: lambda x, y, z: (f(x), jnp.cos(z))
        return lax.switch(choice, [branch(jnp.sin), branch(lambda x: 2.0), lambda x, y, z: (y, z)], x, y, z)[0]

    live, _ = analysed(program, 1, 1.0, 1.0, 1.0)
    assert live.inputs == (True, True, True, False)
    switch = live.equations[-1]
    assert [switch.inner[name].inputs for name in ("b0", "b1", "b2")] == [
        (True, False, False),
        (False, False, False),
        (False, True, False),
    ]


def test_solving_is_executing_the_solver_alone():
    def program(matrix, scale, b):
        solve = lambda matvec, b: b / scale
        return lax.custom_linear_solve(lambda v: matrix @ v, b, solve, symmetric=True)

    live, _ = analysed(program, jnp.eye(3), 2.0, jnp.ones(3))
    assert live.inputs == (False, True, True)


def test_a_shard_map():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")

    def program(x, y):
        shard = lambda x, y: (jnp.sin(x), lax.psum(jnp.cos(y), "i") + x)
        return jax.shard_map(shard, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x, y)[0]

    live, _ = analysed(program, jnp.ones(2), jnp.ones(2))
    assert live.inputs == (True, False)


# -- effects


def unused(act):
    """A program with ``act`` in the body of a loop whose result nobody uses, and a ``cos`` in there."""

    def program(x):
        def body(c, _):
            act(jnp.sin(c))
            return c * 0.5, jnp.cos(c)

        lax.scan(body, x, None, length=2)
        return x + 1

    return program


struct = jax.ShapeDtypeStruct((), jnp.float32)
ACTS = {
    "debug print": (lambda x: jax.debug.print("{}", x), True),
    "debug callback": (lambda x: jax.debug.callback(lambda x: None, x), True),
    "io_callback": (lambda x: io_callback(lambda x: x, struct, x), True),
    "pure callback": (lambda x: jax.pure_callback(lambda x: x, struct, x), False),
    "nothing": (lambda x: None, False),
}


@pytest.mark.parametrize("act", ACTS)
def test_an_effect_keeps_a_loop_alive_and_in_it_what_the_effect_needs(act):
    jaxpr = jax.make_jaxpr(unused(ACTS[act][0]))(jnp.float32(1))
    loop = liveness(jaxpr).equations[0]
    if not ACTS[act][1]:
        assert loop is None
        return
    assert (loop.results, loop.carries) == ((False, False), (True,))
    (body,) = (program.jaxpr for program in inner_programs(jaxpr.eqns[0]).values())
    names = [eqn.primitive.name for eqn in _compat.body_of(body).jaxpr.eqns]
    alive = {name for name, one in zip(names, loop.inner["body"].equations, strict=True) if one}
    assert {"sin", "mul"} <= alive and "cos" not in alive


def test_a_callback_that_is_used_is_computed():
    live, names = analysed(lambda x: jax.pure_callback(lambda x: x, struct, x), jnp.float32(1))
    assert dict(zip(names, live.equations, strict=True))["pure_callback"] is not None


def test_what_is_written_into_a_reference_lives_and_what_is_only_read_does_not():
    def program(x):
        ref = jax.new_ref(x)
        jnp.exp(ref[...])
        ref[...] = jnp.sin(x)
        return jnp.tan(x)

    live, names = analysed(program, jnp.float32(1))
    alive = [name for name, one in zip(names, live.equations, strict=True) if one]
    assert alive == ["new_ref", "sin", "swap", "tan"]


def test_no_effect_and_no_use_is_an_empty_program():
    live, _ = analysed(lambda x: jnp.sin(jnp.cos(x)), 1.0, used=[False])
    assert (live.inputs, live.equations) == ((False,), (None, None))


def test_programs_nested_deep_are_looked_at_once():
    """Sixty times doubled: 2**60 equations if each use counted."""
    f = lambda x: (jnp.sin(x), jnp.cos(x))
    for _ in range(60):
        f = jax.jit(lambda x, f=f: (f(f(x)[0])[0], f(x)[1]))
    jaxpr = jax.make_jaxpr(f)(1.0)
    assert liveness(jaxpr, [True, False]).inputs == (True,)
