"""Whether two values are the same, to the bit: what records hold compares so."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np


def same(a: Any, b: Any) -> bool:
    """Whether two pytrees of NumPy arrays and plain Python values are the same: types, structure and every bit.

    -0.0 is not 0.0, and a NaN is the same only as one of the same payload. A scalar of NumPy is an array without axes.
    Of other objects the attributes are compared, or where there are none what ``==`` says.

    Example:
        >>> same({"x": np.float32("nan")}, {"x": np.float32("nan")}), same([0.0], [-0.0]), same(1, True)
        (True, False, False)
    """
    todo = [(a, b)]
    while todo:
        x, y = todo.pop()
        if x is y:
            continue
        if isinstance(x, np.ndarray | np.generic) and isinstance(y, np.ndarray | np.generic):
            x, y = np.asarray(x), np.asarray(y)
            if x.dtype != y.dtype or x.shape != y.shape:
                return False
            if x.dtype.hasobject:
                todo.append((x.tolist(), y.tolist()))
            elif x.tobytes() != y.tobytes():
                return False
        elif hasattr(x, "to_dict"):  # a record, which knows its kin
            if x != y:
                return False
        elif type(x) is not type(y):
            return False
        elif isinstance(x, float):
            if struct.pack("d", x) != struct.pack("d", y):
                return False
        elif isinstance(x, complex):
            todo += [(x.real, y.real), (x.imag, y.imag)]
        elif isinstance(x, dict):
            if x.keys() != y.keys():
                return False
            todo += [(item, y[key]) for key, item in x.items()]
        elif isinstance(x, list | tuple):
            if len(x) != len(y):
                return False
            todo += zip(x, y, strict=True)
        elif hasattr(x, "__dict__"):
            todo.append((vars(x), vars(y)))
        elif not _equal(x, y):
            return False
    return True


def _equal(x: Any, y: Any) -> bool:
    try:
        return bool(x == y)
    except Exception:  # an array of somebody's, whose equality is no truth
        return False
