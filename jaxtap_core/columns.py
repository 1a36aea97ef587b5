"""Growing columns: how a recording holds a million scalar events in a few bytes each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Column:
    """An append-only array of rows of one dtype and shape; the room doubles when it runs out.

    Args:
        dtype: NumPy dtype of every row (bfloat16 and its kin included).
        shape: shape of one row.
    """

    __slots__ = ("_length", "_room")

    def __init__(self, dtype: np.dtype, shape: Sequence[int] = ()) -> None:
        self._room = np.empty((0, *shape), dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def _reserve(self, rows: int) -> None:
        if rows > len(self._room):
            room = np.empty((max(rows, 2 * len(self._room), 16), *self._room.shape[1:]), self._room.dtype)
            room[: self._length] = self._room[: self._length]
            self._room = room

    def append(self, row: np.ndarray) -> None:
        """Add one row."""
        self._reserve(self._length + 1)
        self._room[self._length] = row
        self._length += 1

    def extend(self, rows: np.ndarray) -> None:
        """Add many rows; when the column is empty they are kept as they are, not copied."""
        if self._length == 0:
            self._room, self._length = rows, len(rows)
            return
        self._reserve(self._length + len(rows))
        self._room[self._length : self._length + len(rows)] = rows
        self._length += len(rows)

    def clear(self) -> None:
        """Forget all rows; the room stays."""
        self._length = 0

    @property
    def array(self) -> np.ndarray:
        """All rows, as a view."""
        return self._room[: self._length]
