"""What travels between processes is exactly plain: xdist refuses even subclasses of plain types."""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_jaxtap.report.wire import MOST_ELEMENTS, plain

PLAIN = (str, int, float, bool, list, dict, type(None))


class Text(str):
    __slots__ = ()


class Number(enum.IntEnum):
    ONE = 1


def all_of(value: Any) -> list[Any]:
    """``value`` and everything inside it."""
    inside = list(value.values()) + list(value) if type(value) is dict else value if type(value) is list else []
    return [value, *(deep for item in inside for deep in all_of(item))]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.int8(-3), -3),
        (np.float32("nan"), "nan"),
        (-np.inf, "-inf"),
        (1 + 2j, [1.0, 2.0]),
        (np.array([1.5, np.nan]), [1.5, "nan"]),
        (np.array(1.5, ml_dtypes.bfloat16), 1.5),
        (Text("text"), "text"),
        (Number.ONE, 1),
        ((1, (2,)), [1, [2]]),
        ({Text("a"): np.arange(2)}, {"a": [0, 1]}),
        (None, None),
    ],
)
def test_values_become_exactly_plain(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    assert all(type(one) in PLAIN for one in all_of(plain(value)))


def test_long_arrays_are_shortened() -> None:
    assert len(plain(np.zeros(MOST_ELEMENTS))) == MOST_ELEMENTS
    text = plain({"x": [np.zeros((MOST_ELEMENTS, 2))]})["x"][0]
    assert type(text) is str and text.startswith("float64[1000, 2] [[0., 0.]")
