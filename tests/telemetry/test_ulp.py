"""Distances in representable numbers, against walks and full lists of the numbers there are."""

import bisect

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtap_core.telemetry.ulp import NO_DISTANCE, ulp_distance

SMALL_FLOATS = [
    jnp.float4_e2m1fn,
    jnp.float8_e3m4,
    jnp.float8_e4m3,
    jnp.float8_e4m3b11fnuz,
    jnp.float8_e4m3fn,
    jnp.float8_e4m3fnuz,
    jnp.float8_e5m2,
    jnp.float8_e5m2fnuz,
    jnp.float8_e8m0fnu,
]


def every_number(dtype: np.dtype) -> np.ndarray:
    """All bit patterns of a format of at most 16 bits."""
    bits = jnp.finfo(dtype).bits
    return np.arange(2**bits, dtype=f"u{dtype.itemsize}").view(dtype)


def rank(values: np.ndarray) -> np.ndarray:
    """Place of each value in the sorted list of all values of its format; -1 for NaN."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = values.astype(np.float64).tolist()
        ladder = every_number(values.dtype).astype(np.float64).tolist()
    ladder = sorted({v for v in ladder if v == v})
    return np.array([bisect.bisect_left(ladder, v) if v == v else -1 for v in wide])


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=lambda d: np.dtype(d).name)
def test_every_pair_of_a_small_format_is_as_far_apart_as_its_places_in_the_list(dtype):
    numbers = every_number(np.dtype(dtype))
    a, b = (m.ravel() for m in np.meshgrid(numbers, numbers))
    place = rank(numbers)
    p, q = (m.ravel() for m in np.meshgrid(place, place))
    expected = [
        0 if i == j == -1 else NO_DISTANCE if -1 in (i, j) else abs(i - j)
        for i, j in zip(p.tolist(), q.tolist(), strict=True)
    ]
    assert ulp_distance(a, b).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_agrees_with_the_list_of_all_its_values(dtype):
    numbers = every_number(np.dtype(dtype))
    place = rank(numbers)
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, numbers.size, (2, 5000))
    expected = [
        0 if a == b == -1 else NO_DISTANCE if -1 in (a, b) else abs(a - b)
        for a, b in zip(place[i].tolist(), place[j].tolist(), strict=True)
    ]
    assert ulp_distance(numbers[i], numbers[j]).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_as_many_nextafter_steps_as_ulps(dtype, data):
    width = 8 * np.dtype(dtype).itemsize
    near_zero = st.integers(0, 40).map(lambda k: np.array(k * np.finfo(dtype).smallest_subnormal))
    start = data.draw(st.floats(width=width, allow_nan=False) | near_zero)
    start = np.array(start, dtype)
    steps, towards = data.draw(st.integers(0, 60)), data.draw(st.sampled_from([-np.inf, np.inf]))
    walked, end = 0, start
    for _ in range(steps):
        with np.errstate(over="ignore"):
            following = np.nextafter(end, dtype(towards))
        # nextafter leaves -0.0 and 0.0 for the same neighbours, so the zeros are one step, not two
        walked += following != end
        end = following
    assert int(ulp_distance(start, end)) == int(ulp_distance(end, start)) == walked


def test_the_longest_way_fits_into_64_bits():
    top = np.array(np.inf)
    assert int(ulp_distance(-top, top)) == 2 * 0x7FF0_0000_0000_0000 < NO_DISTANCE


def test_the_worse_part_of_a_complex_number_counts():
    a = np.array([1 + 1j], np.complex64)
    b = np.array([complex(np.nextafter(np.float32(1), np.float32(2)), 1 + 3 * 2**-23)], np.complex64)
    assert ulp_distance(a, b).tolist() == [3]


def test_byte_order_of_the_array_does_not_matter():
    a = np.array([1.0, -2.0])
    b = np.nextafter(a, 9)
    assert ulp_distance(a.astype(">f8"), b.astype(">f8")).tolist() == [1, 1]


def test_shape_is_kept_strided_and_empty_arrays_too():
    a = np.arange(12.0, dtype=np.float32).reshape(3, 4).T
    assert ulp_distance(a, a).shape == (4, 3)
    assert ulp_distance(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0, 2)
    assert ulp_distance(np.float32(1), np.float32(1)).shape == ()


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (np.float32(1), np.float64(1), TypeError, "float32 and float64"),
        (np.int32(1), np.int32(1), TypeError, "int32 and int32"),
        (np.longdouble(1), np.longdouble(1), TypeError, "that JAX knows"),
        (np.zeros(2), np.zeros(3), ValueError, r"\(2,\) and \(3,\)"),
    ],
)
def test_what_has_no_distance_is_an_error(a, b, error, message):
    with pytest.raises(error, match=message):
        ulp_distance(a, b)
