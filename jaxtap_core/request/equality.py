"""When two functions do the same: keys by which equal lenses find each other's compiled programs."""

from __future__ import annotations

import functools
import types
from collections.abc import Hashable
from typing import Any


class Same:
    """Stands for one object: equal only to a stand-in of the very same object, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def value_key(value: Any) -> Hashable:
    """A key under which equal plain values meet; functions count by what they do, other objects by identity."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return (type(value), repr(value))
    if isinstance(value, tuple | list):
        return (type(value), tuple(value_key(item) for item in value))
    if isinstance(value, dict):
        return (dict, tuple((value_key(key), value_key(item)) for key, item in value.items()))
    if isinstance(value, types.FunctionType | functools.partial):
        return function_key(value)
    return Same(value)


def function_key(function: Any) -> Hashable:
    """A key under which functions of the same code, defaults and closed-over values meet.

    Anything that is not a plain Python function (or a partial of one) counts by identity.

    Example:
        >>> def scaled(k):
        ...     return lambda leaves: leaves[0] * k
        >>> function_key(scaled(2)) == function_key(scaled(2)), function_key(scaled(2)) == function_key(scaled(3))
        (True, False)
    """
    if isinstance(function, functools.partial):
        return (
            "partial",
            function_key(function.func),
            value_key(function.args),
            value_key(function.keywords),
        )
    if not isinstance(function, types.FunctionType):
        return value_key(function) if function is None else Same(function)
    cells = []
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # a variable that is not bound yet
            content = None
        # a function that refers to itself would never end
        cells.append(Same(content) if content is function else value_key(content))
    return (
        function.__code__,
        value_key(function.__defaults__),
        value_key(function.__kwdefaults__),
        tuple(cells),
    )
