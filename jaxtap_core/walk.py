"""Following a bad value backwards through a program, to the equation that made it.

A `Place` is one level at one moment: the body of a loop at one step, the branch that was taken,
the program itself. The walk goes from place to place: into a loop at the step that made a leaf
bad, out of it through a constant, a carry or a scanned input, and ends at an equation whose
operands are good (`Born`) or at a value that was given (`Given`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtap_core.address import join
from jaxtap_core.influence import WHOLE, Box, Index, boxes
from jaxtap_core.passage import AT_ENTRY, ENDLESS, NEVER, Found, Passage
from jaxtap_core.replay import (
    BITS,
    INF,
    NAN,
    CannotReplay,
    Level,
    Node,
    fetch,
    host,
    is_inexact,
    survey,
)
from jaxtap_core.structure import BRANCHES, LOOPS

MERELY_MOVE = frozenset({"broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze"})

HOPS = 20_000  # equations followed before giving up


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
    """

    level: Level
    inputs: Sequence[Any]
    path: str = ""
    steps: tuple[int, ...] = ()
    entry: Entry | None = None
    complete: bool = True
    _codes: dict[int, np.ndarray] = field(default_factory=dict)
    _values: dict[int, Any] = field(default_factory=dict)
    _passages: dict[str, Passage] = field(default_factory=dict)

    def code(self, number: int) -> np.ndarray:
        """Codes of a float value's elements (for the whole, of shape ``()``, if they are many)."""
        if number in self.level.consts:
            return numpy_codes(host(self.level.consts[number]))
        if number not in self._codes:
            self._survey(number)
        return self._codes[number]

    def steering(self, number: int) -> Any:
        """A boolean or integer value, or ``None`` where it was too big to be kept."""
        if number in self.level.consts:
            return host(self.level.consts[number])
        if number not in self._codes:
            self._survey(number)
        return self._codes.get(number)

    def _survey(self, number: int) -> None:
        roots = tuple(dict.fromkeys((*self.level.outputs, number))) if self.complete else (number,)
        key = ("survey", roots)
        if key not in self.level.programs:
            made, numbers = survey(self.level, roots)
            self.level.programs[key] = jax.jit(made), numbers
        program, kept = self.level.programs[key]
        self._codes.update(zip(kept, map(host, program(*self.inputs)), strict=True))

    def values(self, numbers: Sequence[int]) -> list[Any]:
        """Values by number, as arrays on the device."""
        missing = tuple(n for n in dict.fromkeys(numbers) if n not in self._values)
        self._values.update((n, self.level.consts[n]) for n in missing if n in self.level.consts)
        missing = tuple(n for n in missing if n not in self.level.consts)
        if missing:
            key = ("fetch", missing)
            if key not in self.level.programs:
                self.level.programs[key] = jax.jit(fetch(self.level, missing)), missing
            self._values.update(zip(missing, self.level.programs[key][0](*self.inputs), strict=True))
        return [self._values[n] for n in numbers]

    # -- inner places

    def passage(self, node: Node) -> Passage:
        """The loop ``node`` with the operands it has here."""
        if node.segment not in self._passages:
            self._passages[node.segment] = Passage(node, self.values(node.inputs))
        return self._passages[node.segment]

    def branch(self, node: Node) -> Place:
        """The branch of ``node`` that was taken."""
        which, *operands = self.values(node.inputs)
        last = len(node.eqn.params["branches"]) - 1
        name = f"b{min(max(int(host(which)), 0), last)}"
        path = f"{join(self.path, node.segment)}/{name}"
        return Place(node.inner(name), operands, path, self.steps, Entry(self, node, name))

    def body(self, node: Node, step: int, before: Sequence[Any], entry: Entry) -> Place:
        """The body of the loop ``node`` at a step, from the carry before it."""
        passage = self.passage(node)
        inputs = passage.body_inputs(passage.operands, before, step)
        path = join(self.path, node.segment)
        return Place(passage.body, inputs, path, (*self.steps, step), entry)

    def at_step(self, node: Node, step: int) -> Place:
        """The body of the loop ``node`` at a step that production is known to have begun."""
        return self.body(
            node,
            step,
            self._before(node, step),
            Entry(self, node, "body", self.passage(node), step),
        )

    def pred_at(self, node: Node, step: int) -> Place:
        """The predicate of the loop ``node`` before a step."""
        passage = self.passage(node)
        inputs = [*passage.split(passage.operands)[0], *self._before(node, step)]
        path = f"{join(self.path, node.segment)}/pred"
        return Place(
            node.inner("pred"),
            inputs,
            path,
            (*self.steps, step),
            Entry(self, node, "pred", passage, step),
        )

    def _before(self, node: Node, step: int) -> list[Any]:
        before = self.passage(node).carry_at(step)
        if before is None:
            raise NotMet(f"{join(self.path, node.segment)} ends before step {step}")
        return before

    def entries(self) -> Iterator[Entry]:
        """How one came here, innermost first."""
        place: Place | None = self
        while place is not None and place.entry is not None:
            yield place.entry
            place = place.entry.parent


