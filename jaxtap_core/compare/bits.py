"""Compare values bit by bit: what `==` forgives counts here.

`compare_bits` takes two pytrees apart and says of every leaf that differs where it is, in how many
elements, at which element first and at which one worst. -0.0 is not 0.0, a NaN is equal only to a
NaN of the same bits, and float32 is never float64, nor a weakly typed array a strongly typed one.

    >>> before = {"x": jnp.array([1.0, 2.0]), "n": 3}
    >>> after = {"x": jnp.array([1.0, 2.0000002]), "n": 3}
    >>> print(compare_bits(before, after))
    1 of 2 leaves differ
      ['x'] float32[2]: 1 of 2 elements differ
        at [1]: expected 2.0 = 0x40000000, got 2.0000002 = 0x40000001 (1 ulp)

Only the host computes; arrays on a device are fetched once, and no value on a device is touched.

Sharp edges: NumPy arrays that are strided views are copied piece by piece, and so are slower. Both
sides are held against each other as they are, so two programs that agree by chance agree here too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr

from jaxtap_core import _compat
from jaxtap_core.compare.bit_report import BitReport, ElementDiff, LeafDiff, Problem, What
from jaxtap_core.telemetry.ulp import NO_DISTANCE, distance, has_padding, is_nan, parts, words

_CHUNK_BYTES = 1 << 24


def compare_bits(a: object, b: object, *, nan: Literal["payload", "any"] = "payload") -> BitReport:
    """Compare two pytrees bit by bit.

    Leaves may be JAX and NumPy arrays of any dtype, typed PRNG keys, `float0`, Python scalars, and
    whatever else compares with `==`. An array is compared by dtype, shape and bits, be it JAX's or
    NumPy's; weak types are compared where both are JAX's. `None` counts as a leaf.

    Args:
        a: the expected pytree.
        b: the pytree that was got.
        nan: `"payload"`: two NaNs are equal if their bits are; `"any"`: all NaNs are equal.

    Raises:
        TypeError: a leaf is traced, or of an extended-precision dtype.
        ValueError: a leaf was donated or deleted, or other processes hold parts of it.

    Example:
        >>> print(compare_bits(np.float32(0.0), np.float32(-0.0)))
        1 of 1 leaves differ
          the value float32[]: 1 of 1 elements differ
            at []: expected 0.0 = 0x00000000, got -0.0 = 0x80000000 (sign of zero)
    """
    if nan not in ("payload", "any"):
        raise ValueError(f'nan must be "payload" or "any", not {nan!r}')
    pairs = list(_paired_leaves(a, b))
    differences = [_structure_diff(a, b)]
    differences += [_leaf_diff(path, x, y, nan) for path, x, y in pairs]
    leaves = tuple(d for d in differences if d is not None)
    return BitReport(identical=not leaves, leaves=leaves, compared=len(pairs))


def assert_bitwise_equal(a: object, b: object, *, nan: Literal["payload", "any"] = "payload") -> None:
    """Raise unless two pytrees are equal bit by bit; the arguments are those of `compare_bits`.

    Raises:
        AssertionError: they are not; the message lists the leaves that differ.

    Example:
        >>> assert_bitwise_equal((1.5, np.zeros(3)), (1.5, np.zeros(3)))
    """
    __tracebackhide__ = True
    report = compare_bits(a, b, nan=nan)
    if not report.identical:
        raise AssertionError(f"not bitwise equal: {report}")


# Pytrees: which leaf belongs to which ------------------------------------------------------------

_ABSENT = object()


def _flatten(tree: object) -> tuple[list[tuple[Any, Any]], jax.tree_util.PyTreeDef]:
    """Leaves with their key paths. `None` is a leaf, so that None against an array has a place."""
    return jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is None)


def _paired_leaves(a: object, b: object) -> Iterator[tuple[str, Any, Any]]:
    """(path, leaf of `a`, leaf of `b`): by position in equal structures, else by path."""
    (in_a, structure_a), (in_b, structure_b) = _flatten(a), _flatten(b)
    if structure_a == structure_b:
        for (path, x), (_, y) in zip(in_a, in_b, strict=True):
            yield keystr(path), x, y
        return
    rest = {keystr(path): y for path, y in in_b}
    for path, x in in_a:
        yield keystr(path), x, rest.pop(keystr(path), _ABSENT)
    for name, y in rest.items():
        yield name, _ABSENT, y


def _structure_diff(a: object, b: object) -> LeafDiff | None:
    """The first container that is of another kind, where missing leaves do not tell already."""
    (in_a, structure_a), (in_b, structure_b) = _flatten(a), _flatten(b)
    names_a, names_b = ({keystr(path) for path, _ in leaves} for leaves in (in_a, in_b))
    if structure_a == structure_b or names_a != names_b:
        return None
    path, x, y = _first_unlike_node([path for path, _ in in_a], structure_a, structure_b)
    return LeafDiff(keystr(path), "structure", _outline(x), _outline(y))


def _first_unlike_node(
    paths: list[Any], a: jax.tree_util.PyTreeDef, b: jax.tree_util.PyTreeDef
) -> tuple[Any, jax.tree_util.PyTreeDef, jax.tree_util.PyTreeDef]:
    """(path, nodes) of the smallest subtrees with leaves that hold the first difference.

    Nodes know no paths. But a leaf's path has a key for each node above it, so a node's own path is
    the beginning of that of any of its leaves.
    """
    first_leaf = depth = 0
    while a.node_data() == b.node_data():
        before = first_leaf
        for x, y in zip(a.children(), b.children(), strict=True):
            if x != y:
                break
            before += x.num_leaves
        if not (x.num_leaves and y.num_leaves):
            break
        a, b, first_leaf, depth = x, y, before, depth + 1
    return paths[first_leaf][:depth] if paths else (), a, b


def _outline(node: jax.tree_util.PyTreeDef) -> str:
    return _shorten(str(node).removeprefix("PyTreeDef(").removesuffix(")"))


# Leaves ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Array:
    """A leaf that has bits: its host data, and what it was."""

    data: np.ndarray
    dtype: Any
    shape: tuple[int, ...]
    weak: bool | None = None  # None: the container knows no weak types
    python: bool = False

    def __str__(self) -> str:
        if self.python:
            return f"Python {self.dtype}"
        dims = ",".join(map(str, self.shape))
        name = "float0" if self.dtype == jax.dtypes.float0 else self.dtype
        return f"{name}[{dims}]{' (weakly typed)' if self.weak else ''}"


def _leaf_diff(path: str, a: Any, b: Any, nan: str) -> LeafDiff | None:
    """How leaf `b` differs from leaf `a`; `None` if it does not."""
    x, y = _read(path, a), _read(path, b)
    if x is _ABSENT or y is _ABSENT:
        return LeafDiff(
            path,
            "extra" if x is _ABSENT else "missing",
            None if x is _ABSENT else _describe(x),
            None if y is _ABSENT else _describe(y),
        )
    if not (isinstance(x, _Array) and isinstance(y, _Array)):
        if _equal_values(x, y):
            return None
        return LeafDiff(path, "value", _describe(x), _describe(y))
    if x.dtype != y.dtype or x.python != y.python:
        return LeafDiff(path, "dtype", str(x), str(y))
    if x.shape != y.shape:
        return LeafDiff(path, "shape", str(x), str(y))
    differing, first, worst = _compare_elements(x, y, nan)
    weak_differs = x.weak is not None and y.weak is not None and x.weak != y.weak
    if not differing and not weak_differs:
        return None
    problem: Problem = "weak type" if weak_differs else "bits"
    total = int(np.prod(x.shape, dtype=np.int64))
    return LeafDiff(path, problem, str(x), str(y), differing, total, first, worst)


def _read(path: str, leaf: Any) -> Any:
    """`leaf` as an `_Array` on the host, or itself if it is something else."""
    name = path or "the value"
    if _compat.is_tracer(leaf):
        raise TypeError(f"{name} is traced, it has no bits yet: compare what the jitted function returns")
    if isinstance(leaf, jax.Array):
        return _read_jax_array(name, leaf)
    if isinstance(leaf, np.ndarray | np.generic):
        if has_padding(leaf.dtype):
            raise TypeError(
                f"{name} is {leaf.dtype}, of which some bytes are padding; JAX has no such dtype, convert it to float64"
            )
        if leaf.dtype.hasobject:
            return leaf
        return _Array(np.asarray(leaf), leaf.dtype, leaf.shape)
    if type(leaf) in (float, complex):
        return _Array(np.asarray(leaf), type(leaf).__name__, (), python=True)
    return leaf


def _read_jax_array(name: str, leaf: jax.Array) -> _Array:
    if leaf.is_deleted():
        raise ValueError(
            f"{name} was donated or deleted, its bits are gone: copy it before the call that "
            "donates it, or do not donate it"
        )
    if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        raise ValueError(
            f"{name} is sharded over several processes and this one holds a part of it: compare "
            "its addressable_shards, or gather it first "
            "(jax.experimental.multihost_utils.process_allgather)"
        )
    keys = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    data = jax.device_get(jax.random.key_data(leaf) if keys else leaf)
    return _Array(data, leaf.dtype, leaf.shape, weak=getattr(leaf, "weak_type", False))


def _equal_values(a: Any, b: Any) -> bool:
    """`a == b` for leaves without bits, which may have any idea of equality."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    try:
        return bool(a == b)
    except Exception:  # an object that cannot say so is equal to nothing but itself
        return False


