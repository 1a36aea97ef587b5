"""Trajectories of programs nobody here wrote, each compared with a snapshot; run by ``trajectories.py`` beside."""

from __future__ import annotations

from typing import Any

import blackjax
import diffrax
import jax
import jax.numpy as jnp


def test_adaptation_of_a_sampler(tap_recorder: Any, tap_snapshot: Any) -> None:
    scale = jnp.array([1.0, 5.0])
    warmup = blackjax.window_adaptation(blackjax.nuts, lambda x: -0.5 * jnp.sum((x / scale) ** 2))
    with tap_recorder(select={"step_size": "carry[1].step_size"}, max_depth=1) as rec:
        warmup.run(jax.random.key(0), jnp.ones(2), 200)
    assert rec == tap_snapshot


def solve(field: Any, until: float, y0: Any) -> None:
    steps = diffrax.PIDController(rtol=1e-4, atol=1e-6)
    term = diffrax.ODETerm(lambda t, y, args: jnp.stack(field(*y)))
    diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, until, 0.01, jnp.array(y0), stepsize_controller=steps)


def test_solution_of_an_oscillator(tap_recorder: Any, tap_snapshot: Any) -> None:
    with tap_recorder(select={"t": "tprev", "y": "x[3].y"}, max_depth=1) as rec:
        solve(lambda x, v: (v, (1 - x * x) * v - x), 12.0, [2.0, 0.0])  # van der Pol's
    assert rec == tap_snapshot


def test_solution_of_a_chaotic_flow(tap_recorder: Any, tap_snapshot: Any) -> None:
    with tap_recorder(select={"t": "tprev", "y": "x[3].y"}, max_depth=1) as rec:
        solve(lambda x, y, z: (10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z), 20.0, [1.0, 1.0, 1.0])  # Lorenz'
    assert rec == tap_snapshot
