"""PYTEST_DONT_REWRITE

A hung test is told apart: what runs under the lens goes to stderr before the test is killed.

While a compiled loop hangs, Python runs no signal handler; but the C level of a signal writes to a file descriptor, and
another thread can read it. So a thread of ours waits there for SIGTERM and SIGALRM (pytest-timeout's signal), and for
pytest-timeout's thread method a timer of ours fires just before its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

_HEARD = {int(getattr(signal, name)): name for name in ("SIGTERM", "SIGALRM") if hasattr(signal, name)}
AHEAD = 0.2  # seconds by which our timer goes before pytest-timeout's


def say(nodeid: str, why: str, stderr: int) -> None:
    """Write what is running to ``stderr``, a file descriptor that pytest's capture has not taken."""
    context = sys.modules.get("jaxtap_core.runtime.context")  # if nobody has loaded it, nothing runs
    lines = context.describe_running() if context is not None else []
    if lines:
        text = "\n".join([f"jaxtap: {why} in {nodeid}", *(f"  {line}" for line in lines), ""])
        with contextlib.suppress(OSError):
            os.write(stderr, text.encode())


@contextlib.contextmanager
def listening(nodeid: str, stderr: int) -> Iterator[None]:
    """While a test runs, hear signals that Python itself would only handle after the program has returned."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    # without a handler the default action kills the process before anybody is told; our thread then does it
    default = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if default:
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    thread = threading.Thread(target=_listen, args=(ours, before, nodeid, stderr, default), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        if default:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        theirs.close()
        thread.join()
        ours.close()


def _listen(ours: socket.socket, before: int, nodeid: str, stderr: int, default: bool) -> None:
    while data := ours.recv(64):
        for number in data:
            if before >= 0:  # whoever listened here first still hears it
                with contextlib.suppress(OSError):
                    os.write(before, bytes([number]))
            if number in _HEARD:
                say(nodeid, _HEARD[number], stderr)
            if number == signal.SIGTERM and default:
                os._exit(128 + number)


def timer(nodeid: str, seconds: float | None, stderr: int) -> threading.Timer | None:
    """A timer that speaks just before pytest-timeout ends the test; ``None`` where there is no timeout."""
    if not seconds or seconds <= AHEAD:
        return None
    clock = threading.Timer(seconds - AHEAD, say, (nodeid, f"timeout after {seconds:g} s", stderr))
    clock.daemon = True
    clock.start()
    return clock
