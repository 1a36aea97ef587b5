"""Where events go besides memory, while the program still runs."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import numpy as np

from jaxtap_core.recording.jsonl import HEADER, Seal, closing, described, event_lines
from jaxtap_core.records.events import TapEvent
from jaxtap_core.telemetry.codec import named_leaves
from jaxtap_core.telemetry.environment import fingerprint
from jaxtap_core.telemetry.files import unwritable
from jaxtap_core.telemetry.stream import Stream, StreamKey, event_key, event_names


class JSONLSink:
    """Writes every event to a JSON Lines file as it arrives (see `jaxtap_core.recording.jsonl`).

    A line is in the file when `write` returns, so a crash loses none. What `read_jsonl` gives back
    has its leaves named after their places in the value: an event does not say what they were
    called in the program.

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
            # Line buffered: whole lines reach the file at once.
            self._file = open(self.path, "w", buffering=1, encoding="utf-8", newline="\n")  # noqa: SIM115
        except OSError as error:
            raise unwritable(error, self.path) from None
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, StreamKey | None], int] = {}
        self._seal = Seal()
        self._events = 0
        self._line(json.dumps(HEADER))

    def write(self, event: TapEvent) -> None:
        """Add one event.

        Raises:
            ValueError: the sink is closed.
            OSError: the disk is full, or gone.
        """
        stream = _stream_of(event)
        description = described(0, stream)
        with self._lock:
            known = len(self._numbers)
            number = self._numbers.setdefault((json.dumps(description), event_key(event)), known)
            if number == known:
                self._line(json.dumps({**description, "define": number}))
            for line in event_lines(number, stream):
                self._line(line)
            self._events += 1

    def close(self) -> None:
        """Write the environment and the closing line; a second time does nothing."""
        with self._lock:
            if self._file.closed:
                return
            self._line(json.dumps({"environment": fingerprint()}))
            self._file.write(self._seal.last(closing(self._events)))
            self._file.close()
            self._numbers.clear()

    def _line(self, text: str) -> None:
        self._file.write(self._seal.line(text))


def _stream_of(event: TapEvent) -> Stream:
    """A stream of this one event."""
    names, leaves, rebuild = named_leaves(event.value)
    key = StreamKey(
        program=event.program,
        call=event.call,
        path=event.path,
        kind=event.kind,
        total=event.total,
        depth=len(event.steps),
        phase=event.phase,
        source=event.source,
        names=event_names(event, names),
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
