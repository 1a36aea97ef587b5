"""Streams: the events of one place in one call of a program, stored by column, read as events."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from jaxtap_core.records.events import TapEvent
from jaxtap_core.records.kinds import Kind, Phase
from jaxtap_core.telemetry.column import Column
from jaxtap_core.telemetry.environment import Environment
from jaxtap_core.telemetry.template import Template


@dataclass(frozen=True, slots=True)
class StreamKey:
    """Everything that the events of one stream have in common.

    A stream is what one place of one program emitted during one call. ``rebuild`` puts the leaves of an event back
    into the pytree that the user selected; ``names`` are their column names; ``tap`` tells several taps on one
    primitive apart.
    """

    program: str
    call: int
    path: str
    kind: Kind
    total: int | None
    depth: int
    phase: Phase
    source: str
    names: tuple[str, ...]
    rebuild: Callable[[Sequence[Any]], Any]
    label: str = ""
    tap: int = 0

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key of the canonical order; numbers inside paths compare as numbers."""
        path = tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", self.path))
        return (self.program, self.call, path, self.kind, self.label, self.tap)

    def __deepcopy__(self, memo: Any) -> StreamKey:
        return self  # nothing in it changes

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is sent; a pytree of a class that cannot be arrives as its form."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        try:
            pickle.dumps(self.rebuild)
        except Exception:
            values["rebuild"] = Template.of(self.names, self.rebuild)
        return StreamKey, tuple(values.values())


class _Arrived(TapEvent):
    """An event that shares what its stream has in common: made some ten times faster, since millions are."""

    __slots__ = ("_own", "_shared")
    __qualname__ = "TapEvent"  # what it is to everybody else, in its repr too
    _own: tuple[Any, ...]
    _shared: StreamKey

    def __new__(cls, *args: Any, **kwargs: Any) -> TapEvent:  # type: ignore[misc]
        return TapEvent(*args, **kwargs)  # one with other fields, as by ``dataclasses.replace``, shares nothing

    def __reduce__(self) -> tuple[Any, ...]:
        return TapEvent, tuple(getattr(self, field.name) for field in fields(TapEvent))

    path = property(lambda self: self._shared.path)
    total = property(lambda self: self._shared.total)
    kind = property(lambda self: self._shared.kind)
    program = property(lambda self: self._shared.program)
    call = property(lambda self: self._shared.call)
    phase = property(lambda self: self._shared.phase)
    source = property(lambda self: self._shared.source)
    step = property(lambda self: self._own[0][-1] if self._own[0] else -1)
    steps = property(lambda self: self._own[0])
    value = property(lambda self: self._own[1])
    lane = property(lambda self: self._own[2])
    active = property(lambda self: self._own[3])
    device = property(lambda self: self._own[4])
    time = property(lambda self: self._own[5])


_new = object.__new__
_set_shared = _Arrived._shared.__set__  # type: ignore[attr-defined, misc]
_set_own = _Arrived._own.__set__  # type: ignore[attr-defined, misc]


def key_of(event: TapEvent) -> StreamKey | None:
    """What an event has in common with the others of its stream; ``None`` for one that was made by hand."""
    return event._shared if isinstance(event, _Arrived) else None


def arrived(
    key: StreamKey,
    steps: tuple[int, ...],
    leaves: Sequence[Any],
    lane: tuple[int, ...] | None = None,
    active: np.ndarray | None = None,
    device: int | None = None,
    time: float | None = None,
) -> TapEvent:
    """The event of stream ``key`` with these leaves."""
    event = _new(_Arrived)
    _set_shared(event, key)
    _set_own(event, (steps, key.rebuild(leaves), lane, active, device, time))
    return event


class Stream:
    """The columns of one stream: step vectors, values, and what some streams have besides.

    Args:
        key: what all its events share.
        dtypes, shapes: of the leaves of one event.
        live: whether events carry their time of arrival.
        active: number of lanes' shape of the activity column, or ``None``.
        lanes: length of the lane vector of each event, or ``None`` outside of ``vmap``.
        sharded: whether events carry the index of their device.
    """

    def __init__(
        self,
        key: StreamKey,
        dtypes: Sequence[np.dtype],
        shapes: Sequence[Sequence[int]],
        *,
        live: bool = False,
        active: Sequence[int] | None = None,
        lanes: int | None = None,
        sharded: bool = False,
    ) -> None:
        self.key = key
        self.steps = Column(np.dtype(np.int32), (key.depth,))
        self.leaves = [Column(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=True)]
        self.time = Column(np.dtype(np.float64)) if live else None
        self.active = Column(np.dtype(bool), active) if active is not None else None
        self.lanes = Column(np.dtype(np.int32), (lanes,)) if lanes is not None else None
        self.device = Column(np.dtype(np.int32)) if sharded else None

    def __len__(self) -> int:
        return len(self.steps)

    def frozen(self) -> Stream:
        """The events that are there now, as a stream of their own that does not grow; nothing is copied."""
        length = len(self.steps)
        freeze = lambda column: None if column is None else column.frozen(length)
        stream = object.__new__(Stream)
        stream.key = self.key
        stream.steps, stream.leaves = self.steps.frozen(length), [leaf.frozen(length) for leaf in self.leaves]
        stream.time, stream.active = freeze(self.time), freeze(self.active)
        stream.lanes, stream.device = freeze(self.lanes), freeze(self.device)
        return stream

    def order(self) -> np.ndarray:
        """Row numbers in canonical order: by step vector, lane, device (rows that tie stay as they came)."""
        keys: list[np.ndarray] = []
        if self.device is not None:
            keys.append(self.device.array)
        if self.lanes is not None:
            keys += list(self.lanes.array.T[::-1])
        keys += list(self.steps.array.T[::-1])
        return np.lexsort(keys) if keys else np.arange(len(self))

    def event(self, row: int) -> TapEvent:
        """The event in one row."""
        return arrived(
            self.key,
            tuple(self.steps.array[row].tolist()),
            [leaf.array[row] for leaf in self.leaves],
            None if self.lanes is None else tuple(self.lanes.array[row].tolist()),
            None if self.active is None else self.active.array[row],
            None if self.device is None else int(self.device.array[row]),
            None if self.time is None else float(self.time.array[row]),
        )


class Events(Sequence[TapEvent]):
    """The events of a recording in canonical order, built when they are looked at."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = [stream for stream in streams if len(stream)]
        self._streams.sort(key=lambda stream: stream.key.order)
        self._orders: list[np.ndarray | None] = [None] * len(self._streams)
        self._ends = np.cumsum([len(stream) for stream in self._streams], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def _row(self, number: int, row: int) -> TapEvent:
        order = self._orders[number]
        if order is None:
            order = self._orders[number] = self._streams[number].order()
        return self._streams[number].event(int(order[row]))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"event {index} of a recording with {len(self)} events")
        number = int(np.searchsorted(self._ends, position, side="right"))
        start = int(self._ends[number - 1]) if number else 0
        return self._row(number, position - start)

    def __iter__(self) -> Iterator[TapEvent]:
        for number, stream in enumerate(self._streams):
            for row in range(len(stream)):
                yield self._row(number, row)

    def __repr__(self) -> str:
        return f"<{len(self)} events in {len(self._streams)} streams>"


class Streamed:
    """Whatever holds streams: a recording in memory, or one read from a file."""

    @property
    def streams(self) -> list[Stream]:
        """The streams that hold events, in canonical order."""
        raise NotImplementedError

    @property
    def environment(self) -> Environment | None:
        """What it was made in, where that is known to be another environment than this one; else ``None``."""
        return None
