"""PYTEST_DONT_REWRITE

Which step, lane and device each row of a stream has; in a file in as few words as say it.

A range of steps and a full grid are told by their bounds, anything else row by row. Bounds cost nothing
to write, and damaged ones would cost as much memory as they say: an `Index` that was read makes no arrays
before its reader has seen as many rows of data (see `parse`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtap_core.compare.table import Track

Rows = range | tuple[int, ...] | np.ndarray

_INT32 = range(-(2**31), 2**31)


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """The index of a stream.

    Attributes:
        depth: number of enclosing loops; ``lanes``: axes of lanes, or ``None``; ``device``: whether
            rows have one.
        rows: the steps, a `range`; the sizes of a full grid, a tuple; or all numbers, ``(n, width)``.
    """

    depth: int
    lanes: int | None
    device: bool
    rows: Rows

    @classmethod
    def of(cls, track: Track) -> Index:
        """The index of a track, in short where that says all."""
        columns = [track.steps]
        if track.lanes is not None:
            columns.append(track.lanes)
        if track.device is not None:
            columns.append(track.device[:, None])
        table = np.concatenate(columns, axis=1).astype(np.int64)
        lanes = None if track.lanes is None else int(track.lanes.shape[1])
        return cls(track.depth, lanes, track.device is not None, _short(table))

    @classmethod
    def read(cls, form: Any, told: Callable[[int], np.ndarray]) -> Index:
        """What `form` gave.

        Args:
            form: parsed JSON.
            told: reads so many rows of numbers, where they are told row by row.

        Raises:
            ValueError: it gave nothing like that.
        """
        parts = ("range", "grid", "rows")
        if not isinstance(form, dict) or not set(form) <= {"depth", "lanes", "device", *parts}:
            raise ValueError("not an index")
        if sum(part in form for part in parts) != 1 or form.get("device", True) is not True:
            raise ValueError("not an index")
        depth, device = _count(form.get("depth")), "device" in form
        lanes = _count(form["lanes"]) if "lanes" in form else None
        width = depth + (lanes or 0) + device
        if "range" in form:
            rows: Rows = _range(form["range"], width)
        elif "grid" in form:
            rows = _sizes(form["grid"], width)
        else:
            rows = told(_count(form["rows"]))
            if rows.shape != (form["rows"], width) or rows.dtype != np.int64:
                raise ValueError(f"an index of shape {rows.shape}, expected {(form['rows'], width)}")
            if rows.size and not (int(rows.min()) in _INT32 and int(rows.max()) in _INT32):
                raise ValueError("an index with numbers that no step has")
        return cls(depth, lanes, device, rows)

    def form(self) -> dict[str, Any]:
        """The index as JSON, without the numbers that are told row by row."""
        form: dict[str, Any] = {"depth": self.depth}
        if self.lanes is not None:
            form["lanes"] = self.lanes
        if self.device:
            form["device"] = True
        if isinstance(self.rows, range):
            return form | {"range": [self.rows.start, self.rows.stop, self.rows.step]}
        if isinstance(self.rows, tuple):
            return form | {"grid": list(self.rows)}
        return form | {"rows": len(self.rows)}

    @property
    def length(self) -> int:
        """Number of rows."""
        return math.prod(self.rows) if isinstance(self.rows, tuple) else len(self.rows)

    @property
    def told(self) -> np.ndarray | None:
        """Its numbers, where they are told row by row."""
        return self.rows if isinstance(self.rows, np.ndarray) else None

    def explicit(self) -> Index:
        """The same, told row by row."""
        return Index(self.depth, self.lanes, self.device, self._table())

    def label(self, row: int) -> str:
        """What stands before the colon in a row: ``57``, ``3,57 lane 2 device 0``."""
        if isinstance(self.rows, range):
            numbers = [self.rows[row]]
        elif isinstance(self.rows, tuple):
            numbers = [int(number) for number in np.unravel_index(row, self.rows)]
        else:
            numbers = self.rows[row].tolist()
        text = ",".join(map(str, numbers[: self.depth]))
        if self.lanes is not None:
            text += f" lane {','.join(map(str, numbers[self.depth : self.depth + self.lanes]))}"
        if self.device:
            text += f" device {numbers[-1]}"
        return text.strip() or f"event {row}"

    def columns(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Steps ``(n, depth)``, lanes ``(n, k)`` or ``None``, devices ``(n,)`` or ``None``; int32."""
        table = self._table().astype(np.int32)
        lanes = None if self.lanes is None else table[:, self.depth : self.depth + self.lanes]
        return table[:, : self.depth], lanes, table[:, -1] if self.device else None

    def _table(self) -> np.ndarray:
        if isinstance(self.rows, range):
            return np.arange(self.rows.start, self.rows.stop, self.rows.step)[:, None]
        if isinstance(self.rows, tuple):
            return _grid(self.rows)
        return self.rows


def _short(table: np.ndarray) -> Rows:
    if table.shape[1] == 1 and len(table) > 1:
        first, second, last = (int(table[row, 0]) for row in (0, 1, -1))
        if second > first and np.array_equal(table[:, 0], np.arange(first, last + 1, second - first)):
            return range(first, last + 1, second - first)
    if len(table) and table.shape[1]:
        sizes = tuple((table.max(axis=0) + 1).tolist())
        if math.prod(sizes) == len(table) and np.array_equal(table, _grid(sizes)):
            return sizes
    return table


def _grid(sizes: Sequence[int]) -> np.ndarray:
    return np.indices(sizes).reshape(len(sizes), -1).T.astype(np.int64)


def _range(bounds: Any, width: int) -> range:
    if not _are_steps(bounds) or len(bounds) != 3 or width != 1 or bounds[2] < 1 or bounds[1] <= bounds[0]:
        raise ValueError(f"not a range of steps: {str(bounds)[:60]}")
    return range(*bounds)


def _sizes(sizes: Any, width: int) -> tuple[int, ...]:
    if not _are_steps(sizes) or len(sizes) != width or not sizes or min(sizes) < 1:
        raise ValueError(f"not a grid of {width} axes: {str(sizes)[:60]}")
    return tuple(sizes)


def _are_steps(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and number in _INT32 for number in numbers)


def _count(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 2**31:
        raise ValueError(f"not a number of things: {str(number)[:60]}")
    return number
