"""The NaN gate: reads the verdicts that observed programs bring back, judges results, and asks for the origin.

Verdicts travel as data; no gated program calls the host. Results are looked at on the host after the program has run.
Only transitions count: a carry that held no NaN when its loop was entered; a result or a per-step output that a NaN
born in the program reaches. What of a loop's NaN every use selects away is masked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxtap_core import _compat
from jaxtap_core.gate.decide import Decisions
from jaxtap_core.gate.executed import Executed
from jaxtap_core.gate.raised import raised_for
from jaxtap_core.gate.reproduce import Evidence
from jaxtap_core.instrument.gate_state import MASKED, Verdicts
from jaxtap_core.instrument.plan import Check
from jaxtap_core.jaxpr.address import source_of
from jaxtap_core.jaxpr.leaves import tidy
from jaxtap_core.provenance.locate import Explanation, Target, explain_target
from jaxtap_core.records.events import Finding, TapEvent
from jaxtap_core.records.kinds import Bad

_DIFFERS = "the observed run was rounded otherwise than production, whose results the test got (see its certificate)"
EXPLAINED_PER_PROGRAM = 1  # the first NaN (and Inf) of a program is followed to its origin; the rest repeats it


@dataclass(frozen=True, slots=True)
class Met:
    """A bad leaf as the gate met it, not yet followed to its origin.

    Attributes:
        target: what was met, in the first entry of its loop.
        leaf, kind, total, phase, source: as in the finding.
        top: how many equations of the program come before the outermost one that it stands in.
        masked: whether a select drops it.
        entries: how many entries of its loop it was met in.
        shard: of several.
    """

    target: Target
    leaf: str
    kind: str
    total: int | None
    phase: str
    source: str
    top: float = math.inf
    masked: bool = False
    entries: int = 1
    shard: int | None = None

    @property
    def same(self) -> tuple[Any, ...]:
        """What the same leaf has in common in all entries of its loop, and on all shards."""
        target = self.target
        return target.kind, target.path, target.index, target.bad, self.masked

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts what fails a test before what does not, then by time; an Inf before the NaN that it led to."""
        steps = tuple(math.inf if step is None else step for step in self.target.steps)
        # the end of an outer step comes after all that happens inside it
        return self.masked, self.top, (*steps, math.inf), self.target.bad != "inf"


def judge(
    executed: Executed,
    results: Mapping[Bad, Sequence[int]],
    *,
    level: str,
    keep: bool = True,
    masked: frozenset[int] = frozenset(),
) -> list[Finding]:
    """Findings of one program that has run, unmasked and earliest first.

    Args:
        executed: the program.
        results: which of its results are bad, where results are judged.
        level: of the gate.
        keep: whether the finding that is followed to its origin keeps what runs the program again.
        masked: which results are known to have been selected away, by programs that followed.
    """
    decisions = Decisions(executed)
    met: list[Met] = []
    if executed.plan is not None and executed.states is not None:
        for check in executed.plan.checks.values():
            state = executed.states[check.number]
            found = _from_shards(check, state) if check.shards else _from_verdicts(check, state)
            met += (one for one in _first_entries(found) if not _is_excused(one, decisions))
    if level == "escape":
        met = [replace(one, masked=True) if _is_dropped(one, decisions, masked) else one for one in met]
    for bad, indices in results.items():
        told = [one.target for one in met if one.target.bad == bad and one.top != math.inf and not one.masked]
        told = [target for target in told if target.kind != "primitive" and _is_outermost(target.path)]
        new = [i for i in indices if i not in masked and not decisions.told_by(i, told)]
        met += _from_results(executed, decisions, bad, new)
    explained = Counter[str]()
    findings = []
    for one in sorted(met, key=lambda one: one.order):
        explained[one.target.bad] += 1
        explain = explained[one.target.bad] <= EXPLAINED_PER_PROGRAM
        explanation = _explained(one, executed, decisions) if explain else None
        evidence = Evidence(executed.jaxpr(), decisions.inputs) if explain and keep else None
        findings.append(_finding(one, executed, explanation, evidence))
    return findings


def judge_raised(executed: Executed, *, keep: bool = True) -> list[Finding]:
    """The finding behind what a program raised: a NaN that was born in it and reached what raised; or none."""
    decisions = Decisions(executed)
    try:
        target = raised_for(executed, decisions.inputs)
    except Exception:  # what cannot be evaluated again is not explained; the user has the error
        return []
    if target is None:
        return []
    met = Met(target, f"an operand of {target.path}, which raised", "output", None, executed.phase, _source(executed))
    explained = _explained(met, executed, decisions)
    if explained.given or not explained.origin.reproduced:
        return []
    met = replace(met, target=replace(target, path=""))
    return [_finding(met, executed, explained, Evidence(executed.jaxpr(), decisions.inputs) if keep else None)]


def _is_excused(met: Met, decisions: Decisions) -> bool:
    return met.target.kind == "output" and decisions.output_is_excused(met.target)


