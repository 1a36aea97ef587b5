"""How booleans beside elements move through an equation: from those of its operands to those of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap_core.jaxpr.values import is_inexact
from jaxtap_core.provenance.dependence import ELEMENTWISE

Flags = Any  # a boolean array of the shape of the value it stands beside, or None where none is true
Rule = Callable[[Any, list[Any], list[Any], int], Any]

RULES: dict[str, Rule] = {}


def moved(eqn: Any, flags: Sequence[Flags], values: Sequence[Any]) -> list[Flags]:
    """The flags of an equation's outputs: true for an element that is made of one whose flag is true.

    Args:
        eqn: an equation without inner programs.
        flags: beside each operand, ``None`` for integers and where none is true.
        values: its operands.
    """
    if all(flag is None for flag in flags):
        return [None] * len(eqn.outvars)
    full = [
        jnp.zeros(jnp.shape(value), bool) if flag is None else flag for flag, value in zip(flags, values, strict=True)
    ]
    rule = RULES.get(eqn.primitive.name)
    if rule is None:
        rule = elementwise if eqn.primitive.name in ELEMENTWISE else everything
    return [rule(eqn, full, list(values), output) for output in range(len(eqn.outvars))]


def _shape(eqn: Any, output: int) -> tuple[int, ...]:
    return tuple(eqn.outvars[output].aval.shape)


def _float(flag: Any) -> Any:
    return flag.astype(jnp.float32)


def everything(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    """All elements of all operands are behind every element."""
    hit = jnp.zeros((), bool)
    for flag in flags:
        hit = hit | jnp.any(flag)
    return jnp.broadcast_to(hit, _shape(eqn, output))


def elementwise(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    """The elements at the same place."""
    shape, hit = _shape(eqn, output), jnp.zeros(_shape(eqn, output), bool)
    for flag in flags:
        hit = hit | jnp.broadcast_to(flag, shape)
    return hit


# -- what moves elements moves what stands beside them


def _move(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    operands = [flag if is_inexact(value) else value for flag, value in zip(flags, values, strict=True)]
    params = dict(eqn.params)
    if "fill_value" in params:
        params["fill_value"] = False
    outs = eqn.primitive.bind(*operands, **params)
    return (outs if eqn.primitive.multiple_results else [outs])[output]


_MOVES = """
all_gather all_to_all broadcast_in_dim broadcast_to concatenate copy copy_p dynamic_slice dynamic_update_slice
expand_dims gather optimization_barrier pad ppermute pvary reshape rev select_n slice split squeeze stack tile transpose
unstack
"""
for _name in _MOVES.split():
    RULES[_name] = _move


# -- along axes


def _reduce(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    return jnp.any(flags[0], axis=tuple(eqn.params["axes"]))


for _name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"):
    RULES[_name] = _reduce


def _cumulate(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    return lax.cummax(flags[0].astype(np.int32), eqn.params["axis"], eqn.params["reverse"]) > 0


for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    RULES[_name] = _cumulate


def _along(axes: Callable[[Any, int], Sequence[int]], operands: slice = slice(None)) -> Rule:
    """All elements along some axes of the operands, which have the output's other axes."""

    def rule(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
        shape, hit = _shape(eqn, output), jnp.zeros(_shape(eqn, output), bool)
        for flag in flags[operands]:
            whole = jnp.any(flag, axis=tuple(axes(eqn, flag.ndim)), keepdims=True)
            if whole.ndim > len(shape):
                whole = whole.reshape(whole.shape[: len(shape)])
            hit = hit | jnp.broadcast_to(whole.reshape(whole.shape + (1,) * (len(shape) - whole.ndim)), shape)
        return hit

    return rule


def _sort(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    axis = eqn.params["dimension"]
    return jnp.broadcast_to(jnp.any(flags[output], axis=axis, keepdims=True), _shape(eqn, output))


RULES["sort"] = _sort
RULES["top_k"] = _along(lambda eqn, rank: (eqn.params.get("axis", rank - 1) % rank,))
RULES["fft"] = _along(lambda eqn, rank: range(rank - len(eqn.params["fft_lengths"]), rank))

for _name in ("cholesky", "eig", "eigh", "geqrf", "hessenberg", "householder_product", "lu", "qr", "schur", "svd"):
    RULES[_name] = _along(lambda eqn, rank: range(max(rank - 2, 0), rank), slice(1))


def _triangular(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    """The matrix, and of the right sides (columns; rows where the matrix stands on the right) the one."""
    matrix = jnp.any(flags[0], axis=(-2, -1), keepdims=True)
    side = jnp.any(flags[1], axis=-2 if eqn.params["left_side"] else -1, keepdims=True)
    return jnp.broadcast_to(matrix | side, _shape(eqn, output))


RULES["triangular_solve"] = _triangular


# -- sums of products


def _dot(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    numbers = eqn.params["dimension_numbers"]
    ones = [jnp.ones(jnp.shape(value), jnp.float32) for value in values]
    left = lax.dot_general(_float(flags[0]), ones[1], numbers)
    return left + lax.dot_general(ones[0], _float(flags[1]), numbers) > 0


RULES["dot_general"] = _dot


def _convolution(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    params = {**eqn.params, "preferred_element_type": None}
    ones = [jnp.ones(jnp.shape(value), jnp.float32) for value in values]
    left = eqn.primitive.bind(_float(flags[0]), ones[1], **params)
    return left + eqn.primitive.bind(ones[0], _float(flags[1]), **params) > 0


RULES["conv_general_dilated"] = _convolution


# -- scatters and windows

_SCATTER = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")


def _scatter(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    params = {name: eqn.params[name] for name in _SCATTER}
    return lax.scatter(flags[0], values[1], flags[2], **params)


RULES["scatter"] = _scatter


def _accumulate(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    params = {name: eqn.params[name] for name in _SCATTER}
    numbers = [flag.astype(np.int32) for flag in (flags[0], flags[2])]
    return lax.scatter_max(numbers[0], values[1], numbers[1], **params) > 0


for _name in ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"):
    RULES[_name] = _accumulate

_WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


def _window(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    params = {name: eqn.params[name] for name in _WINDOW}
    return lax.reduce_window(flags[0].astype(np.int32), np.int32(0), lax.max, **params) > 0


for _name in ("reduce_window_sum", "reduce_window_max", "reduce_window_min"):
    RULES[_name] = _window


# -- between shards


def _collective(eqn: Any, flags: list[Any], values: list[Any], output: int) -> Flags:
    params = eqn.params
    if params.get("axis_index_groups") is not None:
        return (
            lax.psum(flags[output].astype(np.int32), params["axes"], axis_index_groups=params["axis_index_groups"]) > 0
        )
    return lax.psum(flags[output].astype(np.int32), params["axes"]) > 0


for _name in ("psum", "psum_invariant", "pmax", "pmin"):
    RULES[_name] = _collective
