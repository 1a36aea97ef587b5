"""A recording: what one block of observation saw, stored by column, read as events or as a DataFrame."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from jaxtap_core.records.events import Alert, Certificate, Finding, ProgramVerdict
from jaxtap_core.telemetry.stream import Events, Stream, Streamed, StreamKey

if TYPE_CHECKING:
    import pandas as pd

    from jaxtap_core.compare.diff import Difference


def called_within(f: Callable[..., Any], block: Callable[[], AbstractContextManager[Any]]) -> Callable[..., Any]:
    """``f``, every call of which, and all of what a coroutine function then runs, stands in a ``block()``."""
    if inspect.iscoroutinefunction(f):

        @functools.wraps(f)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with block():
                return await f(*args, **kwargs)

        return awaited

    @functools.wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        with block():
            return f(*args, **kwargs)

    return called


class Recording(Streamed):
    """What was seen while a lens was on. It can be copied and pickled, as it is at that moment.

    Attributes:
        events: all events in canonical order ``(program, call, path, steps, lane, device)``.
        alerts: every `Alert`, in order of arrival.
        findings: every `Finding` of the NaN gate, in program order.
        certificate: how the results compare with production's (`Certificate`), ``None`` for a recording that was
            neither certified nor asked to be.
        unobserved: number of programs that ran beside the lens, in another asyncio task of its thread. Those of
            other threads are neither seen nor counted: `observing` takes one into the block.
    """

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.findings: list[Finding] = []
        self.certificate: Certificate | None = None
        self.unobserved = 0
        self.unobservable: list[str] = []
        self.lock = threading.RLock()  # held by whoever appends or reads, for as long as that takes
        # of the blocks that are on: what makes one more for another thread
        self._blocks: tuple[tuple[object, Callable[[Any], AbstractContextManager[Any]]], ...] = ()
        self._streams: dict[tuple[StreamKey, int | None], Stream] = {}
        self._calls: dict[str, int] = {}

    @property
    def events(self) -> Events:
        """All events in canonical order, as many as there are now."""
        return Events(self.streams)

    @property
    def streams(self) -> list[Stream]:
        """The streams that hold events, in canonical order; what comes later does not enter them."""
        with self.lock:
            found = [stream.frozen() for stream in self._streams.values() if len(stream)]
        return sorted(found, key=lambda stream: stream.key.order)

    def stream(self, key: StreamKey, lanes: int | None, make: Callable[[], Stream]) -> Stream:
        """The stream of ``key`` whose events have ``lanes`` lane indices, made on first use.

        Who appends to it holds `lock`.
        """
        with self.lock:
            if (key, lanes) not in self._streams:
                self._streams[key, lanes] = make()
            return self._streams[key, lanes]

    def next_call(self, program: str) -> int:
        """How often ``program`` had run before in this recording."""
        with self.lock:
            call = self._calls.get(program, 0)
            self._calls[program] = call + 1
            return call

    def entered(self, session: Any, beside: Callable[[Any], AbstractContextManager[Any]]) -> None:
        """A block that records here is on; ``beside(session)`` makes one more, for another thread."""
        with self.lock:
            self._blocks = (*self._blocks, (session, beside))

    def left(self, session: Any) -> None:
        """That block is over."""
        with self.lock:
            self._blocks = tuple(block for block in self._blocks if block[0] is not session)

    def observing(self, f: Callable[..., Any], /) -> Callable[..., Any]:
        """Take a function into the block, whichever thread or task it is called in.

        JAX gives no way to see the programs of another thread; what is to be seen there is wrapped. Callbacks,
        predicates and the gate are those of the block. With ``fail_fast`` a call stops at its own first alert or
        finding, which is raised out of it.

        Args:
            f: a function, or a coroutine function. A call that begins after the block has ended runs unobserved.

        Returns:
            A function called like ``f``.

        Example:
            >>> import threading
            >>> import jax
            >>> import jaxtap_core as tap
            >>> halve = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c / 2, x))
            >>> with tap.record() as rec:
            ...     thread = threading.Thread(target=rec.observing(halve), args=(8.0,))
            ...     thread.start()
            ...     thread.join()
            >>> len(rec.events)
            3
        """
        if not callable(f):
            raise TypeError(f"rec.observing(f) wraps a function, not {f!r}")

        def block() -> AbstractContextManager[Any]:
            for session, beside in reversed(self._blocks):
                return beside(session)
            return nullcontext()

        return called_within(f, block)

    def certify(self, verdicts: Sequence[ProgramVerdict]) -> None:
        """Add verdicts to the certificate."""
        if verdicts:
            with self.lock:
                before = self.certificate.programs if self.certificate is not None else ()
                self.certificate = Certificate((*before, *verdicts))

    def missed(self) -> None:
        """One more program ran beside the lens."""
        with self.lock:
            self.unobserved += 1

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
        with self.lock:
            state = {name: value for name, value in vars(self).items() if name not in ("lock", "_blocks")}
            state["_streams"] = {key: stream.frozen() for key, stream in self._streams.items()}
            state["_calls"], state["alerts"] = dict(self._calls), list(self.alerts)
            state["findings"], state["unobservable"] = list(self.findings), list(self.unobservable)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.RLock(), _blocks=())

    def __len__(self) -> int:
        return sum(map(len, self.streams))

    def __repr__(self) -> str:
        streams = self.streams
        parts = [f"{sum(map(len, streams))} events in {len(streams)} streams"]
        if self.alerts:
            parts.append(f"{len(self.alerts)} alerts")
        if self.findings:
            parts.append(f"{len(self.findings)} findings")
        return f"<Recording: {', '.join(parts)}>"
