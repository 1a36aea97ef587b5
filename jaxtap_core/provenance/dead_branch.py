"""Whether a bad value belongs to a branch of a ``where`` that was not taken.

Two things tell: in the backward pass it was multiplied by 0, the cotangent of such a branch (0 times NaN is NaN); or
what came of it in the forward pass was dropped by a select.
"""

from __future__ import annotations

import itertools

import numpy as np

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import library_frames
from jaxtap_core.jaxpr.values import host_array, is_inexact
from jaxtap_core.provenance.activation import Activation
from jaxtap_core.provenance.backward import Born, Given, Product, behind_element, first_bad, follow
from jaxtap_core.provenance.dependence import Box, Index, opposite
from jaxtap_core.provenance.flat import BITS, NAN, CannotReplay, Node
from jaxtap_core.provenance.reasons.base import DOUBLE_WHERE, Why
from jaxtap_core.provenance.zero import first_zero, trace_zero

MOST_PRODUCTS = 32  # products looked at, in search of the one with a zero


def with_dead_branch(born: Born, why: Why) -> Why:
    """``why``, with what is known of the branch, and the double-where advice, where it was not taken."""
    select = select_behind_cotangent(born)
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
    frames = _compat.raw_files(select.eqn.source_info)
    if any(file.endswith("conditionals.py") and "batching" in function for file, function in frames):
        return "a cond branch that was not taken (vmap made it a select)"
    asked = [function for _, function in library_frames(select.eqn.source_info)][-1:]  # what the user called of JAX
    if asked and asked[0] in ("clamp", "clip"):
        return f"a {asked[0]} that was at its bound"
    if asked and asked[0] in ("where", "_where", "select", "select_n"):
        return "a where branch that was not taken"
    return "a branch that was not taken (of a where, a relu or the like)"


# -- backward


def select_behind_cotangent(born: Born) -> Node | None:
    """The backward select that made a cotangent 0 with which the bad value was multiplied."""
    products = list(born.products)
    for product in itertools.islice(products, MOST_PRODUCTS):  # which grows meanwhile
        other = _other_factor(product)
        if other is None:
            continue
        number, box = other
        value = host_array(product.activation.values([number])[0])
        if value[box].size and (value[box] == 0).all():
            zero = first_zero(value, box)
            select = trace_zero(product.activation, number, zero).select if zero is not None else None
            if select is not None:
                return select
        elif np.isnan(value[box]).any():  # turned NaN before it came here
            products += _products_behind(
                product.activation, number, first_bad(np.isnan(value).astype(np.uint8), NAN, box)
            )
    return None


def revived(end: Given) -> Born | None:
    """The product in which a NaN that was given, and that the forward pass selected away, came to life again.

    0 times NaN is NaN: the cotangent of the branch that was not taken meets what was kept of it.
    """
    for position, product in enumerate(end.products if end.bad == "nan" else ()):
        other = _other_factor(product)
        if other is None:
            continue
        number, box = other
        value = host_array(product.activation.values([number])[0])
        zero = first_zero(value, box) if value[box].size and (value[box] == 0).all() else None
        if zero is not None and trace_zero(product.activation, number, zero).select is not None:
            behind = end.products[position + 1 :]
            return Born(product.activation, product.node, product.output, product.element, end.bad, behind)
    return None


def _products_behind(activation: Activation, number: int, index: Index | None) -> tuple[Product, ...]:
    try:
        end = follow(activation, number, index, "nan")
    except CannotReplay:
        return ()
    return end.products if isinstance(end, Born) else ()


def _other_factor(product: Product) -> tuple[int, Box] | None:
    """The other factor of a product, and the elements of it that the bad one was multiplied by."""
    if product.source is None:
        return None
    reach = behind_element(product.activation, product.node, product.output, product.element)
    for operand, box in reach:
        number = product.node.inputs[operand]
        if operand == product.operand or not is_inexact(product.activation.flat.avals[number]):
            continue
        return number, opposite(
            product.node, product.operand, product.source, operand, box, len(product.activation.runner.lead)
        )
    return None


# -- forward


def dropped_by(born: Born) -> Node | None:
    """The select that dropped what the bad value had become, if nothing of it is left in the forward pass."""
    activation, number, bit = born.activation, born.node.outputs[born.output], BITS[born.bad]
    if born.node.phase == "backward" or born.bad != "nan":
        return None
    users = [node for node in _descendants(activation, number) if node.phase != "backward"]
    if not any(node.primitive == "select_n" for node in users) or not _may_run(activation, users):
        return None
    activation.survey(
        n for node in users for n in (*node.inputs, *node.outputs) if is_inexact(activation.flat.avals[n])
    )
    bad, select = {number: born.element}, None  # what came of it: values, and which element where that is known
    for node in users:
        came = [bad[n] for n in node.inputs if n in bad]
        if not came:
            continue
        left = {n: _same_element(activation, n, came) for n in node.outputs if is_inexact(activation.flat.avals[n])}
        left = {n: element for n, element in left.items() if _is_bad(activation, n, element, bit)}
        if node.primitive == "select_n" and not left:
            select = node
        bad |= left
    return select if _differentiated(born) or not bad.keys() & set(activation.flat.outputs) else None


def _same_element(activation: Activation, number: int, came: list[Index | None]) -> Index | None:
    element = came[0]
    return element if element is not None and len(element) == len(activation.shape(number)) else None


def _is_bad(activation: Activation, number: int, element: Index | None, bit: int) -> bool:
    code = activation.code(number)
    if element is not None and all(k < size for k, size in zip(element, code.shape, strict=True)):
        code = code[element]
    return bool((code & bit).any())


def _differentiated(born: Born) -> bool:
    """Whether what is left of the value may be left for the backward pass alone."""
    nodes, root = [born.node], born.activation
    for entry in born.activation.entries():
        nodes.append(entry.node)
        root = entry.parent
    scopes = (_compat.name_stack_of(node.eqn.source_info) for node in nodes)
    return any("jvp(" in scope for scope in scopes) or any(node.phase == "backward" for node in root.flat.nodes)


def _descendants(activation: Activation, number: int) -> list[Node]:
    """The equations that depend on a value, in program order."""
    reached, nodes = {number}, []
    for node in activation.flat.nodes:
        if reached.intersection(node.inputs):
            reached.update(node.outputs)
            nodes.append(node)
    return nodes


def _may_run(activation: Activation, nodes: list[Node]) -> bool:
    """Whether ``nodes`` can be evaluated without fear of a loop that never ends."""
    wanted = [n for node in nodes for n in node.outputs]
    return activation.complete or not any(node.kind == "loop" for node in activation.flat.backward_slice(wanted)[0])
