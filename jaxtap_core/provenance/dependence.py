"""Which elements of an equation's operands one element of its output is made of.

Following a NaN backwards needs this: in an array of many lanes, the NaN of one lane must not be
blamed on another. One rule for each family of primitives gives, for an element of an output, a box
of elements of each operand; operands without a box have no part in it. A primitive without a rule
is made of all elements of all operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap_core.jaxpr.values import host_array, is_inexact
from jaxtap_core.provenance.flat import Node

Index = tuple[int, ...]
Box = tuple[int | slice | np.ndarray, ...]  # indexes an operand
DependenceRule = Callable[[Node, int, Index, Sequence[Any]], list[tuple[int, Box]]]

WHOLE = slice(None)

DEPENDENCE: dict[str, DependenceRule] = {}


def boxes(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    """(operand, elements of it) behind element ``index`` of an output.

    Args:
        node: the equation.
        output: which output of it.
        index: which element of that output.
        values: the operands that are booleans or integers, as arrays; ``None`` for the others.
    """
    rule = DEPENDENCE.get(node.primitive)
    if rule is None:
        shape = node.eqn.outvars[output].aval.shape
        rule = elementwise if node.primitive in ELEMENTWISE and len(shape) == len(index) else everything
    return rule(node, output, index, values)


def is_single(box: Box) -> bool:
    """Whether a box holds one element."""
    return all(isinstance(part, int | np.integer) for part in box)


def shape_of(node: Node, operand: int) -> tuple[int, ...]:
    """Shape of an operand."""
    return tuple(getattr(node.eqn.invars[operand].aval, "shape", ()))


def everything(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    """All elements of all operands."""
    return [(i, (WHOLE,) * len(shape_of(node, i))) for i in range(len(node.inputs))]


def elementwise(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    """The element at the same place; along axes where an operand has size 1, its only one; of a scalar, the scalar."""
    within = lambda shape: tuple(0 if size == 1 else k for k, size in zip(index, shape, strict=False))
    return [(i, within(shape_of(node, i))) for i in range(len(node.inputs))]


_ELEMENTWISE_NAMES = """
abs acos acosh add add_any asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp
complex conj convert_element_type copy copy_p cos cosh device_put digamma div eq erf erf_inv
erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac imag integer_pow is_finite le
lgamma log log1p log2 logistic lt max min mul name ne neg nextafter one_minus_square pbroadcast polygamma pow pvary
random_gamma_grad real reduce_precision regularized_incomplete_beta rem reshard round rsqrt
sharding_constraint sign sin sinh sqrt square stop_gradient sub tan tanh zeta
"""
ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES.split())


def _same_operand(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    return [(output, index)]


for _name in ("optimization_barrier",):
    DEPENDENCE[_name] = _same_operand


def _select(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    if values[0] is None:
        return elementwise(node, output, index, values)[1:]
    which = np.asarray(values[0])
    return [(1 + int(which[index] if which.ndim else which), index)]


DEPENDENCE["select_n"] = _select


def _random_gamma(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    """A draw is made of its own shape parameter, and of the key."""
    return [(0, (WHOLE,) * len(shape_of(node, 0))), (1, index)]


DEPENDENCE["random_gamma"] = _random_gamma


# -- moving elements about: the equation itself, run on the numbers of the elements, tells where
# each came from


def _move(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    operands, starts = _numbered(node, values)
    if not operands:
        return everything(node, output, index, values)
    params = dict(node.eqn.params)
    if "fill_value" in params:
        params["fill_value"] = -1  # the number of no element
    return _origin(node, node.eqn.primitive.bind(*operands, **params), index, starts)


def _numbered(node: Node, values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Operands with floats replaced by element numbers, and the first number of each (or -1)."""
    operands: list[Any] = []
    starts: list[int] = []
    total = 0
    for i, value in enumerate(values):
        if not is_inexact(node.eqn.invars[i].aval):
            if value is None:
                return [], []
            operands.append(jnp.asarray(value))
            starts.append(-1)
            continue
        shape = shape_of(node, i)
        starts.append(total)
        operands.append(np.arange(total, total + math.prod(shape), dtype=np.int32).reshape(shape))
        total += math.prod(shape)
    return (operands, starts) if total < 2**31 else ([], [])


def _origin(node: Node, moved: Any, index: Index, starts: Sequence[int]) -> list[tuple[int, Box]]:
    number = int(host_array(moved)[index])
    for i in reversed(range(len(starts))):
        if 0 <= starts[i] <= number:
            place = np.unravel_index(number - starts[i], shape_of(node, i))
            return [(i, tuple(int(k) for k in place))]
    return []


for _name in (
    "broadcast_in_dim",
    "broadcast_to",
    "concatenate",
    "dynamic_slice",
    "dynamic_update_slice",
    "expand_dims",
    "gather",
    "pad",
    "reshape",
    "rev",
    "slice",
    "squeeze",
    "stack",
    "tile",
    "transpose",
):
    DEPENDENCE[_name] = _move


