"""The stop flag of a program: stops its loops on the device, for a trip budget or for the first alert.

One small state for the whole program: which place raised it first, and at which steps. Every ``while`` ends as soon as
it is raised; the steps of a ``scan`` that are left do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtap_core.instrument.selection import storable
from jaxtap_core.jaxpr.values import is_inexact

STOP_FLAG = -1  # the number of the stop flag among the states of a program


class StopFlag(NamedTuple):
    """Who raised it (negative: nobody yet), and the index vector of the loops around, padded with -1."""

    place: Any
    steps: Any


def not_raised(depth: int) -> StopFlag:
    """A stop flag that nobody has raised, for a program whose loops nest ``depth`` deep."""
    return StopFlag(jnp.int32(-1), jnp.full((depth,), -1, jnp.int32))


def raised_by(flag: StopFlag, number: int, steps: Sequence[Any], condition: Any) -> StopFlag:
    """The stop flag after place ``number`` raised it where ``condition``; only the first counts."""
    first = (flag.place < 0) & condition
    padding = [jnp.int32(-1)] * (flag.steps.shape[0] - len(steps))
    here = jnp.stack([*steps, *padding]) if flag.steps.shape[0] else flag.steps
    return StopFlag(jnp.where(first, jnp.int32(number), flag.place), jnp.where(first, here, flag.steps))


class History(NamedTuple):
    """What is kept of a loop to say why it does not end: the carry one step ago, and since when nothing changed.

    ``since`` and ``cycle`` are one number, or one for each lane of a loop that tells its lanes apart.
    """

    before: list[Any]
    since: Any
    cycle: Any


def start_history(carry: Sequence[Any], lanes: tuple[int, ...]) -> History:
    """Before the first step."""
    return History(list(carry), jnp.full(lanes, -1, jnp.int32), jnp.full(lanes, -1, jnp.int32))


def next_history(history: History, old: Sequence[Any], new: Sequence[Any], step: Any) -> History:
    """After a step from ``old`` to ``new``."""
    lanes = history.since.shape
    unchanged = _same(old, new, lanes)
    repeats = _same(history.before, new, lanes) & ~unchanged & (step > 0)
    follow = lambda since, holds: jnp.where(holds, jnp.where(since < 0, step, since), jnp.int32(-1))
    return History(list(old), follow(history.since, unchanged), follow(history.cycle, repeats))


def _same(xs: Sequence[Any], ys: Sequence[Any], lanes: tuple[int, ...]) -> Any:
    """Whether two carries are equal, lane by lane, a NaN being equal to a NaN."""
    verdict = jnp.ones(lanes, bool)
    for x, y in zip(map(storable, xs), map(storable, ys), strict=True):
        equal = x == y
        if is_inexact(x):
            equal = equal | ((x != x) & (y != y))
        verdict = verdict & jnp.all(equal, axis=tuple(range(len(lanes), equal.ndim)))
    return verdict


class Ended(NamedTuple):
    """The end of the loop that exceeded its budget: its last carry, since when it stood still, which lanes ran."""

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
