"""Going through a loop again to one of its steps.

A `LoopReplay` runs a loop step by step as production does (lanes that have finished keep their values) and stops where
a leaf turns bad, or after a given number of steps. It hands back the carry *before* that step, so that the step itself
can be looked at as a program of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap_core.jaxpr.structure import BODY, PREDICATE, loop_of
from jaxtap_core.provenance.devices import Runner
from jaxtap_core.provenance.flat import FlatProgram, Node, codes, evaluate

ENDLESS = 2**31 - 1
AT_ENTRY, NEVER = -1, -2


class BadStep(NamedTuple):
    """The step at which a leaf turned bad.

    Attributes:
        step: the step that made it bad, `AT_ENTRY` where it came in bad, `NEVER` where it was not met.
        before: the carry before that step.
        last: least and greatest finite element of the leaf before that step (nan where there was none).
    """

    step: int
    before: list[Any]
    last: tuple[float, float]


class LoopReplay:
    """The steps of one loop equation.

    Args:
        node: the equation.
        operands: its operands, concrete.
        runner: compiles programs for where it stands.
    """

    def __init__(self, node: Node, operands: Sequence[Any], runner: Runner) -> None:
        self.node, self.operands, self.runner = node, list(operands), runner
        self.loop = loop_of(node.eqn)
        self.body: FlatProgram = node.inner(BODY)
        self.pred: FlatProgram | None = node.inner(PREDICATE) if self.loop.predicate is not None else None

    # -- how operands and inner inputs correspond

    def row(self, step: Any) -> Any:
        """Which row of the scanned inputs (and stacked outputs) belongs to a step, and back."""
        return self.loop.length - 1 - step if self.loop.reverse and self.loop.length is not None else step

    def body_inputs(self, operands: Sequence[Any], carry: Sequence[Any], step: Any) -> list[Any]:
        """Inputs of the body at a step."""
        _, consts, _, xs = self.loop.split(operands)
        row = self.row(step)
        return [*consts, *carry, *(lax.dynamic_index_in_dim(x, row, keepdims=False) for x in xs)]

    def pred_inputs(self, operands: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
        """Inputs of the predicate before a step."""
        return [*self.loop.split(operands)[0], *carry]

    def initial(self, leaf: int) -> int:
        """Number of the value, around the loop, that carry ``leaf`` begins with."""
        return self.node.inputs[self.loop.first_carry + leaf]

    # -- running

    def _pred(self, operands: Sequence[Any], carry: Sequence[Any]) -> Any:
        assert self.pred is not None
        env = evaluate(self.pred, self.pred_inputs(operands, carry), self.pred.outputs)
        return env[self.pred.outputs[0]]

    def _going(self, operands: Sequence[Any], carry: Sequence[Any], step: Any, stop: Any) -> Any:
        within = step < stop
        if self.pred is None:
            return within & (step < self.loop.length)
        return within & jnp.any(self._pred(operands, carry))

    def _step(self, operands: Sequence[Any], carry: Sequence[Any], step: Any) -> list[Any]:
        """New carry, then the step's outputs."""
        env = evaluate(self.body, self.body_inputs(operands, carry, step), self.body.outputs)
        results = [env[n] for n in self.body.outputs]
        if not self.loop.lanes:
            return results
        active = self._pred(operands, carry)
        return [
            lax.select(jnp.broadcast_to(_widen(active, new), new.shape), new, old)
            for new, old in zip(results, carry, strict=True)
        ]

    def _search(self, leaf: int, bit: int, first: bool) -> Any:
        """A program (operands, region, stop) that finds the step at which body output ``leaf`` turned bad.

        ``region`` (booleans of the leaf's shape) says which elements count. With ``first`` the first such step before
        ``stop``; otherwise the last time before ``stop`` that it turned bad.
        """

        def program(operands: Sequence[Any], region: Any, stop: Any) -> Any:
            def is_bad(value: Any) -> Any:
                here = jnp.any(((codes(value) & bit) > 0) & region)
                return self.runner.anywhere(here, self.body)

            carry, num_carry = self.loop.split(operands)[2], self.loop.num_carry
            entry = is_bad(carry[leaf]) if leaf < num_carry else jnp.bool_(False)
            aval = self.body.avals[self.body.outputs[leaf]]
            last = _spread(
                carry[leaf] if leaf < num_carry else jnp.full(aval.shape, jnp.nan, aval.dtype),
                region,
            )
            start = jnp.where(entry, AT_ENTRY, NEVER).astype(jnp.int32)
            state = (jnp.int32(0), carry, entry, start, carry, last, last)

            def going(state: Any) -> Any:
                step, carry, _, found, *_ = state
                more = self._going(operands, carry, step, stop)
                return more & (found == NEVER) if first else more

            def body(state: Any) -> Any:
                step, carry, bad, found, before, last, kept = state
                results = self._step(operands, carry, step)
                now = is_bad(results[leaf])
                turned = now & ~bad
                before, kept = lax.cond(turned, lambda: (carry, last), lambda: (before, kept))
                spread = _spread(results[leaf], region)
                last = tuple(jnp.where(now, old, new) for new, old in zip(spread, last, strict=True))
                return (
                    step + 1,
                    results[:num_carry],
                    now,
                    jnp.where(turned, step, found),
                    before,
                    last,
                    kept,
                )

            _, _, bad, found, before, _, kept = lax.while_loop(going, body, state)
            return jnp.where(bad, found, NEVER), before, kept

        return program

    def _advance(self) -> Any:
        """A program (operands, stop) that returns (number of steps run, the carry after them)."""

        def program(operands: Sequence[Any], stop: Any) -> Any:
            def going(state: Any) -> Any:
                return self._going(operands, state[1], state[0], stop)

            def body(state: Any) -> Any:
                results = self._step(operands, state[1], state[0])
                return state[0] + 1, results[: self.loop.num_carry]

            return lax.while_loop(going, body, (jnp.int32(0), self.loop.split(operands)[2]))

        return program

    def step_that_turned_bad(
        self, leaf: int, bit: int, region: np.ndarray, *, first: bool, stop: int = ENDLESS
    ) -> BadStep:
        """The first, or the last, step before ``stop`` at which body output ``leaf`` turned bad within ``region``."""
        program = self._compiled("search", self._search, leaf, bit, first)
        limit = self.runner.every(jnp.int32(stop))
        step, before, (low, high) = program(self.operands, region, limit)
        steps = np.ravel(step)  # one for each shard
        met = steps[steps != NEVER]
        last = float(np.min(low)), float(np.max(high))
        return BadStep(int(met.min()) if met.size else NEVER, list(before), last)

    def shape(self, leaf: int) -> tuple[int, ...]:
        """Shape of body output ``leaf``, as an activation of the body keeps it."""
        return (*self.runner.lead, *self.body.avals[self.body.outputs[leaf]].shape)

    def carry_at(self, step: int) -> list[Any] | None:
        """The carry before ``step``, or ``None`` where the loop ends earlier."""
        program = self._compiled("advance", self._advance)
        done, carry = program(self.operands, self.runner.every(jnp.int32(step)))
        return list(carry) if int(np.max(done)) == step else None

    def trips(self) -> int:
        """How many steps the loop takes (of several shards, the most)."""
        if self.loop.length is not None:
            return self.loop.length
        done, _ = self._compiled("advance", self._advance)(self.operands, self.runner.every(jnp.int32(ENDLESS)))
        return int(np.max(done))

    def inputs_at(self, before: Sequence[Any], step: int) -> list[Any]:
        """Inputs of the body at ``step``, from the carry before it."""
        program = self._compiled("inputs", lambda: self.body_inputs)
        return list(program(self.operands, list(before), self.runner.every(jnp.int32(step))))

    def active(self, before: Sequence[Any]) -> np.ndarray:
        """Which lanes run the step that has that carry before it."""
        program = self._compiled("active", lambda: self._pred)
        return np.asarray(program(self.operands, list(before)))

    def _compiled(self, name: str, make: Callable[..., Any], *settings: Any) -> Any:
        # Kept with the body: the same loop comes again with other operands at other steps of an outer one.
        compiled = self.body.compiled
        if (name, *settings) not in compiled:
            compiled[name, *settings] = self.runner.jit(make(*settings)), ()
        return compiled[name, *settings][0]


def _widen(active: Any, like: Any) -> Any:
    return active.reshape(active.shape + (1,) * (like.ndim - active.ndim))


def _spread(value: Any, region: Any) -> tuple[Any, Any]:
    """Least and greatest finite element within ``region`` (of complex numbers, the magnitude)."""
    size = jnp.abs(value) if jnp.issubdtype(value.dtype, jnp.complexfloating) else value
    size = size.astype(jnp.float32) if size.dtype.itemsize < 4 else size
    counts = jnp.isfinite(value) & region
    low = jnp.min(size, initial=jnp.inf, where=counts)
    high = jnp.max(size, initial=-jnp.inf, where=counts)
    return low, high
