"""Torricelli's law: a tank runs empty. The solver steps past the end, and the square root of a negative level is NaN.

Diffrax runs its steps in a while loop deep inside the library; the report names the step, the line of the vector field
and the level it was given.
"""

import diffrax
import jax.numpy as jnp


def outflow(t, level, args):
    return -jnp.sqrt(level)


def test_the_tank_runs_empty() -> None:
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(outflow),
        diffrax.Heun(),
        t0=0.0,
        t1=3.0,
        dt0=0.2,
        y0=jnp.array([1.0, 4.0]),
        saveat=diffrax.SaveAt(t1=True),
    )
    assert solution.ys.shape == (1, 2)
