"""What a bad value that was met is worth: excused, since the program was given it; masked, since nothing of it is used.

Asked only where something bad was met. What no bad input, constant or literal can reach needs no second evaluation of
the program; for the rest `provenance.taint` evaluates it once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxtap_core.gate.executed import Executed, given
from jaxtap_core.gate.look import bad_on_host
from jaxtap_core.jaxpr.address import phase_of
from jaxtap_core.jaxpr.visit import equations
from jaxtap_core.provenance.locate import Target, explain_target
from jaxtap_core.provenance.taint.decide import Births, births, reachable, reached
from jaxtap_core.records.kinds import Bad


class Decisions:
    """What is decided about the bad values of one program that ran, each question answered once."""

    def __init__(self, executed: Executed) -> None:
        self._executed = executed
        self._answers: dict[tuple[str, Bad], Any] = {}
        self.inputs = given(executed.args)

    def result_is_excused(self, index: int, bad: Bad) -> bool:
        """Whether a result is bad only by what the program was given."""
        if not self._reachable(bad)[index]:
            return False
        found = self._births(bad)
        if found is None:
            return True  # it cannot be told: a NaN by design is left alone
        # a second evaluation in which it is sound says that no given NaN made it so
        if not found.results.bad[index] or found.results.owed[index]:
            return False
        return not (bad == "nan" and self._selects_backward() and self._is_revived(index))

    def _is_revived(self, index: int) -> bool:
        """Whether a result is a given NaN that was selected away, times the zero cotangent of that branch."""
        target = Target("result", "", (), index, "nan")
        explained = explain_target(self._executed.jaxpr(), self.inputs, target, phase=self._executed.phase)
        return explained.origin.reproduced and not explained.given

    def _selects_backward(self) -> bool:
        """Whether the program may select among cotangents, as the backward pass of a ``where`` does."""
        eqns = list(equations(self._executed.jaxpr()))
        backward = any(phase_of(eqn.source_info, self._executed.phase) == "backward" for eqn in eqns)
        return backward and any(eqn.primitive.name == "select_n" for eqn in eqns)

    def output_is_excused(self, target: Target) -> bool:
        """Whether a per-step output of a loop is bad only by what the program was given."""
        if not any(self._given(target.bad)) and not any(self._reachable(target.bad)):
            return False
        found = self._births(target.bad)
        if found is not None and target.path in found.left:
            left, output = found.left[target.path], target.output
            return bool(left.bad[output]) and not left.owed[output]
        return explain_target(self._executed.jaxpr(), self.inputs, target).given

    def is_dropped(self, target: Target) -> bool:
        """Whether all that is bad in the end of a loop's output is dropped by selects, and none reaches a result."""
        found = self._reached(target.bad, [target])
        if found is None:
            return False
        return bool(found.left[target.path].bad[target.output]) and not found.results.owed.any()

    def told_by(self, index: int, targets: Sequence[Target]) -> bool:
        """Whether all that is bad in a result came from what was met in outermost loops: it tells nothing new."""
        if not targets:
            return False
        bad = targets[0].bad
        found = self._once("told by", bad, lambda: self._reached(bad, targets))
        return found is not None and bool(found.results.bad[index]) and not found.results.rest[index]

    def _reached(self, bad: Bad, targets: Sequence[Target]) -> Births | None:
        sources = [(target.path, target.output) for target in targets]
        try:
            return reached(self._executed.jaxpr(), self.inputs, bad, sources)
        except Exception:  # a decision must never be what breaks a test
            return None

    def _once(self, question: str, bad: Bad, answer: Callable[[], Any]) -> Any:
        key = question, bad
        if key not in self._answers:
            self._answers[key] = answer()
        return self._answers[key]

    def _given(self, bad: Bad) -> list[bool]:
        return self._once("given", bad, lambda: [bad_on_host(x, bad) for x in self._executed.args])

    def _reachable(self, bad: Bad) -> list[bool]:
        is_bad = lambda x: bad_on_host(x, bad)
        return self._once("reachable", bad, lambda: reachable(self._executed.jaxpr(), self._given(bad), is_bad))

    def _births(self, bad: Bad) -> Births | None:
        def ask() -> Births | None:
            try:
                return births(self._executed.jaxpr(), self.inputs, bad, self._executed.phase)
            except Exception:  # as above
                return None

        return self._once("births", bad, ask)
