"""Comparing bits: what must be found, where, and what must not count."""

import json
import socket
import subprocess
import sys
import textwrap
import tracemalloc
from collections import OrderedDict, namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtap_core.compare.bits import assert_bitwise_equal, compare_bits

Point = namedtuple("Point", "x y")

FLOATS = [np.float16, np.float32, np.float64, jnp.bfloat16] + [
    getattr(jnp, name) for name in sorted(dir(jnp)) if name.startswith(("float8_", "float4_"))
]
WHOLE = [np.bool_, jnp.int2, jnp.int4, jnp.uint2, jnp.uint4]
WHOLE += [np.dtype(f"{kind}{8 * size}").type for kind in ("int", "uint") for size in (1, 2, 4, 8)]
COMPLEX = [np.complex64, np.complex128]
DTYPES = [np.dtype(d) for d in FLOATS + WHOLE + COMPLEX]


def one(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """An array of the number 1, which every dtype has."""
    return np.ones(shape).astype(dtype)


def nudge(array: np.ndarray, index: tuple[int, ...], bit: int = 0) -> np.ndarray:
    """A copy of `array` with one bit of the first byte of one element flipped."""
    changed = array.copy()
    raw = changed.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize)
    raw[np.ravel_multi_index(index, array.shape) if index else 0, 0] ^= 1 << bit
    return changed


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@settings(max_examples=25)
@given(data=st.data())
def test_the_last_bit_of_one_element_of_one_leaf_is_found_and_located(dtype, data):
    shapes = data.draw(st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=3, max_size=3))
    leaves = [one(dtype, shape) for shape in shapes]
    victim = data.draw(st.integers(0, 2))
    index = tuple(data.draw(st.integers(0, n - 1)) for n in shapes[victim])

    def tree(x, y, z):
        return {"model": Point(x, [y, None]), "step": (3, z)}

    before = tree(*leaves)
    changed = list(leaves)
    changed[victim] = nudge(leaves[victim], index)
    assert compare_bits(before, tree(*map(np.copy, leaves))).identical
    (found,) = compare_bits(before, tree(*changed)).leaves
    assert found.path == ["['model'].x", "['model'].y[0]", "['step'][1]"][victim]
    assert (found.problem, found.differing) == ("bits", 1)
    assert found.total == leaves[victim].size
    assert found.first == found.worst
    assert found.first.index == index
    assert found.first.ulp == (1 if dtype.kind not in "biu" and "int" not in dtype.name else None)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.itemsize < 8], ids=lambda d: d.name)
def test_a_jax_array_and_its_numpy_copy_are_the_same(dtype):
    array = jnp.asarray(one(dtype, (2, 3)))
    assert array.dtype == dtype
    assert compare_bits(array, one(dtype, (2, 3))).identical
    (found,) = compare_bits(array, nudge(one(dtype, (2, 3)), (1, 2))).leaves
    assert found.first.index == (1, 2)


def test_the_report_says_where_and_how_far_in_decimal_and_in_hex():
    before = np.linspace(1, 2, 8, dtype=np.float32)
    after = before.copy()
    after[2] = np.nextafter(after[2], np.float32(9))
    after[5] += np.float32(0.5)
    report = compare_bits({"w": before}, {"w": after})
    assert str(report).splitlines() == [
        "1 of 1 leaves differ",
        "  ['w'] float32[8]: 2 of 8 elements differ",
        "    first at [2]: expected 1.2857143 = 0x3fa49249, got 1.2857144 = 0x3fa4924a (1 ulp)",
        "    worst at [5]: expected 1.7142857 = 0x3fdb6db7, got 2.2142859 = 0x400db6dc (3295525 ulp)",
    ]


def test_the_report_as_a_dict_is_valid_json():
    before = {"a": np.float32([0.0, np.nan, 1]), "n": 1, "gone": jnp.ones(2)}
    after = {"a": np.float32([-0.0, 2.0, 1]), "n": 2, "new": None}
    report = compare_bits(before, after)
    again = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert again["identical"] is False
    assert [leaf["problem"] for leaf in again["leaves"]] == ["bits", "missing", "value", "extra"]
    assert again["leaves"][0]["worst"] == {
        "index": [1],
        "expected": "nan",
        "got": "2.0",
        "expected_hex": "0x7fc00000",
        "got_hex": "0x40000000",
        "ulp": None,
        "what": "NaN on one side",
    }


