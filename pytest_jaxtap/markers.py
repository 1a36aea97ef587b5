"""PYTEST_DONT_REWRITE

The marker ``tap`` (alias ``jaxtap``): what one test asks of the lens, checked at collection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from pytest_jaxtap.options import LEVELS

NAMES = ("tap", "jaxtap")
OWN = ("watch_nan", "watch_inf", "allow_nan", "bitwise", "expect_alert")

DESCRIPTION = (
    "(watch_nan=, watch_inf=, allow_nan=, bitwise=, max_trips=, expect_alert=, "
    "and the arguments of jaxtap_core.record): run the body of the test under the lens"
)


@dataclass(frozen=True)
class Mark:
    """The arguments of a marker.

    Attributes:
        watch_nan: ``True`` for the gate at its usual level, ``False`` for no gate, a level, or
            names of primitives; ``None`` where the marker says nothing.
        watch_inf: whether the gate counts Inf too, ``None`` where the marker says nothing.
        allow_nan: the gate stays quiet.
        bitwise: a result that observing changes, or that cannot be certified, fails the test.
        expect_alert: the test passes only if an alert or finding matches.
        record: keyword arguments of ``tap.record``.
        bare: whether the marker has no arguments at all: the test is recorded.
    """

    watch_nan: Any = None
    watch_inf: bool | None = None
    allow_nan: bool = False
    bitwise: bool = False
    expect_alert: re.Pattern[str] | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    bare: bool = False


# arguments that answer the same question: the closest answer is the only one
RIVALS = (frozenset({"watch_nan", "gate", "allow_nan"}), frozenset({"bitwise", "identity"}))


def register(config: pytest.Config) -> None:
    """Make the marker and its alias known to ``--strict-markers`` and ``--markers``."""
    for name in NAMES:
        config.addinivalue_line("markers", f"{name}{DESCRIPTION}")


def is_marked(item: pytest.Item) -> bool:
    """Whether a test has a marker."""
    return any(mark.name in NAMES for mark in item.iter_markers())


def mark_of(item: pytest.Item) -> Mark | None:
    """What the markers of a test say together, or ``None``: of each argument, the closest marker's counts.

    Raises:
        TypeError, ValueError: an argument that does not exist or makes no sense.
    """
    marks = [mark for mark in item.iter_markers() if mark.name in NAMES]
    for mark in marks:
        _parsed(mark)  # each has to make sense by itself
    if not marks:
        return None
    together: dict[str, Any] = {}
    for mark in reversed(marks):
        for rivals in RIVALS:
            if rivals & mark.kwargs.keys():
                together = {key: value for key, value in together.items() if key not in rivals}
        together |= mark.kwargs
    return _parsed(pytest.Mark(marks[0].name, (), together, _ispytest=True))


def wrong_marks(items: Iterable[pytest.Item]) -> list[str]:
    """Every test whose marker makes no sense, and why: one message each."""
    wrong = []
    for item in items:
        try:
            mark_of(item)
        except (TypeError, ValueError) as error:
            wrong.append(f"{item.nodeid}: {error}")
    return wrong


def _parsed(mark: pytest.Mark) -> Mark:
    name, given = f"@pytest.mark.{mark.name}", dict(mark.kwargs)
    if mark.args:
        raise TypeError(f"{name} takes keyword arguments, e.g. {name}(watch_nan=True), not {mark.args[0]!r}")
    for key in ("watch_inf", "allow_nan", "bitwise"):
        if not isinstance(given.get(key, False), bool):
            raise TypeError(f"{name}: {key} must be True or False, not {given[key]!r}")
    own = {key: given.pop(key) for key in OWN if key in given}
    if "watch_nan" in own:
        _check_gate(name, own["watch_nan"])
    if "expect_alert" in own:
        own["expect_alert"] = _pattern(name, own["expect_alert"])
    _check_record(name, given)
    _check_conflicts(name, own, given)
    return Mark(**own, record=given, bare=not mark.kwargs)


def _check_gate(name: str, level: Any) -> None:
    if isinstance(level, bool) or (isinstance(level, str) and level in LEVELS):
        return
    from jaxtap_core.request.levels import GateLevel

    try:
        GateLevel.parse(level)
    except ValueError as error:
        raise ValueError(f"{name}: watch_nan: {error}") from None


def _pattern(name: str, text: Any) -> re.Pattern[str]:
    if not isinstance(text, str):
        raise TypeError(f"{name}: expect_alert must be a regular expression, not {text!r}")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{name}: expect_alert={text!r} is no regular expression: {error}") from None


def _check_record(name: str, given: Mapping[str, Any]) -> None:
    if not given:
        return
    from jaxtap_core.errors import did_you_mean
    from jaxtap_core.request.settings import Settings

    known = [*OWN, *(f.name for f in fields(Settings) if f.init)]
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known)
            raise TypeError(f"{name} has no argument {key!r}{hint} (it takes: {', '.join(known)})")
    try:
        Settings.of(name, given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _check_conflicts(name: str, own: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    watched = own.get("watch_nan")
    if "watch_inf" in own and "inf" in record:
        raise ValueError(f"{name}: watch_inf and inf mean the same; give one of them")
    if watched not in (None, False) and record.get("gate") is not None:
        raise ValueError(f"{name}: watch_nan and gate mean the same; give one of them")
    if own.get("allow_nan") and (watched not in (None, False) or record.get("gate") is not None):
        raise ValueError(f"{name}: allow_nan=True and a gate contradict each other; give one of them")
    if own.get("bitwise") and record.get("identity", "certified") != "certified":
        raise ValueError(f"{name}: bitwise=True certifies; identity={record['identity']!r} contradicts it")