def _is_dropped(met: Met, decisions: Decisions, masked: frozenset[int]) -> bool:
    """Whether the leaf is bad in the end, and nothing of that is used, in the program or by those that followed."""
    if met.target.output in masked and "/" not in met.target.path:
        return True  # of an eager loop the outputs are the results
    return decisions.is_dropped(met.target)


def _is_outermost(path: str) -> bool:
    """Whether a loop stands in no other: in branches at most."""
    *around, _ = path.split("/")
    return not any(segment.startswith(("scan[", "while[", "jax:scan[", "jax:while[")) for segment in around)


def _from_results(executed: Executed, decisions: Decisions, bad: Bad, indices: Sequence[int]) -> Iterator[Met]:
    results = [i for i in indices if not decisions.result_is_excused(i, bad)]
    if not results:
        return
    paths = _compat.result_paths(executed.jaxpr())
    for i in results:
        name = tidy(paths[i]) or ("result" if len(paths) == 1 else f"result[{i}]")
        yield Met(Target("result", "", (), i, bad), name, "output", None, executed.phase, _source(executed))


def _first_entries(found: Iterable[Met]) -> list[Met]:
    """Each leaf once, as it was met first, with the number of entries of its loop in which it was met."""
    first: dict[tuple[Any, ...], Met] = {}
    for met in found:
        known = first.get(met.same)
        if known is None:
            first[met.same] = met
            continue
        earliest = met if met.order < known.order else known
        first[met.same] = replace(earliest, entries=known.entries + met.entries)
    return list(first.values())


def _from_shards(check: Check, state: Verdicts) -> list[Met]:
    """Each leaf once, on the shard where it turned bad first."""
    first: dict[tuple[Any, ...], Met] = {}
    for shard in range(check.shards):
        own = Verdicts(*(np.asarray(part)[shard] for part in state))
        for met in _first_entries(_from_verdicts(check, own)):
            target = replace(met.target, lane=(shard, *(met.target.lane or ())))
            known = first.get(met.same)
            if known is None or met.order < known.order:
                first[met.same] = replace(met, target=target, shard=shard)
    return list(first.values())


def _from_verdicts(check: Check, state: Verdicts) -> Iterator[Met]:
    """What one place of the program reported, entry by entry; entries that were only counted go with the last."""
    count = int(state.count)
    depth = check.depth if check.kind == "primitive" else check.depth - 1
    kept = np.asarray(state.rows)[:count]
    for number, row in enumerate(kept):
        more = count - len(kept) if number == len(kept) - 1 else 0
        steps, verdicts = tuple(row[:depth].tolist()), row[depth:].reshape(len(check.looks), -1)
        for i, (look, verdict) in enumerate(zip(check.looks, verdicts, strict=True)):
            hits = np.flatnonzero(verdict > 0 if check.kind == "primitive" else verdict >= 0)
            if not len(hits):
                continue
            first = hits[np.argmin(verdict[hits])]
            lane = tuple(int(k) for k in np.unravel_index(first, check.lanes)) if check.lanes else None
            at = steps if check.kind == "primitive" else (*steps, int(verdict[first]))
            masked = check.kind == "primitive" and int(verdict[first]) == MASKED
            is_output = check.kind == "carry" and i >= check.carries
            kind = "output" if is_output else check.kind
            target = Target(kind, check.path, at, look.place, look.bad, lane, look.output)
            yield Met(
                target, look.name, kind, check.total, check.phase, check.source, check.top, masked, entries=1 + more
            )


def _source(executed: Executed) -> str:
    return source_of(executed.source_info) if executed.source_info is not None else ""


def _explained(met: Met, executed: Executed, decisions: Decisions) -> Explanation:
    return explain_target(executed.jaxpr(), decisions.inputs, met.target, _source(executed), executed.phase)


def _finding(met: Met, executed: Executed, explained: Explanation | None, evidence: Evidence | None) -> Finding:
    target = met.target
    origin = explained.origin if explained else None
    if origin is not None and executed.differs:
        origin = replace(origin, reason=f"{origin.reason}; {_DIFFERS}")
    steps = tuple(step for step in target.steps if step is not None)
    lane = target.lane if met.shard is None else (target.lane or ())[1:] or None
    event = TapEvent(
        path=target.path,
        step=steps[-1] if steps else -1,
        total=met.total,
        steps=steps,
        value=None,
        kind=met.kind,  # type: ignore[arg-type]
        program=executed.name,
        call=executed.call,
        lane=lane,
        device=met.shard,
        phase=met.phase,  # type: ignore[arg-type]
        source=met.source,
    )
    return Finding(
        event=event,
        leaf=met.leaf,
        kind=target.bad,
        count=explained.count if explained else None,
        first_index=explained.first_index if explained else None,
        last_good=explained.last_good if explained else None,
        origin=origin,
        size=explained.size if explained else None,
        masked=met.masked,
        entries=met.entries,
        evidence=evidence,
    )
