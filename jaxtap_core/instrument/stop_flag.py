"""The brake of a program: stops its loops on the device, for a trip budget or for the first alert.

One small state for the whole program: which place pulled it first, and at which steps. Every ``while`` ends as soon as
it is pulled; the steps of a ``scan`` that are left do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtap_core.instrument.selection import storable

BRAKE = -1  # the brake's number among the states of a program


class Brake(NamedTuple):
    """Who pulled it (negative: nobody yet), and the index vector of the loops around, padded with -1."""

    place: Any
    steps: Any


def released(depth: int) -> Brake:
    """A brake that nobody has pulled, for a program whose loops nest ``depth`` deep."""
    return Brake(jnp.int32(-1), jnp.full((depth,), -1, jnp.int32))


def pulled_by(brake: Brake, number: int, steps: Sequence[Any], condition: Any) -> Brake:
    """The brake after place ``number`` pulled it where ``condition``; only the first pull counts."""
    first = (brake.place < 0) & condition
    padding = [jnp.int32(-1)] * (brake.steps.shape[0] - len(steps))
    here = jnp.stack([*steps, *padding]) if brake.steps.shape[0] else brake.steps
    return Brake(jnp.where(first, jnp.int32(number), brake.place), jnp.where(first, here, brake.steps))


class Trail(NamedTuple):
    """What is kept of a loop to say why it does not end: the carry one step ago, and since when nothing changed.

    ``since`` and ``cycle`` are one number, or one for each lane of a loop that tells its lanes apart.
    """

    before: list[Any]
    since: Any
    cycle: Any


def start_trail(carry: Sequence[Any], lanes: tuple[int, ...]) -> Trail:
    """Before the first step."""
    return Trail(list(carry), jnp.full(lanes, -1, jnp.int32), jnp.full(lanes, -1, jnp.int32))


def next_trail(trail: Trail, old: Sequence[Any], new: Sequence[Any], step: Any) -> Trail:
    """After a step from ``old`` to ``new``."""
    lanes = trail.since.shape
    unchanged = _same(old, new, lanes)
    repeats = _same(trail.before, new, lanes) & ~unchanged & (step > 0)
    follow = lambda since, holds: jnp.where(holds, jnp.where(since < 0, step, since), jnp.int32(-1))
    return Trail(list(old), follow(trail.since, unchanged), follow(trail.cycle, repeats))


def _same(xs: Sequence[Any], ys: Sequence[Any], lanes: tuple[int, ...]) -> Any:
    """Whether two carries are equal, lane by lane, a NaN being equal to a NaN."""
    verdict = jnp.ones(lanes, bool)
    for x, y in zip(map(storable, xs), map(storable, ys), strict=True):
        equal = x == y
        if jnp.issubdtype(x.dtype, jnp.inexact):
            equal = equal | ((x != x) & (y != y))
        verdict = verdict & jnp.all(equal, axis=tuple(range(len(lanes), equal.ndim)))
    return verdict


class Ended(NamedTuple):
    """The end of the loop that exceeded its budget: its last carry, its trail, and which lanes were running."""

    carry: list[Any]
    since: Any
    cycle: Any
    running: Any


def not_ended(carry_avals: Sequence[Any], lanes: tuple[int, ...]) -> Ended:
    """The state of a loop that has not exceeded its budget."""
    zeros = [jnp.zeros(x.shape, x.dtype) for x in _stored(carry_avals)]
    never = jnp.full(lanes, -1, jnp.int32)
    return Ended(zeros, never, never, jnp.zeros(lanes, bool))


def _stored(avals: Sequence[Any]) -> list[Any]:
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    return jax.eval_shape(lambda *xs: [storable(x) for x in xs], *structs)
