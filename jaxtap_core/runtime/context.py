"""The blocks that are on in each thread, and to which of them a program belongs.

Blocks nest, and the innermost receives; but tasks of asyncio share their thread, so that their blocks begin and end in
any order. A block entered in a task receives that task's programs alone.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtap_core.runtime.session import Session


class _Blocks(threading.local):
    def __init__(self) -> None:
        self.entered: list[tuple[Session, Any]] = []


_here = _Blocks()


def enter(session: Session) -> None:
    """One more block is on in this thread."""
    _here.entered.append((session, _current_task()))


def leave(session: Session) -> bool:
    """A block is over; says whether it was the innermost, as it is unless tasks overlap."""
    innermost = bool(_here.entered) and _here.entered[-1][0] is session
    _here.entered = [entry for entry in _here.entered if entry[0] is not session]
    return innermost


def innermost() -> Session | None:
    """The session that would receive a program of this task, or ``None``."""
    task = _current_task()
    return next((s for s, owner in reversed(_here.entered) if owner is None or owner is task), None)


def any_on() -> bool:
    """Whether a block is on in this thread."""
    return bool(_here.entered)


def session_of_program() -> Session | None:
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
