"""The blocks that are on: to which of them a program belongs, and what each is running right now.

Blocks nest, and the innermost receives; but tasks of asyncio share their thread, so that their blocks begin and end in
any order. A block entered in a task receives that task's programs alone.

What is running is asked when a program hangs: a Python signal handler does not run then, but other threads do. Nothing
is looked at until somebody asks.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jaxtap_core.jaxpr.address import source_of

if TYPE_CHECKING:
    from jaxtap_core.instrument.plan import Plan
    from jaxtap_core.recording.recording import Recording
    from jaxtap_core.runtime.receiver import Receiver


class Running(NamedTuple):
    """A program that was started: its name, its plan where it is observed, its source, and when.

    A `Pending` one tells the same of itself.
    """

    name: str
    plan: Plan | None
    source_info: Any
    since: float


class Session(Protocol):
    """What is asked here of the session of a block (`session.Session`)."""

    recording: Recording
    receiver: Receiver

    @property
    def waited_for(self) -> Any:
        """The program that is being executed (a `Running`, or one that is pending), or ``None``."""


class _Blocks(threading.local):
    def __init__(self) -> None:
        self.entered: list[tuple[Session, Any]] = []


_here = _Blocks()
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def enter(session: Session) -> None:
    """One more block is on in this thread."""
    _sessions.add(session)
    _here.entered.append((session, _current_task()))


def leave(session: Session) -> bool:
    """A block is over; says whether it was the innermost, as it is unless tasks overlap."""
    innermost = bool(_here.entered) and _here.entered[-1][0] is session
    _here.entered = [entry for entry in _here.entered if entry[0] is not session]
    return innermost


def over(session: Session) -> None:
    """All that a block started has ended."""
    _sessions.discard(session)


def innermost() -> Any:
    """The session that would receive a program of this task, or ``None``."""
    task = _current_task()
    return next((s for s, owner in reversed(_here.entered) if owner is None or owner is task), None)


def any_on() -> bool:
    """Whether a block is on in this thread."""
    return bool(_here.entered)


def session_of_program() -> Any:
    """The session that receives the program which is about to run: the innermost one of this task.

    Those that belong to other tasks count the program as one they did not see.
    """
    for session, task in reversed(_here.entered):
        if task is None or task is _current_task():
            return session
        session.recording.unobserved += 1
    return None


def _current_task() -> Any:
    """The asyncio task of this thread, or ``None``; costs nothing while nobody uses asyncio."""
    if "asyncio" not in sys.modules:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


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
