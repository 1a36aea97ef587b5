"""What stands behind a birth: where the infinity or zero came from that made a NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxtap_core.birth import Birth, Why, facts
from jaxtap_core.events import Origin
from jaxtap_core.explain import explain
from jaxtap_core.influence import Box, Index
from jaxtap_core.place import SHARDS, Place, numpy_codes
from jaxtap_core.replay import BITS, INF, CannotReplay, Node, host, is_inexact
from jaxtap_core.shards import COLLECTIVES, SHARD_MAP
from jaxtap_core.structure import BRANCHES, LOOPS
from jaxtap_core.walk import Born, Given, behind_element, first_bad, follow

LINKS = 100  # equations through which a zero is followed

# A zero that comes out of these came in with one operand (the first that is zero).
_PASS_ZERO_NAMES = """
mul neg convert_element_type reduce_precision copy real imag conj complex add_any reduce_sum
cumsum name broadcast_in_dim reshape squeeze expand_dims transpose slice dynamic_slice rev
concatenate pad gather dynamic_update_slice optimization_barrier dot_general sharding_constraint
"""
_PASS_ZERO = frozenset(_PASS_ZERO_NAMES.split())


def origin_of(end: Born | Given, names: tuple[str, ...] = ()) -> Origin:
    """The report about the end of a walk; ``names`` are those of the program's arguments."""
    if isinstance(end, Given):
        return _given(end, names)
    birth = birth_of(end, names)
    why = _checked(birth, explain(birth))
    if end.place.runner.lead and end.element is not None:
        shard = f"; on shard {end.element[0]} of {end.place.runner.lead[0]}"
        why = why._replace(reason=why.reason + shard)
    return Origin(
        primitive=end.node.primitive,
        path=_path(end.place, end.node),
        steps=end.place.steps,
        lane=lane_of(end.place),
        source=end.node.source,
        phase=end.node.phase,
        operands=tuple(facts(value, _box(birth, i)) for i, value in enumerate(birth.operands)),
        reason=why.reason,
        advice=why.advice,
    )


def lane_of(place: Place) -> Index | None:
    """The lane of the innermost loop around ``place`` that is batched over its predicate."""
    for entry in place.entries():
        if entry.passage is not None and entry.passage.lanes and entry.element is not None:
            return entry.element[: len(entry.passage.lanes)]
    return None


def _path(place: Place, node: Node) -> str:
    return f"{place.path}/{node.segment}" if place.path else node.segment


def _box(birth: Birth, operand: int) -> Box | None:
    return next((box for i, box in birth.boxes if i == operand), None)


def _given(end: Given, names: tuple[str, ...]) -> Origin:
    word = "NaN" if end.bad == "nan" else "Inf"
    place, node = end.user or (end.place, None)
    at = list(end.element) if end.element else ""
    if end.input is None:
        reason = f"the program holds it as a constant: {word}"
    else:
        reason = f"the program was given it: {argument(end.input, names)}{at} is {word}"
    return Origin(
        primitive=node.primitive if node is not None and end.input is None else "",
        path=_path(place, node) if node is not None else place.path,
        steps=place.steps,
        lane=lane_of(place),
        source=node.source if node is not None else "",
        phase=node.phase if node is not None else "forward",
        operands=(),
        reason=reason,
    )


def argument(number: int, names: tuple[str, ...]) -> str:
    """An argument of the program for people: its name where JAX kept it."""
    name = names[number] if number < len(names) else ""
    return f"argument {name!r}" if name else f"argument {number}"


def birth_of(born: Born, names: tuple[str, ...] = (), *, deep: bool = True) -> Birth:
    """The operands and outputs of a birth; with ``deep`` also what stands behind them."""
    place, node = born.place, born.node
    values = [host(value) for value in place.values([*node.inputs, *node.outputs])]
    operands, outputs = values[: len(node.inputs)], values[len(node.inputs) :]
    boxes = tuple(behind_element(place, node, born.output, born.element))
    unselected, cause = _behind(born, boxes, operands, names) if deep else (False, "")
    index = born.element
    if place.runner.lead and node.primitive not in COLLECTIVES:  # look at the one shard alone
        shard = index[0] if index is not None else 0
        operands, outputs = [v[shard] for v in operands], [v[shard] for v in outputs]
        boxes = tuple((i, box[1:]) for i, box in boxes)
        index = index[1:] if index is not None else None
    return Birth(
        primitive=node.primitive,
        params=node.eqn.params,
        operands=tuple(operands),
        outputs=tuple(outputs),
        output=born.output,
        index=index,
        boxes=boxes,
        bad=born.bad,
        phase=node.phase,
        unselected=unselected,
        cause=cause,
    )