class Born(NamedTuple):
    """Equation ``node`` made ``element`` (``None``: not known which) of its output bad."""

    place: Place
    node: Node
    output: int
    element: Index | None
    bad: str


class Given(NamedTuple):
    """The bad value was there from the start: in an input of the program, or in a constant.

    ``input`` is the number of the input, ``None`` for a constant.

    ``user`` is the equation that used it, if any.
    """

    place: Place
    input: int | None
    element: Index | None
    bad: str
    user: tuple[Place, Node] | None


def numpy_codes(x: np.ndarray) -> np.ndarray:
    """As `replay.codes`, on the host."""
    if x.dtype.kind == "c":
        return numpy_codes(x.real) | numpy_codes(x.imag)
    x = x.astype(np.float64)
    return np.isnan(x).astype(np.uint8) * NAN + np.isinf(x).astype(np.uint8) * INF


def first_bad(code: np.ndarray, bit: int, box: Box = ()) -> Index | None:
    """Index of the first element within ``box`` that has ``bit``."""
    hits = np.zeros(code.shape, bool)
    hits[box] = (code[box] & bit) > 0
    where = np.argwhere(hits)
    return tuple(int(k) for k in where[0]) if len(where) else None


def follow(place: Place, number: int, index: Index | None, bad: str) -> Born | Given:
    """Walk back from element ``index`` of a value that is bad there.

    Args:
        place: where the value is.
        number: which value of that level.
        index: which element; ``None`` for the first bad one.
        bad: ``"nan"`` or ``"inf"``.

    Raises:
        NotMet: the replay finds it good.
    """
    bit, user = BITS[bad], None
    index = arrive(place, number, index, bit)
    for _ in range(HOPS):
        if number in place.level.consts:
            return Given(place, None, index, bad, user)
        producer = place.level.producers[number]
        if producer is None:
            if place.entry is None:
                return Given(place, place.level.inputs.index(number), index, bad, user)
            place, number, index = _leave(place, number, index, bit)
        else:
            node = place.level.nodes[producer]
            output = node.outputs.index(number)
            if node.primitive in LOOPS:
                place, number, index = _enter(place, node, output, index, bit)
            elif node.primitive == BRANCHES:
                place = place.branch(node)
                number = place.level.outputs[output]
            else:
                behind = operand_behind(place, node, output, index, bit)
                if behind is None:
                    return Born(place, node, output, index, bad)
                if user is None or node.primitive not in MERELY_MOVE:
                    user = place, node
                number, index = node.inputs[behind[0]], behind[1]
                continue
        index = arrive(place, number, index, bit)
    raise CannotReplay(f"it was followed back through {HOPS} equations without an end")


