"""What stands behind a birth: where the infinity or zero came from that made a NaN."""

from __future__ import annotations

import numpy as np

from jaxtap_core.jaxpr.address import in_backward_rule, library_frames
from jaxtap_core.jaxpr.values import host_array, is_inexact
from jaxtap_core.provenance.activation import Activation, numpy_codes
from jaxtap_core.provenance.backward import Born, Given, behind_element, first_bad, follow
from jaxtap_core.provenance.chosen import constant
from jaxtap_core.provenance.dead_branch import branch_of, with_dead_branch
from jaxtap_core.provenance.dependence import Box, Index, is_single, opposite
from jaxtap_core.provenance.devices import COLLECTIVES
from jaxtap_core.provenance.flat import BITS, INF, CannotReplay, Node
from jaxtap_core.provenance.reasons.base import Birth, Why, explain, facts, show
from jaxtap_core.provenance.zero import Zero, first_zero, trace_zero
from jaxtap_core.records.events import Origin
from jaxtap_core.records.text import word

# Run operation by operation, a backward pass is many programs: the select is in another one than the product, and
# that the zero is the cotangent and not what the forward pass kept is likely, not sure.
GIVEN_COTANGENT = "what does not count, such as a where branch that was not taken (likely: the program was given the 0)"


def origin_of(end: Born | Given, names: tuple[str, ...] = ()) -> Origin:
    """The report about the end of the way back; ``names`` are those of the program's arguments."""
    if isinstance(end, Given):
        return _given(end, names)
    birth = birth_of(end, names)
    why = with_equal_values(end, with_dead_branch(end, _checked(birth, explain(birth))))
    if end.node.phase == "backward" and in_backward_rule(end.node.eqn.source_info):
        why = why._replace(reason=f"{why.reason}; in the backward rule of the custom_vjp called there")
    if end.activation.runner.lead and end.element is not None:
        shard = f"; on shard {end.element[0]} of {end.activation.runner.lead[0]}"
        why = why._replace(reason=why.reason + shard)
    return Origin(
        primitive=end.node.primitive,
        path=_path(end.activation, end.node),
        steps=end.activation.steps,
        lane=lane_of(end.activation),
        source=end.node.source,
        phase=end.node.phase,
        operands=tuple(facts(value, _box(birth, i)) for i, value in enumerate(birth.operands)),
        reason=why.reason,
        advice=why.advice,
    )


# What a factorization says of the values that its derivative divides by the differences of.
_VALUES = {"svd": "singular values", "eigh": "eigenvalues", "eig": "eigenvalues"}


def with_equal_values(born: Born, why: Why) -> Why:
    """``why``, with a word of equal values where the derivative of a factorization made it."""
    functions = [function for _, function in library_frames(born.node.eqn.source_info)]
    values = next((_VALUES[function] for function in functions if function in _VALUES), "")
    if not values or born.node.primitive in _VALUES:
        return why
    vectors = "singular vectors" if values == "singular values" else "eigenvectors"
    text = f"{why.reason}; in the derivative of {vectors}, which do not have one where two {values} are equal"
    return Why(text, f"keep the {values} apart (perturb the matrix), or differentiate only the {values}")


def lane_of(activation: Activation) -> Index | None:
    """The lane of the innermost loop around ``activation`` that is batched over its predicate."""
    for entry in activation.entries():
        if entry.replay is not None and entry.replay.loop.lanes and entry.element is not None:
            return entry.element[: len(entry.replay.loop.lanes)]
    return None


def _path(activation: Activation, node: Node) -> str:
    return f"{activation.path}/{node.segment}" if activation.path else node.segment


def _box(birth: Birth, operand: int) -> Box | None:
    return next((box for i, box in birth.boxes if i == operand), None)


def _given(end: Given, names: tuple[str, ...]) -> Origin:
    activation, node = end.user or (end.activation, None)
    at = list(end.element) if end.element else ""
    advice = ""
    if end.input is None:
        reason, advice = constant(end) or (f"the program holds it as a constant: {word(end.bad)}", "")
    else:
        reason = f"the program was given it: {argument(end.input, names)}{at} is {word(end.bad)}"
    return Origin(
        primitive=node.primitive if node is not None and end.input is None else "",
        path=_path(activation, node) if node is not None else activation.path,
        steps=activation.steps,
        lane=lane_of(activation),
        source=node.source if node is not None else "",
        phase=node.phase if node is not None else "forward",
        operands=(),
        reason=reason,
        advice=advice,
    )


def argument(number: int, names: tuple[str, ...]) -> str:
    """An argument of the program for people: its name where JAX kept it."""
    name = names[number] if number < len(names) else ""
    return f"argument {name!r}" if name else f"argument {number}"


