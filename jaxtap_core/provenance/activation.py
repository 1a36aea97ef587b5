"""Places: parts of a program at one moment, with their inputs, ready to be looked at.

A `Place` is one level: the body of a loop at one step, the branch that was taken, the program itself.
It is evaluated when it is asked something, and remembers the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jaxtap_core.jaxpr.address import join
from jaxtap_core.jaxpr.structure import SHARDED
from jaxtap_core.provenance.dependence import Index
from jaxtap_core.provenance.devices import OneProgram, Runner, Shards
from jaxtap_core.provenance.flat import INF, NAN, CannotReplay, Level, Node, fetch, host, survey
from jaxtap_core.provenance.loop import Found, Passage

SHARDS = "shards"  # the inner program of a shard_map


class NotMet(CannotReplay):
    """The replay did not meet the bad value where it should be."""

    def __init__(self, where: str) -> None:
        super().__init__(f"the replay did not meet it again ({where}): it depends on how XLA fuses the program")


class Entry(NamedTuple):
    """How a place was entered.

    ``passage``, ``step`` for a loop; ``leaf``, ``element`` and ``found`` where it was entered to
    look for what made output ``leaf`` of the body bad there.
    """

    parent: Place
    node: Node
    name: str
    passage: Passage | None = None
    step: int = 0
    leaf: int | None = None
    element: Index | None = None
    found: Found | None = None


@dataclass(eq=False)
class Place:
    """One level at one moment, with its inputs.

    ``complete`` says that production came to the end of it, so that all of it may be run again.
    ``runner`` compiles programs for it; inside of ``shard_map`` values are stacked along the shards.
    """

    level: Level
    inputs: Sequence[Any]
    path: str = ""
    steps: tuple[int, ...] = ()
    entry: Entry | None = None
    complete: bool = True
    runner: Runner = field(default_factory=OneProgram)
    _codes: dict[int, np.ndarray] = field(default_factory=dict)
    _values: dict[int, Any] = field(default_factory=dict)
    _passages: dict[str, Passage] = field(default_factory=dict)

    def shape(self, number: int) -> tuple[int, ...]:
        """Shape of a value as it is kept here."""
        return (*self.runner.lead, *getattr(self.level.avals[number], "shape", ()))

    def code(self, number: int) -> np.ndarray:
        """Codes of a float value's elements (for the whole, of shape ``()``, if they are many)."""
        if number in self.level.consts:
            return np.broadcast_to(numpy_codes(host(self.level.consts[number])), self.shape(number))
        self.survey((number,))
        return self._codes[number]

    def steering(self, number: int) -> Any:
        """A boolean or integer value, or ``None`` where it was too big to be kept."""
        if number in self.level.consts:
            return np.broadcast_to(host(self.level.consts[number]), self.shape(number))
        self.survey((number,))
        return self._codes.get(number)

    def survey(self, numbers: Iterable[int]) -> None:
        """Evaluate once what `code` and `steering` of all these values need."""
        missing = [n for n in numbers if n not in self._codes and n not in self.level.consts]
        if not missing:
            return
        roots = tuple(dict.fromkeys((*self.level.outputs, *missing) if self.complete else missing))
        key = ("survey", roots)
        if key not in self.level.programs:
            made, numbers = survey(self.level, roots)
            self.level.programs[key] = self.runner.jit(made), numbers
        program, kept = self.level.programs[key]
        self._codes.update(zip(kept, map(host, program(*self.inputs)), strict=True))

    def values(self, numbers: Sequence[int]) -> list[Any]:
        """Values by number, as arrays on the device."""
        missing = tuple(n for n in dict.fromkeys(numbers) if n not in self._values)
        consts = {n: self.level.consts[n] for n in missing if n in self.level.consts}
        self._values.update((n, self.runner.every(const)) for n, const in consts.items())
        missing = tuple(n for n in missing if n not in consts)
        if missing:
            key = ("fetch", missing)
            if key not in self.level.programs:
                self.level.programs[key] = self.runner.jit(fetch(self.level, missing)), missing
            self._values.update(zip(missing, self.level.programs[key][0](*self.inputs), strict=True))
        return [self._values[n] for n in numbers]

    # -- inner places

    def passage(self, node: Node) -> Passage:
        """The loop ``node`` with the operands it has here."""
        if node.segment not in self._passages:
            self._passages[node.segment] = Passage(node, self.values(node.inputs), self.runner)
        return self._passages[node.segment]

    def _inside(self, level: Level, inputs: Sequence[Any], path: str, entry: Entry) -> Place:
        steps = self.steps if entry.passage is None else (*self.steps, entry.step)
        return Place(level, inputs, path, steps, entry, runner=self.runner)

    def branch(self, node: Node, shard: int = 0) -> Place:
        """The branch of ``node`` that was taken (by that shard)."""
        which, *operands = self.values(node.inputs)
        last = len(node.eqn.params["branches"]) - 1
        name = f"b{min(max(int(host(which).ravel()[shard]), 0), last)}"
        path = f"{join(self.path, node.segment)}/{name}"
        return self._inside(node.inner(name), operands, path, Entry(self, node, name))

    def shards(self, node: Node) -> Place:
        """The inside of the ``shard_map`` equation ``node``."""
        if self.runner.lead:
            raise CannotReplay("a shard_map inside of a shard_map")
        runner = Shards(node)
        inputs = runner.split(self.values(node.inputs))
        entry = Entry(self, node, SHARDS)
        return Place(node.inner(SHARDS), inputs, self.path, self.steps, entry, runner=runner)

    def body(self, node: Node, before: Sequence[Any], entry: Entry) -> Place:
        """The body of the loop ``node`` at a step, from the carry before it."""
        passage = self.passage(node)
        inputs = passage.inputs_at(before, entry.step)
        return self._inside(passage.body, inputs, join(self.path, node.segment), entry)

    def at_step(self, node: Node, step: int) -> Place:
        """The body of the loop ``node`` at a step that production is known to have begun."""
        entry = Entry(self, node, "body", self.passage(node), step)
        return self.body(node, self._before(node, step), entry)

    def pred_at(self, node: Node, step: int) -> Place:
        """The predicate of the loop ``node`` before a step."""
        passage = self.passage(node)
        inputs = [*passage.split(passage.operands)[0], *self._before(node, step)]
        entry = Entry(self, node, "pred", passage, step)
        return self._inside(node.inner("pred"), inputs, f"{join(self.path, node.segment)}/pred", entry)

    def _before(self, node: Node, step: int) -> list[Any]:
        before = self.passage(node).carry_at(step)
        if before is None:
            raise NotMet(f"{join(self.path, node.segment)} ends before step {step}")
        return before

    def locate(self, segment: str) -> tuple[Place, Node]:
        """The node with that segment of an address, and where it is: here or inside a ``shard_map``."""
        for node in self.level.nodes:
            if node.segment == segment:
                return self, node
            if node.primitive == SHARDED and node.inner(SHARDS).has(segment):
                return self.shards(node).locate(segment)
        raise CannotReplay(f"the program has no {segment}")

    def entries(self) -> Iterator[Entry]:
        """How one came here, innermost first."""
        place: Place | None = self
        while place is not None and place.entry is not None:
            yield place.entry
            place = place.entry.parent


def numpy_codes(x: np.ndarray) -> np.ndarray:
    """As `replay.codes`, on the host."""
    if x.dtype.kind == "c":
        return numpy_codes(x.real) | numpy_codes(x.imag)
    x = x.astype(np.float64)
    return np.isnan(x).astype(np.uint8) * NAN + np.isinf(x).astype(np.uint8) * INF
