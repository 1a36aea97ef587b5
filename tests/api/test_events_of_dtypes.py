"""Values of every dtype are seen bit for bit, in every entry form."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from counted import collatz, collatz_loop
from jax import lax
from lenses import ENTRIES, assert_same_bits, seen

DTYPES = {
    "bool": np.bool_,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int8": np.int8,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float16": np.float16,
    "float32": np.float32,
    "complex64": np.complex64,
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_observed_bit_for_bit(dtype):
    rows = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 1]]).astype(DTYPES[dtype])
    f = jax.jit(lambda c, xs: lax.scan(lambda c, x: (x, c), c, xs))
    for entry in ENTRIES:
        _, events = seen(entry, f, jnp.zeros(3, rows.dtype), jnp.asarray(rows), select="c")
        assert [e.value.dtype for e in events] == [rows.dtype] * 4
        assert np.stack([e.value for e in events]).tobytes() == rows.tobytes()


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_wide_dtypes_under_x64(dtype):
    with jax.enable_x64(True):
        rows = np.array([[1.5, 2**40 + 1, 3], [4, 5, 6]]).astype(dtype)
        f = jax.jit(lambda c, xs: lax.scan(lambda c, x: (x, c), c, xs))
        for entry in ENTRIES:
            _, events = seen(entry, f, jnp.zeros(3, dtype), jnp.asarray(rows), select="c")
            assert np.stack([e.value for e in events]).dtype == rows.dtype
            assert np.stack([e.value for e in events]).tobytes() == rows.tobytes()


@pytest.mark.parametrize("x64", [False, True])
def test_loops_of_either_width_in_one_process(x64):
    with jax.enable_x64(x64):
        for entry in ENTRIES:
            for f in (lambda n: lax.fori_loop(0, n, lambda i, s: s + i, 0), jax.jit(collatz_loop)):
                result, events = seen(entry, f, 7)
                assert result.dtype == (jnp.int64 if x64 else jnp.int32)
                assert len(events) in (7, collatz(7))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_typed_keys_are_observed_as_key_data(impl):
    key = jax.random.key(3, impl=impl)

    def body(key, _):
        key, _ = jax.random.split(key)
        return key, None

    f = jax.jit(lambda key: lax.scan(body, key, None, length=3)[0])
    expected = []
    for _ in range(3):
        key, _ = jax.random.split(key)
        expected.append(np.asarray(jax.random.key_data(key)))
    for entry in ENTRIES:
        result, events = seen(entry, f, jax.random.key(3, impl=impl), select="key")
        assert jax.dtypes.issubdtype(result.dtype, jax.dtypes.prng_key)
        assert np.array_equal([e.value for e in events], expected)


def test_typed_keys_in_a_while_with_a_predicate_a_lane():
    def f(key, n):
        return lax.while_loop(lambda s: s[1] > 0, lambda s: (jax.random.split(s[0])[0], s[1] - 1), (key, n))[0]

    keys, ns = jax.random.split(jax.random.key(0), 3), jnp.array([2, 0, 4])
    plain = jax.jit(jax.vmap(f))(keys, ns)
    for entry in ENTRIES:
        result, events = seen(entry, jax.jit(jax.vmap(f)), keys, ns)
        assert_same_bits(result, plain)
        assert len(events) == 4


def test_float0_tangents_of_integers():
    def f(x):
        body = lambda c, _: ((c[0] * 2.0, c[1] + 1), None)
        zero = np.zeros((), jax.dtypes.float0)
        return jax.jvp(lambda x, n: lax.scan(body, (x, n), None, length=3)[0], (x, 0), (1.0, zero))

    for entry in ENTRIES:
        result, events = seen(entry, f, 1.0)
        assert len(events) == 3
        assert float(result[1][0]) == 8.0
        assert result[1][1].dtype == jax.dtypes.float0
