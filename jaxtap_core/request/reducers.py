"""Reducers: functions of the user's that run on the device, on the leaves of a loop or the outputs of a primitive."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def check_reducer(name: str, reducer: Callable[..., Any], takes: str) -> None:
    """Check that a reducer can be called, as ``f(takes)`` or ``f(takes, *, path)``.

    Raises:
        TypeError: it cannot.
    """
    try:
        signature = inspect.signature(reducer)
    except (TypeError, ValueError):  # one that Python cannot look into
        return
    try:
        signature.bind((), **({"path": ""} if takes_path(reducer) else {}))
    except TypeError as error:
        raise TypeError(f"{name} is called as f({takes}) or f({takes}, *, path), but {error}") from None


def takes_path(reducer: Callable[..., Any]) -> bool:
    """Whether a reducer wants to know the address of the loop or primitive whose values it gets."""
    try:
        parameters = inspect.signature(reducer).parameters
    except (TypeError, ValueError):
        return False
    return "path" in parameters and parameters["path"].kind is inspect.Parameter.KEYWORD_ONLY
