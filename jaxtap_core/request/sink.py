"""Where events go besides memory: what ``tap.record(sinks=...)`` takes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtap_core.records.events import TapEvent


@runtime_checkable
class Sink(Protocol):
    """What ``tap.record(sinks=...)`` takes. Called from host callbacks: it must not run JAX."""

    def write(self, event: TapEvent) -> None:
        """Take one event, as it arrives."""

    def close(self) -> None:
        """The block is over; no event follows."""