def _checked(birth: Birth, why: Why) -> Why:
    """Say so where the operands, looked at apart, no longer make the bad value."""
    code = numpy_codes(birth.outputs[birth.output])
    still = code[birth.index] if birth.index is not None and code.ndim == len(birth.index) else code
    if (np.asarray(still) & BITS[birth.bad]).any():
        return why
    given = ", ".join(f"{birth.element(i):.6g}" for i in range(len(birth.operands)) if birth.part(i).size)
    return Why(
        f"rounding: {birth.primitive} gets {given} when its operands are looked at, and makes "
        "nothing bad of it; in the program itself they are rounded otherwise (it depends on how "
        "XLA fuses)",
        why.advice or "keep the operand away from the edge by more than the rounding error",
    )


def _behind(
    born: Born,
    boxes: tuple[tuple[int, Box], ...],
    operands: list[np.ndarray],
    names: tuple[str, ...],
) -> tuple[bool, str]:
    """(whether a zero is the cotangent of a branch not taken, where the odd operand came from)."""
    unselected, cause = False, ""
    for operand, box in boxes:
        number = born.node.inputs[operand]
        if not is_inexact(born.place.level.avals[number]):
            continue
        infinite = first_bad(numpy_codes(operands[operand]), INF, box)
        if infinite is not None:
            if born.bad == "nan" and not cause:
                cause = _infinity(born.place, number, infinite, names)
            continue
        zero = _first_zero(operands[operand], box)
        if zero is not None:
            kind, story = _zero(born.place, number, zero)
            unselected |= kind
            cause = cause or story
    return unselected, cause


def _first_zero(value: np.ndarray, box: Box) -> Index | None:
    hits = np.zeros(value.shape, bool)
    hits[box] = value[box] == 0
    where = np.argwhere(hits)
    return tuple(int(k) for k in where[0]) if len(where) else None


def _infinity(place: Place, number: int, index: Index, names: tuple[str, ...]) -> str:
    try:
        end = follow(place, number, index, "inf")
        if isinstance(end, Given):
            given = "is a constant of the program" if end.input is None else f"came with {argument(end.input, names)}"
            return f"the inf {given}"
        birth = birth_of(end, names, deep=False)
        return f"the inf is made by {end.node.primitive} at {end.node.source}: {explain(birth).reason}"
    except CannotReplay:
        return ""


def _zero(place: Place, number: int, index: Index) -> tuple[bool, str]:
    """Follow a zero: (whether a backward ``where`` did not select it, how else it became zero)."""
    selected = False
    for _ in range(LINKS):
        if number in place.level.consts:
            return selected, ""
        producer = place.level.producers[number]
        if producer is None:
            outside = _outside(place, number)
            if outside is None:
                return False, ""
            place, number = outside
            continue
        node = place.level.nodes[producer]
        if node.primitive in (*LOOPS, SHARD_MAP):
            return False, ""
        output = node.outputs.index(number)
        if node.primitive == BRANCHES:
            place = place.branch(node, index[0] if index and place.runner.lead else 0)
            number = place.level.outputs[output]
            continue
        if node.primitive == "select_n":
            selected |= node.phase == "backward"
        step = _zero_operand(place, node, output, index)
        if step is None:
            return False, _vanished(place, node, output, index)
        number, index = step
    return False, ""


def _outside(place: Place, number: int) -> tuple[Place, int] | None:
    """Where an inner program's input comes from, if it is the same at every step."""
    entry, position = place.entry, place.level.inputs.index(number)
    if entry is None or entry.name == SHARDS:
        return None
    if entry.passage is None:
        return entry.parent, entry.node.inputs[1 + position]
    first = 0 if entry.name == "pred" else entry.passage.pred_consts
    consts = entry.passage.pred_consts if entry.name == "pred" else entry.passage.num_consts
    return (entry.parent, entry.node.inputs[first + position]) if position < consts else None


def _zero_operand(place: Place, node: Node, output: int, index: Index) -> tuple[int, Index] | None:
    """The operand, and its element, that was zero before."""
    if node.primitive not in _PASS_ZERO | {"select_n", "div"}:
        return None
    reach = behind_element(place, node, output, index)
    reach = reach[:1] if node.primitive == "div" else reach
    floats = [(node.inputs[i], box) for i, box in reach if is_inexact(place.level.avals[node.inputs[i]])]
    for (number, box), value in zip(floats, place.values([n for n, _ in floats]), strict=True):
        zero = _first_zero(host(value), box)
        if zero is not None:
            return number, zero
    return None


def _vanished(place: Place, node: Node, output: int, index: Index) -> str:
    """How an equation made a zero of nonzero operands."""
    reach = behind_element(place, node, output, index)
    parts: list[Any] = [host(place.values([node.inputs[i]])[0])[box] for i, box in reach]
    if any(part.size != 1 or part == 0 for part in parts):
        return ""
    at = f"{node.primitive} at {node.source}"
    shown = ", ".join(f"{float(np.real(part)):.6g}" for part in parts)
    if node.primitive == "sub":
        return f"the 0 is the difference of equal numbers ({shown}) in {at}"
    if node.primitive in ("exp", "exp2", "mul", "div", "integer_pow", "pow", "square", "logistic"):
        return f"the 0 is an underflow in {at} ({shown})"
    return ""
