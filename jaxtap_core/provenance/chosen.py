"""A NaN that a function of JAX's library puts in on purpose, where it is asked for what there is none of.

That the program holds a constant says nothing then: the select (or ``cond``) that chose it does, by the comparison
that it goes by and the numbers compared.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxtap_core.jaxpr.address import called_of_jax
from jaxtap_core.jaxpr.structure import BRANCH_INDEX
from jaxtap_core.jaxpr.values import host_array
from jaxtap_core.provenance.activation import Activation
from jaxtap_core.provenance.backward import MERELY_MOVE, Given, behind_element
from jaxtap_core.provenance.dependence import Index, is_single
from jaxtap_core.provenance.flat import CannotReplay, Node
from jaxtap_core.provenance.reasons.base import Why, show
from jaxtap_core.records.text import word

MOST_EQUATIONS = 32  # through which a condition is followed to its comparison

_SPREAD = Why("it divides by the number of elements less ddof", "have more elements than ddof, or guard the small case")
_NORM = Why("the matrix would have to be squared more than max_squarings times", "scale the matrix: it is very large")

# What a function means by its NaN, and what helps; of others the comparison is told alone.
MEANT = {"std": _SPREAD, "var": _SPREAD, "nanstd": _SPREAD, "nanvar": _SPREAD, "expm": _NORM}

_COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "eq": ("==", operator.eq),
    "ne": ("!=", operator.ne),
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
}


def constant(end: Given) -> Why | None:
    """Why a function of JAX chose a constant NaN; ``None`` where it is the user's, or nobody chose it."""
    if end.chooser is None:
        return None
    activation, node, index = end.chooser
    function = node.library or called_of_jax(node.eqn.source_info)
    if not function:
        return None
    meant = MEANT.get(function, Why(""))
    try:
        told = _condition(activation, node, index)
    except CannotReplay:
        told = ""
    text = f"{function} gives {word(end.bad)} on purpose"
    text += f", since {told}" if told else ""
    text += f": {meant.reason}" if meant.reason else ""
    return Why(text, meant.advice)


def _condition(activation: Activation, node: Node, index: Index | None) -> str:
    """The comparison by which a select or ``cond`` chose, with its numbers; empty where it goes by none."""
    where: Any
    if node.primitive == "select_n":
        boxes = [box for _, box in behind_element(activation, node, 0, index)] if index is not None else []
        number = node.inputs[0]
        where = next(iter(boxes), ()) if activation.shape(number) else ()
    else:
        number, where = node.inputs[BRANCH_INDEX], ()
    if not is_single(where) or activation.runner.lead:
        return ""
    for _ in range(MOST_EQUATIONS):
        producer = activation.flat.producers[number]
        if producer is None:
            return ""
        maker = activation.flat.nodes[producer]
        reach = behind_element(activation, maker, maker.outputs.index(number), tuple(int(k) for k in where))
        if maker.kind != "plain" or not reach or not all(is_single(box) for _, box in reach):
            return ""
        values = [host_array(v)[box] for v, (_, box) in zip(_operands(activation, maker, reach), reach, strict=True)]
        if maker.primitive in _COMPARISONS and len(values) == 2:
            return _told(maker.primitive, values)
        chosen = _steering(maker.primitive, values)
        if chosen is None:
            return ""
        number, where = maker.inputs[reach[chosen][0]], reach[chosen][1]
    return ""


def _operands(activation: Activation, node: Node, reach: Any) -> list[Any]:
    return activation.values([node.inputs[operand] for operand, _ in reach])


def _steering(primitive: str, values: list[Any]) -> int | None:
    """Which operand a truth value was made by."""
    if primitive in MERELY_MOVE or primitive == "not":
        return 0
    if primitive in ("and", "or"):  # one that decides alone, else the first
        deciding = primitive == "or"
        return next((i for i, value in enumerate(values) if bool(value) == deciding), 0)
    return None


def _told(primitive: str, values: list[Any]) -> str:
    sign, holds = _COMPARISONS[primitive]
    a, b = (float(np.asarray(value).astype(np.float64)) for value in values)
    text = f"{show(a, b)} {sign} {show(b, a)}"
    return text if holds(a, b) else f"{text} does not hold"
