"""The NaN gate: reads the verdicts that observed programs bring back, judges results, and asks for the origin.

Verdicts travel as data; no gated program calls the host. Results are looked at on the host after the program has run.
Only transitions count: a carry that held no NaN when its loop was entered, a result of a program none of whose inputs,
constants or literals held one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxtap_core import _compat
from jaxtap_core.gate.executed import Donated, Executed
from jaxtap_core.gate.reproduce import Evidence
from jaxtap_core.instrument.gate_state import MASKED, Verdicts
from jaxtap_core.instrument.plan import Check
from jaxtap_core.jaxpr.address import computed_by_jax, source_of, written_by_jax
from jaxtap_core.jaxpr.leaves import tidy
from jaxtap_core.jaxpr.values import can_hold_nan
from jaxtap_core.jaxpr.visit import programs
from jaxtap_core.provenance.locate import Target, explain_target
from jaxtap_core.records.events import Finding, TapEvent
from jaxtap_core.records.kinds import Bad

EXPLAINED_PER_PROGRAM = 1  # the first NaN (and Inf) of a program is followed to its origin; the rest repeats it


@dataclass(frozen=True, slots=True)
class Met:
    """A bad leaf as the gate met it, not yet followed to its origin."""

    target: Target
    leaf: str
    kind: str
    total: int | None
    phase: str
    source: str
    masked: bool = False
    more: int = 0
    shard: int | None = None

    @property
    def entry(self) -> tuple[Any, ...]:
        """What the same leaf of the same loop entry has in common on all shards."""
        target = self.target
        return target.kind, target.path, target.steps[:-1], target.index, target.bad


def bad_on_host(x: Any, bad: Bad) -> bool:
    """Whether an array holds a NaN (or, asked so, an Inf). Arrays that were deleted hold nothing."""
    if isinstance(x, Donated):
        return bool(x.nan if bad == "nan" else x.inf)
    # a program may hold constants that only its own tracing knew
    if not can_hold_nan(x) or _compat.is_tracer(x):
        return False
    try:
        array = np.asarray(x)
    except RuntimeError:
        return False
    if array.dtype.kind == "c":
        array = array.reshape(-1).view(array.real.dtype)
    if bad == "nan" and array.dtype.kind == "f" and array.dtype.itemsize >= 4:
        # one pass without a temporary: a maximum is NaN as soon as one element is
        greatest = np.maximum.reduce(array, axis=None)
        return bool(greatest != greatest)
    return bool((np.isnan(array) if bad == "nan" else np.isinf(array)).any())


def sound(results: Sequence[Any], *, inf: bool) -> bool:
    """Whether no result holds what the gate looks for."""
    return not any(bad_on_host(x, "nan") or (inf and bad_on_host(x, "inf")) for x in results)


def carries_sentinels(jaxpr: Any, bad: Bad) -> bool:
    """Whether a constant or literal anywhere in a program is NaN (or Inf): then its results may be so by design.

    By the user's design: a NaN that JAX's library keeps for arguments outside of a domain (``jnp.var`` holds one) says
    nothing about the program.
    """
    return any(_holds_sentinel(program, bad) for program in programs(jaxpr) if not written_by_jax(program))


def _holds_sentinel(jaxpr: Any, bad: Bad) -> bool:
    inner, consts = _compat.body_of(jaxpr)
    if any(bad_on_host(const, bad) for const in consts):
        return True
    # a branch of a ``cond`` may return a literal that no equation uses
    atoms = itertools.chain(inner.outvars, *(e.invars for e in inner.eqns if not computed_by_jax(e.source_info)))
    return any(isinstance(atom, _compat.Literal) and bad_on_host(np.asarray(atom.val), bad) for atom in atoms)


def judge(executed: Executed, *, inf: bool, level: str, keep: bool = True) -> list[Finding]:
    """Findings of one program that has run, the first followed to its origin; with ``keep``, and its inputs kept."""
    met: list[Met] = []
    if executed.plan is not None and executed.states is not None:
        for check in executed.plan.checks.values():
            state = executed.states[check.number]
            met += _from_shards(check, state, executed) if check.shards else _from_verdicts(check, state, executed)
    if level in ("escape", "outputs"):
        met += _from_results(executed, "nan")
        if inf:
            met += _from_results(executed, "inf")
    if not met:
        return []
    met.sort(key=lambda one: one.target.bad != "nan")  # what is asked first is where the NaN comes from
    explained = Counter[str]()
    findings = []
    for one in met:
        explained[one.target.bad] += 1
        explain = explained[one.target.bad] <= EXPLAINED_PER_PROGRAM
        findings.append(_finding(one, executed, explain=explain, keep=keep))
    return findings


def _sound_inputs(executed: Executed, bad: Bad) -> bool:
    if any(bad_on_host(x, bad) for x in executed.args):
        return False
    return not carries_sentinels(executed.jaxpr(), bad)


def _from_results(executed: Executed, bad: Bad) -> Iterator[Met]:
    results = [i for i, x in enumerate(executed.outs) if bad_on_host(x, bad)]
    if not results or not _sound_inputs(executed, bad):
        return
    paths = _compat.result_paths(executed.jaxpr())
    for i in results:
        name = tidy(paths[i]) or ("result" if len(executed.outs) == 1 else f"result[{i}]")
        source = _source(executed)
        yield Met(Target("result", "", (), i, bad), name, "output", None, executed.phase, source)


def _from_shards(check: Check, state: Verdicts, executed: Executed) -> list[Met]:
    """Each leaf once, on the shard where it turned bad first."""
    first: dict[tuple[Any, ...], Met] = {}
    for shard in range(check.shards):
        own = Verdicts(*(np.asarray(part)[shard] for part in state))
        for met in _from_verdicts(check, own, executed):
            target = replace(met.target, lane=(shard, *(met.target.lane or ())))
            known = first.get(met.entry)
            if known is None or met.target.steps < known.target.steps:
                first[met.entry] = replace(met, target=target, shard=shard)
    return list(first.values())


def _from_verdicts(check: Check, state: Verdicts, executed: Executed) -> Iterator[Met]:
    count = int(state.count)
    if not count:
        return
    depth = check.depth if check.kind == "primitive" else check.depth - 1
    sound: dict[Bad, bool] = {}
    kept = np.asarray(state.rows)[:count]
    for number, row in enumerate(kept):
        more = count - len(kept) if number == len(kept) - 1 else 0
        steps, verdicts = tuple(row[:depth].tolist()), row[depth:].reshape(len(check.looks), -1)
        for i, (look, verdict) in enumerate(zip(check.looks, verdicts, strict=True)):
            hits = np.flatnonzero(verdict > 0 if check.kind == "primitive" else verdict >= 0)
            if not len(hits):
                continue
            is_output = check.kind == "carry" and i >= check.carries
            if is_output:
                if look.bad not in sound:
                    sound[look.bad] = _sound_inputs(executed, look.bad)
                if not sound[look.bad]:
                    continue
            first = hits[np.argmin(verdict[hits])]
            lane = tuple(int(k) for k in np.unravel_index(first, check.lanes)) if check.lanes else None
            at = steps if check.kind == "primitive" else (*steps, int(verdict[first]))
            masked = check.kind == "primitive" and int(verdict[first]) == MASKED
            kind = "output" if is_output else check.kind
            target = Target(kind, check.path, at, look.place, look.bad, lane)
            yield Met(target, look.name, kind, check.total, check.phase, check.source, masked, more)


def _source(executed: Executed) -> str:
    return source_of(executed.source_info) if executed.source_info is not None else ""


def _finding(met: Met, executed: Executed, *, explain: bool, keep: bool) -> Finding:
    target = met.target
    inputs = [x.array if isinstance(x, Donated) else x for x in executed.args]
    explained = explain_target(executed.jaxpr(), inputs, target, _source(executed), executed.phase) if explain else None
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
        origin=explained.origin if explained else None,
        size=explained.size if explained else None,
        masked=met.masked,
        more=met.more,
        evidence=Evidence(executed.jaxpr(), inputs) if explain and keep else None,
    )
