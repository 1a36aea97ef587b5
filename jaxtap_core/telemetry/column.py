"""Growing columns: how a recording holds a million scalar events in a few bytes each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_STAGED = 1024


class Column:
    """An append-only array of rows of one dtype and shape; the room doubles when it runs out.

    Single rows are staged in a list first, since a list takes them several times faster than an array does.

    Args:
        dtype: NumPy dtype of every row (bfloat16 and its kin included).
        shape: shape of one row.
    """

    __slots__ = ("_length", "_room", "_staged")

    def __init__(self, dtype: np.dtype, shape: Sequence[int] = ()) -> None:
        self._room = np.empty((0, *shape), dtype)
        self._length = 0
        self._staged: list[Any] = []

    def __len__(self) -> int:
        return self._length + len(self._staged)

    def append(self, row: Any) -> None:
        """Add one row."""
        staged = self._staged
        staged.append(row)
        if len(staged) >= _STAGED:
            self._settle()

    def extend(self, rows: np.ndarray) -> None:
        """Add many rows; when the column is empty they are kept as they are, not copied."""
        self._settle()
        if self._length == 0:
            self._room, self._length = rows, len(rows)
            return
        self._put(rows)

    def frozen(self, length: int) -> Column:
        """The first ``length`` rows as a column of their own, which does not grow with this one; nothing is copied."""
        array = self.array[:length]
        column = Column(array.dtype, array.shape[1:])
        column._room, column._length = array, length
        return column

    @property
    def array(self) -> np.ndarray:
        """All rows, as a view."""
        self._settle()
        return self._room[: self._length]

    def _settle(self) -> None:
        if self._staged:
            rows = np.asarray(self._staged, self._room.dtype)
            self._put(rows.reshape(len(self._staged), *self._room.shape[1:]))
            self._staged.clear()

    def _put(self, rows: np.ndarray) -> None:
        end = self._length + len(rows)
        if end > len(self._room):
            room = np.empty((max(end, 2 * len(self._room), 16), *self._room.shape[1:]), self._room.dtype)
            room[: self._length] = self._room[: self._length]
            self._room = room
        self._room[self._length : end] = rows
        self._length = end
