"""The host's end: events enter the recording, alerts are raised, callbacks and sinks are called.

Nothing here touches a device: it may run inside a callback, while a program is running.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxtap_core.aside import describe, warn
from jaxtap_core.emit import Buffer
from jaxtap_core.events import Alert, TapEvent
from jaxtap_core.plan import Site
from jaxtap_core.recording import Recording, Stream, StreamKey
from jaxtap_core.settings import Settings
from jaxtap_core.taps import Tap


class Receiver:
    """Receives what sites of observed programs send, on behalf of one recording.

    Args:
        settings: whose callbacks, predicates and sinks are served.
        recording: where events go; ``None`` keeps none (a lens that is only live).
    """

    def __init__(self, settings: Settings, recording: Recording, *, keep: bool = True) -> None:
        self.settings = settings
        self.recording = recording
        self._keep = keep
        self._lock = threading.RLock()
        self._silenced: set[int] = set()
        self._alerted: set[tuple[Any, ...]] = set()
        self.stop: Callable[[Alert], None] | None = None

    # -- arrival

    def live(
        self,
        site: Site,
        program: str,
        call: int,
        steps: np.ndarray,
        lane: tuple[int, ...] | None,
        active: Any,
        leaves: Sequence[np.ndarray],
        phase: str,
        now: float,
    ) -> None:
        """One event has arrived while its program is running."""
        with self._lock:
            stream = self._stream(
                site, program, call, phase, live=True, lanes=None if lane is None else len(lane)
            )
            stream.steps.append(steps)
            for column, leaf in zip(stream.leaves, leaves, strict=True):
                column.append(leaf)
            assert stream.time is not None
            stream.time.append(np.float64(now))
            if stream.active is not None:
                stream.active.append(active)
            if stream.lanes is not None:
                stream.lanes.append(np.asarray(lane, np.int32))
            if self._heard(site):
                self._hear(site, stream.event(len(stream) - 1))
            if not self._keep:
                stream.clear()

    def data(self, site: Site, program: str, call: int, buffer: Buffer, rows: int) -> None:
        """``rows`` events have come as data. The arrays may be views of device memory: they are copied."""
        if not rows:
            return
        with self._lock:
            stream = self._stream(site, program, call, "", live=False, lanes=None)
            start = len(stream)
            stream.steps.extend(np.array(buffer.steps[:rows]))
            for column, leaf in zip(stream.leaves, buffer.leaves, strict=True):
                column.extend(np.array(leaf[:rows]))
            if stream.active is not None:
                stream.active.extend(np.array(buffer.active[:rows]))
            if self._heard(site):
                for row in range(start, len(stream)):
                    self._hear(site, stream.event(row))

    def _stream(
        self, site: Site, program: str, call: int, phase: str, *, live: bool, lanes: int | None
    ) -> Stream:
        selection = site.selection
        tap = self._tap(site)
        key = StreamKey(
            program=program,
            call=call,
            path=site.path,
            kind=site.kind,
            total=site.total,
            depth=site.depth,
            phase=phase or site.phase,  # type: ignore[arg-type]
            source=site.source,
            names=selection.names,
            rebuild=selection.rebuild,
            label=tap.label if tap is not None else "",
        )
        make = lambda: Stream(
            key,
            selection.dtypes,
            selection.shapes,
            live=live,
            active=site.lanes or None,
            lanes=lanes,
        )
        return self.recording.stream(key, make)

    def _tap(self, site: Site) -> Tap | None:
        return None if site.tap is None else self.settings.taps[site.tap]

    # -- listeners

    def _heard(self, site: Site) -> bool:
        """Whether anybody on the host wants to see each event of ``site``."""
        if self.settings.sinks:
            return True
        tap = self._tap(site)
        if tap is not None:
            return tap.live
        return self.settings.live_carry if site.kind == "carry" else self.settings.live_outputs

    def _hear(self, site: Site, event: TapEvent) -> None:
        settings, tap = self.settings, self._tap(site)
        if tap is not None:
            if tap.mode == "nan":
                self._alert(event, "NaN/Inf" if tap.inf else "NaN", tap.once)
            elif tap.mode == "print":
                name = f"{tap.label}: " if tap.label else ""
                sys.stderr.write(f"[tap] {name}{event}\n")
            if tap.alert is not None:
                self._ask("alert", tap.alert, event.value, event, tap.once)
            if tap.on_value is not None:
                self._call("on_value", tap.on_value, event)
        elif site.kind == "carry":
            if settings.alert is not None:
                self._ask("alert", settings.alert, event, event, settings.alert_once)
            if settings.on_step is not None:
                self._call("on_step", settings.on_step, event)
        else:
            if settings.alert_ys is not None:
                self._ask("alert_ys", settings.alert_ys, event, event, settings.alert_ys_once)
            if settings.on_ys is not None:
                self._call("on_ys", settings.on_ys, event)
        for sink in settings.sinks:
            self._call(f"sink {sink!r}", sink.write, event)

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call something of the user's; when it raises it is heard of once and never called again."""
        mark = id(getattr(function, "__self__", function))
        if mark in self._silenced:
            return None
        try:
            return function(*args)
        except Exception as error:
            self._silenced.add(mark)
            warn(f"{what} raised {describe(error)}; it is not called any more, the program goes on")
            return None

    def _ask(
        self, what: str, predicate: Callable[..., Any], value: Any, event: TapEvent, once: bool
    ) -> None:
        answer = self._call(what, predicate, value)
        if answer is None:
            return
        try:
            yes = isinstance(answer, str) or bool(answer)
        except Exception as error:
            self._call(what, _raise, error)
            return
        if yes:
            self._alert(event, answer if isinstance(answer, str) else "alert", once)

    def _alert(self, event: TapEvent, message: str, once: bool) -> None:
        mark = (event.program, event.path, message if not once else "")
        if once:
            if mark in self._alerted:
                return
            self._alerted.add(mark)
        alert = Alert(event, message, event.source)
        self.recording.alerts.append(alert)
        place = " ".join(part for part in (event.path, event.position) if part)
        source = f" ({event.source.partition(' ')[0]})" if event.source else ""
        sys.stderr.write(f"[tap] FAIL {place}: {message}{source}\n")
        if self.stop is not None:
            self.stop(alert)


def _raise(error: Exception) -> None:
    raise error
