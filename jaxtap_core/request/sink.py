"""Where events go besides memory: what ``tap.record(sinks=...)`` takes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtap_core.records.events import TapEvent


@runtime_checkable
class Sink(Protocol):
    """What ``tap.record(sinks=...)`` takes. Called from host callbacks: it must not run JAX.

    Events come as they arrive, while the program runs. After every call of a wrapped function, which may be called
    again, a sink that has a method ``flush()`` is asked to make what it wrote complete.
    """

    def write(self, event: TapEvent) -> None:
        """Take one event, as it arrives."""

    def close(self) -> None:
        """The block is over; no event follows."""
