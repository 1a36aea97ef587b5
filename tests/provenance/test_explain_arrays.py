"""Reasons of sums, products, matrices and what comes from elsewhere, where NumPy in float64 gives them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxtap_core.provenance.locate import Target, explain_target

INF = np.float32(np.inf)
f32 = lambda *x: jnp.array(x, jnp.float32)


def origin_of(f, *args, bad="nan", index=0):
    jaxpr = jax.make_jaxpr(f)(*args)
    return explain_target(jaxpr, jax.tree.leaves(args), Target("result", "", (), index, bad)).origin


def fold(x, window=None):
    """A product of differences: a function that no primitive of its own stands for."""
    f = lambda a, b: a * b + 1
    if window is None:
        return lax.reduce(x, np.float32(1), f, (0,))
    return lax.reduce_window(x, np.float32(1), f, (window,), (1,), "VALID")


def conv(x, w):
    return lax.conv_general_dilated(x[None, None], w[None, None], (1,), "VALID")[0, 0]


def tridiagonal(lower, middle, upper):
    return lax.linalg.tridiagonal_solve(lower, middle, upper, jnp.ones((3, 1)))


def solve(a, b):
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=True)


def pooled(x):
    """The gradient of a pooling: overlapping windows, of which each gives its 3e38 to the greatest element."""
    return jax.vjp(lambda x: lax.reduce_window(x, -INF, lax.max, (2,), (1,), "VALID"), x)[1](f32(3e38, 3e38))[0]


opposite = f32(3e38, 3e38, -3e38, -3e38)

# name: (program, inputs, which is bad, primitive, words of the reason)
CASES = {
    "a partial sum": (
        jnp.cumsum,
        (f32(3e38, 3e38, -3e38),),
        "inf",
        "cumsum",
        "a sum of 2 numbers up to 3e+38 is beyond",
    ),
    "both sides": (jnp.sum, (jnp.repeat(opposite, 2**12),), "nan", "reduce_sum", "overflow to both sides"),
    "in range, but not on the way": (
        lambda x: jnp.cumsum(x)[2],
        (f32(3e38, 3e38, -3e38),),
        "inf",
        "cumsum",
        "overflow on the way: a sum of 3 numbers up to 3e+38 is 3e+38, within float32",
    ),
    "product of a 0 and an inf": (
        lambda x: jnp.prod(1 / x * jnp.array([1.0, 0.0])),
        (f32(0, 1),),
        "nan",
        "reduce_prod",
        "0 * inf in a product of 2 numbers",
    ),
    "cumulative product": (jnp.cumprod, (f32(1e20, 1e20),), "inf", "cumprod", "a product of 2 numbers is beyond"),
    "scattered into one place": (
        # two of four go to place 1: 3e38 + 2e38 and the 1 that was there
        lambda x: jnp.ones(2).at[jnp.array([0, 1, 0, 1])].add(x),
        (f32(1, 3e38, 2, 2e38),),
        "inf",
        "scatter-add",
        "a sum of 3 numbers up to 3e+38 is beyond",
    ),
    "scattered, subtracted": (
        lambda x: jnp.zeros(2).at[jnp.array([0, 1, 1])].subtract(x),
        (f32(1, 3e38, 2e38),),
        "inf",
        "scatter-sub",
        "a sum of 3 numbers up to 3e+38",
    ),
    "scattered, multiplied": (
        lambda x: jnp.ones(2).at[jnp.array([0, 1, 1])].multiply(x),
        (f32(1, 1e20, 1e20),),
        "inf",
        "scatter-mul",
        "a product of 3 numbers",
    ),
    "a window of a sum": (
        lambda x: lax.reduce_window(x, np.float32(0), lax.add, (2,), (1,), "VALID"),
        (f32(1, 2, 3e38, 3e38),),
        "inf",
        "reduce_window_sum",
        "a sum of 2 numbers up to 3e+38",
    ),
    "the maximum of a window in the margin": (
        lambda x: lax.reduce_window(x, -INF, lax.max, (1,), (1,), ((1, 0),)),
        (f32(1, 2),),
        "inf",
        "reduce_window_max",
        "reduce_window_max of nothing",
    ),
    "the minimum of a window in the margin": (
        lambda x: lax.reduce_window(x, INF, lax.min, (1,), (1,), ((1, 0),)),
        (f32(1, 2),),
        "inf",
        "reduce_window_min",
        "reduce_window_min of nothing",
    ),
    "the maximum of nothing": (
        lambda x: lax.reduce_max(x, (0,)),
        (jnp.zeros((0,)),),
        "inf",
        "reduce_max",
        "reduce_max of nothing",
    ),
    "the gradient of a pooling": (pooled, (f32(1, 2, 1),), "inf", "select_and_scatter_add", "a sum of"),
    "a fold": (fold, (f32(1e30, 1e30),), "inf", "reduce", "folds 2 numbers made an infinity"),
    "a fold of windows": (
        lambda x: fold(x, 2),
        (f32(1e30, 1e30),),
        "inf",
        "reduce_window",
        "folds",
    ),
    "0 * inf in a product of vectors": (
        lambda x: jnp.dot(f32(0, 1), 1 / x),
        (f32(0, 1),),
        "nan",
        "dot_general",
        "0 * inf in a sum of products; the inf is made by div",
    ),
    "inf - inf in a product of vectors": (
        lambda x: jnp.dot(f32(1, 1), 1 / x),
        (f32(0, -0.0),),
        "nan",
        "dot_general",
        "inf - inf in a sum of products; the inf is made by div",
    ),
    "a zero beside the point": (  # the 0 that meets the 1 is not to blame
        lambda x, y: jnp.dot(jnp.stack([y - y, y, y]), 1 / x),
        (f32(1, 0, -0.0), jnp.float32(2)),
        "nan",
        "dot_general",
        "inf - inf in a sum of products; the inf is made by div",
    ),
    "a convolution": (
        conv,
        (f32(1, 3e38, 3e38), f32(1, 1)),
        "inf",
        "conv_general_dilated",
        "numbers up to 3e+38 and 1",
    ),
    "a symmetric product": (
        lambda a: lax.linalg.symmetric_product(a, jnp.zeros((2, 2))),
        (jnp.full((2, 2), 1e30),),
        "inf",
        "symmetric_product",
        "up to 1e+30",
    ),
    "a singular tridiagonal system": (
        tridiagonal,
        (f32(0, 0, 0), f32(1, 0, 2), f32(0, 0, 0)),
        None,
        "tridiagonal_solve",
        "singular values 0 to 2",
    ),
    "a solution too big": (
        solve,
        (jnp.eye(2) * 0.5, f32(3e38, 1)[:, None]),
        "inf",
        "triangular_solve",
        "right sides up to 3e+38 and a triangular matrix with a least diagonal element of 0.5",
    ),
    "a matrix with an infinity": (
        lambda x: lax.linalg.cholesky(jnp.where(np.eye(2) > 0, 1.0, 1 / x)),
        (jnp.float32(0),),
        "nan",
        "cholesky",
        "the matrix holds an infinity",
    ),
    "eigenvalues of a matrix with an infinity": (
        lambda x: lax.linalg.eigh(jnp.ones((2, 2)) / x)[0],
        (jnp.float32(0),),
        "nan",
        "eigh",
        "eigh of a matrix that holds an infinity",
    ),
    "float8 has no infinity": (
        lambda x: x.astype(jnp.float8_e4m3fn),
        (jnp.float32(1000),),
        "nan",
        "convert_element_type",
        "1000 (float32) is beyond float8_e4m3fn, which has NaN in the place of inf",
    ),
    "precision taken away": (  # 5 exponent bits: (2 - 2 ** -10) * 2 ** 15 = 65504
        lambda x: lax.reduce_precision(x, 5, 10),
        (jnp.float32(1e6),),
        "inf",
        "reduce_precision",
        "1e+06 is beyond the largest number with 5 + 10 bits (65504)",
    ),
    "the magnitude of a complex number": (
        lax.abs,
        (jnp.complex64(3e38 + 3e38j),),
        "inf",
        "abs",
        "the magnitude of 3e+38+3e+38j is beyond",
    ),
    "bits": (
        lambda x: lax.bitcast_convert_type(x, jnp.float32),
        (jnp.uint32(0x7FC00000),),
        "nan",
        "bitcast_convert_type",
        "the bits",
    ),
    "a function on the host": (
        lambda x: jax.pure_callback(lambda x: np.float32(np.nan), jax.ShapeDtypeStruct((), jnp.float32), x),
        (jnp.float32(1),),
        "nan",
        "pure_callback",
        "the function behind pure_callback returned NaN",
    ),
    "random numbers": (
        lambda x: lax.rng_uniform(-1 / (x - x), 1 / (x - x), (1,)),
        (jnp.float32(1),),
        "nan",
        "rng_uniform",
        "random numbers between -inf and inf",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_reason(case):
    f, args, bad, primitive, words = CASES[case]
    out = np.asarray(jax.tree.leaves(jax.jit(f)(*args))[0]).astype(np.complex128)
    if bad is None:  # which of the two depends on the machine
        bad = "nan" if np.isnan(out).any() else "inf"
    assert (np.isnan(out) if bad == "nan" else np.isinf(out)).any()
    origin = origin_of(f, *args, bad=bad)
    assert (origin.primitive, origin.reproduced) == (primitive, True)
    assert words in origin.reason


def test_a_matrix_that_is_not_symmetric_is_judged_by_the_triangle_that_is_read():
    f = lambda a: lax.linalg.cholesky(a, symmetrize_input=False)
    lower = np.array([[1, 99], [2, 1]], np.float32)  # [[1, 2], [2, 1]] has the eigenvalues 3 and -1
    origin = origin_of(f, jnp.asarray(lower))
    assert "smallest eigenvalue -1, float32), nor symmetric" in origin.reason
    assert np.isfinite(f(jnp.array([[1.0, 99.0], [0.5, 1.0]]))).all()  # what stands above is not read


def test_the_sum_and_the_element_of_a_scatter_that_are_to_blame():
    """Of four updates two go to each segment: the NaN of the first is not blamed on the second."""

    def program(x):
        return jax.ops.segment_sum(jnp.sqrt(x), jnp.array([1, 0, 1, 0]), 2)

    origin = origin_of(lambda x: program(x)[0], f32(-1, 4, 9, -7))
    assert origin.primitive == "sqrt" and origin.operands[0]["element"] == -7.0


def test_a_convolution_is_followed_to_the_element_under_its_window():
    origin = origin_of(lambda x: conv(jnp.log(x), f32(1, 2))[2], f32(-1, 1, 1, -3, 1))
    assert origin.primitive == "log" and origin.operands[0]["index"] == (3,)


def test_a_system_is_followed_to_its_right_side():
    origin = origin_of(lambda b: solve(jnp.eye(2), jnp.sqrt(b))[:, 1], jnp.array([[-1.0, 4.0], [4.0, -2.0]]))
    assert origin.primitive == "sqrt" and origin.operands[0]["element"] == -2.0


# -- what made a zero or an infinity

kept = lax.optimization_barrier  # else XLA may put two operations into one

ZEROS = {
    # (program, inputs, words): each divides 1 by a 0, which became 0 in another way
    "underflow": (lambda x: kept(x) * kept(x), (1e-30,), "the 0 is an underflow in mul"),
    "underflow of exp": (jnp.exp, (-200.0,), "the 0 is an underflow in exp"),
    "underflow of a power": (lambda x: lax.integer_pow(x, 5), (1e-10,), "the 0 is an underflow in integer_pow"),
    "the power of an infinity": (
        lambda x: lax.integer_pow(kept(1 / x), -2),
        (0.0,),
        "makes of an infinity (inf)",
    ),
    "exp of an infinity": (lambda x: jnp.exp(kept(-1 / x)), (0.0,), "makes of an infinity (-inf)"),
    "a quotient by an infinity": (lambda x: 3 / kept(1 / x), (0.0,), "makes of an infinity (3, inf)"),
    "equal numbers": (lambda x, y: x - y, (2.0, 2.0), "the difference of equal numbers (2, 2)"),
    "opposite numbers": (lambda x, y: x + y, (2.0, -2.0), "the sum of opposite numbers (2, -2)"),
    # 1.5e-38 - 1.25e-38 = 2.5e-39, less than the least normal number, 1.18e-38
    "nearly equal numbers": (lambda x, y: x - y, (1.5e-38, 1.25e-38), "the 0 is an underflow in sub"),
    "a subnormal operand": (lambda x: x * 1e10, (1e-40,), "a subnormal float32 number, which XLA flushes to zero"),
    "rounded": (jnp.floor, (0.75,), "the 0 is 0.75, rounded by floor"),
    "a multiple": (lambda x: lax.rem(x, jnp.float32(3)), (6.0,), "the remainder of a multiple (6, 3)"),
    "the log of 1": (jnp.log, (1.0,), "the 0 is the log of 1"),
    "moved and kept": (lambda x, y: jnp.sin(-(x - y))[None].T, (2.0, 2.0), "the difference of equal numbers (2, 2)"),
}


@pytest.mark.parametrize("case", ZEROS)
def test_how_a_zero_came_about(case):
    f, args, words = ZEROS[case]
    inputs = tuple(jnp.float32(x) for x in args)
    zero = jax.jit(f)(*inputs)
    assert (np.asarray(zero) == 0).all()
    origin = origin_of(lambda *args: 1.0 / kept(f(*args)), *inputs, bad="inf")
    assert origin.primitive == "div" and words in origin.reason


def test_a_zero_that_was_given_or_is_a_constant_has_no_story():
    for f in (lambda x: 1 / kept(x), lambda x: 1 / kept(jnp.zeros(()) * x)):
        assert origin_of(f, jnp.float32(0), bad="inf").reason == "division of 1 by 0"


def test_a_zero_is_followed_through_a_loop():
    def program(x):
        c = lax.scan(lambda c, t: (c - t, c), x, jnp.arange(4.0))[0]  # 6 - 0 - 1 - 2 - 3
        return 1 / c

    origin = origin_of(program, jnp.float32(6), bad="inf")
    assert "the difference of equal numbers (3, 3)" in origin.reason


# -- values too big to be kept element by element


def test_of_a_very_big_array_the_element_that_failed_is_described(monkeypatch):
    monkeypatch.setattr("jaxtap_core.provenance.flat.CODE_BYTES", 100)
    x = np.linspace(1, 80, 1000, dtype=np.float32)
    x[700] = 100
    origin = origin_of(jnp.exp, jnp.asarray(x), bad="inf")
    assert "exp(100) is beyond" in origin.reason
