"""Where a zero came from: followed backwards, like a NaN, to what made it.

A zero that a backward ``where`` put in the place of a cotangent tells of a branch that was not taken; other zeros are
underflows, differences of equal numbers, and the like.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtap_core.jaxpr.address import library_frames
from jaxtap_core.jaxpr.values import host_array, is_inexact
from jaxtap_core.provenance.activation import Activation
from jaxtap_core.provenance.backward import MERELY_MOVE, behind_element, carry_of, into_shards, outside, row_of
from jaxtap_core.provenance.dependence import Box, Index
from jaxtap_core.provenance.flat import CannotReplay, Node
from jaxtap_core.provenance.reasons.base import is_subnormal, show, widen, zero_text

MOST_EQUATIONS = 100  # equations through which a zero is followed


_WIDE = ("float32", "float64")  # types in which few constants that people write become 0


class Zero(NamedTuple):
    """What is known of a zero.

    Attributes:
        select: the equation that put it in the place of the cotangent of a branch that was not taken, if that is
            what it is.
        reason: how else it became zero; empty where that is not known.
        given: whether it came into the program as zero.
    """

    select: Node | None = None
    reason: str = ""
    given: bool = False


class Element(NamedTuple):
    """One element of value ``number`` of an activation."""

    activation: Activation
    number: int
    element: Index


# Out of these a zero comes as it went in.
_MOVE_NAMES = """
convert_element_type reduce_precision copy copy_p real imag conj name broadcast_in_dim broadcast_to reshape squeeze
expand_dims transpose slice dynamic_slice rev concatenate pad gather dynamic_update_slice optimization_barrier
sharding_constraint split tile stop_gradient scatter stack neg select_n
"""
_MOVE = frozenset(_MOVE_NAMES.split())

# A zero operand makes these zero, whatever the others are; of a quotient the first, of a power a positive one.
_ANY_NAMES = """
mul div integer_pow dot_general abs sign sqrt cbrt square sin tan sinh tanh asin atan asinh atanh expm1 log1p erf
erf_inv floor ceil round max min clamp reduce_max reduce_min reduce_prod
"""
_ANY = frozenset(_ANY_NAMES.split())

# These are zero where all that is added up is, or where it cancels out.
_ALL = frozenset({"add", "add_any", "complex", "cumsum", "reduce_sum", "scatter-add"})

# Of finite numbers that are not zero these make no zero, except by underflow.
_NEVER_ZERO_NAMES = """
mul div exp exp2 integer_pow pow square logistic erfc sqrt rsqrt convert_element_type reduce_precision
"""
_NEVER_ZERO = frozenset(_NEVER_ZERO_NAMES.split())


def trace_zero(activation: Activation, number: int, index: Index) -> Zero:
    """Follow the zero at element ``index`` of a value back to where it came from."""
    try:
        return _trace(activation, number, index)
    except CannotReplay:
        return Zero()


def _trace(activation: Activation, number: int, index: Index) -> Zero:
    select: Node | None = None  # the select that picked it, as long as it was only moved since
    for _ in range(MOST_EQUATIONS):
        if number in activation.flat.consts:
            return Zero(select)
        lost = _rounded_literal(activation, number)
        if lost and select is None:
            return Zero(reason=lost)
        producer = activation.flat.producers[number]
        if producer is None:
            if activation.entry is None:
                return Zero(given=True)
            source = _before(activation, number, index)
        else:
            node = activation.flat.nodes[producer]
            output = node.outputs.index(number)
            if node.kind != "plain":
                source = _inside(activation, node, output, index)
            else:
                operand = _zero_operand(activation, node, output, index)
                if operand is None:
                    return Zero(reason=_made_zero(activation, node, output, index))
                source = Element(activation, *operand)
                if node.primitive == "select_n":
                    select = node if node.phase == "backward" else None
                elif node.primitive not in _MOVE:
                    select = None
        if source is None:
            break
        activation, number, index = source
    return Zero()


def _rounded_literal(activation: Activation, number: int) -> str:
    """What there is to say where a constant that is 0 was added: one that was meant to keep the sum off 0."""
    producer = activation.flat.producers[number]
    node = activation.flat.nodes[producer] if producer is not None else None
    if node is None or node.primitive not in ("add", "max"):
        return ""
    dtype = str(activation.flat.avals[number].dtype)
    if not is_inexact(activation.flat.avals[number]):
        return ""
    rectified = any("relu" in function for _, function in library_frames(node.eqn.source_info))
    if node.primitive == "max" and (dtype in _WIDE or rectified):
        return ""  # the maximum with 0 is what was meant: of a wide type, in a relu
    if not any(_is_constant_zero(activation, operand) for operand in node.inputs):
        return ""
    what = "added" if node.primitive == "add" else "that is to be the least"
    least = f"{float(jnp.finfo(dtype).smallest_subnormal):.1g}"
    return f"the constant {what} at {node.source} is 0 in {dtype}, whose smallest number above 0 is {least}"


def _is_constant_zero(activation: Activation, number: int) -> bool:
    """Whether a value is a constant 0, or such a one broadcast or converted."""
    flat = activation.flat
    while number not in flat.consts:
        producer = flat.producers[number]
        if producer is None or flat.nodes[producer].primitive not in MERELY_MOVE:
            return False
        number = flat.nodes[producer].inputs[0]
    return not np.any(host_array(flat.consts[number]))


def first_zero(value: np.ndarray, box: Box) -> Index | None:
    """Index of the first element within ``box`` that is zero."""
    hits = np.zeros(value.shape, bool)
    hits[box] = value[box] == 0
    where = np.argwhere(hits)
    return tuple(int(k) for k in where[0]) if len(where) else None


def _zero_operand(activation: Activation, node: Node, output: int, index: Index) -> tuple[int, Index] | None:
    """The operand, and its element, that was zero before and made this zero."""
    name = node.primitive
    if name not in _MOVE | _ANY | _ALL or (name == "integer_pow" and node.eqn.params["y"] < 0):
        return None
    reach = behind_element(activation, node, output, index)
    reach = reach[:1] if name == "div" else reach
    floats = [(node.inputs[i], box) for i, box in reach if is_inexact(activation.flat.avals[node.inputs[i]])]
    values = [host_array(value) for value in activation.values([number for number, _ in floats])]
    if name in _ALL and any((value[box] != 0).any() for (_, box), value in zip(floats, values, strict=True)):
        return None
    for (number, box), value in zip(floats, values, strict=True):
        if name == "dot_general" and (value[box] != 0).any():
            continue
        zero = first_zero(value, box)
        if zero is not None:
            return number, zero
    return None


def _before(activation: Activation, number: int, index: Index) -> Element | None:
    """Where an input of an inner program comes from: from outside, or, a carry, from the step before."""
    entry = activation.entry
    if entry is None:
        return None
    leaf, replay = carry_of(activation, number), entry.replay
    if leaf is None or replay is None:
        return _known(*outside(activation, number, index))
    if replay.loop.lanes:
        return None
    if entry.step > 0:
        return _at_step(entry.parent, entry.node, entry.step - 1, leaf, index)
    return Element(entry.parent, replay.initial(leaf), index)


def _inside(activation: Activation, node: Node, output: int, index: Index) -> Element | None:
    """The same element of an output inside of the loop, branch or ``shard_map`` that made it."""
    if node.kind == "branches":
        inner = activation.branch(node, index[0] if activation.runner.lead else 0)
        return Element(inner, inner.flat.outputs[output], index)
    if node.kind == "sharded":
        return _known(*into_shards(activation, node, output, index))
    replay = activation.replay(node)
    if replay.loop.lanes:  # of a lane that has finished, the last step is another
        return None
    if output >= replay.loop.num_carry:
        step, index = row_of(activation, replay, index)
        return _at_step(activation, node, step, output, index)
    trips = replay.trips()
    if trips:
        return _at_step(activation, node, trips - 1, output, index)
    return Element(activation, replay.initial(output), index)


def _known(activation: Activation, number: int, index: Index | None) -> Element | None:
    return None if index is None else Element(activation, number, index)


def _at_step(activation: Activation, node: Node, step: int, leaf: int, index: Index) -> Element | None:
    replay = activation.replay(node)
    before = replay.carry_at(step)
    if before is None:
        return None
    return Element(activation.body(node, before, step, index), replay.body.outputs[leaf], index)


def _made_zero(activation: Activation, node: Node, output: int, index: Index) -> str:
    """How an equation made a zero of operands that are not zero."""
    reach = behind_element(activation, node, output, index)
    values = [host_array(value) for value in activation.values([node.inputs[i] for i, _ in reach])]
    parts: list[Any] = [widen(value)[box] for value, (_, box) in zip(values, reach, strict=True)]
    if any(np.size(part) != 1 or part == 0 for part in parts):
        return ""
    numbers = [np.ravel(part)[0] for part in parts]
    at = f"{node.primitive} at {node.source}"
    shown = ", ".join(map(show, numbers))
    for x, value in zip(numbers, values, strict=True):
        if is_inexact(value) and is_subnormal(x, str(value.dtype)):
            return f"the 0 is {zero_text(x, str(value.dtype))}, in {at}"
    if any(np.isinf(x) for x in numbers):
        return f"the 0 is what {at} makes of an infinity ({shown})"
    return _reason(node.primitive, numbers, at, shown)


def _reason(name: str, numbers: list[Any], at: str, shown: str) -> str:
    if name in _NEVER_ZERO:
        return f"the 0 is an underflow in {at} ({shown})"
    if name == "sub":
        if numbers[0] == numbers[1]:
            return f"the 0 is the difference of equal numbers ({shown}) in {at}"
        return f"the 0 is an underflow in {at} ({shown})"
    if name in ("add", "add_any"):
        if numbers[0] == -numbers[1]:
            return f"the 0 is the sum of opposite numbers ({shown}) in {at}"
        return f"the 0 is an underflow in {at} ({shown})"
    if name in ("floor", "ceil", "round"):
        return f"the 0 is {shown}, rounded by {at}"
    if name == "rem":
        return f"the 0 is the remainder of a multiple ({shown}) in {at}"
    if name == "log" and numbers[0] == 1:
        return f"the 0 is the log of 1 in {at}"
    return ""
