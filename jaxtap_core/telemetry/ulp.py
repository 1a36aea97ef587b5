"""How far apart two floats are, counted in representable numbers, and the bits they are made of.

The bit patterns of a float format, read as sign and magnitude, are in the order of the values they
stand for. So the number of steps between two values is the difference of their magnitudes, or the
sum where the signs differ: across zero, among subnormals and up to infinity alike. Both zeros are
one value here.

Reference: B. Dawson, "Comparing Floating Point Numbers, 2012 Edition".
"""

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

Words = NDArray[np.unsignedinteger]

#: What `ulp_distance` gives for a NaN against a number. No two numbers are this far apart.
NO_DISTANCE = 2**64 - 1


def ulp_distance(a: ArrayLike, b: ArrayLike) -> NDArray[np.uint64]:
    """Count the representable numbers from each element of `a` to its partner in `b`.

    Neighbours are 1 apart, infinity is next to the largest finite number, -0.0 and 0.0 are 0 apart.
    Two NaNs of whatever payload are 0 apart; a NaN and a number are `NO_DISTANCE` apart, which is
    farther than any tolerance. A complex number is as far off as the worse of its two parts.

    Args:
        a: array of any float or complex dtype that JAX knows.
        b: array of the same dtype and shape.

    Returns:
        uint64 array of the same shape.

    Raises:
        TypeError: the dtypes differ, or are neither float nor complex.
        ValueError: the shapes differ.

    Example:
        >>> ulp_distance(np.float32([1, 0]), np.float32([1 + 2**-23, -0.0])).tolist()
        [1, 0]
        >>> int(ulp_distance(np.float32(-1e-45), np.float32(1e-45)))
        2
    """
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype != y.dtype or not jnp.issubdtype(x.dtype, jnp.inexact) or has_padding(x.dtype):
        raise TypeError(
            f"ulp_distance needs two arrays of one float or complex dtype that JAX knows, got {x.dtype} and {y.dtype}"
        )
    if x.shape != y.shape:
        raise ValueError(f"ulp_distance needs two arrays of one shape, got {x.shape} and {y.shape}")
    return distance(parts(x), parts(y)).max(axis=-1)


def parts(array: np.ndarray) -> np.ndarray:
    """Give `array` a last axis of numbers that `words` can read, in C order.

    Its length is 2 for a complex dtype, 1 for any other that JAX knows, and the number of bytes of
    an element for what else NumPy has (strings, records).
    """
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    array = native.reshape(*array.shape, 1)
    if array.dtype.kind == "c":
        return array.view(np.finfo(array.dtype).dtype)
    return array if array.dtype.itemsize in (1, 2, 4, 8) else array.view(np.uint8)


def words(array: np.ndarray) -> Words:
    """Read the bits of a contiguous real `array` as unsigned integers, one an element.

    A number of less than a byte lies in the low bits of one. What the other bits of that byte hold
    means nothing, so they are cleared.
    """
    bits = array.view(f"u{array.dtype.itemsize}")
    width = _width(array.dtype)
    return bits if width == 8 * array.dtype.itemsize else bits & bits.dtype.type(2**width - 1)


def distance(a: np.ndarray, b: np.ndarray) -> NDArray[np.uint64]:
    """Count the values of their dtype between real arrays `a` and `b`, elementwise.

    For floats see `ulp_distance`; for integers it is |a - b|; for bool, and whatever else has bits
    but no order, 1 where they differ.
    """
    dtype, x, y = a.dtype, words(a), words(b)
    if jnp.issubdtype(dtype, jnp.floating):
        signed = jnp.finfo(dtype).min < 0
        sign = x.dtype.type(1 << (_width(dtype) - 1) if signed else 0)
        p, q = (x & ~sign).astype(np.uint64), (y & ~sign).astype(np.uint64)
        steps = np.where((x ^ y) & sign != 0, p + q, _gap(p, q))
        nan_a, nan_b = is_nan(x.view(dtype)), is_nan(y.view(dtype))
        steps[nan_a ^ nan_b] = NO_DISTANCE
        steps[nan_a & nan_b] = 0
        return steps
    if jnp.issubdtype(dtype, jnp.integer):
        wide = np.int64 if jnp.issubdtype(dtype, jnp.signedinteger) else np.uint64
        return _gap(x.view(dtype).astype(wide), y.view(dtype).astype(wide))
    return (x != y).astype(np.uint64)


def is_nan(numbers: np.ndarray) -> NDArray[np.bool_]:
    """`numpy.isnan`, which for some dtypes warns of the very signalling NaNs it is asked about."""
    with np.errstate(invalid="ignore"):
        return np.isnan(numbers)


def has_padding(dtype: np.dtype) -> bool:
    """Whether `dtype` is longdouble or its complex kin: some of their bytes belong to no value."""
    return dtype.itemsize > {"f": 8, "c": 16}.get(dtype.kind, dtype.itemsize)


def _gap(a: np.ndarray, b: np.ndarray) -> NDArray[np.uint64]:
    """|a - b| of two 64-bit integer arrays. Modulo 2**64 it is right for any two int64 as well."""
    p, q = a.view(np.uint64), b.view(np.uint64)
    return np.where(a > b, p - q, q - p)


def _width(dtype: np.dtype) -> int:
    """Bits that a value of `dtype` really has."""
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.finfo(dtype).bits
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).bits
    return 8 * dtype.itemsize
