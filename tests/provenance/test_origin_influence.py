"""Which elements an output element is made of, against brute force: plant a NaN in each element in turn."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxtap_core.provenance.dependence import boxes
from jaxtap_core.provenance.flat import flatten

x = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
square = (x[:, :3] + 9 * np.eye(3, dtype=np.float32)).astype(np.float32)

# one equation each; the first operand is the one that NaNs are planted in
CASES = {
    "elementwise": (lambda a: a * 2, x),
    "with a scalar": (lambda a: lax.pow(a, jnp.float32(0.5)), x),
    "reshape": (partial(lax.reshape, new_sizes=(4, 3)), x),
    "transpose": (partial(lax.transpose, permutation=(1, 0)), x),
    "reverse": (partial(lax.rev, dimensions=(1,)), x),
    "broadcast": (partial(lax.broadcast_in_dim, shape=(2, 4, 3), broadcast_dimensions=(2, 1)), x),
    "squeeze": (partial(lax.squeeze, dimensions=(0,)), x[:1]),
    "slice": (partial(lax.slice, start_indices=(1, 0), limit_indices=(3, 4), strides=(1, 2)), x),
    "pad": (lambda a: lax.pad(a, jnp.float32(0), ((1, 0, 1), (0, -1, 0))), x),
    "concatenate": (lambda a: lax.concatenate([a, x, a], 1), x),
    "dynamic_slice": (lambda a: lax.dynamic_slice(a, (2, 1), (2, 2)), x),
    "dynamic_update_slice": (lambda a: lax.dynamic_update_slice(a, x[:2, :2], (1, 1)), x),
    "split": (lambda a: lax.split(a, (1, 3), axis=1)[1], x),
    "select": (lambda a: lax.select_n(x > 5, a, x), x),
    "sum": (partial(lax.reduce_sum, axes=(0,)), x),
    "max": (partial(lax.reduce_max, axes=(1,)), x),
    "cumulative sum": (partial(lax.cumsum, axis=1), x),
    "reversed cumulative product": (partial(lax.cumprod, axis=0, reverse=True), x),
    "matrix product": (lambda a: lax.dot(a, x.T), x),
    "batched matrix product": (
        lambda a: lax.dot_general(a, x, (((), ()), ((1,), (1,)))),
        x,
    ),
    "fft": (lambda a: lax.fft(a, "RFFT", (4,)), x),
    "lu": (lambda a: lax.linalg.lu(a)[0], np.stack([square] * 2)),
    "sums of windows": (lambda a: lax.reduce_window(a, np.float32(0), lax.add, (2, 2), (1, 2), "VALID"), x),
    "maxima of windows": (lambda a: lax.reduce_window(a, -jnp.inf, lax.max, (2,), (1,), ((1, 0),)), x[0]),
    "convolution": (lambda a: lax.conv_general_dilated(a, x[None, :, :2], (1,), "SAME"), x[None]),
    "triangular solve": (
        lambda a: lax.linalg.triangular_solve(np.tril(square), a, left_side=True, lower=True),
        x[:, :2],
    ),
    "greatest": (lambda a: lax.top_k(a, 2)[0], x),
    "barrier": (lambda a: lax.optimization_barrier((x, a))[1], x),
}

LOOSE = {"fft", "greatest", "lu", "triangular solve"}  # of these the box may hold more than what counts, but never less


def numbered(f, array):
    """The level of the one equation of ``f``, which operand is ``array``, and the node."""
    level = flatten(jax.make_jaxpr(f)(array))
    node = next(node for node in level.nodes if level.inputs[0] in node.inputs)
    return level, node, [i for i, n in enumerate(node.inputs) if n == level.inputs[0]]


@pytest.mark.parametrize("case", CASES)
def test_the_box_holds_the_elements_that_count(case):
    f, array = CASES[case]
    level, node, operands = numbered(f, array)
    output = node.outputs.index(level.outputs[0])
    values = [
        np.asarray(level.consts[n]) if np.asarray(level.consts.get(n, 0.0)).dtype.kind in "bi" else None
        for n in node.inputs
    ]
    influence = {}
    clean = np.isnan(np.asarray(f(array)))
    for place in np.ndindex(array.shape):
        planted = array.copy()
        planted[place] = np.nan
        influence[place] = np.isnan(np.asarray(f(planted))) & ~clean
    for index in np.ndindex(clean.shape):
        told = np.zeros(array.shape, bool)
        for operand, box in boxes(node, output, index, values):
            if operand in operands:
                told[box] = True
        counts = np.array([influence[place][index] for place in np.ndindex(array.shape)])
        counts = counts.reshape(array.shape)
        if case in LOOSE:
            assert (told | ~counts).all()
        else:
            assert (told == counts).all()


@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_gather_is_followed_to_the_element_read(mode):
    f = lambda a: a.at[jnp.array([2, 7, 0])].get(mode=mode)
    array = np.arange(4.0, dtype=np.float32)
    jaxpr = jax.make_jaxpr(f)(array)
    level = flatten(jaxpr)
    node = next(node for node in level.nodes if node.primitive == "gather")
    read = {"fill": [2, None, 0], "clip": [2, 3, 0]}[mode]
    for k, place in enumerate(read):
        got = boxes(node, 0, (k,), [None, np.array([[2], [7], [0]])])
        assert got == ([(0, (place,))] if place is not None else [])


def test_scatter_is_followed_to_the_value_written():
    f = lambda a, b: a.at[jnp.array([2, 0])].set(b)
    level = flatten(jax.make_jaxpr(f)(np.zeros(4, np.float32), np.ones(2, np.float32)))
    node = next(node for node in level.nodes if node.primitive == "scatter")
    values = [None, np.array([[2], [0]]), None]
    assert boxes(node, 0, (2,), values) == [(2, (0,))]
    assert boxes(node, 0, (0,), values) == [(2, (1,))]
    assert boxes(node, 0, (1,), values) == [(0, (1,))]


@pytest.mark.parametrize("way", ["add", "multiply", "min"])
def test_scatters_into_one_place_are_followed_to_all_that_went_there(way):
    f = lambda a, b: getattr(a.at[jnp.array([1, 0, 1])], way)(b)
    level = flatten(jax.make_jaxpr(f)(np.zeros((2, 4), np.float32), np.ones((3, 4), np.float32)))
    node = next(node for node in level.nodes if node.primitive.startswith("scatter"))
    values = [None, np.array([[1], [0], [1]]), None]
    for row, rows in ((0, [1]), (1, [0, 2])):
        (base, own), (updates, box) = boxes(node, 0, (row, 2), values)
        assert (base, own, updates) == (0, (row, 2), 2)
        told = np.zeros((3, 4), bool)
        told[box] = True
        assert np.argwhere(told).tolist() == [[k, 2] for k in rows]
