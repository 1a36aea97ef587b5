"""The blocks that are on: to which of them a program belongs, and what each is running right now.

Blocks nest, and the innermost receives; but tasks of asyncio share their thread, so that their blocks begin and end in
any order, and a block may be left in another thread than the one it was entered in. A block entered in a task receives
that task's programs alone.

What is running is asked when a program hangs: a Python signal handler does not run then, but other threads do. Nothing
is looked at until somebody asks.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
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


class _Thread:
    """One thread: the blocks that are on in it, outermost first, and what is to be done for those left elsewhere."""

    __slots__ = ("entered", "owed")

    def __init__(self) -> None:
        self.entered: tuple[Entered, ...] = ()
        self.owed: tuple[Callable[[], None], ...] = ()

    def __del__(self) -> None:
        for release in (*self.owed, *(entered.release for entered in self.entered)):
            release()


@dataclass(eq=False, frozen=True, slots=True)
class Entered:
    """A block that is on.

    Attributes:
        session: which receives.
        task: of asyncio, whose programs alone are the block's; ``None`` where there is none.
        thread: in which it was entered.
        leave: leaves it, as the end of the block would.
        release: to be called when the thread is rid of its lens, which another thread cannot take off.
        by_user: whether the user's code entered it, and not what runs that code.
    """

    session: Session
    task: Any
    thread: _Thread
    leave: Callable[[], None]
    release: Callable[[], None]
    by_user: bool


class _Here(threading.local):
    def __init__(self) -> None:
        self.thread = _Thread()


_here = _Here()
_lock = threading.RLock()
# replaced, never changed: whoever asks what is running must not wait, and may ask at any time
_sessions: tuple[weakref.ref[Session], ...] = ()


def enter(session: Session, *, leave: Callable[[], None], release: Callable[[], None], by_user: bool) -> Entered:
    """One more block is on in this thread (see `Entered`)."""
    global _sessions
    thread = _here.thread
    entered = Entered(session, _current_task(), thread, leave, release, by_user)
    with _lock:
        _sessions = (*(known for known in _sessions if known() is not None), weakref.ref(session))
        thread.entered = (*thread.entered, entered)
    return entered


def leave(entered: Entered) -> bool:
    """A block is over; says whether it was the innermost of this thread, as it is unless tasks or threads overlap."""
    thread = entered.thread
    here = thread is _here.thread
    with _lock:
        innermost = here and thread.entered[-1:] == (entered,)
        thread.entered = tuple(one for one in thread.entered if one is not entered)
        if not here:
            thread.owed = (*thread.owed, entered.release)
    if here:
        entered.release()
    return innermost


def rid_of_lens() -> None:
    """This thread has no lens on any more: what is owed to blocks of it that were left elsewhere is done."""
    thread = _here.thread
    with _lock:
        owed, thread.owed = thread.owed, ()
    for release in owed:
        release()


def over(session: Session) -> None:
    """All that a block started has ended."""
    global _sessions
    with _lock:
        _sessions = tuple(known for known in _sessions if known() not in (None, session))


def innermost() -> Any:
    """The session that would receive a program of this task, or ``None``."""
    task = _current_task()
    return next((e.session for e in reversed(_here.thread.entered) if e.task is None or e.task is task), None)


def on_here() -> tuple[Entered, ...]:
    """The blocks that are on in this thread, outermost first."""
    return _here.thread.entered


def session_of_program() -> Any:
    """The session that receives the program which is about to run: the innermost one of this task.

    Those that belong to other tasks count the program as one they did not see.
    """
    for entered in reversed(_here.thread.entered):
        if entered.task is None or entered.task is _current_task():
            return entered.session
        entered.session.recording.missed()
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
    for known in _sessions:
        session = known()
        running = session.waited_for if session is not None else None
        if session is None or running is None:
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
