"""Following a bad value backwards through a program, to the equation that made it.

The walk goes from `Place` to `Place`: into a loop at the step that made a leaf bad, out of it through
a constant, a carry or a scanned input, and ends at an equation whose operands are good (`Born`) or at
a value that was given (`Given`).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from jaxtap_core.jaxpr.address import join
from jaxtap_core.jaxpr.structure import BRANCHES, LOOPS, SHARDED
from jaxtap_core.provenance.activation import SHARDS, Entry, NotMet, Place
from jaxtap_core.provenance.dependence import WHOLE, Box, Index, boxes
from jaxtap_core.provenance.devices import COLLECTIVES, Shards
from jaxtap_core.provenance.flat import BITS, CannotReplay, Node, is_inexact
from jaxtap_core.provenance.loop import AT_ENTRY, ENDLESS, NEVER, Passage

MERELY_MOVE = frozenset({"broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze"})

# Where a cotangent meets what the forward pass kept: 0 times NaN is NaN.
PRODUCTS = frozenset({"conv_general_dilated", "div", "dot_general", "mul", "triangular_solve"})

HOPS = 20_000  # equations followed before giving up
KEPT_HOPS = 8


class Hop(NamedTuple):
    """A product (or the like) that the bad value went through: ``element`` of its ``output``, from ``operand``."""

    place: Place
    node: Node
    output: int
    element: Index | None
    operand: int
    source: Index | None


class Born(NamedTuple):
    """Equation ``node`` made ``element`` (``None``: not known which) of its output bad.

    ``hops`` are the last products of the backward pass on the way, the one next to the birth first.
    """

    place: Place
    node: Node
    output: int
    element: Index | None
    bad: str
    hops: tuple[Hop, ...] = ()


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
    hops: deque[Hop] = deque(maxlen=KEPT_HOPS)
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
                place = place.branch(node, index[0] if index and place.runner.lead else 0)
                number = place.level.outputs[output]
            elif node.primitive == SHARDED:
                place, number, index = enter_shards(place, node, output, index)
            else:
                behind = operand_behind(place, node, output, index, bit)
                if behind is None:
                    return Born(place, node, output, index, bad, tuple(reversed(hops)))
                if node.phase == "backward" and node.primitive in PRODUCTS:
                    hops.append(Hop(place, node, output, index, *behind))
                if user is None or node.primitive not in MERELY_MOVE:
                    user = place, node
                number, index = node.inputs[behind[0]], behind[1]
                continue
        index = arrive(place, number, index, bit)
    raise CannotReplay(f"it was followed back through {HOPS} equations without an end")


def arrive(place: Place, number: int, index: Index | None, bit: int) -> Index | None:
    """The element to follow, checked to be bad in this place too."""
    code = place.code(number)
    if code.shape != place.shape(number):
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
        if code.shape != place.shape(number):
            if code & bit:
                return operand, None
        elif (found := first_bad(code, bit, box)) is not None:
            return operand, found
    return None


def behind_element(place: Place, node: Node, output: int, index: Index | None) -> list[tuple[int, Box]]:
    """(operand, elements of it) behind an element of an output."""
    lead = len(place.runner.lead)
    if index is None or (lead and node.primitive in COLLECTIVES):
        return [(i, (WHOLE,) * len(place.shape(n))) for i, n in enumerate(node.inputs)]
    values = [None if _is_float(place, n) else place.steering(n) for n in node.inputs]
    shard = index[:lead]
    values = [None if value is None else value[shard] for value in values]
    return [(i, (*shard, *box)) for i, box in boxes(node, output, index[lead:], values)]


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
    region = region_of(passage.shape(leaf), index)
    found = passage.find(leaf, bit, region, first=False, stop=stop)
    if found.step == NEVER:
        raise NotMet(join(parent.path, node.segment))
    if found.step == AT_ENTRY:
        return parent, node.inputs[passage.pred_consts + passage.num_consts + leaf]
    entry = Entry(parent, node, "body", passage, found.step, leaf, index, found)
    return parent.body(node, found.before, entry), passage.body.outputs[leaf]


def _enter(place: Place, node: Node, output: int, index: Index | None, bit: int) -> tuple[Place, int, Index | None]:
    passage = place.passage(node)
    if output < passage.num_carry:
        return (*_turn(place, node, output, index, bit), index)
    if index is None:
        region = region_of(passage.shape(output), None)
        step, inner = passage.find(output, bit, region, first=True).step, None
    else:
        step, inner = row_of(place, passage, index)
    before = passage.carry_at(step) if step >= 0 else None
    if before is None:
        raise NotMet(join(place.path, node.segment))
    entry = Entry(place, node, "body", passage, step, output, inner)
    return place.body(node, before, entry), passage.body.outputs[output], inner


def row_of(place: Place, passage: Passage, index: Index) -> tuple[int, Index]:
    """The step that made an element of a stacked output, and which element it was there."""
    lead = len(place.runner.lead)
    return int(passage.row(index[lead])), (*index[:lead], *index[lead + 1 :])


def enter_shards(place: Place, node: Node, output: int, index: Index | None) -> tuple[Place, int, Index | None]:
    inner = place.shards(node)
    number = inner.level.outputs[output]
    assert isinstance(inner.runner, Shards)
    if index is not None:
        index = inner.runner.inside(output, index, inner.shape(number)[1:])
    return inner, number, index


def _leave(place: Place, number: int, index: Index | None, bit: int) -> tuple[Place, int, Index | None]:
    leaf = carry_of(place, number)
    if leaf is None:
        return outside(place, number, index)
    entry = place.entry
    assert entry is not None
    return (*_turn(entry.parent, entry.node, leaf, index, bit, stop=entry.step), index)


def carry_of(place: Place, number: int) -> int | None:
    """Which carry of the loop around ``place`` an input of it is, or ``None`` where it is none."""
    entry = place.entry
    if entry is None or entry.passage is None:
        return None
    passage = entry.passage
    consts = passage.pred_consts if entry.name == "pred" else passage.num_consts
    leaf = place.level.inputs.index(number) - consts
    return leaf if 0 <= leaf < passage.num_carry else None


def outside(place: Place, number: int, index: Index | None) -> tuple[Place, int, Index | None]:
    """Where an input of an inner program that is no carry comes from, and which element of that."""
    entry, position = place.entry, place.level.inputs.index(number)
    assert entry is not None
    parent, node, passage = entry.parent, entry.node, entry.passage
    if entry.name == SHARDS and isinstance(place.runner, Shards):
        outer = node.inputs[position]
        if index is not None:
            index = place.runner.outside(position, index, parent.shape(outer))
        return parent, outer, index
    if passage is None:
        return parent, node.inputs[1 + position], index
    in_pred = entry.name == "pred"
    consts = passage.pred_consts if in_pred else passage.num_consts
    if position < consts:
        return parent, node.inputs[position + (0 if in_pred else passage.pred_consts)], index
    row, lead = int(passage.row(entry.step)), len(place.runner.lead)
    if index is not None:
        index = (*index[:lead], row, *index[lead:])
    return parent, node.inputs[position], index
