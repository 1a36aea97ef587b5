"""Activations: parts of a program at one moment, with their inputs, ready to be looked at.

An `Activation` is a flat program at work: the body of a loop at one step, the branch that was taken, the program
itself. It is evaluated when it is asked something, and remembers the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jaxtap_core.jaxpr.address import join
from jaxtap_core.jaxpr.structure import BODY, BRANCH_INDEX, PREDICATE, WITHIN, inner_programs
from jaxtap_core.jaxpr.values import host_array
from jaxtap_core.provenance.dependence import Index
from jaxtap_core.provenance.devices import OneProgram, Runner, Shards
from jaxtap_core.provenance.flat import INF, NAN, CannotReplay, FlatProgram, Node, fetch, survey
from jaxtap_core.provenance.loop import LoopReplay


class NotReproduced(CannotReplay):
    """The replay did not meet the bad value where it should be."""

    def __init__(self, where: str) -> None:
        super().__init__(f"the replay did not meet it again ({where}): it depends on how XLA fuses the program")


class Entry(NamedTuple):
    """How an activation was entered: through the inner program ``name`` of ``node``.

    ``replay`` and ``step`` are of a loop; ``element`` is the one looked for in there, where that is known.
    """

    parent: Activation
    node: Node
    name: str
    replay: LoopReplay | None = None
    step: int = 0
    element: Index | None = None


@dataclass(eq=False)
class Activation:
    """A flat program at one moment, with its inputs.

    ``complete`` says that production came to the end of it, so that all of it may be run again.
    ``runner`` compiles programs for it; inside of ``shard_map`` values are stacked along the shards.
    """

    flat: FlatProgram
    inputs: Sequence[Any]
    path: str = ""
    steps: tuple[int, ...] = ()
    entry: Entry | None = None
    complete: bool = True
    runner: Runner = field(default_factory=OneProgram)
    _codes: dict[int, np.ndarray] = field(default_factory=dict)
    _values: dict[int, Any] = field(default_factory=dict)
    _replays: dict[str, LoopReplay] = field(default_factory=dict)

    def shape(self, number: int) -> tuple[int, ...]:
        """Shape of a value as it is kept here."""
        return (*self.runner.lead, *getattr(self.flat.avals[number], "shape", ()))

    def code(self, number: int) -> np.ndarray:
        """Codes of a float value's elements (for the whole, of shape ``()``, if they are many)."""
        if number in self.flat.consts:
            return np.broadcast_to(numpy_codes(host_array(self.flat.consts[number])), self.shape(number))
        self.survey((number,))
        return self._codes[number]

    def steering(self, number: int) -> Any:
        """A boolean or integer value, or ``None`` where it was too big to be kept."""
        if number in self.flat.consts:
            return np.broadcast_to(host_array(self.flat.consts[number]), self.shape(number))
        self.survey((number,))
        return self._codes.get(number)

    def survey(self, numbers: Iterable[int]) -> None:
        """Evaluate once what `code` and `steering` of all these values need."""
        missing = [n for n in numbers if n not in self._codes and n not in self.flat.consts]
        if not missing:
            return
        roots = tuple(dict.fromkeys((*self.flat.outputs, *missing) if self.complete else missing))
        key = ("survey", roots)
        if key not in self.flat.compiled:
            made, numbers = survey(self.flat, roots)
            self.flat.compiled[key] = self.runner.jit(made), numbers
        program, kept = self.flat.compiled[key]
        self._codes.update(zip(kept, map(host_array, program(*self.inputs)), strict=True))

    def values(self, numbers: Sequence[int]) -> list[Any]:
        """Values by number, as arrays on the device."""
        missing = tuple(n for n in dict.fromkeys(numbers) if n not in self._values)
        consts = {n: self.flat.consts[n] for n in missing if n in self.flat.consts}
        self._values.update((n, self.runner.every(const)) for n, const in consts.items())
        missing = tuple(n for n in missing if n not in consts)
        if missing:
            key = ("fetch", missing)
            if key not in self.flat.compiled:
                self.flat.compiled[key] = self.runner.jit(fetch(self.flat, missing)), missing
            self._values.update(zip(missing, self.flat.compiled[key][0](*self.inputs), strict=True))
        return [self._values[n] for n in numbers]

    # -- inner activations

    def replay(self, node: Node) -> LoopReplay:
        """The loop ``node`` with the operands it has here."""
        if node.segment not in self._replays:
            self._replays[node.segment] = LoopReplay(node, self.values(node.inputs), self.runner)
        return self._replays[node.segment]

    def _inside(self, flat: FlatProgram, inputs: Sequence[Any], path: str, entry: Entry) -> Activation:
        steps = self.steps if entry.replay is None else (*self.steps, entry.step)
        return Activation(flat, inputs, path, steps, entry, runner=self.runner)

    def branch(self, node: Node, shard: int = 0) -> Activation:
        """The branch of ``node`` that was taken (by that shard)."""
        programs, values = inner_programs(node.eqn), self.values(node.inputs)
        which = int(host_array(values[BRANCH_INDEX]).ravel()[shard])
        name = list(programs)[min(max(which, 0), len(programs) - 1)]
        path = f"{join(self.path, node.segment)}/{name}"
        return self._inside(node.inner(name), programs[name].arguments(values), path, Entry(self, node, name))

    def shards(self, node: Node) -> Activation:
        """The inside of the ``shard_map`` equation ``node``."""
        if self.runner.lead:
            raise CannotReplay("a shard_map inside of a shard_map")
        runner = Shards(node)
        inputs = runner.split(self.values(node.inputs))
        entry = Entry(self, node, WITHIN)
        return Activation(node.inner(WITHIN), inputs, self.path, self.steps, entry, runner=runner)

    def body(self, node: Node, before: Sequence[Any], step: int, element: Index | None = None) -> Activation:
        """The body of the loop ``node`` at a step, from the carry before it, looked into for ``element``."""
        replay = self.replay(node)
        entry = Entry(self, node, BODY, replay, step, element)
        return self._inside(replay.body, replay.inputs_at(before, step), join(self.path, node.segment), entry)

    def at_step(self, node: Node, step: int) -> Activation:
        """The body of the loop ``node`` at a step that production is known to have begun."""
        return self.body(node, self._before(node, step), step)

    def pred_at(self, node: Node, step: int) -> Activation:
        """The predicate of the loop ``node`` before a step."""
        replay = self.replay(node)
        inputs = replay.pred_inputs(replay.operands, self._before(node, step))
        entry = Entry(self, node, PREDICATE, replay, step)
        return self._inside(node.inner(PREDICATE), inputs, f"{join(self.path, node.segment)}/{PREDICATE}", entry)

    def _before(self, node: Node, step: int) -> list[Any]:
        before = self.replay(node).carry_at(step)
        if before is None:
            raise NotReproduced(f"{join(self.path, node.segment)} ends before step {step}")
        return before

    def locate(self, segment: str) -> tuple[Activation, Node]:
        """The node with that segment of an address, and where it is: here or inside a ``shard_map``."""
        for node in self.flat.nodes:
            if node.segment == segment:
                return self, node
            if node.kind == "sharded" and node.inner(WITHIN).node_at(segment) is not None:
                return self.shards(node).locate(segment)
        raise CannotReplay(f"the program has no {segment}")

    def entries(self) -> Iterator[Entry]:
        """How one came here, innermost first."""
        entry = self.entry
        while entry is not None:
            yield entry
            entry = entry.parent.entry


def numpy_codes(x: np.ndarray) -> np.ndarray:
    """As `flat.codes`, on the host."""
    if x.dtype.kind == "c":
        return numpy_codes(x.real) | numpy_codes(x.imag)
    x = x.astype(np.float64)
    return np.isnan(x).astype(np.uint8) * NAN + np.isinf(x).astype(np.uint8) * INF
