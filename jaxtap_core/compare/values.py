"""A plain value as columns, and the types that its columns cannot tell.

Numbers become columns of their dtype, other data a column of JSON texts that say the type of each
item. What is left, containers and the types of arrays and tables, is told beside them in words.

    >>> leaves, types = columns_of({"a": (1.0, [2, "text"])})
    >>> {name: column.tolist() for name, column in leaves.items()}
    {'a[0]': [1.0], 'a[1][0]': [2], 'a[1][1]': ['"text"']}
    >>> types
    (('', 'dict'), ('a', 'tuple'), ('a[1]', 'list'))

Sharp edges: of what a pytree node keeps beside its leaves (a static field), functions and classes
count by their names, other objects by their type. JAX and NumPy arrays of one dtype are one type, and
so are a Python number and the array of no dimensions that it makes.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import json
import pathlib
import sys
import uuid
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap_core.jaxpr.values import host_array
from jaxtap_core.telemetry.codec import encode, leaf_name
from jaxtap_core.telemetry.ulp import has_padding

#: Plain data besides ``None`` and containers: arrays, and types whose text says all that the value is.
DATA = (
    bool, int, float, complex, str, bytes, range, enum.Enum, datetime.date, datetime.time, datetime.timedelta,
    decimal.Decimal, fractions.Fraction, pathlib.PurePath, uuid.UUID, np.dtype, np.generic, np.ndarray, jax.Array,
)  # fmt: skip

#: Name of a node or leaf → what it is; the name of the whole value is empty.
Types = tuple[tuple[str, str], ...]

_NUMBERS = "biufc"
_TEXTS = "OSTUMm"  # kinds of NumPy dtypes that hold no numbers


def columns_of(value: Any) -> tuple[dict[str, np.ndarray], Types]:
    """The leaves of a value that is no recording, each as a column of one row, and their types.

    Args:
        value: a pytree of arrays, pandas objects and plain data.

    Returns:
        column name → array of shape ``(1, ...)``, numbers or JSON texts; and in the order of the value
        ``(name, type)`` of every container, and of every leaf whose dtype does not say its type.

    Raises:
        TypeError: something in it is neither an array nor plain data, see `DATA`.
    """
    columns = _Columns()
    columns.walk((), value)
    return columns.leaves, tuple(columns.types.items())


class _Columns:
    """Takes a value apart."""

    def __init__(self) -> None:
        self.leaves: dict[str, np.ndarray] = {}
        self.types: dict[str, str] = {}
        self._twins: collections.Counter[str] = collections.Counter()

    def walk(self, path: tuple[Any, ...], node: Any) -> None:
        name = leaf_name(path) if path else ""
        pandas = sys.modules.get("pandas")  # where it was never imported there is none of its objects
        if pandas and isinstance(node, pandas.Series | pandas.DataFrame | pandas.Index):
            self._table(name, node)
            return
        if pandas and isinstance(node, pandas.api.extensions.ExtensionArray):
            self._type(name, type(node).__qualname__)
            self._items(name, pandas.Series(node))
            return
        children, tree = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda part: part is not node)
        inside = None if node is None else tree.node_data()
        if inside is None:
            self._leaf(name, node)
            return
        self._type(name, _container(type(node), inside[1]))
        for key, child in children:
            self.walk((*path, *key), child)

    def _leaf(self, name: str, leaf: Any) -> None:
        if type(leaf) in (bool, float, complex) or (type(leaf) is int and -(2**63) <= leaf < 2**63):
            self._add(name, np.asarray(leaf))
        elif hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
            self._array(name, leaf)
        else:
            self._add(name, _texts(name, _boxed(leaf)))

    def _array(self, name: str, leaf: Any) -> None:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            self._type(name, str(leaf.dtype))
        elif not isinstance(leaf, jax.Array | np.generic) and type(leaf) is not np.ndarray:
            self._type(name, type(leaf).__qualname__)
        if isinstance(leaf, np.ma.MaskedArray):
            self._add(f"{name or 'value'} (missing)", np.ma.getmaskarray(leaf))
            leaf = leaf.data
        array = _fetched(leaf, name)
        if array.dtype == jax.dtypes.float0:
            self._add(name, array)
        elif array.dtype.names:
            self._type(name, str(array.dtype))
            for field in array.dtype.names:
                self._array(f"{name}.{field}".removeprefix("."), array[field])
        elif array.dtype.kind in _TEXTS:
            self._type(name, str(array.dtype))
            self._add(name, _texts(name, array))
        else:
            self._add(name, array)

    def _table(self, name: str, table: Any) -> None:
        """An object of pandas: a column each of its index and of itself."""
        index = table if not hasattr(table, "index") else table.index
        told = {"index": list(index.names)}
        columns: list[tuple[Any, Any]] = []
        if table.ndim == 2:
            told |= {"columns": list(table.columns), "names": list(table.columns.names)}
            columns = [(label, table.iloc[:, place]) for place, label in enumerate(table.columns)]
        elif index is not table:
            told |= {"name": table.name}
            columns = [("value" if table.name is None else table.name, table)]
        self._type(name, f"{type(table).__qualname__} {json.dumps(exact(told, name))}")
        prefix = f"{name}." if name else ""
        for level in range(index.nlevels):
            self._items(f"{prefix}index{f'[{level}]' if index.nlevels > 1 else ''}", index.get_level_values(level))
        for label, items in columns:
            self._items(f"{prefix}{label}", items)

    def _items(self, name: str, items: Any) -> None:
        """One column of a table; where its dtype knows missing values, these in a second one."""
        dtype = items.dtype
        if isinstance(dtype, np.dtype) and dtype.kind in _NUMBERS:
            self._add(name, items.to_numpy())
            return
        self._type(name, "category" if dtype == "category" else str(dtype))
        numbers = getattr(dtype, "numpy_dtype", None)
        if isinstance(numbers, np.dtype) and numbers.kind in "biuf":
            missing = np.asarray(items.isna())
            self._add(name, items.where(~missing, dtype.type(0)).to_numpy(numbers))
            self._add(f"{name or 'value'} (missing)", missing)
            return
        self._add(name, _texts(name, items.to_numpy(object)))
        if dtype == "category":
            self._type(name, "ordered" if dtype.ordered else "not ordered")
            self._items(f"{name or 'value'} (categories)", dtype.categories)

    def _type(self, name: str, kind: str) -> None:
        self.types[name] = f"{self.types[name]}, {kind}" if name in self.types else kind

    def _add(self, name: str, array: np.ndarray) -> None:
        name = name or "value"
        plain = name
        while name in self.leaves:
            self._twins[plain] += 1
            name = f"{plain}#{self._twins[plain] + 1}"
        if array.dtype.kind in _NUMBERS:
            array = array.astype(array.dtype.newbyteorder("="), copy=False)
        self.leaves[name] = array[None]


def _container(kind: type, static: Any) -> str:
    """A pytree node in words."""
    unordered = issubclass(kind, dict) and kind is not collections.OrderedDict
    if static is None or unordered or (isinstance(static, tuple | list | dict) and not static):
        return kind.__qualname__
    return f"{kind.__qualname__} {json.dumps(_stable(static))}"


def _stable(item: Any) -> Any:
    """Whatever a node keeps beside its leaves, as far as it is the same in every run."""
    if isinstance(item, dict):
        return {str(key): _stable(part) for key, part in item.items()}
    if isinstance(item, list | tuple):
        return [_stable(part) for part in item]
    try:
        return exact(item)
    except TypeError:  # opaque
        return {"$": getattr(item, "__qualname__", type(item).__qualname__)}


def _boxed(item: Any) -> np.ndarray:
    box = np.empty((), object)
    box[()] = item
    return box


def _texts(name: str, items: np.ndarray) -> np.ndarray:
    """What are no numbers, as JSON texts in an array of objects of the same shape."""
    if items.dtype.kind in "Mm":
        items = items.astype(str)
    items = items.astype(object)  # of Python's own types; the dtype is told apart
    texts = np.empty(items.size, object)
    for number, item in enumerate(items.reshape(-1)):
        place = str(list(map(int, np.unravel_index(number, items.shape)))) if items.ndim else ""
        texts[number] = json.dumps(exact(item, name, place))
    return texts.reshape(items.shape)


def exact(item: Any, name: str = "", place: str = "") -> Any:
    """Plain data as JSON that tells its type: a date is no text that reads the same.

    Args:
        item: ``None``, `DATA`, or containers and pytree nodes of such.
        name, place: where it stands, for the message.

    Returns:
        ``None``, booleans, integers, finite floats, strings and lists as they are; a dict with such keys
        as an object; of anything else an object of one key, ``$`` and the name of its type.

    Raises:
        TypeError: it is something else: of an object only a text could be kept.

    Example:
        >>> exact([datetime.date(2026, 7, 1), "2026-07-01"])
        [{'$date': '2026-07-01'}, '2026-07-01']
    """
    kind = type(item)
    if item is None or kind in (bool, int, str):
        return item
    if kind in (float, complex):
        return encode(item)
    if kind is list:
        return _each(item, name, place)
    if isinstance(item, dict):
        return _pairs(item, name, place)
    if hasattr(item, "dtype") and hasattr(item, "shape"):
        return _exact_array(item, name, place)
    if isinstance(item, list | tuple):
        return {f"${kind.__qualname__}": _each(item, name, place)}
    if isinstance(item, np.dtype):
        return {"$dtype": str(item)}
    if isinstance(item, DATA) or _of_pandas(item):
        return {f"${kind.__qualname__}": str(item)}
    children = jax.tree.leaves(item, is_leaf=lambda node: node is not item)
    if len(children) == 1 and children[0] is item:
        raise _opaque(item, name, place)
    parts = [exact(child, name, f"{place}.<{number}>") for number, child in enumerate(children)]
    return {f"${kind.__qualname__}": parts}


def _each(items: Iterable[Any], name: str, place: str) -> list[Any]:
    return [exact(item, name, f"{place}[{number}]") for number, item in enumerate(items)]


def _pairs(items: dict[Any, Any], name: str, place: str) -> Any:
    """A dict; its order counts only where its type says so."""
    pairs = [(key, exact(item, name, f"{place}[{key!r}]")) for key, item in items.items()]
    if type(items) is dict and all(type(key) is str and not key.startswith("$") for key, _ in pairs):
        return dict(sorted(pairs))
    told = [[exact(key, name, f"{place}[{key!r}]"), item] for key, item in pairs]
    if not isinstance(items, collections.OrderedDict):
        told.sort(key=json.dumps)
    return {f"${type(items).__qualname__}": told}


def _exact_array(array: Any, name: str, place: str) -> Any:
    """An array among other data."""
    if isinstance(array, np.ma.MaskedArray):
        return {"$MaskedArray": _each([array.data, np.ma.getmaskarray(array)], name, place)}
    host = _fetched(array, name, place)
    kind = "" if isinstance(array, jax.Array | np.generic) or type(array) is np.ndarray else type(array).__qualname__
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        kind = str(array.dtype)
    if host.dtype.kind not in _TEXTS and (not host.dtype.names or host.dtype == jax.dtypes.float0):
        return {f"${kind}": encode(host)} if kind else encode(host)
    items = host.reshape(-1).astype(str if host.dtype.kind in "Mm" else object)
    data = _each(items.tolist(), name, place)
    return {f"${kind or 'array'}": {"dtype": str(host.dtype), "shape": list(host.shape), "data": data}}


def _fetched(array: Any, name: str, place: str = "") -> np.ndarray:
    """An array on the host.

    Raises:
        TypeError: it only looks like one, with a dtype, a shape and no values; or has no dtype of JAX.
    """
    host = host_array(array)
    if host.dtype.kind == "O" and host.ndim == 0 and host[()] is array:
        raise _opaque(array, name, place)
    if has_padding(host.dtype) or (host.dtype.type is np.void and not host.dtype.names):
        raise TypeError(
            f"{_place(name, place)} is {host.dtype}, of which some bytes are padding or no numbers: JAX has no such "
            "dtype, convert it to one that it has"
        )
    return host


def _opaque(item: Any, name: str, place: str) -> TypeError:
    kind = f"{type(item).__module__}.{type(item).__qualname__}".removeprefix("builtins.")
    return TypeError(
        f"{_place(name, place)} is an object of type {kind}: neither an array nor plain data, and its text may "
        "change from run to run (an address in memory, the order of a set). Leave it out, or compare what matters "
        "of it: its arrays, numbers or text"
    )


def _place(name: str, place: str = "") -> str:
    if not name:
        return f"the leaf value{place}" if place else "the value"
    return f"the leaf {name}{place}"


def _of_pandas(item: Any) -> bool:
    """Whether it is one of pandas' own scalars, e.g. a missing value."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and (item is pandas.NA or isinstance(item, pandas.Period | pandas.Interval))
