"""The host's end: events enter the recording, alerts are raised, callbacks and sinks are called.

Nothing here touches a device: it may run inside a callback, while a program is running.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxtap_core.errors import describe, warn
from jaxtap_core.instrument.emission import Buffer, Handle
from jaxtap_core.instrument.plan import Site
from jaxtap_core.instrument.selection import Unmet
from jaxtap_core.recording.recording import Recording
from jaxtap_core.records.events import Alert, TapEvent
from jaxtap_core.records.text import word
from jaxtap_core.request.settings import Settings
from jaxtap_core.request.taps import Tap
from jaxtap_core.telemetry.stream import Stream, StreamKey, arrived


def _as_it_is(answer: Any) -> Any:
    return answer


def _message(answer: Any) -> str:
    """What a predicate said: its own message, ``"alert"`` for another truth, nothing for none."""
    if not answer:
        return ""
    return answer if isinstance(answer, str) else "alert"


@dataclass(eq=False, slots=True)
class Run:
    """One run of one program: tells its emissions where to go.

    Attributes:
        number: which its emissions carry.
        receiver: who takes them.
        program, call: as in `TapEvent`.
        sites: of its plan: the emissions of a program that was compiled for another line belong to them.
        alerts: of whoever waits for the run, such as the session that started it; its alerts are added.
        handles: the functions that take its live events, by the place that they come from.
    """

    number: int
    receiver: Receiver
    program: str
    call: int
    sites: Mapping[int, Site]
    alerts: list[Alert]
    handles: dict[object, Handle] = field(default_factory=dict)

    def open(self, site: Site, phase: str, lanes: int) -> Handle:
        """The function that takes the live events of one site."""
        return self.receiver.open_stream(self.sites[site.number], self, phase, lanes)


class Receiver:
    """Receives what sites of observed programs send, on behalf of one recording.

    Several programs may send at once, from several threads. Events enter the recording under its own lock, which
    nobody holds for long, so that it can be read meanwhile; callbacks are called one at a time under another.

    Args:
        settings: whose callbacks, predicates and sinks are served.
        recording: where events go.
        keep: whether they are kept there; not by a lens that is only live.

    Attributes:
        unmet: what was asked for and not met so far.
        last: the last event that somebody listened to.
    """

    def __init__(self, settings: Settings, recording: Recording, *, keep: bool = True) -> None:
        self.settings = settings
        self.recording = recording
        self._keep = keep
        self._one_at_a_time = threading.RLock()
        self._silenced: set[Hashable] = set()
        self._told: set[tuple[Any, ...]] = set()
        self._leaving: tuple[str, BaseException] | None = None
        self._blocks = 0
        self.unmet = Unmet(settings)
        self._served, self._over = 0, False
        self.last: TapEvent | None = None

    # -- blocks

    def enter(self) -> None:
        """A block, or a call of a wrapped function, begins."""
        with self._one_at_a_time:
            self._blocks += 1
            self._served += 1

    def end(self, *, last: bool) -> bool:
        """A session is over; says whether nothing more will come, once the ``last`` and those beside it are."""
        with self._one_at_a_time:
            self._served -= 1
            self._over |= last
            return self._over and not self._served

    def rest(self, *, last: bool) -> None:
        """A block, or a call of a wrapped function, is over: its sinks are closed, or complete until the next call.

        ``last`` says whether no event follows.
        """
        for sink in self.settings.sinks:
            end = sink.close if last else getattr(sink, "flush", None)
            if end is not None:
                self._call(f"{'close' if last else 'flush'} of sink {sink!r}", end)

    def leave(self, body: BaseException | None) -> None:
        """A block is left, for ``body`` where that is being raised; see `raise_meant`."""
        __tracebackhide__ = True
        with self._one_at_a_time:
            self._blocks -= 1
        self.raise_meant(body)

    def raise_meant(self, body: BaseException | None = None) -> None:
        """Raise what a callback raised that is meant to leave the block; once.

        Where ``body`` is being raised already it stays the error, and a note on it tells of the other.
        """
        __tracebackhide__ = True
        if self._leaving is None:
            return
        (what, error), self._leaving = self._leaving, None
        if body is None:
            raise error
        body.add_note(f"jaxtap: {what} raised {describe(error)} meanwhile")

    # -- arrival

    def open_stream(self, site: Site, run: Run, phase: str, lanes: int) -> Handle:
        """The function that takes the live events of one site during one run, one call an event."""
        stream = self._stream(site, run, phase, live=True, lanes=lanes or None)
        keep, lock, key, alerts = self._keep, self.recording.lock, stream.key, run.alerts
        listeners, one_at_a_time = self._listeners(site, run), self._one_at_a_time
        columns = stream.leaves
        single = columns[0] if len(columns) == 1 else None
        assert stream.time is not None
        times, vectors = stream.time, stream.steps

        def handle(
            steps: tuple[int, ...], lane: Any, active: Any, leaves: Sequence[np.ndarray], now: float, shard: int | None
        ) -> bool:
            if keep:
                with lock:
                    times.append(now)
                    if single is not None:
                        single.append(leaves[0])
                    else:
                        for column, leaf in zip(columns, leaves, strict=True):
                            column.append(leaf)
                    if stream.active is not None:
                        stream.active.append(active)
                    if stream.lanes is not None:
                        stream.lanes.append(lane)
                    if stream.device is not None:
                        stream.device.append(shard)
                    vectors.append(steps)  # last: as many events are there as there are steps
            if listeners:
                values = [leaf[()] for leaf in leaves]
                event = arrived(key, steps, values, lane, active, shard, now)
                with one_at_a_time:
                    self.last = event
                    for listen in listeners:
                        listen(event)
            return bool(alerts) or self._leaving is not None

        return handle

    def data(self, site: Site, run: Run, buffer: Buffer, rows: int, shard: int | None = None) -> None:
        """``rows`` events (of one shard) came as data. The arrays may be views of device memory: they are copied."""
        if not rows:
            return
        stream = self._stream(site, run, "", live=False, lanes=None)
        with self.recording.lock:
            start = len(stream)
            for column, leaf in zip(stream.leaves, buffer.leaves, strict=True):
                column.extend(np.array(leaf[:rows]))
            if stream.active is not None:
                stream.active.extend(np.array(buffer.active[:rows]))
            if stream.device is not None:
                stream.device.extend(np.full(rows, shard, np.int32))
            stream.steps.extend(np.array(buffer.steps[:rows]))
            came = stream.frozen()
        if listeners := self._listeners(site, run):
            with self._one_at_a_time:
                for row in range(start, len(came)):
                    for listen in listeners:
                        listen(came.event(row))

    def _stream(self, site: Site, run: Run, phase: str, *, live: bool, lanes: int | None) -> Stream:
        selection = site.selection
        tap = self._tap(site)
        key = StreamKey(
            program=run.program,
            call=run.call,
            path=site.path,
            kind=site.kind,
            total=site.total,
            depth=site.depth,
            phase=phase or site.phase,  # type: ignore[arg-type]
            source=site.source,
            names=selection.names,
            rebuild=selection.rebuild,
            label=tap.label if tap is not None else "",
            tap=site.tap or 0,
        )
        make = lambda: Stream(
            key,
            selection.dtypes,
            selection.shapes,
            live=live,
            active=site.lanes or None,
            lanes=lanes,
            sharded=bool(site.shards),
        )
        return self.recording.stream(key, lanes, make) if self._keep else make()

    def _tap(self, site: Site) -> Tap | None:
        return None if site.tap is None else self.settings.taps[site.tap]

    # -- listeners

    def _listeners(self, site: Site, run: Run) -> list[Callable[[TapEvent], None]]:
        """Everybody on the host who wants to see each event of ``site``, in the order in which they are told."""
        settings, tap = self.settings, self._tap(site)
        found: list[Callable[[TapEvent], None]] = []
        if tap is not None:
            name = f"{tap.label}: " if tap.label else ""
            if tap.mode == "nan":
                message = name + "/".join(map(word, ("nan", "inf") if tap.inf else ("nan",)))
                once = tap.once
                found.append(lambda event: self._alert(run, event, message, once, site.tap))
            elif tap.mode == "print":
                found.append(lambda event: self._print(event, name, once_of=site.tap if tap.once else None))
            if (predicate := tap.alert) is not None:
                found.append(lambda event: self._ask(run, "alert", predicate, event.value, event, tap.once, site.tap))
            found += self._caller("on_value", tap.on_value)
        elif site.kind == "carry":
            if (alert := settings.alert) is not None:
                found.append(lambda event: self._ask(run, "alert", alert, event, event, settings.alert_once))
            found += self._caller("on_step", settings.on_step)
        else:
            if (alert_ys := settings.alert_ys) is not None:
                found.append(lambda event: self._ask(run, "alert_ys", alert_ys, event, event, settings.alert_ys_once))
            found += self._caller("on_ys", settings.on_ys)
        for sink in settings.sinks:
            found += self._caller(f"sink {sink!r}", sink.write)
        return found

    def _caller(self, what: str, function: Callable[..., Any] | None) -> list[Callable[[TapEvent], None]]:
        return [] if function is None else [functools.partial(self._call, what, function)]

    def _call(
        self, what: str, function: Callable[..., Any], *args: Any, answer: Callable[[Any], Any] = _as_it_is
    ) -> Any:
        """Call something of the user's; when it raises it is heard of once and never called again.

        An `Exception` is a fault of its own. Others are meant to leave: they wait until the program, which is not
        theirs, is over (see `raise_meant`).
        """
        if self._silenced and _mark(function) in self._silenced:
            return None
        try:
            return answer(function(*args))
        except BaseException as error:
            if isinstance(error, Exception) or not self._blocks:  # inside of ``jit`` there is no block to leave
                warn(f"{what} raised {describe(error)}; it is not called any more, the program goes on")
            elif self._leaving is None:
                self._leaving = what, error
        self._silenced.add(_mark(function))
        return None

    def _ask(
        self,
        run: Run,
        what: str,
        predicate: Callable[..., Any],
        value: Any,
        event: TapEvent,
        once: bool,
        tap: int | None = None,
    ) -> None:
        message = self._call(what, predicate, value, answer=_message)
        if message:
            self._alert(run, event, message, once, tap)

    def _alert(self, run: Run, event: TapEvent, message: str, once: bool, tap: int | None) -> None:
        if run.alerts and self.settings.fail_fast:
            return  # the program is being stopped for the first one
        if once and not self._first("alert", event, tap):
            return
        alert = Alert(event, message, event.source)
        self.recording.alerts.append(alert)
        place = " ".join(part for part in (event.path, event.position) if part)
        source = f" ({event.source.partition(' ')[0]})" if event.source else ""
        _say(f"[tap] FAIL {place}: {message}{source}")
        run.alerts.append(alert)

    def _print(self, event: TapEvent, name: str, once_of: int | None) -> None:
        if once_of is None or self._first("line", event, once_of):
            _say(f"[tap] {name}{event}")

    def _first(self, what: str, event: TapEvent, tap: int | None) -> bool:
        """Whether this is the first of its kind at the address of ``event``."""
        mark = (what, event.program, event.path, event.kind, tap)
        new = mark not in self._told
        self._told.add(mark)
        return new


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _mark(function: Callable[..., Any]) -> Hashable:
    """Tells functions apart; a method is made anew whenever it is asked for."""
    return id(getattr(function, "__self__", function)), getattr(function, "__name__", "")
