"""As many events as bodies were executed, in every entry form: calls that are looked through, and calls of programs."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from counted import check_in_every_entry_form, into, nest
from jax import lax
from lenses import ENTRIES, seen, steps

import jaxtap_core as tap

CASES = {}
case = into(CASES)


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


@pytest.mark.parametrize("name", CASES)
def test_events_are_body_executions_in_every_entry_form(name):
    check_in_every_entry_form(*CASES[name])


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
