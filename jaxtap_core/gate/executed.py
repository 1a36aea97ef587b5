"""A program that was executed, with what came of it: what the gate and the certificates judge."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jaxtap_core.instrument.nonfinite import has_bad
from jaxtap_core.instrument.plan import Plan
from jaxtap_core.records.kinds import Phase


@dataclass(slots=True)
class Executed:
    """One program that was started.

    Attributes:
        name, call: of the program.
        jaxpr: function that gives the program's jaxpr, built only when it is needed.
        args, outs: inputs and production's (or, inline, the only) outputs.
        since: when it was started (seconds, monotonic).
        source_info: what JAX knows of the user's line that ran it.
        observed: the replica's outputs, where one ran.
        states: extra outputs: buffers and verdicts by site number.
        plan: of an observed program; ``None`` where only results are judged.
        reason: why the run cannot be certified, or empty.
        phase: which pass of a differentiated computation ran it.
        differs: whether the observed run gave other bits than production: what was found may be of that run alone.
        number: tells the order in which programs were started.
    """

    name: str
    call: int
    jaxpr: Callable[[], Any]
    args: Sequence[Any]
    outs: Sequence[Any]
    since: float
    source_info: Any
    observed: Sequence[Any] | None = None
    states: dict[int, Any] | None = None
    plan: Plan | None = None
    reason: str = ""
    phase: Phase = "forward"
    differs: bool = False
    number: int = field(default_factory=itertools.count().__next__)


class Donated:
    """An array that was donated, and what the gate may ask of it: whether it held a NaN or an Inf."""

    __slots__ = ("array", "inf", "nan")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.nan, self.inf = _flags(array)


@jax.jit
def _flags(x: Any) -> tuple[Any, Any]:
    return has_bad(x), has_bad(x, nan=False, inf=True)


def given(args: Sequence[Any]) -> list[Any]:
    """The inputs of a program as it got them; those that were donated may be gone."""
    return [x.array if isinstance(x, Donated) else x for x in args]