def arrive(place: Place, number: int, index: Index | None, bit: int) -> Index | None:
    """The element to follow, checked to be bad in this place too."""
    code = place.code(number)
    if code.shape != np.shape(place.level.avals[number]):
        if not code & bit:
            raise NotMet(place.path or "program")
        return index
    if index is None:
        index = first_bad(code, bit)
    if index is None or not code[index] & bit:
        raise NotMet(place.path or "program")
    return index


def operand_behind(
    place: Place, node: Node, output: int, index: Index | None, bit: int
) -> tuple[int, Index | None] | None:
    """Which operand was bad before, and which element of it."""
    for operand, box in behind_element(place, node, output, index):
        number = node.inputs[operand]
        if not _is_float(place, number):
            continue
        code = place.code(number)
        if code.shape != np.shape(place.level.avals[number]):
            if code & bit:
                return operand, None
        elif (found := first_bad(code, bit, box)) is not None:
            return operand, found
    return None


def behind_element(place: Place, node: Node, output: int, index: Index | None) -> list[tuple[int, Box]]:
    """(operand, elements of it) behind an element of an output."""
    if index is None:
        return [(i, (WHOLE,) * np.ndim(place.level.avals[n])) for i, n in enumerate(node.inputs)]
    values = [None if _is_float(place, n) else place.steering(n) for n in node.inputs]
    return boxes(node, output, index, values)


def _is_float(place: Place, number: int) -> bool:
    return is_inexact(place.level.avals[number])


def region_of(shape: tuple[int, ...], index: Index | None) -> np.ndarray:
    """Booleans: the element ``index``, or the elements of a lane, or all."""
    region = np.zeros(shape, bool)
    region[index if index is not None else ...] = True
    return region


def _turn(
    parent: Place, node: Node, leaf: int, index: Index | None, bit: int, stop: int = ENDLESS
) -> tuple[Place, int]:
    """Go to the last step before ``stop`` that made carry ``leaf`` bad, or before the loop."""
    passage = parent.passage(node)
    out = passage.body.outputs[leaf]
    found = passage.find(leaf, bit, region_of(passage.body.avals[out].shape, index), first=False, stop=stop)
    if found.step == NEVER:
        raise NotMet(join(parent.path, node.segment))
    if found.step == AT_ENTRY:
        return parent, node.inputs[passage.pred_consts + passage.num_consts + leaf]
    entry = Entry(parent, node, "body", passage, found.step, leaf, index, found)
    return parent.body(node, found.step, found.before, entry), out


def _enter(place: Place, node: Node, output: int, index: Index | None, bit: int) -> tuple[Place, int, Index | None]:
    passage = place.passage(node)
    if output < passage.num_carry:
        return (*_turn(place, node, output, index, bit), index)
    out = passage.body.outputs[output]
    if index is None:
        region = region_of(passage.body.avals[out].shape, None)
        step, inner = passage.find(output, bit, region, first=True).step, None
    else:
        step, inner = int(passage.row(index[0])), index[1:]
    before = passage.carry_at(step) if step >= 0 else None
    if before is None:
        raise NotMet(join(place.path, node.segment))
    entry = Entry(place, node, "body", passage, step, output, inner)
    return place.body(node, step, before, entry), out, inner


def _leave(place: Place, number: int, index: Index | None, bit: int) -> tuple[Place, int, Index | None]:
    entry, position = place.entry, place.level.inputs.index(number)
    assert entry is not None
    parent, node, passage = entry.parent, entry.node, entry.passage
    if passage is None:
        return parent, node.inputs[1 + position], index
    in_pred = entry.name == "pred"
    consts = passage.pred_consts if in_pred else passage.num_consts
    if position < consts:
        return parent, node.inputs[position + (0 if in_pred else passage.pred_consts)], index
    if position < consts + passage.num_carry:
        leaf = position - consts
        return (*_turn(parent, node, leaf, index, bit, stop=entry.step), index)
    row = int(passage.row(entry.step))
    return parent, node.inputs[position], (row, *index) if index is not None else None