def test_the_sign_of_zero_counts():
    (found,) = compare_bits(np.float64(0.0), np.float64(-0.0)).leaves
    assert (found.first.what, found.first.ulp) == ("sign of zero", 0)
    assert compare_bits(0.0, -0.0).leaves[0].first.what == "sign of zero"
    assert not compare_bits(np.array(1 + 0j), np.conj(np.array(1 + 0j))).identical


def test_the_payload_of_a_nan_counts_unless_it_is_told_not_to():
    a = np.array([0x7FC00000, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32)
    b = np.array([0x7FC00001, 0x7FC00000, 0x7F800001], np.uint32).view(np.float32)
    (found,) = compare_bits(a, b).leaves
    assert (found.differing, found.first.what) == (2, "NaN payload")
    assert compare_bits(a, b, nan="any").identical
    assert not compare_bits(a, np.float32([np.nan, 1, np.nan]), nan="any").identical
    assert compare_bits(a[:2].view(np.complex64), b[:2].view(np.complex64), nan="any").identical
    with pytest.raises(ValueError, match='"payload" or "any"'):
        compare_bits(a, b, nan="none")


@pytest.mark.parametrize(
    ("a", "b", "problem"),
    [
        (np.float32(1), np.float64(1), "dtype"),
        (1.0, np.float64(1), "dtype"),
        (np.ones(3), np.ones((3, 1)), "shape"),
        (jnp.asarray(1.0), jnp.asarray(1.0, jnp.float32), "weak type"),
        (1, 2, "value"),
        (1, True, "value"),
        ("adam", "sgd", "value"),
        (None, np.zeros(1), "value"),
        (jax.random.key(0), jax.random.key(0, impl="rbg"), "dtype"),
        (jax.random.key(0), jax.random.key_data(jax.random.key(0)), "dtype"),
        (np.zeros(3, jax.dtypes.float0), np.zeros(4, jax.dtypes.float0), "shape"),
        (np.array(["a", "b"]), np.array(["a", "c"]), "bits"),
        (np.array([{}, 1], object), np.array([{}, 2], object), "value"),
    ],
)
def test_what_kind_of_difference_it_is(a, b, problem):
    assert [leaf.problem for leaf in compare_bits(a, b).leaves] == [problem]
    assert compare_bits(a, a).identical
    assert compare_bits(b, b).identical


def test_a_weak_type_does_not_hide_that_the_bits_differ_too():
    (found,) = compare_bits(jnp.asarray(1.0), jnp.asarray(2.0, jnp.float32)).leaves
    assert (found.problem, found.differing) == ("weak type", 1)


def test_typed_keys_are_compared_key_by_key():
    keys = jax.random.split(jax.random.key(7), (2, 3))
    data = np.array(jax.random.key_data(keys))
    data[1, 0, 1] ^= 1
    other = jax.random.wrap_key_data(data)
    assert compare_bits(keys, jax.random.wrap_key_data(jax.random.key_data(keys))).identical
    (found,) = compare_bits(keys, other).leaves
    assert (found.differing, found.total, found.first.index) == (1, 6, (1, 0))


def test_float0_and_empty_arrays_have_nothing_to_differ_in():
    tree = (
        np.zeros(3, jax.dtypes.float0),
        np.zeros((0, 4)),
        jnp.zeros((2, 0)),
        jax.random.split(jax.random.key(0), 0),
    )
    assert compare_bits(tree, tree).identical


def test_what_lies_beside_a_number_of_four_bits_does_not_count():
    clean = np.array([1, -3], np.int8).astype(jnp.int4)
    dirty = (clean.view(np.uint8) | 0xF0).view(jnp.int4)
    assert compare_bits(clean, dirty).identical


def test_a_missing_and_an_extra_leaf_are_named():
    report = compare_bits({"a": 1.0, "b": np.zeros(2)}, {"a": 1.0, "c": np.zeros(2, np.int8)})
    assert str(report).splitlines()[1:] == [
        "  ['b']: missing, expected float64[2]",
        "  ['c']: not expected, got int8[2]",
    ]


@pytest.mark.parametrize(
    ("a", "b", "path"),
    [
        ({"k": (1, [2, 3])}, {"k": (1, (2, 3))}, "['k'][1]"),
        ((1, Point(2, 3)), (1, Point(2, 3)._replace()), None),
        ([0, [()]], [0, [[]]], ""),
        ((), [], ""),
        (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1), ""),
    ],
)
def test_containers_of_another_kind_differ_though_no_leaf_does(a, b, path):
    leaves = compare_bits(a, b).leaves
    expected = [] if path is None else [(path, "structure")]
    assert [(leaf.path, leaf.problem) for leaf in leaves] == expected


