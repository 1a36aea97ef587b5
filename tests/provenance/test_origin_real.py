"""Origins in programs of other people's libraries, unmodified; the NaN is planted by data alone."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtap_core.api.origin import find_origin


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


# -- in the backward pass


def optax_masked(weight, logits, labels):
    import optax

    optimizer = optax.sgd(0.1)

    def loss(weight, logits, labels):
        each = optax.softmax_cross_entropy(weight * logits, labels)
        return jnp.mean(jnp.where(jnp.isfinite(logits).any(-1), each, 0.0))

    def step(i, carry):
        weight, state = carry
        updates, state = optimizer.update(jax.grad(loss)(weight, logits[i], labels[i]), state)
        return optax.apply_updates(weight, updates), state

    return jax.lax.fori_loop(0, len(logits), step, (weight, optimizer.init(weight)))


def test_optax_a_row_that_is_masked_altogether_is_told_with_the_line_in_the_library():
    import optax

    logits = np.zeros((4, 3, 5), np.float32)
    logits[2, 1] = -np.inf
    found = find_origin(jax.jit(optax_masked), jnp.float32(1), jnp.asarray(logits), jnp.full((4, 3, 5), 0.2))
    assert (found.event.path, found.event.step, found.leaf) == ("scan[0]", 2, "carry[0]")
    origin = found.origin
    # the library takes the greatest logit, -inf, from the row: in log_softmax, which the line calls
    lines, first = inspect.getsourcelines(optax.softmax_cross_entropy)
    line = first + next(i for i, text in enumerate(lines) if "log_softmax(" in text)
    assert origin.source == f"optax/…/_classification.py:{line} (softmax_cross_entropy)"
    assert (origin.primitive, origin.steps) == ("sub", (2,))
    assert "inf - inf; the inf came with argument 'logits', in a where branch that was not taken" in origin.reason
    assert "jnp.where(ok, x, 1.0)" in origin.advice


def blackjax_leapfrog(key, data):
    import blackjax

    def logdensity(x):
        return -0.5 * jnp.sum(x**2) - jnp.sum(jnp.where(data > 0, jnp.sqrt(data * (x[0] + 3)), 0.0))

    hmc = blackjax.hmc(logdensity, step_size=1e-2, inverse_mass_matrix=jnp.ones(2), num_integration_steps=3)
    step = lambda state, key: (hmc.step(key, state)[0], None)
    return jax.lax.scan(step, hmc.init(jnp.ones(2)), jax.random.split(key, 3))[0].position


def test_blackjax_a_gradient_that_a_where_of_the_model_spoils_is_told():
    assert np.isfinite(jax.jit(blackjax_leapfrog)(jax.random.key(0), jnp.array([1.0, 2.0]))).all()
    found = find_origin(jax.jit(blackjax_leapfrog), jax.random.key(0), jnp.array([1.0, 0.0, 2.0]))
    origin = found.origin
    assert found.event.path == "scan[0]/scan[0]" and origin.phase == "backward"  # born before, when hmc was initialised
    assert origin.source.startswith(line_of(blackjax_leapfrog, "jnp.sqrt"))
    assert origin.reason.startswith("0 * inf in the backward pass, where the 0 is the cotangent of a where branch")
    assert "division of 0.5 by 0" in origin.reason


def diffrax_gradient(y0, rate):
    import diffrax

    def field(t, y, rate):
        return -rate * jnp.sqrt(y)

    def total(y0):
        term, solver = diffrax.ODETerm(field), diffrax.Euler()
        return diffrax.diffeqsolve(term, solver, 0.0, 1.0, 0.25, y0, args=rate, max_steps=16).ys.sum()

    return jax.grad(total)(y0)


def test_diffrax_the_vector_field_is_named_in_the_adjoint():
    # y[1] stays 0; its adjoint is 1, then 1 - inf, then -inf + inf: at the second of the reversed steps
    found = find_origin(jax.jit(diffrax_gradient), jnp.array([1.0, 0.0]), jnp.float32(0.5))
    origin = found.origin
    assert found.event.path.startswith("while[") and (found.event.step, found.count, found.size) == (1, 1, 2)
    assert origin.phase == "backward" and origin.steps == (1,)
    assert origin.source.startswith(line_of(diffrax_gradient, "jnp.sqrt(y)"))
    assert origin.reason.startswith("inf - inf; the inf is made by div") and "division of 0.5 by 0" in origin.reason


def optimistix_minimum(y0, data):
    import optimistix

    def loss(y, data):
        return jnp.sum(jnp.where(data > 0, jnp.sqrt(data * y), 0.0) - y)

    solver = optimistix.BFGS(rtol=1e-3, atol=1e-3)
    return optimistix.minimise(loss, solver, y0, args=data, throw=False, max_steps=10).value


def test_optimistix_a_gradient_that_a_where_of_the_loss_spoils_is_told():
    found = find_origin(jax.jit(optimistix_minimum), jnp.float32(1.0), jnp.array([1.0, 0.0]))
    origin = found.origin
    assert (found.event.path, found.event.step) == ("while[0]", 0)
    assert origin.phase == "backward" and origin.source.startswith(line_of(optimistix_minimum, "jnp.sqrt"))
    assert "where branch that was not taken" in origin.reason and "jnp.where(ok, x, 1.0)" in origin.advice


def numpyro_ascent(location, counts):
    import numpyro
    from numpyro import distributions
    from numpyro.infer.util import log_density

    def model(counts):
        location = numpyro.sample("location", distributions.Normal(0.0, 1.0))
        with numpyro.handlers.mask(mask=counts > 0):
            numpyro.sample("y", distributions.Normal(location, jnp.sqrt(counts + location)), obs=0.0 * counts)

    slope = jax.grad(lambda x: log_density(model, (counts,), {}, {"location": x})[0])
    return jax.lax.scan(lambda x, _: (x + 0.1 * slope(x), None), location, None, length=4)[0]


def test_numpyro_a_mask_that_does_not_keep_the_gradient_clean_is_told():
    found = find_origin(jax.jit(numpyro_ascent), jnp.float32(0.5), jnp.array([1.0, -2.0, 3.0]))
    origin = found.origin
    assert (found.event.path, found.event.step) == ("scan[0]", 0)
    assert origin.primitive == "sqrt" and origin.operands[0]["element"] == -1.5
    assert origin.source.startswith(line_of(numpyro_ascent, "jnp.sqrt"))
    assert "in a where branch that was not taken" in origin.reason
