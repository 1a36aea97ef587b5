"""Addresses: by pencil and paper, alike for all who speak of them, and not moved by what is skipped."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtap_core as tap
from jaxtap_core.jaxpr.structure import BODY, inner_programs
from jaxtap_core.jaxpr.visit import addressed
from jaxtap_core.provenance.flat import FlatProgram, flatten


@jax.custom_jvp
def custom(x):
    return lax.fori_loop(0, 2, lambda i, c: jnp.cos(c), x)


custom.defjvp(lambda primals, tangents: (custom(*primals), tangents[0]))


def loops(x):
    while_ = lambda c: lax.while_loop(lambda n: n < 2, lambda n: n + 2 + jnp.cos(n), c)
    y = lax.scan(lambda c, _: (jnp.sin(while_(c)), None), x, length=2)[0]
    y = lax.cond(x > 9, jnp.sin, lambda y: lax.map(jnp.cos, jnp.stack([y, y]))[0], jnp.sin(y))
    return lax.while_loop(lambda n: n + jnp.sin(n) < 2, lambda n: n + 1 + jnp.cos(n), y)


def calls(x):
    f = jax.jit(lambda x: jnp.sin(lax.scan(lambda c, _: (jnp.cos(c), None), jnp.sin(x), length=1)[0]))
    return jnp.sin(f(x)) + jax.checkpoint(f)(x) + custom(x) + lax.map(jnp.sin, jnp.stack([x]))[0]


def solved(x):
    solve = lambda matvec, b: lax.scan(lambda c, _: (jnp.cos(c), None), jnp.sin(b), length=1)[0]
    x = lax.custom_linear_solve(lambda v: 2 * v, x, solve, symmetric=True)
    return lax.scan(lambda c, _: (jnp.cos(c), None), jnp.sin(x), length=1)[0]


def library(x):
    x = lax.scan(lambda c, _: (jnp.cos(c), None), x, length=1)[0]
    x = jnp.searchsorted(jnp.arange(4.0), x) + x
    return lax.scan(lambda c, _: (jnp.cos(c), None), jnp.sin(x), length=1)[0]


def sharded(x):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec()
    map_ = lambda f: jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    shard = lambda x: lax.scan(lambda c, _: (jnp.cos(c), None), jnp.sin(x), length=1)[0]
    return jnp.sin(map_(shard)(jnp.sin(x)))


# the program, and the addresses of its loops, branches, sines and cosines, each behind what stands in it
PROGRAMS = {
    loops: """
        scan[0]/while[0]/cos[0] scan[0]/while[0] scan[0]/sin[0] scan[0]
        sin[0] cond[1]/b0/scan[0]/cos[0] cond[1]/b0/scan[0] cond[1]/b1/sin[0] cond[1]
        while[2]/pred/sin[0] while[2]/cos[0] while[2]
    """,
    calls: """
        sin[0] scan[0]/cos[0] scan[0] sin[1] sin[2] sin[3] scan[1]/cos[0] scan[1] sin[4]
        scan[2]/cos[0] scan[2] scan[3]/sin[0] scan[3]
    """,
    solved: "sin[0] scan[0]/cos[0] scan[0] sin[1] scan[1]/cos[0] scan[1]",
    library: "scan[0]/cos[0] scan[0] sin[0] scan[1]/cos[0] scan[1]",
    sharded: "sin[0] sin[1] scan[0]/cos[0] scan[0] sin[2]",
}
SEEN = ("sin", "cos", "scan", "while", "cond")


def by_name(programs):
    """Inner programs, a predicate before its body."""
    return {name: programs[name] for name in sorted(programs, key=lambda name: (name == BODY, name))}


def addresses(jaxpr, prefix=""):
    """The addresses of a program, as `addressed` gives them level by level."""
    found = []

    def enter(equations, prefix):
        for one in equations:
            at = f"{prefix}{one.segment}"
            enter(one.within, prefix)
            if not one.within:
                for name, program in by_name(inner_programs(one.eqn)).items():
                    enter(addressed(program.jaxpr), f"{at}/" if name == BODY else f"{at}/{name}/")
            found.append(at)

    enter(addressed(jaxpr), prefix)
    return found


def replayed(flat: FlatProgram, prefix=""):
    """The addresses of a program, as the replay has them."""
    found = []
    for node in flat.nodes:
        for name in by_name(inner_programs(node.eqn)):
            at = {"": prefix, BODY: f"{prefix}{node.segment}/"}.get(name, f"{prefix}{node.segment}/{name}/")
            found += replayed(node.inner(name), at)
        found.append(f"{prefix}{node.segment}")
    return found


def seen(found):
    """Of addresses those of the user's loops and branches, of sines and cosines."""
    return [at for at in found if at.split("/")[-1].split("[")[0] in SEEN and "jax:" not in at]


@pytest.mark.parametrize("program", PROGRAMS)
def test_addresses_by_pencil_and_paper(program):
    assert seen(addresses(jax.make_jaxpr(program)(0.5))) == PROGRAMS[program].split()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_replay_numbers_alike(program):
    jaxpr = jax.make_jaxpr(program)(0.5)
    assert seen(replayed(flatten(jaxpr))) == PROGRAMS[program].split()


def heard(program, x, **options):
    with tap.record(taps=[tap.on(name) for name in SEEN], carry=True, **options) as rec:
        jax.jit(program)(x)
    return {event.path for event in rec.events}


@pytest.mark.parametrize("program", PROGRAMS)
def test_events_bear_these_addresses(program):
    everywhere = heard(program, 0.5) | heard(program, 10.0)  # both branches
    assert set(seen(everywhere)) == set(PROGRAMS[program].split())


@pytest.mark.parametrize("program", [calls, loops, solved])
def test_a_lens_inside_numbers_as_one_round_the_call_does(program):
    """Custom rules and solves among it: they are seen inside too, and what stands behind them keeps its address."""
    got = []
    listen = lambda event: got.append(event.path)
    g = tap.verbose(program, on_step=listen, taps=[tap.on(name, on_value=listen) for name in SEEN])
    for x in (0.5, 10.0):
        jax.jit(lambda x: g(x) * 2)(x)
    jax.effects_barrier()
    assert set(seen(got)) == set(PROGRAMS[program].split())


def test_a_shard_map_in_a_shard_map_is_numbered_behind_it():
    """As a call in a call is: the replay and the events say the same."""
    mesh = jax.make_mesh((1, 1), ("i", "j"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    spec = jax.sharding.PartitionSpec()
    inner = jax.shard_map(jnp.sin, in_specs=spec, out_specs=spec, axis_names={"j"}, check_vma=False)
    outer = jax.shard_map(inner, mesh=mesh, in_specs=spec, out_specs=spec, axis_names={"i"}, check_vma=False)
    jaxpr = jax.make_jaxpr(outer)(0.5)
    assert addresses(jaxpr) == replayed(flatten(jaxpr)) == ["sin[0]", "shard_map[0]", "shard_map[1]"]
