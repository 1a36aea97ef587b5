"""Going through a loop again to one of its steps.

A `Passage` runs a ``scan`` or ``while`` step by step as production does (lanes that have finished
keep their values) and stops where a leaf turns bad, or after a given number of steps. It hands
back the carry *before* that step, so that the step itself can be looked at as a level of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap_core.jaxpr.structure import Scan, While
from jaxtap_core.provenance.devices import Runner
from jaxtap_core.provenance.flat import Level, Node, codes, evaluate

ENDLESS = 2**31 - 1
AT_ENTRY, NEVER = -1, -2


class Found(NamedTuple):
    """Where a leaf turned bad.

    Attributes:
        step: the step that made it bad, `AT_ENTRY` where it came in bad, `NEVER` where it was not
            met.
        before: the carry before that step.
        last: least and greatest finite element of the leaf before that step (nan where there was
            none).
    """

    step: int
    before: list[Any]
    last: tuple[float, float]


class Passage:
    """The steps of one loop equation.

    Args:
        node: the equation.
        operands: its operands, concrete.
        runner: compiles programs for where it stands.
    """

    def __init__(self, node: Node, operands: Sequence[Any], runner: Runner) -> None:
        self.runner = runner
        self.body: Level = node.inner("body")
        self.operands = list(operands)
        self.reverse = False
        self.length: int | None = None
        self.lanes: tuple[int, ...] = ()
        self.pred: Level | None = None
        if node.primitive == "scan":
            scan = Scan.of(node.eqn)
            self.length, self.reverse = scan.length, scan.reverse
            self.num_consts, self.num_carry = scan.num_consts, scan.num_carry
            self.pred_consts = 0
        else:
            loop = While.of(node.eqn)
            self.lanes, self.pred = loop.lanes, node.inner("pred")
            self.pred_consts, self.num_consts = loop.predicate_consts, loop.body_consts
            self.num_carry = len(operands) - self.pred_consts - self.num_consts

    # -- how operands and inner inputs correspond

    def split(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Operands as the predicate's constants, the body's, carries, scanned inputs."""
        a = self.pred_consts
        b, c = a + self.num_consts, a + self.num_consts + self.num_carry
        return list(operands[:a]), list(operands[a:b]), list(operands[b:c]), list(operands[c:])

    def row(self, step: Any) -> Any:
        """Which row of the scanned inputs (and stacked outputs) belongs to a step, and back."""
        return self.length - 1 - step if self.reverse and self.length is not None else step

    def body_inputs(self, operands: Sequence[Any], carry: Sequence[Any], step: Any) -> list[Any]:
        """Inputs of the body at a step."""
        _, consts, _, xs = self.split(operands)
        row = self.row(step)
        return [*consts, *carry, *(lax.dynamic_index_in_dim(x, row, keepdims=False) for x in xs)]

    # -- running

    def _pred(self, operands: Sequence[Any], carry: Sequence[Any]) -> Any:
        assert self.pred is not None
        env = evaluate(self.pred, [*self.split(operands)[0], *carry], self.pred.outputs)
        return env[self.pred.outputs[0]]

    def _going(self, operands: Sequence[Any], carry: Sequence[Any], step: Any, stop: Any) -> Any:
        within = step < stop
        if self.pred is None:
            return within & (step < self.length)
        return within & jnp.any(self._pred(operands, carry))

    def _step(self, operands: Sequence[Any], carry: Sequence[Any], step: Any) -> list[Any]:
        """New carry, then the step's outputs."""
        env = evaluate(self.body, self.body_inputs(operands, carry, step), self.body.outputs)
        results = [env[n] for n in self.body.outputs]
        if not self.lanes:
            return results
        active = self._pred(operands, carry)
        return [
            lax.select(jnp.broadcast_to(_widen(active, new), new.shape), new, old)
            for new, old in zip(results, carry, strict=True)
        ]

    def _search(self, leaf: int, bit: int, first: bool) -> Any:
        """A program (operands, region, stop) that finds the step at which body output ``leaf``
        turned bad.

        ``region`` (booleans of the leaf's shape) says which elements count. With ``first`` the
        first such step before ``stop``; otherwise the last time before ``stop`` that it turned
        bad.
        """

        def program(operands: Sequence[Any], region: Any, stop: Any) -> Any:
            def is_bad(value: Any) -> Any:
                here = jnp.any(((codes(value) & bit) > 0) & region)
                return self.runner.anywhere(here, self.body)

            carry = self.split(operands)[2]
            entry = is_bad(carry[leaf]) if leaf < self.num_carry else jnp.bool_(False)
            aval = self.body.avals[self.body.outputs[leaf]]
            last = _spread(
                carry[leaf] if leaf < self.num_carry else jnp.full(aval.shape, jnp.nan, aval.dtype),
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
                    results[: self.num_carry],
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
                return state[0] + 1, results[: self.num_carry]

            return lax.while_loop(going, body, (jnp.int32(0), self.split(operands)[2]))

        return program

    def find(self, leaf: int, bit: int, region: np.ndarray, *, first: bool, stop: int = ENDLESS) -> Found:
        """Where body output ``leaf`` turned bad within ``region``, before step ``stop``."""
        program = self._compiled("search", self._search, leaf, bit, first)
        limit = self.runner.every(jnp.int32(stop))
        step, before, (low, high) = program(self.operands, region, limit)
        steps = np.ravel(step)  # one for each shard
        met = steps[steps != NEVER]
        last = float(np.min(low)), float(np.max(high))
        return Found(int(met.min()) if met.size else NEVER, list(before), last)

    def shape(self, leaf: int) -> tuple[int, ...]:
        """Shape of body output ``leaf``, as it is kept in the body's place."""
        return (*self.runner.lead, *self.body.avals[self.body.outputs[leaf]].shape)

    def carry_at(self, step: int) -> list[Any] | None:
        """The carry before ``step``, or ``None`` where the loop ends earlier."""
        program = self._compiled("advance", self._advance)
        done, carry = program(self.operands, self.runner.every(jnp.int32(step)))
        return list(carry) if int(np.max(done)) == step else None

    def trips(self) -> int:
        """How many steps the loop takes (of several shards, the most)."""
        if self.length is not None:
            return self.length
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
        # Kept with the body: the same loop comes again with other operands at other steps of an
        # outer one.
        programs = self.body.programs
        if (name, *settings) not in programs:
            programs[name, *settings] = self.runner.jit(make(*settings)), ()
        return programs[name, *settings][0]


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
