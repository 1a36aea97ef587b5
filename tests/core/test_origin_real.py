"""Origins in programs of other people's libraries, unmodified; the NaN is planted by data alone."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtap_core.find import find_origin


def line_of(f, text: str) -> str:
    """``file.py:line`` of the line of ``f`` that holds ``text``."""
    lines, first = inspect.getsourcelines(f)
    return f"test_origin_real.py:{first + next(i for i, s in enumerate(lines) if text in s)} "


def optax_training(w, xs, ys):
    import optax

    optimizer = optax.adam(0.1)

    def loss(w, x, y):
        return jnp.mean((jnp.sqrt(x * w) - y) ** 2)

    def step(carry, batch):
        w, state = carry
        value, gradient = jax.value_and_grad(loss)(w, *batch)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(w, updates), state), value

    return jax.lax.scan(step, (w, optimizer.init(w)), (xs, ys))


def test_optax_the_bad_batch_is_named():
    xs = np.ones((12, 3), np.float32)
    xs[7, 1] = -1.0
    found = find_origin(jax.jit(optax_training), jnp.float32(1.0), jnp.asarray(xs), jnp.ones((12, 3)))
    assert (found.event.path, found.event.step, found.event.total) == ("scan[0]", 7, 12)
    origin = found.origin
    assert (origin.primitive, origin.path, origin.steps) == ("sqrt", "scan[0]/sqrt[0]", (7,))
    assert origin.source.startswith(line_of(optax_training, "jnp.sqrt")) and "(loss)" in origin.source
    assert origin.operands[0]["index"] == (1,) and origin.operands[0]["element"] < 0


def blackjax_sampling(key, position, batches):
    import blackjax
    from blackjax.sgmcmc.gradients import grad_estimator

    def logprior(x):
        return -0.5 * jnp.sum(x**2)

    def loglikelihood(x, datum):
        return -0.5 * (x[0] - jnp.log(datum)) ** 2

    sgld = blackjax.sgld(grad_estimator(logprior, loglikelihood, 100))

    def step(position, inputs):
        key, batch = inputs
        position = sgld.step(key, position, batch, 1e-3)
        return position, position

    return jax.lax.scan(step, position, (jax.random.split(key, len(batches)), batches))


def test_blackjax_the_line_in_the_users_model_is_named():
    batches = np.full((9, 4), 2.0, np.float32)
    batches[5, 2] = -3.0
    found = find_origin(jax.jit(blackjax_sampling), jax.random.key(0), jnp.zeros(2), jnp.asarray(batches))
    assert (found.event.path, found.event.step) == ("scan[0]", 5)
    origin = found.origin
    assert origin.primitive == "log" and origin.steps == (5,)
    assert origin.source.startswith(line_of(blackjax_sampling, "jnp.log"))
    assert origin.operands[0]["element"] == -3.0


def diffrax_solution(y0, rate):
    import diffrax

    def field(t, y, rate):
        return -rate * jnp.sqrt(y)

    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Euler(),
        0.0,
        3.0,
        0.25,
        y0,
        args=rate,
        max_steps=16,
    ).ys


def test_diffrax_the_vector_field_is_named():
    y, step = np.float64(1.0), 0  # Euler's method by hand: the first step that starts below 0
    while y >= 0:
        y, step = y - 0.25 * 1.5 * np.sqrt(y), step + 1
    found = find_origin(jax.jit(diffrax_solution), jnp.float32(1.0), jnp.float32(1.5))
    origin = found.origin
    assert origin.primitive == "sqrt"
    assert origin.source.startswith(line_of(diffrax_solution, "jnp.sqrt(y)"))
    assert origin.operands[0]["element"] == pytest.approx(y, abs=1e-5)
    assert origin.steps[-1] in (step, step - 1, step % 16)


def optimistix_root(x0, level):
    import optimistix

    def equation(x, level):
        return jnp.log(x) - level

    solver = optimistix.Newton(rtol=1e-5, atol=1e-5)
    return optimistix.root_find(equation, solver, x0, args=level, throw=False).value


def test_optimistix_the_step_out_of_the_domain_is_named():
    x, steps = np.float64(5.0), 0  # Newton's method by hand
    while x > 0:
        x, steps = x - x * (np.log(x) + 3.0), steps + 1
    found = find_origin(jax.jit(optimistix_root), jnp.float32(5.0), jnp.float32(-3.0))
    origin = found.origin
    assert origin.primitive == "log" and origin.path.startswith("while[0]/")
    assert origin.steps == (steps,)
    assert origin.source.startswith(line_of(optimistix_root, "jnp.log(x)"))
    assert origin.operands[0]["element"] == pytest.approx(x, rel=1e-5)
