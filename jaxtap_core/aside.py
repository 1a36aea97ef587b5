"""Stepping aside: what a user's callback, predicate or sink raised must never reach the program it watched."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Hashable


class JaxtapWarning(UserWarning):
    """Something could not be observed, or something of the user's stepped aside."""


_said: set[Hashable] = set()
_lock = threading.Lock()


def warn(message: str, *, stacklevel: int = 3) -> None:
    """Warn; where warnings are errors, print the warning instead of harming the program."""
    try:
        warnings.warn(f"jaxtap: {message}", JaxtapWarning, stacklevel=stacklevel)
    except Warning:
        sys.stderr.write(f"jaxtap: warning: {message}\n")


def warn_once(key: Hashable, message: str) -> None:
    """Warn the first time that ``key`` comes up in this process."""
    with _lock:
        if key in _said:
            return
        _said.add(key)
    warn(message, stacklevel=4)


def describe(error: BaseException) -> str:
    """An exception in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


class LensError(ValueError):
    """The lens was asked for something that cannot be; the message says what to do instead."""
