"""A recording: what one block of observation saw, stored by column, read as events or as a DataFrame."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxtap_core.records.events import Alert, Certificate, Finding
from jaxtap_core.telemetry.stream import Events, Stream, Streamed, StreamKey

if TYPE_CHECKING:
    import pandas as pd

    from jaxtap_core.compare.diff import Difference


class Recording(Streamed):
    """What was seen while a lens was on. It can be copied and pickled, as it is at that moment.

    Attributes:
        events: all events in canonical order ``(program, call, path, steps, lane, device)``.
        alerts: every `Alert`, in order of arrival.
        findings: every `Finding` of the NaN gate, in program order.
        certificate: how the results compare with production's (`Certificate`), ``None`` for a recording that was
            neither certified nor asked to be.
        unobserved: number of programs that ran beside the lens: in another thread or asyncio task while it was on.
    """

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.findings: list[Finding] = []
        self.certificate: Certificate | None = None
        self.unobserved = 0
        self.unobservable: list[str] = []
        self._streams: dict[StreamKey, Stream] = {}
        self._calls: dict[str, int] = {}
        self._lock = threading.RLock()

    @property
    def events(self) -> Events:
        """All events in canonical order."""
        with self._lock:
            return Events(list(self._streams.values()))

    @property
    def streams(self) -> list[Stream]:
        """The streams that hold events, in canonical order."""
        with self._lock:
            return sorted((s for s in self._streams.values() if len(s)), key=lambda s: s.key.order)

    def stream(self, key: StreamKey, make: Callable[[], Stream]) -> Stream:
        """The stream of ``key``, made on first use. Thread-safe; appending to it is the caller's to lock."""
        with self._lock:
            if key not in self._streams:
                self._streams[key] = make()
            return self._streams[key]

    def next_call(self, program: str) -> int:
        """How often ``program`` had run before in this recording."""
        with self._lock:
            call = self._calls.get(program, 0)
            self._calls[program] = call + 1
            return call

    def df(self) -> pd.DataFrame:
        """One row per event, in canonical order.

        Scalar leaves of the selected value become columns of their exact dtype, small arrays become cells holding
        arrays. Streams that lack a column have missing values there.

        Returns:
            pandas.DataFrame with ``program, call, path, kind, step, steps, lane, device, phase`` and a column a leaf.
        """
        from jaxtap_core.recording.dataframe import frame

        return frame(self)

    def to_jsonl(self, path: Any) -> None:
        """Write the recording to ``path``, one JSON object a line, bit-exact; the file appears whole or not at all.

        Raises:
            OSError: the path cannot be written; the message says why.
        """
        from jaxtap_core.recording.jsonl import write_jsonl

        write_jsonl(self, path)

    def diff(self, other: Recording, **tolerance: Any) -> Difference:
        """Compare with ``other`` stream by stream (see `jaxtap_core.compare.diff`)."""
        from jaxtap_core.compare.diff import diff

        return diff(self, other, **tolerance)

    def __eq__(self, other: object) -> bool:
        """Whether both saw the same events, bit for bit; `diff` says what differs."""
        return self.diff(other).equal if isinstance(other, Recording) else NotImplemented

    __hash__ = object.__hash__

    def __getstate__(self) -> dict[str, Any]:
        """What was recorded until now, to be copied or sent; the copy does not grow."""
        with self._lock:
            state = {name: value for name, value in vars(self).items() if name != "_lock"}
            state["_streams"] = {key: stream.frozen() for key, stream in self._streams.items()}
            state["_calls"], state["alerts"] = dict(self._calls), list(self.alerts)
            state["findings"], state["unobservable"] = list(self.findings), list(self.unobservable)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def __len__(self) -> int:
        return sum(len(stream) for stream in self._streams.values())

    def __repr__(self) -> str:
        parts = [f"{len(self)} events in {len(self._streams)} streams"]
        if self.alerts:
            parts.append(f"{len(self.alerts)} alerts")
        if self.findings:
            parts.append(f"{len(self.findings)} findings")
        return f"<Recording: {', '.join(parts)}>"
