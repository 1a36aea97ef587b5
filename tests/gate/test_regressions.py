"""What other people's test suites, run under the gate, once found: programs that must run as if nobody looked."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtap_core as tap


def test_a_scan_without_steps_is_observed():
    xs = jnp.zeros((0, 3))
    with tap.record(gate="escape") as rec:
        carry, ys = jax.lax.scan(lambda c, x: (c, c * x), jnp.ones(3), xs)
    assert rec.unobservable == [] and rec.findings == []
    np.testing.assert_array_equal(carry, np.ones(3))
    assert ys.shape == (0, 3)


@pytest.mark.parametrize("setting", [jax.debug_nans, jax.checking_leaks])
def test_a_carry_that_begins_as_a_literal_is_observed(setting):
    with setting(True) if setting is jax.debug_nans else setting(), tap.record(gate="escape") as rec:
        carry, _ = jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c + x, c), 0.0, xs))(jnp.arange(3.0))
    assert rec.unobservable == [] and float(carry) == 3.0


def test_a_nan_that_a_branch_returns_by_design_is_no_finding():
    solve = jax.jit(lambda x: jax.lax.cond(x > 0, lambda: jnp.sqrt(x), lambda: np.float32("nan")))
    with tap.record(gate="escape") as rec:
        assert np.isnan(solve(-1.0))
    assert rec.findings == []


def test_a_nan_is_followed_through_axes_of_size_one():
    multiply = jax.jit(lambda x, y: jax.lax.mul(jnp.log(x), y))
    with tap.record(gate="escape") as rec:
        multiply(jnp.array([[1.0, 2.0, -3.0]]), jnp.array([[1.0], [2.0]]))
    origin = rec.findings[0].origin
    assert (origin.primitive, origin.operands[0]["index"]) == ("log", (0, 2))