def birth_of(born: Born, names: tuple[str, ...] = (), *, deep: bool = True) -> Birth:
    """The operands and outputs of a birth; with ``deep`` also what made an infinity among them."""
    activation, node = born.activation, born.node
    values = [host_array(value) for value in activation.values([*node.inputs, *node.outputs])]
    operands, outputs = values[: len(node.inputs)], values[len(node.inputs) :]
    if born.element is None:  # of values too big to be searched at every equation
        born = born._replace(element=first_bad(numpy_codes(outputs[born.output]), BITS[born.bad]))
    boxes = tuple(behind_element(activation, node, born.output, born.element))
    untaken, cause = _behind(born, boxes, operands, names, deep)
    index = born.element
    if activation.runner.lead and node.primitive not in COLLECTIVES:  # look at the one shard alone
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
        untaken=untaken,
        cause=cause,
    )


def _checked(birth: Birth, why: Why) -> Why:
    """Say so where the operands, looked at apart, no longer make the bad value."""
    code = numpy_codes(birth.outputs[birth.output])
    still = code[birth.index] if birth.index is not None and code.ndim == len(birth.index) else code
    if (np.asarray(still) & BITS[birth.bad]).any():
        return why
    given = "its operands"
    if birth.index is not None:
        numbers = (show(birth.element(i)) for i in range(len(birth.operands)) if birth.part(i).size)
        given = ", ".join(numbers)
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
    deep: bool,
) -> tuple[str, str]:
    """(the branch not taken whose cotangent a zero is, or empty; where the odd operand came from).

    An infinity is followed only with ``deep``: the one behind it is not told.
    """
    activation, numbers = born.activation, born.node.inputs
    zeros, infinities = _odd(born, boxes, operands)
    traced = [trace_zero(activation, numbers[operand], index) for operand, index in zeros]
    if born.bad == "nan" and infinities:
        operand, index = infinities[0]
        cause = _infinity(activation, numbers[operand], index, names) if deep else ""
    else:
        cause = next((zero.reason for zero in traced if zero.reason), "")
    untaken = next((branch_of(zero.select) for zero in traced if zero.select is not None), "")
    if not untaken and born.node.phase == "backward" and _given_cotangent(activation, zeros, traced):
        untaken = GIVEN_COTANGENT
    return untaken, cause


def _given_cotangent(activation: Activation, zeros: list[tuple[int, Index]], traced: list[Zero]) -> bool:
    """Whether a zero that the program was given may be a cotangent.

    Not where the forward pass is in the program too: its inputs are points at which the user differentiates. And JAX
    writes the cotangent first in what it transposes, with rare exceptions.
    """
    if any(node.phase != "backward" for node in activation.flat.nodes):
        return False
    return any(zero.given and operand == 0 for (operand, _), zero in zip(zeros, traced, strict=True))


def _odd(
    born: Born, boxes: tuple[tuple[int, Box], ...], operands: list[np.ndarray]
) -> tuple[list[tuple[int, Index]], list[tuple[int, Index]]]:
    """(operand, element) of the zeros, and of the infinities, that a birth is made of."""
    node, lead = born.node, len(born.activation.runner.lead)
    floats = [(i, box) for i, box in boxes if is_inexact(born.activation.flat.avals[node.inputs[i]])]
    infinities = [(i, k) for i, box in floats if (k := first_bad(numpy_codes(operands[i]), INF, box)) is not None]
    if node.primitive == "dot_general":
        for i, box in floats:
            for where in np.argwhere(_within(numpy_codes(operands[i]) == INF, box)):
                index = tuple(int(k) for k in where)
                across = opposite(node, i, index, *floats[1 - i], lead)
                if (zero := first_zero(operands[1 - i], across)) is not None:
                    return [(1 - i, zero)], [(i, index)]
        return [], infinities
    if node.primitive == "triangular_solve":
        matrix, box = operands[0], boxes[0][1]
        diagonal = np.broadcast_to(np.eye(matrix.shape[-1], dtype=bool), matrix.shape)
        hits = np.argwhere(_within(diagonal & (matrix == 0), box))
        return ([(0, tuple(int(k) for k in hits[0]))] if len(hits) else []), infinities
    single = [(i, box) for i, box in floats if is_single(box)]
    zeros = [(i, k) for i, box in single if (k := first_zero(operands[i], box)) is not None]
    return zeros[::-1] if node.primitive == "div" else zeros, infinities  # a quotient fails by its denominator


def _within(hits: np.ndarray, box: Box) -> np.ndarray:
    """``hits``, those outside of ``box`` left out."""
    inside = np.zeros(hits.shape, bool)
    inside[box] = hits[box]
    return inside


def _infinity(activation: Activation, number: int, index: Index, names: tuple[str, ...]) -> str:
    try:
        end = follow(activation, number, index, "inf")
        if isinstance(end, Given):
            given = "is a constant of the program" if end.input is None else f"came with {argument(end.input, names)}"
            return f"the inf {given}"
        birth = birth_of(end, names, deep=False)
        return f"the inf is made by {end.node.primitive} at {end.node.source}: {explain(birth).reason}"
    except CannotReplay:
        return ""
