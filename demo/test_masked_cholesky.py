"""The sampler finishes and looks healthy, but it never visits half of the posterior.

A Gaussian process with an RBF kernel in float32: for long length scales the kernel matrix is not positive definite in
that precision, its Cholesky factor is NaN, the log density is NaN, and Metropolis rejects the proposal. No NaN ever
reaches the chain. Only the factorisation itself can tell.
"""

import blackjax
import jax
import jax.numpy as jnp
import pytest

X = jnp.linspace(0.0, 1.0, 40)
Y = jnp.sin(3.0 * X)


def log_density(log_scale: jax.Array) -> jax.Array:
    distance = (X[:, None] - X[None, :]) / jnp.exp(log_scale)
    kernel = jnp.exp(-0.5 * distance**2) + 3e-7 * jnp.eye(X.size)
    factor = jnp.linalg.cholesky(kernel)
    white = jax.scipy.linalg.solve_triangular(factor, Y, lower=True)
    return -0.5 * white @ white - jnp.log(jnp.diag(factor)).sum() - 0.5 * log_scale**2


@pytest.mark.tap(watch_nan="cholesky")
def test_the_chain_is_finite() -> None:
    sampler = blackjax.additive_step_random_walk(log_density, blackjax.mcmc.random_walk.normal(jnp.array(0.5)))

    @jax.jit
    def chain(key: jax.Array) -> jax.Array:
        def step(state, key):
            state, _ = sampler.step(key, state)
            return state, state.position

        return jax.lax.scan(step, sampler.init(jnp.float32(-3.0)), jax.random.split(key, 300))[1]

    assert jnp.isfinite(chain(jax.random.key(1))).all()  # passes: every NaN was rejected
