"""What one lens does with a program: look at it or not, judge its results, certify it or run it inline."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from jaxtap_core import _compat
from jaxtap_core.errors import warn_once
from jaxtap_core.jaxpr.structure import KINDS
from jaxtap_core.numerics import broken_promise, current_profile
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.program import Program


def holds_program(primitive: Any) -> bool:
    """Whether an eager primitive comes with a program in its parameters (``shard_map`` comes with a function)."""
    return KINDS.get(primitive.name) in ("call", "branches", "loop")


class Policy:
    """Decides for the programs of one block, from what was asked of the lens.

    Attributes:
        settings: what was asked.
        gate_paused: how many ``allow_nan`` blocks are on.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.gate_paused = 0

    def of_interest(self, primitive: Any) -> bool:
        """Whether there may be something to see in an eager primitive."""
        name = primitive.name
        if name == "shard_map":
            return False  # its inside is seen as every shard runs it
        if holds_program(primitive):
            return True
        if any(tap.fits(name) for tap in self.settings.taps):
            return True
        level = self.settings.level
        return level is not None and not self.gate_paused and level.watches(name)

    @functools.cached_property
    def in_shards(self) -> Settings:
        """What can be asked of a program that every shard runs for itself outside of ``jit``."""
        carry = self.settings.emits_carry
        return replace(self.settings, gate=None, max_trips=None, fail_fast=False, carry=carry).entered()

    @property
    def judges_results(self) -> bool:
        """Whether the gate looks at the results of programs."""
        level = self.settings.level
        return level is not None and level.judges_results and not self.gate_paused

    def runs_twice(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> bool:
        """Whether a program with nothing to observe is compared with itself: where certificates are asked for."""
        if self.settings.identity != "certified" or primitive is not _compat.jit_p:
            return False
        pure = not _compat.body_of(params["jaxpr"]).jaxpr.effects
        return pure and not any(_compat.is_ref(jax.typeof(x)) for x in args)

    def certifies(self, program: Program) -> bool:
        """Whether production runs beside a replica, as far as it can."""
        identity = self.settings.identity
        if program.plan.may_stop:
            return False  # the guarded program is the result
        if identity == "auto":
            # gates on loops and results run inline: they travel as data and seldom change what shares a kernel
            disturbs = program.plan.looks_into_steps or self.settings.production_bits
            return disturbs and not self.strict
        return identity == "certified"

    @functools.cached_property
    def strict(self) -> bool:
        """Whether observing changes no bit, because strict numerics hold."""
        jax.default_backend()  # starts it, as the program is about to: before, only what was asked for is known
        if current_profile() == "strict":
            return True
        if reason := broken_promise():
            warn_once("strict", reason)
        return False


def inherited(mine: Settings, around: Settings) -> Settings:
    """``mine`` with the gate and the budget of the block around, which must not be blind inside this one."""
    settings = mine
    if inherits_gate(mine, around):
        settings = replace(mine, gate=around.gate, inf=around.inf, carry=mine.emits_carry)
    if mine.max_trips is None and around.max_trips is not None:
        settings = replace(settings, max_trips=around.max_trips, carry=mine.emits_carry)
    return settings


def inherits_gate(mine: Settings, around: Settings) -> bool:
    """Whether the gate of the block around holds in this one too."""
    return mine.gate is None and around.gate is not None


def uncertifiable(program: Program, args: Sequence[Any]) -> str:
    """Why production cannot be run beside a replica, or empty."""
    if any(_compat.is_ref(jax.typeof(x)) for x in args):
        return "it changes mutable references"
    if not program.debug_only:
        return f"it has side effects ({', '.join(sorted(program.effects))})"
    return ""
