"""Programs nobody here wrote: what the lens sees of them agrees with what they say of themselves.

Each library reports some count of its own (integration steps, accepted steps, iterations); the number of events must
be that, and the result under the lens must be production's, bit for bit.
"""

import blackjax
import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix
import pytest

import jaxtap_core as tap


def same_bits(a, b):
    tap.assert_bitwise_equal([np.asarray(x) for x in jax.tree.leaves(a)], [np.asarray(x) for x in jax.tree.leaves(b)])


def events_at(rec, path):
    return [event for event in rec.events if event.path == path]


def test_blackjax_window_adaptation_streams_step_size_and_mass_matrix():
    warmup = blackjax.window_adaptation(blackjax.nuts, lambda x: -0.5 * jnp.sum((x / jnp.array([1.0, 5.0])) ** 2))
    run = lambda: warmup.run(jax.random.key(0), jnp.ones(2), 40)
    (state, parameters), info = run()
    leaves = {"step_size": "carry[1].step_size", "variance": "carry[1].inverse_mass_matrix"}
    with tap.record(select=leaves, max_depth=1) as rec:
        (observed, tuned), _ = run()
    same_bits((observed, tuned), (state, parameters))
    assert rec.certificate.identical
    frame = rec.df()
    assert frame.step.tolist() == list(range(40))
    # the library's own history of the same quantities, from its per-step output
    history = info.adaptation_state
    assert [float(x) for x in frame.step_size] == [float(x) for x in history.step_size]
    assert np.array_equal(np.stack(frame.variance), np.asarray(history.inverse_mass_matrix))

    with tap.record(taps=tap.on("cholesky"), where=lambda path: False) as rec:
        run()
    assert len(rec.events) == 0  # a diagonal mass matrix needs no factorisation


def test_blackjax_trajectories_have_as_many_events_as_integration_steps():
    sampler = blackjax.nuts(lambda x: -0.5 * jnp.sum(x**2), step_size=0.5, inverse_mass_matrix=jnp.ones(2))

    @jax.jit
    def chain(key):
        def step(state, key):
            state, info = sampler.step(key, state)
            return state, info.num_integration_steps

        return jax.lax.scan(step, sampler.init(jnp.ones(2)), jax.random.split(key, 15))

    with tap.record(select=lambda leaves: leaves[0]) as rec:
        _, steps = chain(jax.random.key(1))
    assert len(events_at(rec, "scan[0]")) == 15
    assert len(events_at(rec, "scan[0]/while[0]/while[1]")) == int(steps.sum())
    per_step = np.bincount([e.steps[0] for e in events_at(rec, "scan[0]/while[0]/while[1]")], minlength=15)
    assert per_step.tolist() == steps.tolist()


def test_a_float32_cholesky_that_the_samplers_rejection_hides(capsys):
    x = jnp.linspace(0.0, 1.0, 40)

    def log_density(log_scale):
        distance = (x[:, None] - x[None, :]) / jnp.exp(log_scale)
        factor = jnp.linalg.cholesky(jnp.exp(-0.5 * distance**2) + 3e-7 * jnp.eye(40))
        white = jax.scipy.linalg.solve_triangular(factor, jnp.sin(3 * x), lower=True)
        return -0.5 * white @ white - jnp.log(jnp.diag(factor)).sum() - 0.5 * log_scale**2

    sampler = blackjax.additive_step_random_walk(log_density, blackjax.mcmc.random_walk.normal(jnp.array(0.5)))

    @jax.jit
    def chain(key):
        def step(state, key):
            state, _ = sampler.step(key, state)
            return state, state.position

        return jax.lax.scan(step, sampler.init(jnp.float32(-3.0)), jax.random.split(key, 60))[1]

    with tap.record(gate="escape") as rec:
        positions = chain(jax.random.key(1))
    assert jnp.isfinite(positions).all()
    assert rec.findings == []  # masked: nothing escapes

    with tap.record(taps=tap.on("cholesky")) as rec:
        chain(jax.random.key(1))
    factors = events_at(rec, "scan[0]/cholesky[0]")
    failed = [event.step for event in factors if np.isnan(event.value).any()]
    assert len(factors) == 60
    assert failed

    with tap.record(taps=tap.watch_nan("cholesky")) as rec:
        chain(jax.random.key(1))
    assert [alert.event.step for alert in rec.alerts] == failed
    assert capsys.readouterr().err.count("[tap] FAIL scan[0]/cholesky[0]") == len(failed)


def test_optax_a_python_loop_over_a_jitted_step():
    optimizer = optax.adam(0.1)
    target = jnp.arange(4.0)

    @jax.jit
    def step(weights, state):
        gradient = jax.grad(lambda w: jnp.sum((w - target) ** 2))(weights)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state

    def train():
        weights = jnp.zeros(4)
        state = optimizer.init(weights)
        for _ in range(12):
            weights, state = step(weights, state)
        return weights, state

    production = train()
    with tap.record(taps=tap.on("sqrt", label="second moment")) as rec:
        observed = train()
    same_bits(observed, production)
    assert [event.call for event in rec.events] == list(range(12))
    assert {event.program for event in rec.events} == {"step"}
    # Adam's second moment after its bias correction, by its formula in float64
    weights, mean, second = np.zeros(4), np.zeros(4), np.zeros(4)
    for number, event in enumerate(rec.events, 1):
        gradient = 2 * (weights - np.arange(4.0))
        mean, second = 0.9 * mean + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        root = np.sqrt(second / (1 - 0.999**number))
        np.testing.assert_allclose(event.value, root, rtol=1e-4)
        weights = weights - 0.1 * (mean / (1 - 0.9**number)) / (root + 1e-8)


def test_diffrax_has_as_many_events_as_steps():
    def solve(y0):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, rate: -rate * y),
            diffrax.Tsit5(),
            t0=0.0,
            t1=2.0,
            dt0=0.1,
            y0=y0,
            args=3.0,
            stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-6),
        )

    production = solve(jnp.array([1.0, 2.0]))
    with tap.record(select={"y": "y", "t": "tprev"}, max_depth=1) as rec:
        observed = solve(jnp.array([1.0, 2.0]))
    same_bits(observed.ys, production.ys)
    frame = rec.df()
    assert len(frame) == int(production.stats["num_steps"]) > 5
    # the solution it passes through is exp(-3t) to the tolerance asked for
    for t, y in zip(frame.t, frame.y, strict=True):
        np.testing.assert_allclose(y, np.exp(-3.0 * np.float64(t)) * np.array([1.0, 2.0]), atol=1e-3)


@pytest.mark.parametrize("observe", [{}, {"identity": "inline"}], ids=["certified", "inline"])
def test_optimistix_has_as_many_events_as_iterations(observe):
    def solve():
        return optimistix.root_find(
            lambda y, _: jnp.cos(y) - y, optimistix.Newton(rtol=1e-6, atol=1e-6), jnp.array(0.5)
        )

    production = solve()
    with tap.record(select=lambda leaves: leaves[0], **observe) as rec:
        observed = solve()
    same_bits(observed.value, production.value)
    assert len(rec.events) == int(production.stats["num_steps"])
    np.testing.assert_allclose(observed.value, 0.7390851332151607, rtol=1e-6)
