"""A recording as a pandas DataFrame, built column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from jaxtap_core.telemetry.column import Column
from jaxtap_core.telemetry.stream import Stream, Streamed

# A leaf of one of these names would hide a column that every frame may have.
# fmt: off
_TAKEN = frozenset({
    "program", "call", "path", "kind", "step", "total", "steps", "lane", "device", "phase",
    "source", "active", "time",
})
# fmt: on

_NOT_BUILT_IN = 256  # numbers of dtypes that NumPy does not have itself


def frame(recording: Streamed) -> pd.DataFrame:
    """One row per event, in canonical order (see `Recording.df`).

    A scalar leaf keeps its dtype; where some streams lack it, floats and complex numbers are NaN
    in their rows, and integers and booleans become pandas' nullable dtype of the same width. pandas
    has no bfloat16, float8 or int4: those are widened to float32 or int8, which is exact. A leaf
    that is an array makes cells that hold arrays. A leaf named like a fixed column is found as
    ``value.NAME``.

    Args:
        recording: what to show.

    Returns:
        DataFrame with the columns ``program, call, path, kind, step, total, steps, lane, device,
        phase, source``, then ``active`` and ``time`` where some stream has them, then a column a
        leaf.
    """
    streams = recording.streams
    orders = [stream.order() for stream in streams]
    lengths = [len(stream) for stream in streams]

    def shared(field: str, dtype: Any) -> Any:
        values = np.array([getattr(stream.key, field) for stream in streams], object)
        return pd.array(np.repeat(values, lengths), dtype=dtype)

    def own(field: str) -> list[np.ndarray | None]:
        return [
            None if (column := getattr(stream, field)) is None else column.array[order]
            for stream, order in zip(streams, orders, strict=True)
        ]

    steps = [stream.steps.array[order] for stream, order in zip(streams, orders, strict=True)]
    columns: dict[str, Any] = {
        "program": shared("program", "str"),
        "call": shared("call", "int64"),
        "path": shared("path", "str"),
        "kind": shared("kind", "str"),
        "step": _joined([_innermost(part) for part in steps]),
        "total": shared("total", "Int64"),
        "steps": _cells([_tuples(part) for part in steps]),
        "lane": _cells(
            [
                [None] * length if part is None else _tuples(part)
                for part, length in zip(own("lanes"), lengths, strict=True)
            ]
        ),
        "device": _column(own("device"), lengths, np.int32),
        "phase": shared("phase", "str"),
        "source": shared("source", "str"),
    }
    for field in ("active", "time"):
        parts = own(field)
        if any(part is not None for part in parts):
            columns[field] = _column(parts, lengths)
    for name in dict.fromkeys(name for stream in streams for name in stream.key.names):
        leaves = [
            None if (leaf := _leaf(stream, name)) is None else _tame(leaf.array[order])
            for stream, order in zip(streams, orders, strict=True)
        ]
        columns[f"value.{name}" if name in _TAKEN else name] = _column(leaves, lengths)
    return pd.DataFrame(columns)


def _innermost(steps: np.ndarray) -> np.ndarray:
    return steps[:, -1] if steps.shape[1] else np.full(len(steps), -1, np.int32)


def _leaf(stream: Stream, name: str) -> Column | None:
    names = stream.key.names
    return stream.leaves[names.index(name)] if name in names else None


def _tame(rows: np.ndarray) -> np.ndarray:
    """``rows`` in a dtype that pandas can hold, value for value."""
    if rows.dtype.itemsize == 0:  # float0, the cotangent of an integer: there is nothing in it
        return np.zeros(rows.shape, bool)
    if rows.dtype.num < _NOT_BUILT_IN:
        return rows
    return rows.astype(np.int8 if "int" in rows.dtype.name else np.float32)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def _tuples(rows: np.ndarray) -> list[tuple[int, ...]]:
    return list(zip(*rows.T.tolist(), strict=True)) if rows.shape[1] else [()] * len(rows)


def _cells(parts: Sequence[Sequence[Any]]) -> np.ndarray:
    """An object array, one Python object a cell; NumPy is not asked to find a shape in them."""
    flat = [cell for part in parts for cell in part]
    cells = np.empty(len(flat), object)
    for number, cell in enumerate(flat):
        cells[number] = cell
    return cells


def _column(
    parts: Sequence[np.ndarray | None],
    lengths: Sequence[int],
    default: type[np.generic] = np.float64,
) -> Any:
    """One column out of a piece per stream; ``None`` stands for a stream that lacks it."""
    present = [part for part in parts if part is not None]
    # One kind of number promotes without losing a bit; int64 with float64 would not.
    if any(part.ndim > 1 for part in present) or len({part.dtype.kind for part in present}) > 1:
        return _cells(
            [[None] * length if part is None else list(part) for part, length in zip(parts, lengths, strict=True)]
        )
    if present and len(present) == len(parts):
        return np.concatenate(present)
    dtype = np.result_type(*present) if present else np.dtype(default)
    rows = np.zeros(sum(lengths), dtype)
    lacks = np.repeat(np.array([part is None for part in parts], bool), lengths)
    if present:
        rows[~lacks] = np.concatenate(present)
    if dtype.kind in "fc":
        rows[lacks] = np.nan
        return rows
    column = pd.array(rows, dtype=_nullable(dtype))
    column[lacks] = pd.NA
    return column


def _nullable(dtype: np.dtype) -> Any:
    """pandas' dtype of the same values that knows missing ones."""
    return "boolean" if dtype.kind == "b" else dtype.name.replace("i", "I").replace("u", "U")
