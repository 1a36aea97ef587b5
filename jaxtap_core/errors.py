"""What is said to people: warnings at their own line, once; hints at what they meant.

What a user's callback, predicate or sink raised must never reach the program it watched: it steps aside, with a
warning. Nothing here imports JAX.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import threading
import warnings
from collections.abc import Hashable, Iterable


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
    frame, level, not_the_users = sys._getframe(1), 1, _not_the_users()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(not_the_users):
        frame, level = frame.f_back, level + 1
    return level


def _not_the_users() -> tuple[str, ...]:
    """Where code stands that is not the user's; a JAX that nobody has imported has no frame anywhere."""
    modules = [sys.modules[name] for name in ("jax", __package__) if name in sys.modules]
    folders = [os.path.dirname(os.path.abspath(module.__file__)) + os.sep for module in modules if module.__file__]
    return (*folders, contextlib.__file__)


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


def nearest(given: str, known: Iterable[str], *, most: int = 1, alike: float = 0.5) -> list[str]:
    """Those of ``known`` that are spelt most like ``given``, the nearest first.

    Args:
        given: what somebody wrote.
        known: what there is.
        most: how many to give.
        alike: how much of the letters must agree, 0 to 1.
    """
    return difflib.get_close_matches(given, list(known), n=most, cutoff=alike)


def did_you_mean(given: str, known: Iterable[str], hint: str = "; {}", *, most: int = 1) -> str:
    """The end of a message about a name that does not exist; empty where nothing is spelt like it.

    Args:
        given: the name that somebody wrote.
        known: those there are.
        hint: how the question follows what is said before it.
        most: how many to ask for.

    Example:
        >>> did_you_mean("selct", ["select", "taps"])
        "; did you mean 'select'?"
        >>> did_you_mean("selct", ["select", "taps"], " ({})")
        " (did you mean 'select'?)"
        >>> did_you_mean("x", ["select", "taps"])
        ''
    """
    near = nearest(given, known, most=most)
    return hint.format(f"did you mean {' or '.join(map(repr, near))}?") if near else ""