def _split(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    axis, sizes = node.eqn.params["axis"], node.eqn.params["sizes"]
    moved = list(index)
    moved[axis] += sum(sizes[:output])
    return [(0, tuple(moved))]


DEPENDENCE["split"] = _split


def _unstack(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    axis = node.eqn.params["axis"]
    return [(0, (*index[:axis], output, *index[axis:]))]


DEPENDENCE["unstack"] = _unstack


# -- along whole axes


def _reduce(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    axes, rest = node.eqn.params["axes"], iter(index)
    box = tuple(WHOLE if axis in axes else next(rest) for axis in range(len(shape_of(node, 0))))
    return [(0, box)]


for _name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"):
    DEPENDENCE[_name] = _reduce


def _cumulate(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    axis, here = node.eqn.params["axis"], index[node.eqn.params["axis"]]
    span = slice(here, None) if node.eqn.params["reverse"] else slice(0, here + 1)
    return [(0, (*index[:axis], span, *index[axis + 1 :]))]


for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    DEPENDENCE[_name] = _cumulate


def _sort(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    axis = node.eqn.params["dimension"]
    return [(output, (*index[:axis], WHOLE, *index[axis + 1 :]))]


DEPENDENCE["sort"] = _sort


def _top(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    axis = node.eqn.params.get("axis", len(index) - 1) % len(index)
    return [(0, (*index[:axis], WHOLE, *index[axis + 1 :]))]


DEPENDENCE["top_k"] = _top


def _dot(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    contracted, batched = node.eqn.params["dimension_numbers"]
    batch, rest = index[: len(batched[0])], iter(index[len(batched[0]) :])
    result = []
    for i in (0, 1):
        at = dict(zip(batched[i], batch, strict=True))
        box = tuple(
            WHOLE if axis in contracted[i] else at[axis] if axis in at else next(rest)
            for axis in range(len(shape_of(node, i)))
        )
        result.append((i, box))
    return result


DEPENDENCE["dot_general"] = _dot


def opposite(node: Node, mine: int, index: Index, other: int, box: Box, lead: int = 0) -> Box:
    """Of the elements ``box`` of factor ``other``, those that element ``index`` of factor ``mine`` is multiplied by.

    ``lead`` is the number of axes that come before those of the equation.
    """
    if node.primitive != "dot_general":
        return box
    contracted, result = node.eqn.params["dimension_numbers"][0], list(box)
    for axis, across in zip(contracted[mine], contracted[other], strict=True):
        result[lead + across] = int(index[lead + axis])
    return tuple(result)


def _matrices(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    """The matrices (the last two axes) at the same place of the batch."""
    result: list[tuple[int, Box]] = []
    for i in range(len(node.inputs)):
        rank = len(shape_of(node, i))
        batch = index[: len(shape_of(node, 0)) - 2]
        result.append((i, (*batch, *(WHOLE,) * (rank - len(batch)))))
    return result


for _name in [
    "cholesky",
    "cholesky_update",
    "eig",
    "eigh",
    "geqrf",
    "hessenberg",
    "householder_product",
    "lu",
    "qr",
    "schur",
    "svd",
    "symmetric_product",
    "tridiagonal",
]:
    DEPENDENCE[_name] = _matrices


def _triangular(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    """The matrix, and of the right sides (columns; rows where the matrix stands on the right) the one."""
    side = (WHOLE, index[-1]) if node.eqn.params["left_side"] else (index[-2], WHOLE)
    return [(0, (*index[:-2], WHOLE, WHOLE)), (1, (*index[:-2], *side))]


DEPENDENCE["triangular_solve"] = _triangular


def _diagonals(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    diagonal: Box = (*index[:-2], WHOLE)
    return [(0, diagonal), (1, diagonal), (2, diagonal), (3, (*index[:-2], WHOLE, index[-1]))]


DEPENDENCE["tridiagonal_solve"] = _diagonals


def _fft(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    kept = len(index) - len(node.eqn.params["fft_lengths"])
    return [(0, (*index[:kept], *(WHOLE,) * (len(index) - kept)))]


DEPENDENCE["fft"] = _fft


def _scatter(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    operands, starts = _numbered(node, values)
    if not operands:
        return everything(node, output, index, values)
    names = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
    return _origin(node, lax.scatter(*operands, **{k: node.eqn.params[k] for k in names}), index, starts)


DEPENDENCE["scatter"] = _scatter


# -- sums over elements that lie anywhere: where the derivative of the sum is not zero


def _support(f: Callable[..., Any], shapes: Sequence[tuple[int, ...]], index: Index) -> list[Box]:
    """For each argument of ``f`` (a sum of products of one element each), the elements in element ``index`` of it."""
    total, pull = jax.vjp(f, *(jnp.ones(shape, jnp.float32) for shape in shapes))
    shares = pull(jnp.zeros(total.shape, total.dtype).at[index].set(1))
    return [_box_of(np.argwhere(host_array(share) != 0)) for share in shares]


def _box_of(places: np.ndarray) -> Box:
    if len(places) == 1:
        return tuple(int(k) for k in places[0])
    return tuple(places.T)


def _accumulate(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    if values[1] is None:
        return everything(node, output, index, values)
    names = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
    params, base = {k: node.eqn.params[k] for k in names}, jnp.zeros(shape_of(node, 0), jnp.float32)
    add = lambda updates: lax.scatter_add(base, jnp.asarray(values[1]), updates, **params)
    (box,) = _support(add, [shape_of(node, 2)], index)
    return [(0, index), (2, box)]


for _name in ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"):
    DEPENDENCE[_name] = _accumulate


def _window(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    params = {k: node.eqn.params[k] for k in names}
    add = lambda x: lax.reduce_window(x, 0.0, lax.add, **params)
    (box,) = _support(add, [shape_of(node, 0)], index)
    return [(0, box)]


for _name in ("reduce_window_sum", "reduce_window_max", "reduce_window_min"):
    DEPENDENCE[_name] = _window


def _convolution(node: Node, output: int, index: Index, values: Sequence[Any]) -> list[tuple[int, Box]]:
    params = {**node.eqn.params, "preferred_element_type": None}
    convolve = lambda *factors: node.eqn.primitive.bind(*factors, **params)
    shapes = [shape_of(node, 0), shape_of(node, 1)]
    return list(enumerate(_support(convolve, shapes, index)))


DEPENDENCE["conv_general_dilated"] = _convolution