# Elements ----------------------------------------------------------------------------------------


def _compare_elements(a: _Array, b: _Array, nan: str) -> tuple[int, ElementDiff | None, ElementDiff | None]:
    """Number of elements that differ, the first and the worst of them."""
    if not a.data.size or not a.data.itemsize:  # float0 has no bits at all
        return 0, None, None
    differing, first, worst, worst_distance = 0, -1, -1, -1
    for start, x, y in _unlike_chunks(a, b):
        differs = words(x) != words(y)
        if nan == "any" and jnp.issubdtype(x.dtype, jnp.floating):
            differs &= ~(is_nan(x) & is_nan(y))
        rows = np.flatnonzero(differs.any(axis=1))
        if not rows.size:
            continue
        distances = distance(x[rows], y[rows]).max(axis=1)
        farthest = int(distances.argmax())
        if differing == 0:
            first = start + int(rows[0])
        if int(distances[farthest]) > worst_distance:
            worst, worst_distance = start + int(rows[farthest]), int(distances[farthest])
        differing += rows.size
    if not differing:
        return 0, None, None
    return differing, _element_diff(a, b, first), _element_diff(a, b, worst)


def _unlike_chunks(a: _Array, b: _Array) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(first element, parts of `a`, parts of `b`) of the pieces whose bytes are not all equal."""
    each = _numbers_per_element(a)
    step = max(1, _CHUNK_BYTES // (a.data.itemsize * each)) * each
    flat_a, flat_b = _flat(a.data), _flat(b.data)
    for start in range(0, a.data.size, step):
        x = np.ascontiguousarray(flat_a[start : start + step])
        y = np.ascontiguousarray(flat_b[start : start + step])
        word = "u8" if x.nbytes % 8 == 0 else "u1"
        if not np.array_equal(x.view(word), y.view(word)):
            length = x.size // each
            yield start // each, parts(x).reshape(length, -1), parts(y).reshape(length, -1)


def _element_diff(a: _Array, b: _Array, position: int) -> ElementDiff:
    each = _numbers_per_element(a)
    piece = slice(position * each, (position + 1) * each)
    x, y = _flat(a.data)[piece], _flat(b.data)[piece]
    p, q = parts(x).reshape(-1), parts(y).reshape(-1)
    ulp: int | None = None
    what: What = "value"
    if jnp.issubdtype(p.dtype, jnp.floating):
        farthest = int(distance(p, q).max())
        ulp = None if farthest == NO_DISTANCE else farthest
        if ulp is None:
            what = "NaN on one side"
        elif ulp == 0:
            unlike = words(p) != words(q)
            what = "NaN payload" if is_nan(p[unlike]).any() else "sign of zero"
    index = tuple(int(i) for i in np.unravel_index(position, a.shape))
    return ElementDiff(index, _decimal(x), _decimal(y), _hex(p), _hex(q), ulp, what)


def _flat(data: np.ndarray) -> Any:
    """`data` as something that slices in C order, without a copy of the whole."""
    return data.reshape(-1) if data.flags.c_contiguous else data.flat


def _numbers_per_element(array: _Array) -> int:
    """1, but for typed PRNG keys, whose data have an axis of words."""
    return int(np.prod(array.data.shape[len(array.shape) :], dtype=np.int64))


def _decimal(values: np.ndarray) -> str:
    texts = [str(v) for v in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _hex(numbers: np.ndarray) -> str:
    texts = [f"0x{int(w):0{2 * numbers.itemsize}x}" for w in words(numbers)]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _describe(leaf: Any) -> str:
    return str(leaf) if isinstance(leaf, _Array) else _shorten(repr(leaf))


def _shorten(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
