"""Following a bad value backward through a program, to the equation that made it.

The way goes from `Activation` to `Activation`: into a loop at the step that made a leaf bad, out of it through a
constant, a carry or a scanned input, and ends at an equation whose operands are good (`Born`) or at a value that was
given (`Given`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxtap_core.jaxpr.address import join
from jaxtap_core.jaxpr.values import is_inexact
from jaxtap_core.provenance.activation import Activation, NotReproduced
from jaxtap_core.provenance.dependence import WHOLE, Box, Index, boxes
from jaxtap_core.provenance.devices import COLLECTIVES, Shards
from jaxtap_core.provenance.flat import BITS, CannotReplay, Node
from jaxtap_core.provenance.loop import AT_ENTRY, ENDLESS, NEVER, LoopReplay

MERELY_MOVE = frozenset({"broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze"})

# Where a cotangent meets what the forward pass kept: 0 times NaN is NaN.
PRODUCTS = frozenset({"conv_general_dilated", "div", "dot_general", "mul", "triangular_solve"})

MOST_EQUATIONS = 20_000  # equations followed before giving up
MOST_WAYS = 64  # ways tried in search of a birth, where some end at values that were given
MOST_ELEMENTS = 8  # bad elements of one operand among which a birth is sought
KEPT_PRODUCTS = 8


class Product(NamedTuple):
    """A product (or the like) that the bad value went through: ``element`` of its ``output``, from ``operand``."""

    activation: Activation
    node: Node
    output: int
    element: Index | None
    operand: int
    source: Index | None


class Born(NamedTuple):
    """Equation ``node`` made ``element`` (``None``: not known which) of its output bad.

    ``products`` are the last products of the backward pass on the way, the one next to the birth first.
    """

    activation: Activation
    node: Node
    output: int
    element: Index | None
    bad: str
    products: tuple[Product, ...] = ()


class Given(NamedTuple):
    """The bad value was there from the start: in an input of the program, or in a constant.

    ``input`` is the number of the input, ``None`` for a constant.

    ``user`` is the equation that used it, if any; ``products`` as in `Born`; ``chooser`` the last select or ``cond``
    on the way, which chose it, and for which element.
    """

    activation: Activation
    input: int | None
    element: Index | None
    bad: str
    user: tuple[Activation, Node] | None
    products: tuple[Product, ...] = ()
    chooser: tuple[Activation, Node, Index | None] | None = None


def first_bad(code: np.ndarray, bit: int, box: Box = ()) -> Index | None:
    """Index of the first element within ``box`` that has ``bit``."""
    return next(iter(some_bad(code, bit, box)), None)


def some_bad(code: np.ndarray, bit: int, box: Box = ()) -> list[Index]:
    """Indices of the first elements within ``box`` that have ``bit``."""
    hits = np.zeros(code.shape, bool)
    hits[box] = (code[box] & bit) > 0
    return [tuple(int(k) for k in where) for where in np.argwhere(hits)[:MOST_ELEMENTS]]


class Way(NamedTuple):
    """A way back that is still to be gone: a bad element, and what was passed before it."""

    activation: Activation
    number: int
    element: Index | None
    user: tuple[Activation, Node] | None = None
    products: tuple[Product, ...] = ()
    chooser: tuple[Activation, Node, Index | None] | None = None


def follow(
    activation: Activation, number: int, index: Index | None, bad: str, others: Sequence[Index] = ()
) -> Born | Given:
    """Go backward from element ``index`` of a value that is bad there.

    Where several operands were bad before, the first is followed; what ends at a value that was given is no birth, and
    the others are tried.

    Args:
        activation: where the value is.
        number: which value of its program.
        index: which element; ``None`` for the first bad one.
        bad: ``"nan"`` or ``"inf"``.
        others: further elements that are bad, tried where that one was given.

    Raises:
        NotMet: the replay finds it good.
    """
    ways, given = [Way(activation, number, at) for at in (*reversed(others), index)], None
    for _ in range(MOST_WAYS):
        end = _go_back(ways.pop(), bad, ways)
        if isinstance(end, Born):
            return end
        given = given or end
        if not ways:
            break
    assert given is not None
    return given


def _go_back(way: Way, bad: str, others: list[Way]) -> Born | Given:
    """Go one way to its end; the other operands that were bad on it are put to ``others``."""
    bit = BITS[bad]
    activation, number, index, user, passed, chooser = way
    products = deque(passed, maxlen=KEPT_PRODUCTS)
    index = checked_element(activation, number, index, bit)
    for _ in range(MOST_EQUATIONS):
        if number in activation.flat.consts:
            return Given(activation, None, index, bad, user, tuple(reversed(products)), chooser)
        producer = activation.flat.producers[number]
        if producer is None:
            if activation.entry is None:
                position = activation.flat.inputs.index(number)
                return Given(activation, position, index, bad, user, tuple(reversed(products)))
            activation, number, index = _leave(activation, number, index, bit)
        else:
            node = activation.flat.nodes[producer]
            output = node.outputs.index(number)
            if node.kind == "loop":
                activation, number, index = _into_loop(activation, node, output, index, bit)
            elif node.kind == "branches":
                chooser = activation, node, index
                activation = activation.branch(node, index[0] if index and activation.runner.lead else 0)
                number = activation.flat.outputs[output]
            elif node.kind == "sharded":
                activation, number, index = into_shards(activation, node, output, index)
            else:
                operands = bad_operands(activation, node, output, index, bit)
                if not operands:
                    return Born(activation, node, output, index, bad, tuple(reversed(products)))
                before = tuple(products)
                if node.phase == "backward" and node.primitive in PRODUCTS:
                    products.append(Product(activation, node, output, index, *operands[0]))
                if user is None or node.primitive not in MERELY_MOVE:
                    user = activation, node
                if node.primitive == "select_n":
                    chooser = activation, node, index
                rest = [
                    Way(activation, node.inputs[operand], at, user, before, chooser) for operand, at in operands[1:]
                ]
                others.extend(reversed(rest))
                number, index = node.inputs[operands[0][0]], operands[0][1]
                continue
        index = checked_element(activation, number, index, bit)
    raise CannotReplay(f"it was followed back through {MOST_EQUATIONS} equations without an end")


def checked_element(activation: Activation, number: int, index: Index | None, bit: int) -> Index | None:
    """The element to follow, checked to be bad in this activation too."""
    code = activation.code(number)
    if code.shape != activation.shape(number):
        if not code & bit:
            raise NotReproduced(activation.path or "program")
        return index
    if index is None:
        index = first_bad(code, bit)
    if index is None or not code[index] & bit:
        raise NotReproduced(activation.path or "program")
    return index


def bad_operands(
    activation: Activation, node: Node, output: int, index: Index | None, bit: int
) -> list[tuple[int, Index | None]]:
    """Which operands were bad before, and which elements of them (some, where they are many)."""
    found: list[tuple[int, Index | None]] = []
    for operand, box in behind_element(activation, node, output, index):
        number = node.inputs[operand]
        if not _is_float(activation, number):
            continue
        code = activation.code(number)
        if code.shape != activation.shape(number):
            found += [(operand, None)] if code & bit else []
        else:
            found += [(operand, at) for at in some_bad(code, bit, box)]
    return found


def behind_element(activation: Activation, node: Node, output: int, index: Index | None) -> list[tuple[int, Box]]:
    """(operand, elements of it) behind an element of an output."""
    lead = len(activation.runner.lead)
    if index is None or (lead and node.primitive in COLLECTIVES):
        return [(i, (WHOLE,) * len(activation.shape(n))) for i, n in enumerate(node.inputs)]
    values = [None if _is_float(activation, n) else activation.steering(n) for n in node.inputs]
    shard = index[:lead]
    values = [None if value is None else value[shard] for value in values]
    return [(i, (*shard, *box)) for i, box in boxes(node, output, index[lead:], values)]


def _is_float(activation: Activation, number: int) -> bool:
    return is_inexact(activation.flat.avals[number])


def region_of(shape: tuple[int, ...], index: Index | None) -> np.ndarray:
    """Booleans: the element ``index``, or the elements of a lane, or all."""
    region = np.zeros(shape, bool)
    region[index if index is not None else ...] = True
    return region


def _to_bad_step(
    parent: Activation, node: Node, leaf: int, index: Index | None, bit: int, stop: int = ENDLESS
) -> tuple[Activation, int]:
    """Go to the last step before ``stop`` that made carry ``leaf`` bad, or before the loop."""
    replay = parent.replay(node)
    region = region_of(replay.shape(leaf), index)
    found = replay.step_that_turned_bad(leaf, bit, region, first=False, stop=stop)
    if found.step == NEVER:
        raise NotReproduced(join(parent.path, node.segment))
    if found.step == AT_ENTRY:
        return parent, replay.initial(leaf)
    return parent.body(node, found.before, found.step, index), replay.body.outputs[leaf]


def _into_loop(
    activation: Activation, node: Node, output: int, index: Index | None, bit: int
) -> tuple[Activation, int, Index | None]:
    replay = activation.replay(node)
    if output < replay.loop.num_carry:
        return (*_to_bad_step(activation, node, output, index, bit), index)
    if index is None:
        region = region_of(replay.shape(output), None)
        step, inner = replay.step_that_turned_bad(output, bit, region, first=True).step, None
    else:
        step, inner = row_of(activation, replay, index)
    before = replay.carry_at(step) if step >= 0 else None
    if before is None:
        raise NotReproduced(join(activation.path, node.segment))
    return activation.body(node, before, step, inner), replay.body.outputs[output], inner


def row_of(activation: Activation, replay: LoopReplay, index: Index) -> tuple[int, Index]:
    """The step that made an element of a stacked output, and which element it was there."""
    lead = len(activation.runner.lead)
    return int(replay.row(index[lead])), (*index[:lead], *index[lead + 1 :])


def into_shards(
    activation: Activation, node: Node, output: int, index: Index | None
) -> tuple[Activation, int, Index | None]:
    """Inside of a ``shard_map``: where output ``output`` of it comes from, and which element of that."""
    inner = activation.shards(node)
    number = inner.flat.outputs[output]
    assert isinstance(inner.runner, Shards)
    if index is not None:
        index = inner.runner.inside(output, index, inner.shape(number)[1:])
    return inner, number, index


def _leave(activation: Activation, number: int, index: Index | None, bit: int) -> tuple[Activation, int, Index | None]:
    leaf = carry_of(activation, number)
    if leaf is None:
        return outside(activation, number, index)
    entry = activation.entry
    assert entry is not None
    return (*_to_bad_step(entry.parent, entry.node, leaf, index, bit, stop=entry.step), index)


def carry_of(activation: Activation, number: int) -> int | None:
    """Which carry of the loop around ``activation`` an input of it is, or ``None`` where it is none."""
    entry = activation.entry
    if entry is None or entry.replay is None:
        return None
    return entry.replay.loop.carry_of(entry.name, activation.flat.inputs.index(number))


def outside(activation: Activation, number: int, index: Index | None) -> tuple[Activation, int, Index | None]:
    """Where an input of an inner program that is no carry comes from, and which element of that."""
    entry, position = activation.entry, activation.flat.inputs.index(number)
    assert entry is not None
    outer, runner, replay = entry.node.given(entry.name, position), activation.runner, entry.replay
    if index is not None and entry.node.kind == "sharded":
        assert isinstance(runner, Shards)
        index = runner.outside(position, index, entry.parent.shape(outer))
    elif index is not None and replay is not None and replay.loop.is_scanned(entry.name, position):
        lead = len(runner.lead)
        index = (*index[:lead], int(replay.row(entry.step)), *index[lead:])
    return entry.parent, outer, index
