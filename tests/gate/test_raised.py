"""A program that raises is explained by the NaN that it raised for; the error stays the user's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap_core as tap

SCALAR = jax.ShapeDtypeStruct((), jnp.float32)


def refuse(x):
    if np.isnan(x).any():
        raise FloatingPointError("not finite")
    return x


def pure(x):
    return jax.pure_callback(refuse, SCALAR, jnp.sqrt(x - 2.0))


def in_a_branch(x):
    y = jnp.sqrt(x - 2.0)
    return lax.cond(jnp.isnan(y), lambda y: jax.pure_callback(refuse, SCALAR, y), lambda y: y, y)


def after_a_loop(x):
    y = lax.fori_loop(0, 3, lambda i, c: jnp.sqrt(c) - 1.0, x)
    return jax.pure_callback(refuse, SCALAR, y)


def checked(x):
    y = jnp.sqrt(x - 2.0)
    return eqx.error_if(y, jnp.isnan(y), "bad")


@pytest.mark.parametrize("f", [pure, in_a_branch, after_a_loop, checked])
@pytest.mark.parametrize("gate", ["outputs", "escape"])
def test_the_nan_that_a_program_raised_for_is_told(f, gate):
    with tap.record(gate=gate) as rec, pytest.raises(Exception, match=r"not finite|bad"):
        jax.block_until_ready(jax.jit(f)(jnp.float32(1.0)))
    assert "sqrt" in [finding.origin.primitive for finding in rec.findings]
    assert any("sqrt of a negative number (-1)" in str(finding) for finding in rec.findings)


def test_an_error_for_another_reason_is_not_explained_by_a_nan_that_does_not_reach_it():
    def f(x):
        lost = jnp.sqrt(x - 2.0)  # never reaches what raises
        y = jax.pure_callback(lambda v: refuse(np.float32(np.nan)), SCALAR, x)
        return y + jnp.where(jnp.isnan(lost), 0.0, lost)

    with tap.record(gate="outputs") as rec, pytest.raises(Exception, match="not finite"):
        jax.block_until_ready(jax.jit(f)(jnp.float32(1.0)))
    assert rec.findings == []


def test_a_nan_that_was_given_is_not_told():
    with tap.record(gate="outputs") as rec, pytest.raises(Exception, match="not finite"):
        jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(refuse, SCALAR, x * 2))(jnp.float32(np.nan)))
    assert rec.findings == []


def test_the_host_is_not_called_again_to_explain():
    calls = []

    def host(x):
        calls.append(1)
        return refuse(x)

    f = jax.jit(lambda x: jax.pure_callback(host, SCALAR, jnp.sqrt(x - 2.0)))
    with tap.record(gate="escape") as rec, pytest.raises(Exception, match="not finite"):
        jax.block_until_ready(f(jnp.float32(1.0)))
    assert rec.findings and len(calls) == 1
