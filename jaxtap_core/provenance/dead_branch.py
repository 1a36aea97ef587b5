"""Whether a bad value belongs to a branch of a ``where`` that was not taken.

Two things tell: in the backward pass it was multiplied by 0, the cotangent of such a branch (0 times NaN is NaN); or
what came of it in the forward pass was dropped by a select.
"""

from __future__ import annotations

import itertools
import os

import jax
import numpy as np

from jaxtap_core import _compat
from jaxtap_core.jaxpr.structure import LOOPS
from jaxtap_core.provenance.activation import Place
from jaxtap_core.provenance.backward import Born, Hop, behind_element, first_bad, follow
from jaxtap_core.provenance.dependence import Box, Index, opposite
from jaxtap_core.provenance.flat import BITS, NAN, CannotReplay, Node, host, is_inexact
from jaxtap_core.provenance.reasons.base import DOUBLE_WHERE, Why
from jaxtap_core.provenance.zero import first_zero, trace_zero

_JAX_ROOT = os.path.dirname(jax.__file__) + os.sep

MOST_HOPS = 32  # products looked at, in search of the one with a zero


def told_as_untaken(born: Born, why: Why) -> Why:
    """``why``, with what is known of the branch, and the double-where advice, where it was not taken."""
    select = silencer(born)
    if select is not None:
        text = f"{why.reason}, in {branch_of(select)}: its cotangent is 0, and 0 * NaN is NaN"
        return Why(text, DOUBLE_WHERE)
    select = dropped_by(born)
    if select is not None:
        text = f"{why.reason}, in {branch_of(select)}: harmless here, but perhaps not in the gradient"
        return Why(text, DOUBLE_WHERE)
    return why


def branch_of(select: Node) -> str:
    """What a select stands for: a ``where``, a ``cond`` that ``vmap`` turned into it, or part of another function."""
    frames = list(_compat.raw_files(select.eqn.source_info))
    if any(file.endswith("conditionals.py") and "batching" in function for file, function in frames):
        return "a cond branch that was not taken (vmap made it a select)"
    own = itertools.takewhile(lambda frame: frame[0].startswith(_JAX_ROOT), frames)
    asked = [function for _, function in own][-1:]  # the function of JAX that the user called
    if asked and asked[0] in ("clamp", "clip"):
        return f"a {asked[0]} that was at its bound"
    if asked and asked[0] in ("where", "_where", "select", "select_n"):
        return "a where branch that was not taken"
    return "a branch that was not taken (of a where, a relu or the like)"


# -- backward


def silencer(born: Born) -> Node | None:
    """The backward select that made a cotangent 0 with which the bad value was multiplied."""
    hops = list(born.hops)
    for hop in itertools.islice(hops, MOST_HOPS):  # which grows meanwhile
        partner = _partner(hop)
        if partner is None:
            continue
        number, box = partner
        value = host(hop.place.values([number])[0])
        if value[box].size and (value[box] == 0).all():
            zero = first_zero(value, box)
            select = trace_zero(hop.place, number, zero).select if zero is not None else None
            if select is not None:
                return select
        elif np.isnan(value[box]).any():  # turned NaN before it came here
            hops += _hops_behind(hop.place, number, first_bad(np.isnan(value).astype(np.uint8), NAN, box))
    return None


def _hops_behind(place: Place, number: int, index: Index | None) -> tuple[Hop, ...]:
    try:
        end = follow(place, number, index, "nan")
    except CannotReplay:
        return ()
    return end.hops if isinstance(end, Born) else ()


def _partner(hop: Hop) -> tuple[int, Box] | None:
    """The other factor of a product, and the elements of it that the bad one was multiplied by."""
    if hop.source is None:
        return None
    reach = behind_element(hop.place, hop.node, hop.output, hop.element)
    for operand, box in reach:
        number = hop.node.inputs[operand]
        if operand == hop.operand or not is_inexact(hop.place.level.avals[number]):
            continue
        return number, opposite(hop.node, hop.operand, hop.source, operand, box, len(hop.place.runner.lead))
    return None


# -- forward


def dropped_by(born: Born) -> Node | None:
    """The select that dropped what the bad value had become, if nothing of it is left in the forward pass."""
    place, number, bit = born.place, born.node.outputs[born.output], BITS[born.bad]
    if born.node.phase == "backward" or born.bad != "nan":
        return None
    users = [node for node in _descendants(place, number) if node.phase != "backward"]
    if not any(node.primitive == "select_n" for node in users) or not _may_run(place, users):
        return None
    place.survey(n for node in users for n in (*node.inputs, *node.outputs) if is_inexact(place.level.avals[n]))
    bad, select = {number: born.element}, None  # what came of it: values, and which element where that is known
    for node in users:
        came = [bad[n] for n in node.inputs if n in bad]
        if not came:
            continue
        left = {n: _same_element(place, n, came) for n in node.outputs if is_inexact(place.level.avals[n])}
        left = {n: element for n, element in left.items() if _is_bad(place, n, element, bit)}
        if node.primitive == "select_n" and not left:
            select = node
        bad |= left
    return select if _differentiated(born) or not bad.keys() & set(place.level.outputs) else None


def _same_element(place: Place, number: int, came: list[Index | None]) -> Index | None:
    element = came[0]
    return element if element is not None and len(element) == len(place.shape(number)) else None


def _is_bad(place: Place, number: int, element: Index | None, bit: int) -> bool:
    code = place.code(number)
    if element is not None and all(k < size for k, size in zip(element, code.shape, strict=True)):
        code = code[element]
    return bool((code & bit).any())


def _differentiated(born: Born) -> bool:
    """Whether what is left of the value may be left for the backward pass alone."""
    nodes, root = [born.node], born.place
    for entry in born.place.entries():
        nodes.append(entry.node)
        root = entry.parent
    scopes = (_compat.name_stack_of(node.eqn.source_info) for node in nodes)
    return any("jvp(" in scope for scope in scopes) or any(node.phase == "backward" for node in root.level.nodes)


def _descendants(place: Place, number: int) -> list[Node]:
    """The equations that depend on a value, in program order."""
    reached, nodes = {number}, []
    for node in place.level.nodes:
        if reached.intersection(node.inputs):
            reached.update(node.outputs)
            nodes.append(node)
    return nodes


def _may_run(place: Place, nodes: list[Node]) -> bool:
    """Whether ``nodes`` can be evaluated without fear of a loop that never ends."""
    wanted = [n for node in nodes for n in node.outputs]
    return place.complete or not any(node.primitive in LOOPS for node in place.level.behind(wanted)[0])
