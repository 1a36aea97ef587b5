"""A training loop in plain Python over a jitted step: the loss is NaN at the end, but where did it start?

The cross entropy is computed from probabilities; once the sigmoid saturates in float32, log(1 - p) is -inf and the
product with a zero label is NaN. The gate names the call, the line and the reason.
"""

import jax
import jax.numpy as jnp
import optax


def loss(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    p = jax.nn.sigmoid(x @ weights)
    return -jnp.mean(y * jnp.log(p) + (1 - y) * jnp.log(1 - p))


def test_training_converges() -> None:
    optimizer = optax.adam(0.3)
    x = jax.random.normal(jax.random.key(0), (64, 5)) * 4.0
    y = (x.sum(1) > 0).astype(jnp.float32)
    weights = jnp.zeros(5)
    state = optimizer.init(weights)

    @jax.jit
    def step(weights, state):
        value, gradient = jax.value_and_grad(loss)(weights, x, y)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state, value

    for _ in range(60):
        weights, state, value = step(weights, state)
    assert value < 0.1
