"""What is compared: values by place and step, whatever they came from.

A recording is one track a stream. An array, a pytree or a DataFrame is one track without steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtap_core.compare.values import Types, columns_of
from jaxtap_core.telemetry.stream import Stream, Streamed


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
        types: of a plain value, what its columns do not tell (see `jaxtap_core.compare.values`).
    """

    key: TrackKey
    leaves: dict[str, np.ndarray]
    steps: np.ndarray
    lanes: np.ndarray | None = None
    device: np.ndarray | None = None
    total: int | None = None
    source: str = ""
    types: Types = ()

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
        TypeError: something in it is neither an array nor plain data.
    """
    if isinstance(value, Streamed):
        return [_track_of(stream) for stream in value.streams]
    leaves, types = columns_of(value)
    return [Track(TrackKey(), leaves, np.empty((1, 0), np.int32), types=types)]


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
