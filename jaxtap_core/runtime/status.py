"""What is running right now: for the moment when a program hangs and somebody asks from another thread.

A Python signal handler does not run while a program hangs, but other threads do. Sessions enter themselves here while
they are on; nothing is looked at until somebody asks.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, NamedTuple

from jaxtap_core.jaxpr.address import source_of

if TYPE_CHECKING:
    from typing import Any

    from jaxtap_core.instrument.plan import Plan
    from jaxtap_core.runtime.session import Session


class Running(NamedTuple):
    """A program that was started: its name, its plan where it is observed, its source, and when.

    A `Pending` one tells the same of itself.
    """

    name: str
    plan: Plan | None
    source_info: Any
    since: float


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def enter(session: Session) -> None:
    """A session is on."""
    _sessions.add(session)


def leave(session: Session) -> None:
    """A session is over."""
    _sessions.discard(session)


def describe_running() -> list[str]:
    """What every session is executing, one line each and indented lines below: loops, and the last known position.

    Returns:
        Lines without line ends; empty where nothing runs under a lens. Safe to call from any thread; touches no
        device.
    """
    lines: list[str] = []
    for session in list(_sessions):
        running = session.waited_for
        if running is None:
            continue
        source = source_of(running.source_info) if running.source_info is not None else ""
        where = f" at {source}" if source else ""
        seconds = time.monotonic() - running.since
        lines.append(f"running: {running.name}{where}, for {seconds:.1f} s")
        if running.plan is not None:
            lines += [f"  loop {path}" for path in running.plan.paths]
        last = session.receiver.last
        if last is not None:
            lines.append(f"  last event: {last}")
    return lines
