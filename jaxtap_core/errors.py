"""Stepping aside: what a user's callback, predicate or sink raised must never reach the program it watched."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Hashable

import jax


class JaxtapWarning(UserWarning):
    """Something could not be observed, or something of the user's stepped aside."""


_said: set[Hashable] = set()
_lock = threading.Lock()


def warn(message: str) -> None:
    """Warn at the user's line; where warnings are errors, print the warning instead of harming the program."""
    try:
        warnings.warn(f"jaxtap: {message}", JaxtapWarning, stacklevel=_users_level())
    except Warning:
        sys.stderr.write(f"jaxtap: warning: {message}\n")


def _users_level() -> int:
    """How far up the stack the first frame is that is neither ours nor that of ``with`` blocks and JAX."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame, level = frame.f_back, level + 1
    return level


_NOT_THE_USERS = tuple(
    os.path.dirname(os.path.abspath(module.__file__)) + os.sep
    for module in (jax, sys.modules[__package__])
    if module.__file__
) + (contextlib.__file__,)


def warn_once(key: Hashable, message: str) -> None:
    """Warn the first time that ``key`` comes up in this process."""
    with _lock:
        if key in _said:
            return
        _said.add(key)
    warn(message)


def describe(error: BaseException) -> str:
    """An exception in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


class LensError(ValueError):
    """The lens was asked for something that cannot be; the message says what to do instead."""
