"""Values as JSON and back, bit for bit, and readable where the bits allow it.

A finite number is written as a JSON number that is exactly its value: for a float32 the decimal of
the same double, for -0.0 ``-0.0``. JSON has no other floats, so the rest are strings: ``"inf"``,
``"-inf"``, and NaN with the bits of its dtype in hex, ``"nan:7fc00000"``. A complex number is
``[real, imaginary]``. Small arrays are flat lists in row-major order; large ones are
``"base64:..."``, their little-endian bytes.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap_core.jaxpr.values import host_array
from jaxtap_core.records.events import Alert, Certificate, Finding, Origin, ProgramVerdict, TapEvent, told_fields
from jaxtap_core.telemetry.ulp import parts, words

#: Arrays of more elements than this are written as base64: nobody reads so many numbers.
READABLE = 64

_BASE64 = "base64:"
_NAN = "nan:"
_CLASSES = {cls.__name__: cls for cls in (TapEvent, Alert, Finding, Origin, Certificate, ProgramVerdict)}


def loads(text: str) -> Any:
    """Parse JSON as its standard has it: no ``NaN``, no key that stands twice.

    Raises:
        ValueError: it is not that, or nested too deeply to be anything that was written here.
    """
    try:
        return _JSON.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refused)


def dtype_name(dtype: np.dtype) -> str:
    """The name by which `dtype_named` finds ``dtype`` again."""
    return "float0" if dtype == jax.dtypes.float0 else dtype.name


def dtype_named(name: str) -> np.dtype:
    """The dtype of that name, JAX's own included.

    Raises:
        ValueError: there is none.
    """
    if name == "float0":
        return jax.dtypes.float0
    try:
        return np.dtype(name)  # ml_dtypes has registered bfloat16 and its kin with NumPy
    except TypeError:
        raise ValueError(f"unknown dtype {str(name)[:60]!r}") from None


def row_texts(rows: np.ndarray, *, shortest: bool = False) -> list[str]:
    """JSON for each row of a column.

    Args:
        rows: array of shape ``(n, *shape)``.
        shortest: for people: of each float the shortest decimal that rounds to it (``0.1``, where
            the exact value of that float32 is ``0.10000000149011612``), and no base64. Read it with
            ``rows_from(..., exact=False)``.
    """
    size = int(np.prod(rows.shape[1:], dtype=np.int64))
    if rows.ndim == 1:
        return _element_texts(rows, shortest)
    if size > READABLE and rows.dtype.itemsize and not shortest:
        little = np.ascontiguousarray(rows)
        return [f'"{_BASE64}{base64.b64encode(row.tobytes()).decode()}"' for row in little]
    flat = _element_texts(rows.reshape(-1), shortest)
    return [f"[{', '.join(flat[i : i + size])}]" for i in range(0, len(rows) * size, size or 1)] or ["[]"] * len(rows)


def _element_texts(flat: np.ndarray, shortest: bool = False) -> list[str]:
    dtype = flat.dtype
    if dtype.itemsize == 0:
        return ["null"] * len(flat)
    if dtype == np.bool_:
        return ["true" if item else "false" for item in flat.tolist()]
    if jnp.issubdtype(dtype, jnp.integer):
        return list(map(str, _wide(flat).tolist()))
    if dtype.kind == "c":
        both = _element_texts(parts(flat).reshape(-1), shortest)
        return [f"[{re}, {im}]" for re, im in zip(both[::2], both[1::2], strict=True)]
    wide = _wide(flat)
    texts = list(map(float.__repr__, wide.tolist()))
    if shortest and dtype.itemsize < 8:
        brief = list(map(float, map(str, flat)))  # as printed; ml_dtypes drops too many digits
        with np.errstate(invalid="ignore"):
            kept = np.array(brief, np.float64).astype(dtype) == flat
        texts = [repr(b) if same else t for b, t, same in zip(brief, texts, kept, strict=True)]
    for index in np.flatnonzero(~np.isfinite(wide)):
        if np.isnan(wide[index]):
            bits = int(words(np.ascontiguousarray(flat[index : index + 1]))[0])
            texts[index] = f'"{_NAN}{bits:0{2 * dtype.itemsize}x}"'
        else:
            texts[index] = f'"{texts[index]}"'
    return texts


def _wide(flat: np.ndarray) -> np.ndarray:
    """The same values in a type that Python has."""
    if not jnp.issubdtype(flat.dtype, jnp.integer):
        with np.errstate(invalid="ignore"):  # a signalling NaN; its bits are written apart
            return flat.astype(np.float64)
    return flat.astype(np.int64 if jnp.issubdtype(flat.dtype, jnp.signedinteger) else np.uint64)


def rows_from(decoded: Sequence[Any], dtype: np.dtype, shape: Sequence[int], *, exact: bool = True) -> np.ndarray:
    """The column that `row_texts` wrote, from its parsed JSON.

    Args:
        decoded: one parsed JSON value a row.
        dtype, shape: of one row.
        exact: refuse decimals that are not exactly a value of the dtype, instead of rounding.

    Raises:
        ValueError: some row is not a value of that dtype and shape.
    """
    full = (len(decoded), *shape)
    if not shape:
        return _elements_from(decoded, dtype, exact).reshape(full)
    size = math.prod(shape)
    if any(isinstance(row, str) for row in decoded):
        rows = [_from_base64(row, dtype, size) if isinstance(row, str) else _row(row, dtype, size) for row in decoded]
        return np.stack(rows).reshape(full)
    for row in decoded:
        if not isinstance(row, list) or len(row) != size:
            raise ValueError(f"expected a list of {size} elements")
    return _elements_from([item for row in decoded for item in row], dtype, exact).reshape(full)


def _row(row: Any, dtype: np.dtype, size: int) -> np.ndarray:
    return rows_from([row], dtype, (size,))[0]


def _from_base64(text: str, dtype: np.dtype, size: int) -> np.ndarray:
    if not text.startswith(_BASE64):
        raise ValueError(f"{text!r} is not an array")
    data = base64.b64decode(text.removeprefix(_BASE64), validate=True)
    if len(data) != size * dtype.itemsize:
        raise ValueError(f"expected {size} elements of {dtype_name(dtype)}, got {len(data)} bytes")
    return np.frombuffer(data, dtype)


def _elements_from(items: Sequence[Any], dtype: np.dtype, exact: bool = True) -> np.ndarray:
    if dtype.itemsize == 0:
        return np.zeros(len(items), dtype)
    if dtype.kind == "c":
        if any(not isinstance(item, list) or len(item) != 2 for item in items):
            raise ValueError("expected [real, imaginary]")
        real = np.finfo(dtype).dtype
        flat = [part for item in items for part in item]
        return _elements_from(flat, real, exact).view(dtype)
    kinds = set(map(type, items))
    if dtype == np.bool_:
        allowed: set[type] = {bool}
    elif jnp.issubdtype(dtype, jnp.integer):
        allowed = {int}
    else:
        allowed = {int, float, str}
    if not kinds <= allowed:
        wrong = next(item for item in items if type(item) not in allowed)
        raise ValueError(f"{wrong!r} is not a value of {dtype_name(dtype)}")
    if dtype == np.bool_:
        return np.array(items, bool)
    signs: list[tuple[int, int]] = []
    if str in kinds:
        items = list(items)
        for index, item in enumerate(items):
            if isinstance(item, str) and item.startswith(_NAN):
                signs.append((index, int(item.removeprefix(_NAN), 16)))
                items[index] = 0.0
    wide = np.array(items, _wide(np.empty(0, dtype)).dtype)  # parses "inf" and "-inf" too
    with np.errstate(over="ignore"):
        narrow = wide.astype(dtype)
    lost = _wide(narrow) != wide
    if lost.any() and (exact or jnp.issubdtype(dtype, jnp.integer)):
        raise ValueError(f"{items[int(lost.argmax())]!r} is not a value of {dtype_name(dtype)}")
    bits = narrow.view(f"u{dtype.itemsize}")
    for index, pattern in signs:
        bits[index] = pattern
    return narrow


def encode(value: Any) -> Any:
    """Any pytree of arrays, plain Python values and this package's records as plain JSON types.

    Lists, strings, integers and dicts with string keys stand for themselves. Everything else is an
    object with one key that starts with ``$``: ``$array``, ``$tuple``, ``$dict``, ``$float``,
    ``$complex``, or the name of a record. Other pytree nodes become the tuple of their children.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | complex) and not isinstance(value, np.generic):
        if isinstance(value, float) and math.isfinite(value):
            return value
        tag = "$complex" if isinstance(value, complex) else "$float"
        return {tag: json.loads(_element_texts(np.array([value]))[0])}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [encode(item) for item in value]}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: encode(item) for key, item in value.items()}
        return {"$dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if is_dataclass(value) and (kind := _class_of(value)) is not None:
        record = {name: encode(getattr(value, name)) for name in told_fields(kind)}
        return {f"${kind.__name__}": record}
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        array = host_array(value)
        if array.dtype.kind in "OSTUMm":
            return encode(array.tolist())
        data = json.loads(row_texts(array[None])[0])
        record = {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "data": data}
        return {"$array": record}
    children = jax.tree.leaves(value, is_leaf=lambda node: node is not value)
    if len(children) == 1 and children[0] is value:
        return str(value)
    return {"$tuple": [encode(child) for child in children]}


def _class_of(value: Any) -> Any:
    """The public data type that ``value`` is, or ``None``."""
    return next((cls for cls in _CLASSES.values() if isinstance(value, cls)), None)


def named_leaves(value: Any) -> tuple[list[str], list[np.ndarray], Callable[[Any], Any]]:
    """The leaves of a pytree as NumPy arrays, under the names of their places.

    Returns:
        names (``"value"`` for a bare leaf, else such as ``state.L`` or ``[0].x``), arrays, and the
        function that puts leaves back into the pytree.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(value)
    names = [leaf_name(path) for path, _ in paths]
    return names, [host_array(leaf) for _, leaf in paths], tree.unflatten


def leaf_name(path: Sequence[Any]) -> str:
    """The name of a place in a pytree, given as JAX's key path: ``state.L``, ``[0].x``."""
    return "".join(map(_segment, path)).removeprefix(".") or "value"


def _segment(key: Any) -> str:
    """One step into a pytree as users write it."""
    if isinstance(key, jax.tree_util.DictKey):
        return f".{key.key}" if isinstance(key.key, str) else f"[{key.key!r}]"
    return str(key)


def decode(value: Any) -> Any:
    """What `encode` was given. A NumPy array of shape ``()`` comes back as a NumPy scalar.

    Raises:
        ValueError: not something that `encode` makes.
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: decode(item) for key, item in value.items()}
    content = value[tag]
    if tag[1:] in _CLASSES:
        if not isinstance(content, dict):
            raise ValueError(f"{tag} must be an object")
        try:
            return _CLASSES[tag[1:]](**{name: decode(item) for name, item in content.items()})
        except TypeError as error:
            raise ValueError(f"not a {tag[1:]}: {error}") from None
    if tag not in _DECODERS:
        raise ValueError(f"unknown tag {tag!r}")
    try:
        return _DECODERS[tag](content)
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a {tag[1:]}: {error!r}") from None


def _array_from(record: dict[str, Any]) -> Any:
    shape = tuple(record["shape"])
    array = rows_from([record["data"]], dtype_named(record["dtype"]), shape)
    return array.reshape(shape)[()]


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$array": _array_from,
    "$tuple": lambda items: tuple(decode(item) for item in items),
    "$dict": lambda items: {decode(key): decode(item) for key, item in items},
    "$float": lambda item: _elements_from([item], np.dtype(np.float64))[0].item(),
    "$complex": lambda item: _elements_from([item], np.dtype(np.complex128))[0].item(),
}
