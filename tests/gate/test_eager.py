"""Eager code is judged like compiled code: a NaN counts by what becomes of it, whichever programs it takes."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap_core as tap

X = np.array([0.0, 1.0], np.float32)


def gated(f, *args, **options):
    with tap.record(gate="escape", **options) as rec:
        kept = f(*args)
    del kept
    return [x.origin.primitive for x in rec.findings if not x.masked]


def chain(x):
    y = jnp.sin(x) / x
    z = y * 2 + 1
    return jnp.where(x == 0, 1.0, z)


HARMLESS = {
    "where": lambda x: jnp.where(x == 0, 1.0, jnp.sin(x) / x),
    "a chain, then where": chain,
    "nan_to_num": lambda x: jnp.nan_to_num(jnp.sin(x) / x),
    "nansum": lambda x: jnp.nansum(jnp.sin(x) / x),
    "at set": lambda x: (jnp.sin(x) / x).at[0].set(1.0),
    "a jitted function that selects": lambda x: jax.jit(lambda y: jnp.where(jnp.isnan(y), 0.0, y))(jnp.sin(x) / x),
    "isnan, then where": lambda x: (y := jnp.sin(x) / x, jnp.where(jnp.isnan(y), 0.0, y))[1],
    "an eager loop, then where": lambda x: jnp.where(x > 0, lax.map(lambda v: jnp.sin(v) / v, x), 1.0),
    "given": lambda x: jnp.asarray(np.float32(np.nan)) * 2,
}
HARMFUL = {
    "unused": (lambda x: jnp.sin(x) / x, ["div"]),
    "summed": (lambda x: jnp.sum(jnp.sin(x) / x), ["div"]),
    "only asked about": (lambda x: jnp.isnan(jnp.sin(x) / x), ["div"]),
    "one use selects, another keeps": (lambda x: (y := jnp.sin(x) / x, jnp.where(x == 0, 1.0, y), y + 1)[1:], ["div"]),
    "released": (lambda x: (jnp.sin(x) / x, gc.collect())[1], ["div"]),
    "two": (lambda x: (jnp.sin(x) / x, jnp.log(x - 1)), ["div", "log"]),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_an_eager_nan_that_a_later_program_selects_away_is_nothing(case):
    assert gated(HARMLESS[case], X) == []
    assert gated(jax.jit(HARMLESS[case]), X) == []


@pytest.mark.parametrize("case", HARMFUL)
def test_an_eager_nan_that_is_kept_or_not_used_is_a_finding_where_it_was_born(case):
    f, blamed = HARMFUL[case]
    assert gated(f, X) == blamed


def test_findings_of_eager_code_come_in_the_order_of_their_programs():
    with tap.record(gate="escape") as rec:
        a = jnp.log(jnp.float32(-1.0))
        jax.jit(lambda x: jnp.sqrt(x))(-1.0)
        b = jnp.arccos(jnp.float32(2.0))
    del a, b
    assert [x.origin.primitive for x in rec.findings] == ["log", "sqrt", "acos"]


def test_nothing_is_kept_once_the_block_is_over():
    import weakref

    with tap.record(gate="escape") as rec:
        y = jnp.sin(jnp.asarray(X)) / X
        ref = weakref.ref(y)
        del y
    assert rec.findings
    gc.collect()
    assert ref() is None
