"""PYTEST_DONT_REWRITE

One test under the lens: the recordings that were made while it ran, and what of them it must fail
for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_jaxtap.observe.policy import Demand

if TYPE_CHECKING:
    from jaxtap_core import Alert, Finding, ProgramVerdict, Recording

MOST_LINES = 12


@dataclass(frozen=True)
class Seen:
    """A recording made during a test.

    Attributes:
        recording: what the lens saw.
        source: who asked for it: the marker or an option (``"body"``), or the fixture
            (``"tap_recorder"``).
        gated: whether its findings count against the test; not those of a gate that the test itself
            put on.
        certified: whether its certificate counts against the test.
        alerted: whether its alerts count against the test.
    """

    recording: Recording
    source: Literal["body", "tap_recorder"]
    gated: bool
    certified: bool
    alerted: bool


@dataclass(frozen=True)
class Objection:
    """One reason to fail a test.

    Attributes:
        words: a few that name it.
        lines: ``verbose`` -> what is told of it.
    """

    words: str
    lines: Callable[[bool], list[str]]


class Watch:
    """What happens to one test; a fresh one for every run of it.

    Args:
        demand: what is asked of the lens.
        verbose: whether failures are told in full.
    """

    def __init__(self, demand: Demand, *, verbose: bool = False) -> None:
        self.demand = demand
        self.verbose = verbose
        self.seen: list[Seen] = []
        self.failure: str | None = None
        self.parts: dict[str, list[Any]] = {}  # what others add to the record of the test

    def add_body(self, recording: Recording) -> None:
        """Count the recording of the whole body; what an earlier example of Hypothesis saw is over."""
        self.seen = [Seen(recording, "body", gated=True, certified=self.demand.certify, alerted=True)]
        self.failure = None
        self.parts = {}

    def add_recorder(self, recording: Recording, own: Mapping[str, Any]) -> None:
        """Count a recording of the fixture, made with the arguments ``own``."""
        demand = self.demand
        gated = demand.gate is not None and own.get("gate") is None
        certified = demand.certify and "identity" not in own
        self.seen.append(Seen(recording, "tap_recorder", gated=gated, certified=certified, alerted=False))

    def objections(self) -> list[Objection]:
        """Everything to fail for, in the order in which it is told."""
        if self.demand.expect is not None:
            missing = self._unmet(self.demand.expect)
            return [missing] if missing is not None else list(self._changed())
        return [*self._bad(), *self._alerted(), *self._changed()]

    def tell(self) -> str | None:
        """Why the test fails, for people; ``None`` if it does not."""
        objections = self.objections()
        if not objections:
            return None
        self.failure = told(objections, verbose=self.verbose)
        return self.failure

    def note(self, error: BaseException | None) -> None:
        """Keep what the body raised, for reports, if it comes from the lens: a trip budget."""
        from jaxtap_core import LoopBudgetExceeded

        self.failure = f"jaxtap: {error}" if isinstance(error, LoopBudgetExceeded) else None

    # -- what counts

    def _bad(self) -> Iterator[Objection]:
        for seen in self.seen:
            if seen.gated:
                yield from (_finding(one) for one in seen.recording.findings if self._fails(one))

    def _fails(self, finding: Finding) -> bool:
        """What selects drop harms nothing; but a primitive that was asked for by name is to make no NaN at all."""
        return not finding.masked or self.demand.names_primitives

    def _alerted(self) -> Iterator[Objection]:
        for seen in self.seen:
            if seen.alerted:
                yield from map(_alert, seen.recording.alerts)

    def _changed(self) -> Iterator[Objection]:
        for seen in self.seen:
            certificate = seen.recording.certificate
            if not seen.certified or certificate is None:
                continue
            for program in certificate.programs:
                if program.verdict == "different" or (program.verdict == "uncertified" and self.demand.bitwise):
                    yield _difference(program)

    def _unmet(self, pattern: re.Pattern[str]) -> Objection | None:
        """The expectation, unless an alert or a finding of any recording meets it."""
        from jaxtap_core.records.story import tell

        heard = [str(alert) for seen in self.seen for alert in seen.recording.alerts]
        heard += ["\n".join(tell(f)) for seen in self.seen for f in seen.recording.findings]
        if any(pattern.search(text) for text in heard):
            return None
        lines = [f"no alert or finding matches {pattern.pattern!r}"]
        lines += ["  " + text.partition("\n")[0] for text in heard] or ["  there was none at all"]
        return Objection("an expected alert is missing", lambda verbose: lines)


def told(objections: list[Objection], *, verbose: bool) -> str:
    """All ``objections`` in one text: the first told, the others counted; with ``verbose`` all are
    told.

    Its first line says the most important; it has at most 12 lines, if not ``verbose``.
    """
    if verbose:
        return "\n".join(line for objection in objections for line in _lines(objection, verbose))
    first, rest = _lines(objections[0], verbose), objections[1:]
    if not rest:
        return "\n".join(first[:MOST_LINES])
    names = "; ".join(objection.words for objection in rest[:3]) + ("; …" if len(rest) > 3 else "")
    count = len(rest)
    noun = "finding" if count == 1 else "findings"
    more = f"  and {count} more {noun}" + (f" ({names}); -vv tells all" if names else "")
    return "\n".join([*first[: MOST_LINES - 1], more])


def _lines(objection: Objection, verbose: bool) -> list[str]:
    head, *rest = objection.lines(verbose)
    return [f"jaxtap: {head}", *rest]


def _finding(finding: Finding) -> Objection:
    from jaxtap_core.records.story import tell
    from jaxtap_core.records.text import word

    where = finding.event.path or finding.event.program
    step = f" at step {finding.event.step}" if finding.event.step >= 0 else ""
    return Objection(
        f"{word(finding.kind)} in {finding.leaf!r} of {where}{step}",
        lambda verbose: tell(finding, verbose),
    )


def _alert(alert: Alert) -> Objection:
    return Objection(f"alert at {alert.event.path}", lambda verbose: [f"alert at {alert}"])


def _difference(program: ProgramVerdict) -> Objection:
    certified = program.verdict == "different"
    head = "observing changed a result" if certified else "a result could not be certified"
    return Objection(f"{program.name} {program.verdict}", lambda verbose: [f"{head}: {program}"])
