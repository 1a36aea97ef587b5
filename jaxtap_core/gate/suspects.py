"""Eager code, judged like compiled code: what becomes of a bad result is known only from the programs that follow.

Each eager primitive is a program of its own, and so is each jitted function of JAX's library: a NaN that ``jnp.where``
selects away in the next line would be a finding. So a bad result of such a program is a *suspect* until it is known
what became of it. A program that takes it and gives floats that are all sound has selected it away; one that gives
something bad again has let it through, and what it gave is a suspect in turn. One that gives no floats (a comparison,
``isnan``) is no use of it. A suspect that nothing used, or one of whose descendants ends so, is a finding.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtap_core.gate.executed import Executed
from jaxtap_core.jaxpr.values import can_hold_nan
from jaxtap_core.records.kinds import Bad

MOST = 64  # programs that wait with their inputs; of more, the oldest are judged by what is known


@dataclass(eq=False)
class Suspect:
    """A bad array, and what is known of its uses.

    Attributes:
        selected: whether a program selected it away.
        onward: what programs made of it that is bad again.
    """

    selected: bool = False
    onward: list[Suspect] = field(default_factory=list)

    @property
    def is_masked(self) -> bool:
        """Whether all that became of it was selected away, as far as is known."""
        if not self.onward:
            return self.selected
        return all(suspect.is_masked for suspect in self.onward)


@dataclass(eq=False)
class Case:
    """A program with bad results that waits for its verdict.

    Attributes:
        executed: the program; its results are let go of.
        results: which are bad.
        suspects: the suspect that each bad result is.
    """

    executed: Executed
    results: Mapping[Bad, Sequence[int]]
    suspects: dict[int, Suspect]

    @property
    def masked(self) -> frozenset[int]:
        """The results that were selected away."""
        return frozenset(index for index, suspect in self.suspects.items() if suspect.is_masked)


class Suspects:
    """The suspects of one block.

    Args:
        judge: called with each case when it is closed.
    """

    def __init__(self, judge: Callable[[Case], None]) -> None:
        self._judge = judge
        self._cases: list[Case] = []
        self._by_array: dict[int, tuple[Any, Suspect]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_array)

    def open(self, executed: Executed, results: Mapping[Bad, Sequence[int]]) -> None:
        """Some results of a program are bad; whether that counts is known later."""
        indices = sorted({index for found in results.values() for index in found})
        suspects = {index: self._of(executed.outs[index]) or self._new(executed.outs[index]) for index in indices}
        executed.outs = ()  # whoever else holds them decides how long they live
        self._cases.append(Case(executed, results, suspects))
        if len(self._cases) > MOST:
            self._judge(self._cases.pop(0))

    def used(self, arrays: Sequence[Any], results: Sequence[Any], is_bad: Callable[[Any], bool]) -> None:
        """A program took ``arrays`` and gave ``results``."""
        taken = [suspect for suspect in map(self._of, arrays) if suspect is not None]
        floats = [x for x in results if can_hold_nan(x)] if taken else []
        if not floats:
            return
        bad = [x for x in floats if is_bad(x)]
        onward = [self._of(x) or self._new(x) for x in bad]
        for suspect in taken:
            suspect.selected |= not bad
            suspect.onward += [one for one in onward if one is not suspect]

    def close(self) -> None:
        """The block is over: what is known now decides."""
        for case in self._cases:
            self._judge(case)
        self._cases.clear()
        self._by_array.clear()

    def _of(self, array: Any) -> Suspect | None:
        known = self._by_array.get(id(array))
        return known[1] if known is not None and known[0]() is array else None

    def _new(self, array: Any) -> Suspect:
        suspect, number = Suspect(), id(array)
        forget = lambda _, number=number: self._by_array.pop(number, None)
        self._by_array[number] = weakref.ref(array, forget), suspect
        return suspect
