"""Where events go besides memory, while the program still runs."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import jax
import numpy as np

from jaxtap_core.recording.jsonl import HEADER, Seal, closing, described
from jaxtap_core.records.events import TapEvent
from jaxtap_core.telemetry.codec import host_array, named_leaves, row_texts
from jaxtap_core.telemetry.environment import fingerprint
from jaxtap_core.telemetry.files import unwritable
from jaxtap_core.telemetry.stream import Stream, StreamKey, key_of


class JSONLSink:
    """Writes every event to a JSON Lines file as it arrives (see `jaxtap_core.recording.jsonl`).

    A line is in the file when `write` returns, so a crash loses none: ``read_jsonl(path, partial=True)`` takes what is
    there. The file is complete when the block is over, and after every call of a function that
    ``tap.record(f, sinks=...)`` has wrapped.

    Args:
        path: file to make or replace; its folder must exist.

    Raises:
        OSError: the path cannot be written.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "run.jsonl")
        >>> sink = JSONLSink(path)
        >>> sink.write(TapEvent("scan[0]", 0, 3, (0,), np.float32(0.5), "carry", "f", 0))
        >>> sink.close()
        >>> print(open(path).read().splitlines()[2])
        {"stream": 0, "steps": [0], "values": [0.5]}
    """

    def __init__(self, path: Any) -> None:
        self.path = os.fspath(path)
        try:
            # Unbuffered: whole lines reach the file at once.
            self._file = open(self.path, "wb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise unwritable(error, self.path) from None
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, StreamKey | None], int] = {}  # of the streams, by what tells them apart
        self._seal = Seal()  # of what stays
        # the same, by what is quicker to look up, each with the key that it is known by
        self._known: dict[tuple[Any, ...], tuple[int, StreamKey | None]] = {}
        self._events = 0
        self._complete = False
        self._end = 0  # of what stays when more is written
        self._append(json.dumps(HEADER))

    def write(self, event: TapEvent) -> None:
        """Add one event.

        Raises:
            ValueError: the sink is closed.
            OSError: the disk is full, or gone.
        """
        leaves = [host_array(leaf) for leaf in jax.tree.leaves(event.value)]
        key = key_of(event)
        kind = (
            id(key),
            *((leaf.dtype, leaf.shape) for leaf in leaves),
            None if event.active is None else event.active.shape,
            None if event.lane is None else len(event.lane),
            event.device is None,
            event.time is None,
        )
        with self._lock:
            if self._file.closed:
                raise ValueError(f"{self!r} is closed")
            number, known = self._known.get(kind, (-1, None))
            if known is not key or key is None:
                number = self._define(described(0, _stream_of(event)), key)
                self._known[kind] = number, key
            self._append(_line(number, event, leaves))
            self._events += 1

    def flush(self) -> None:
        """Complete the file as it is, with the environment and the closing line; more may be written after that."""
        with self._lock:
            if self._file.closed or self._complete:
                return
            seal = self._seal.copy()
            end = seal.line(json.dumps({"environment": fingerprint()})) + seal.last(closing(self._events))
            self._file.write(end.encode())
            self._complete = True

    def close(self) -> None:
        """Complete the file; no event may follow. A second time does nothing."""
        self.flush()
        with self._lock:
            self._file.close()
            self._numbers.clear()
            self._known.clear()

    def __repr__(self) -> str:
        return f"JSONLSink({self.path!r})"

    def _define(self, description: dict[str, Any], key: StreamKey | None) -> int:
        known = len(self._numbers)
        number = self._numbers.setdefault((json.dumps(description), key), known)
        if number == known:
            self._append(json.dumps({**description, "define": number}))
        return number

    def _append(self, text: str) -> None:
        line = self._seal.line(text).encode()
        if self._complete:  # no longer
            self._file.seek(self._end)
            self._file.truncate()
            self._complete = False
        self._file.write(line)
        self._end += len(line)


def _line(number: int, event: TapEvent, leaves: list[np.ndarray]) -> str:
    """What `jsonl.event_lines` makes of a stream of one event."""
    own = [
        ("lane", event.lane and list(event.lane)),
        ("device", event.device),
        ("active", event.active),
        ("time", event.time),
    ]
    told = "".join(
        f'"{name}": {_text(np.asarray(value)) if name == "active" else json.dumps(value)}, '
        for name, value in own
        if value is not None
    )
    values = ", ".join(map(_text, leaves))
    return f'{{"stream": {number}, "steps": {list(event.steps)}, {told}"values": [{values}]}}'


def _text(array: np.ndarray) -> str:
    return row_texts(array[None])[0]


def _stream_of(event: TapEvent) -> Stream:
    """A stream of this one event."""
    names, leaves, rebuild = named_leaves(event.value)
    # an event that was made by hand does not say how its leaves are called: by their places in the value
    key = key_of(event) or StreamKey(
        program=event.program,
        call=event.call,
        path=event.path,
        kind=event.kind,
        total=event.total,
        depth=len(event.steps),
        phase=event.phase,
        source=event.source,
        names=tuple(names),
        rebuild=rebuild,
    )
    stream = Stream(
        key,
        [leaf.dtype for leaf in leaves],
        [leaf.shape for leaf in leaves],
        live=event.time is not None,
        active=None if event.active is None else event.active.shape,
        lanes=None if event.lane is None else len(event.lane),
        sharded=event.device is not None,
    )
    cells: list[tuple[Any, Any]] = [
        (stream.steps, event.steps),
        (stream.time, event.time),
        (stream.active, event.active),
        (stream.lanes, event.lane),
        (stream.device, event.device),
        *zip(stream.leaves, leaves, strict=True),
    ]
    for column, cell in cells:
        if column is not None:
            column.append(np.asarray(cell))
    return stream
