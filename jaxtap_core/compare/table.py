"""What is compared: values by place and step, whatever they came from.

A recording is one track a stream. An array, a pytree or a DataFrame is one track without steps.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import json
import pathlib
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxtap_core.jaxpr.values import host_array
from jaxtap_core.telemetry.codec import encode, leaf_name
from jaxtap_core.telemetry.stream import Stream, Streamed

#: Plain data besides ``None`` and containers: arrays, and types whose text says all that the value is.
DATA = (
    bool, int, float, complex, str, bytes, range, enum.Enum, datetime.date, datetime.time, datetime.timedelta,
    decimal.Decimal, fractions.Fraction, pathlib.PurePath, uuid.UUID, np.dtype, np.generic, np.ndarray, jax.Array,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrackKey:
    """Where in which program a track comes from; empty for plain values.

    Two tracks of equal key are compared with each other. The user's source line is not part of
    it: it moves whenever somebody edits the file above.
    """

    program: str = ""
    call: int = 0
    path: str = ""
    kind: str = ""
    phase: str = "forward"
    label: str = ""

    def __str__(self) -> str:
        notes = [self.program] + ([f"call {self.call}"] if self.call else [])
        notes += [self.kind] if self.kind == "output" else []
        notes += [self.phase] if self.phase != "forward" else []
        notes += [repr(self.label)] if self.label else []
        notes = [note for note in notes if note]
        return " ".join([self.path, f"({', '.join(notes)})" if notes else ""]).strip()


@dataclass(frozen=True, eq=False)
class Track:
    """Rows of values, in canonical order.

    Attributes:
        key: what it is.
        leaves: column name → array of shape ``(n, ...)``; numbers, or JSON texts of other things.
        steps: ``(n, depth)``, the step vector of each row.
        lanes: ``(n, k)`` or ``None``; ``device``: ``(n,)`` or ``None``.
        total: length of the innermost loop, where known.
        source: the user's line.
    """

    key: TrackKey
    leaves: dict[str, np.ndarray]
    steps: np.ndarray
    lanes: np.ndarray | None = None
    device: np.ndarray | None = None
    total: int | None = None
    source: str = ""

    @property
    def length(self) -> int:
        """Number of rows."""
        return len(self.steps)

    @property
    def depth(self) -> int:
        """Number of enclosing loops."""
        return int(self.steps.shape[1])

    def index(self) -> np.ndarray:
        """``(n, k)`` int64: step vector, lanes, device, and a number to tell equal ones apart."""
        columns = [self.steps.astype(np.int64)]
        if self.lanes is not None:
            columns.append(self.lanes.astype(np.int64))
        if self.device is not None:
            columns.append(self.device.astype(np.int64)[:, None])
        index = np.concatenate(columns, axis=1)
        return np.concatenate([index, _occurrence(index)[:, None]], axis=1)

    def at(self, row: int) -> str:
        """The position of one row for people: ``step 37 (outer 4), lane 2``."""
        *outer, inner = self.steps[row].tolist() or [None]
        text = "" if inner is None else f"step {inner}"
        text += f" (outer {', '.join(map(str, outer))})" if outer else ""
        if self.lanes is not None:
            text += f", lane {', '.join(map(str, self.lanes[row].tolist()))}"
        if self.device is not None:
            text += f", device {int(self.device[row])}"
        return text.removeprefix(", ")


def _occurrence(index: np.ndarray) -> np.ndarray:
    """How often the same row came before it; rows that are equal lie together."""
    new = np.ones(len(index), bool)
    new[1:] = (index[1:] != index[:-1]).any(axis=1)
    numbers = np.arange(len(index))
    return numbers - np.maximum.accumulate(np.where(new, numbers, 0))


def tracks_of(value: Any) -> list[Track]:
    """The tracks of a recording, or the one of any other value.

    Args:
        value: a `Recording`; a pandas Series or DataFrame; a pytree of arrays and plain values.

    Raises:
        TypeError: something in it is neither an array nor plain data, see `DATA`.
    """
    if isinstance(value, Streamed):
        return [_track_of(stream) for stream in value.streams]
    return [Track(TrackKey(), _plain_leaves(value), np.empty((1, 0), np.int32))]


def _track_of(stream: Stream) -> Track:
    key, order = stream.key, stream.order()
    leaves = {name: leaf.array[order] for name, leaf in zip(key.names, stream.leaves, strict=True)}
    if stream.active is not None:
        leaves["(active)"] = stream.active.array[order]
    return Track(
        key=TrackKey(key.program, key.call, key.path, key.kind, key.phase, key.label),
        leaves=leaves,
        steps=stream.steps.array[order],
        lanes=None if stream.lanes is None else stream.lanes.array[order],
        device=None if stream.device is None else stream.device.array[order],
        total=key.total,
        source=key.source,
    )


def _plain_leaves(value: Any) -> dict[str, np.ndarray]:
    """The leaves of a value that is no recording, each as a column of one row."""
    paths, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=_is_leaf)
    leaves: dict[str, np.ndarray] = {}
    for path, leaf in paths:
        for name, array in _arrays(leaf_name(path), leaf):
            twins = sum(other.partition("#")[0] == name for other in leaves)
            leaves[f"{name}#{twins + 1}" if twins else name] = array[None]
    return leaves


def _is_leaf(node: Any) -> bool:
    """Nodes that JAX would leave out: what is empty, or ``None``, is a value here."""
    return node is None or (isinstance(node, list | tuple | dict) and not node)


def _arrays(name: str, leaf: Any) -> Iterator[tuple[str, np.ndarray]]:
    """A leaf as arrays under their names: a column each of a pandas object, else one."""
    pandas = sys.modules.get("pandas")  # where it was never imported there is none of its objects
    if pandas and isinstance(leaf, pandas.Series):
        leaf = leaf.to_frame("value" if leaf.name is None else leaf.name)
    if pandas and isinstance(leaf, pandas.DataFrame):
        prefix = "" if name == "value" else f"{name}."
        yield from _columns(f"{prefix}index", leaf.index.to_series())
        for column, items in leaf.items():
            yield from _columns(f"{prefix}{column}", items)
    elif hasattr(leaf, "dtype") or isinstance(leaf, bool | float | complex):
        array = host_array(leaf)
        yield name, _texts(name, array) if array.dtype.kind in "OSTUMm" else array
    elif isinstance(leaf, int) and -(2**63) <= leaf < 2**63:
        yield name, np.asarray(leaf)
    else:
        yield name, _texts(name, _boxed(leaf))


def _columns(name: str, items: Any) -> Iterator[tuple[str, np.ndarray]]:
    """One column of a DataFrame; where its dtype knows missing values, these in a second one."""
    dtype = items.dtype
    if isinstance(dtype, np.dtype):
        yield name, items.to_numpy() if dtype.kind in "biufc" else _texts(name, items.to_numpy(object))
    elif isinstance(getattr(dtype, "numpy_dtype", None), np.dtype) and dtype.kind in "biuf":
        missing = items.isna()
        yield name, items.where(~missing, dtype.type(0)).to_numpy(dtype.numpy_dtype)
        yield f"{name} (missing)", missing.to_numpy()
    else:
        yield name, _texts(name, items.to_numpy(object))


def _boxed(item: Any) -> np.ndarray:
    box = np.empty((), object)
    box[()] = item
    return box


def _texts(name: str, items: np.ndarray) -> np.ndarray:
    """What are no numbers, as JSON texts in an array of objects of the same shape."""
    texts = np.empty(items.size, object)
    for number, item in enumerate(items.reshape(-1)):
        place = f"{name}{list(map(int, np.unravel_index(number, items.shape)))}" if items.ndim else name
        _refuse_opaque(place, item)
        texts[number] = json.dumps(encode(item.item() if isinstance(item, np.generic) else item))
    return texts.reshape(items.shape)


def _refuse_opaque(place: str, item: Any) -> None:
    """Refuse an object of which only a text could be kept.

    Raises:
        TypeError: with the place of what is no data.
    """
    if item is None or isinstance(item, DATA) or _of_pandas(item):
        return
    if isinstance(item, dict):
        inside = [(f"{place}[{key!r}]", part) for key, part in item.items()]
    elif isinstance(item, list | tuple):
        inside = [(f"{place}[{number}]", part) for number, part in enumerate(item)]
    else:
        children = jax.tree.leaves(item, is_leaf=lambda node: node is not item)
        if len(children) == 1 and children[0] is item:
            kind = f"{type(item).__module__}.{type(item).__qualname__}".removeprefix("builtins.")
            raise TypeError(
                f"{'the value' if place == 'value' else f'the leaf {place}'} is an object of type {kind}: neither an "
                "array nor plain data, and its text may change from run to run (an address in memory, the order of a "
                "set). Leave it out, or compare what matters of it: its arrays, numbers or text"
            )
        inside = [(f"{place}.<{number}>", child) for number, child in enumerate(children)]
    for where, part in inside:
        _refuse_opaque(where, part)


def _of_pandas(item: Any) -> bool:
    """Whether it is one of pandas' own scalars, e.g. a missing value."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and (item is pandas.NA or isinstance(item, pandas.Period | pandas.Interval))
