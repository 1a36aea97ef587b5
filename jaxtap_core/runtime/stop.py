"""Stopping early: what is raised when a loop exceeds its budget, or when the first alert is to end the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtap_core.gate.judge import judge
from jaxtap_core.instrument.plan import Budget, Plan
from jaxtap_core.records.events import Alert, Finding
from jaxtap_core.records.text import short
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.pending import Pending
from jaxtap_core.runtime.program import Program


class TapAlert(RuntimeError):
    """The first alert or finding of a lens with ``fail_fast``.

    Attributes:
        alert: the `Alert`, or ``None`` where the gate found something.
        finding: the `Finding`, or ``None`` where a tap or predicate raised the alert.
    """

    def __init__(self, message: str, alert: Alert | None = None, finding: Finding | None = None) -> None:
        super().__init__(message)
        self.alert = alert
        self.finding = finding


class LoopBudgetExceeded(RuntimeError):
    """A ``while`` loop did not end within its trip budget.

    Attributes:
        path, steps: which loop, and at which steps of the loops around it.
        lane: the first lane that was still running, for a loop batched over its predicate, else ``None``.
        source: ``file.py:line (function)`` of the user's line.
        trips: the budget.
        carry: the last carry (of that lane) by the user's names, NumPy arrays.
        verdict: ``"nan"``, ``"unchanged"``, ``"two-cycle"`` or ``"too long"``.
        since: the step from which the carry did not change, or only alternated; ``None`` for the other verdicts.
        finding: where the NaN was born, for the verdict ``"nan"``.
    """

    def __init__(
        self,
        path: str,
        steps: tuple[int, ...],
        lane: tuple[int, ...] | None,
        source: str,
        trips: int,
        diagnosis: Diagnosis,
    ) -> None:
        self.path = path
        self.steps = steps
        self.lane = lane
        self.source = source
        self.trips = trips
        self.carry = dict(diagnosis.carry)
        self.verdict = diagnosis.verdict
        self.since = diagnosis.since
        self.finding = diagnosis.finding
        place = f" of lane {list(lane)}" if lane is not None else ""
        outer = f" (outer {', '.join(map(str, steps))})" if steps else ""
        lines = [f"{path}{outer}{place} did not end within {trips} trips, at {source}: {diagnosis.text}"]
        if self.carry:
            lines.append(f"  last carry: {short(self.carry)}")
        if self.finding is not None:
            lines += [f"  {line}" for line in str(self.finding).splitlines()]
        super().__init__("\n".join(lines))


class Diagnosis(NamedTuple):
    """Why a loop did not end."""

    verdict: str
    text: str
    since: int | None
    carry: Mapping[str, np.ndarray]
    finding: Finding | None = None


def diagnose(
    names: Sequence[str],
    carry: Sequence[np.ndarray],
    read: Sequence[bool],
    since: int,
    cycle: int,
    finding: Callable[[], Finding | None],
) -> Diagnosis:
    """Why a loop did not end, from its last carry.

    Args:
        names, carry: of its leaves; a leaf without a name is none of the user's.
        read: which leaves the predicate looks at.
        since: step from which the carry did not change, or negative; ``cycle``: from which it alternated.
        finding: asked for what the gate found in the same run, when a NaN is to blame.
    """
    by_name = {name: value for name, value in zip(names, carry, strict=True) if name}
    bad = [
        name
        for name, value, looked_at in zip(names, carry, read, strict=True)
        if looked_at and value.dtype.kind in "fcV" and bool(np.isnan(value.astype(np.complex128)).any())
    ]
    if bad:
        text = f"its predicate is constant because of a NaN in {', '.join(map(repr, bad))}"
        return Diagnosis("nan", text, None, by_name, finding())
    if since >= 0:
        text = f"the carry had stopped changing at step {since}, so it cannot end"
        return Diagnosis("unchanged", text, since, by_name)
    if cycle >= 0:
        text = f"the carry alternates between two values since step {cycle}, so it cannot end"
        return Diagnosis("two-cycle", text, cycle, by_name)
    return Diagnosis("too long", "it was still changing; if it only ends late, raise the budget", None, by_name)


def budget_error(pending: Pending, settings: Settings, budget: Budget, steps: np.ndarray) -> LoopBudgetExceeded:
    """Run the program once more, keeping what tells why the loop does not end."""
    program = pending.program
    trips = settings.max_trips
    assert program is not None and trips is not None
    jaxpr = pending.jaxpr()
    gated = replace(settings, gate="carry", taps=(), carry=False, select_ys=None, on_ys=None, alert_ys=None)
    again = Program(jaxpr, None, program.name, gated, "")
    plan = again.plan_of(jaxpr, replica=True)
    mine = next(b for b in plan.budgets.values() if b.path == budget.path)
    outer = tuple(steps[: budget.depth].tolist())
    lane, diagnosis = None, Diagnosis("too long", "its inputs were donated, so it was not run again", None, {})
    try:
        variant = again.variant(jaxpr, pending.args, replica=True, flushing=False, diagnosing=True)
        _, states = variant.run(jaxpr, 0, pending.args)
    except RuntimeError:
        return LoopBudgetExceeded(budget.path, outer, lane, budget.source, trips, diagnosis)
    ended = jax.tree.map(np.asarray, states[mine.number])
    if mine.lanes:
        lane = tuple(int(i) for i in np.argwhere(ended.running)[0])
        ended = jax.tree.map(lambda x: x[lane], ended)
    diagnosis = diagnose(
        mine.names,
        ended.carry,
        mine.read,
        int(ended.since),
        int(ended.cycle),
        lambda: _finding_in(pending, plan, states, budget.path),
    )
    return LoopBudgetExceeded(budget.path, outer, lane, budget.source, trips, diagnosis)


def _finding_in(pending: Pending, plan: Plan, states: Any, path: str) -> Finding | None:
    seen = replace(pending, plan=plan, states=states, outs=())
    findings = judge(seen, {}, level="carry")
    return next((f for f in findings if f.origin is not None and f.event.path == path), None) or (
        findings[0] if findings else None
    )