def test_the_assertion_shows_the_report_and_hides_its_own_frame():
    with pytest.raises(AssertionError) as caught:
        assert_bitwise_equal([1.0, np.zeros(2)], [1.0, -np.zeros(2)])
    assert str(caught.value).startswith("not bitwise equal: 1 of 2 leaves differ\n  [1] float64[2]:")
    assert caught.traceback[-1].frame.f_locals["__tracebackhide__"] is True
    assert_bitwise_equal([1.0, np.zeros(2)], [1.0, np.zeros(2)])


def test_a_long_report_is_cut():
    text = str(compare_bits([0] * 40, [1] * 40))
    assert text.splitlines()[-1] == "  and 30 more"


def test_strided_views_and_byte_orders_are_read_in_order():
    square = np.arange(12.0).reshape(3, 4)
    assert compare_bits(square.T, np.ascontiguousarray(square.T)).identical
    (found,) = compare_bits(square.T, nudge(np.ascontiguousarray(square.T), (3, 1))).leaves
    assert found.first.index == (3, 1)
    (found,) = compare_bits(np.array([1.0], ">f8"), np.array([1 + 2**-52], ">f8")).leaves
    assert (found.first.expected_hex, found.first.ulp) == ("0x3ff0000000000000", 1)


def test_pieces_of_a_large_array_are_put_together():
    before = np.zeros((3, 3_000_000), np.float32)
    after = before.copy()
    after[1, 2], after[2, 2_999_999], after[0, 5] = 2, 3, 1
    (found,) = compare_bits(before, after).leaves
    assert (found.differing, found.first.index, found.worst.index) == (3, (0, 5), (2, 2_999_999))


def test_comparing_takes_little_memory_beside_the_arrays():
    before = np.ones(32_000_000, np.float32)
    after = before.copy()
    after[-1] = 2
    tracemalloc.start()
    try:
        assert not compare_bits(before, after).identical
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < before.nbytes / 2


def test_a_donated_array_is_a_clear_error():
    x = jnp.ones(3) + 0
    jax.jit(lambda v: v + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    with pytest.raises(ValueError, match=r"\['x'\] was donated or deleted"):
        compare_bits({"x": x}, {"x": x})


def test_a_traced_value_is_a_clear_error():
    with pytest.raises(TypeError, match=r"\[0\] is traced"):
        jax.jit(lambda v: compare_bits((v,), (v,)).identical)(1.0)


def test_longdouble_is_a_clear_error():
    if np.dtype(np.longdouble).itemsize <= 8:
        pytest.skip("longdouble is float64 here")
    with pytest.raises(TypeError, match="convert it to float64"):
        compare_bits(np.longdouble(1), np.longdouble(1))


def test_an_array_that_other_processes_hold_in_part_is_a_clear_error():
    child = """
        import sys
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        from jaxtap_core.compare.bits import compare_bits

        jax.config.update("jax_platforms", "cpu")
        jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
        split = NamedSharding(Mesh(np.array(jax.devices()), "d"), PartitionSpec("d"))
        array = jax.make_array_from_callback((2,), split, lambda index: np.zeros(2)[index])
        try:
            compare_bits({"w": array}, {"w": array})
        except ValueError as error:
            print(error)
        whole = NamedSharding(split.mesh, PartitionSpec())
        copy = jax.make_array_from_callback((2,), whole, lambda index: np.zeros(2)[index])
        print(compare_bits(copy, copy).identical)
    """
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    command = [sys.executable, "-c", textwrap.dedent(child), address]
    pair = [subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True) for i in range(2)]
    for process in pair:
        out, _ = process.communicate(timeout=120)
        assert "['w'] is sharded over several processes" in out
        assert out.splitlines()[-1] == "True"
