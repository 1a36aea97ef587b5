"""Values as plain Python data, and as text for people."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """``value`` in plain Python types, fit for JSON: NumPy scalars and arrays become numbers and nested lists.

    Floats that JSON cannot write (NaN, infinities) become the strings ``"nan"``, ``"inf"``, ``"-inf"``; complex
    numbers become ``[real, imag]``.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else repr(value)
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    if isinstance(value, np.generic | np.ndarray):
        array = np.asarray(value)
        if array.dtype.kind == "V":  # bfloat16, float8: NumPy knows them only as raw bytes
            array = array.astype(np.float32)
        return plain(array.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return str(value)


def short(value: Any) -> str:
    """``value`` on one line, long arrays cut in the middle."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={short(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(short(item) for item in value) + ")"
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.ndim == 0:
            return str(array[()])
        return " ".join(np.array2string(array, threshold=8, edgeitems=3, precision=6, separator=", ").split())
    return str(value)


def word(kind: str) -> str:
    """``nan`` or ``inf`` as people write it."""
    return {"nan": "NaN", "inf": "Inf"}[kind]
