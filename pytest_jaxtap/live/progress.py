"""PYTEST_DONT_REWRITE

``--jaxtap-live``: while a test runs, one line below pytest's own shows how far its loops are.

A thread draws the line, some ten times a second, and only while a program with loops runs. It is gone
before the test's own code goes on, so that nothing else is written while it is there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from pytest_jaxtap.stash import OPTIONS, STDERR

if TYPE_CHECKING:
    from jaxtap_core.runtime.progress import Ahead, Loop, Progress

REDRAWN = 0.1  # seconds

# Down and up makes room below, in the same column; then to the line below and back to where the cursor was.
_TO_LINE = b"\x1bD\x1b[A\x1b7\x1b[B\r\x1b[K"
_BACK = b"\x1b8"
_ERASE = b"\x1b[J"  # whatever is below the cursor


def shows(config: pytest.Config) -> bool:
    """Whether the line is asked for and there is a terminal of our own to draw it on."""
    if not config.stash[OPTIONS].live or hasattr(config, "workerinput") or os.environ.get("CI"):
        return False
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    ours = reporter is not None and reporter.isatty and os.isatty(config.stash[STDERR])
    return ours and os.environ.get("TERM") != "dumb" and config.getoption("capture", "fd") != "no"


@contextmanager
def shown(item: pytest.Item) -> Iterator[None]:
    """While the body of ``item`` runs, its programs run ahead, and the line shows how far they are."""
    if not shows(item.config):
        yield
        return
    from jaxtap_core.api.record import standing
    from jaxtap_core.runtime.progress import Ahead, watching

    line = _Line(item.name, item.config.stash[STDERR])
    ahead = Ahead(line.erase)
    over = threading.Event()

    def draw() -> None:
        while not over.wait(REDRAWN):
            line.draw(ahead)

    thread = threading.Thread(target=draw, name="jaxtap-live", daemon=True)
    thread.start()
    try:
        with watching(ahead), standing(carry=False):
            yield
    finally:
        over.set()
        thread.join()
        line.erase()


class _Line:
    """The line on the terminal ``descriptor``; it is drawn by one thread and erased by another."""

    def __init__(self, test: str, descriptor: int) -> None:
        self._test = test
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._drawn = False

    def draw(self, ahead: Ahead) -> None:
        with self._lock:
            progress = ahead.progress  # asked for under the lock: once it is gone, the line has been erased
            if progress is None:
                return
            text = told(self._test, progress, time.monotonic()).encode("ascii", "replace")  # a column a character
            with suppress(OSError):
                width = os.get_terminal_size(self._descriptor).columns
                os.write(self._descriptor, _TO_LINE + text[: width - 1] + _BACK)
                self._drawn = True

    def erase(self) -> None:
        with self._lock:
            if self._drawn:
                self._drawn = False
                with suppress(OSError):
                    os.write(self._descriptor, _ERASE)


def told(test: str, progress: Progress, now: float) -> str:
    """What the line says: test, program, time, and of each loop its steps and its rate."""
    again = ", again for its results" if progress.again else ""
    parts = [f"{test}: {progress.program}{again}, {now - progress.since:.1f} s"]
    if progress.counted:
        parts += [_loop(progress, loop) for loop in progress.loops]
    else:
        parts.append("runs only once, steps are not counted: " + ", ".join(loop.path for loop in progress.loops))
    return " | ".join(parts)


def _loop(progress: Progress, loop: Loop) -> str:
    step = progress.step(loop)
    text = f"{loop.path} {'-' if step is None else step}" + (f"/{loop.total}" if loop.total is not None else "")
    if loop.rate is not None:
        text += f" {loop.rate:,.0f}/s" if loop.rate >= 100 else f" {loop.rate:.3g}/s"
    return text
