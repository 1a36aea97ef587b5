"""PYTEST_DONT_REWRITE

What pytest is told of a comparison that failed, and of one that was never made.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb

import pytest

from jaxtap_core.recording.recording import Recording
from pytest_jaxtap.snapshot.snapshot import COMPARISONS, TapSnapshot, answered_first, sides_of

_NOTHING = (
    "jaxtap: nothing was compared with tap_snapshot. If the test has `x == tap_snapshot`, the == of x answered first: "
    "write it the other way round, assert tap_snapshot == x"
)


def explained(left: object, right: object) -> list[str] | None:
    """Lines for an ``assert left == right`` that failed; ``None`` where others know better."""
    for side, other in ((right, left), (left, right)):
        if isinstance(side, TapSnapshot):
            return side.report if side.report and side.against == id(other) else [answered_first(other)]
    if isinstance(left, Recording) and isinstance(right, Recording):
        return f"jaxtap: the recordings differ (got == expected)\n{right.diff(left)}".splitlines()
    return None


@contextmanager
def asked(item: pytest.Function) -> Iterator[None]:
    """Round the body of a test that takes ``tap_snapshot``: it fails if it compared nothing with it.

    A body that raised is told why, where the ``==`` of another object is to blame.

    Raises:
        pytest.fail.Exception: nothing was compared, so any value would have passed.
    """
    try:
        yield
    except Exception as error:
        if _idle(item) and _is_of_another(item, error):
            item.add_report_section("call", "jaxtap snapshot", _NOTHING)
        raise
    if _idle(item):
        pytest.fail(_NOTHING, pytrace=False)


def _idle(item: pytest.Function) -> bool:
    """Whether the test took ``tap_snapshot``, or made one with settings, that it never compared."""
    if COMPARISONS not in item.stash:
        return False
    fixture, *others = item.stash[COMPARISONS].made
    taken = "tap_snapshot" in inspect.signature(item.obj).parameters
    return (taken and not fixture.asked) or any(not one.asked for one in others)


def _is_of_another(item: pytest.Function, error: Exception) -> bool:
    """Whether ``error`` came from the ``==`` of another object, or from what that answered."""
    body = inspect.unwrap(item.obj).__code__
    unexplained = isinstance(error, AssertionError) and item.config.getoption("assertmode") == "plain"
    for frame, line in walk_tb(error.__traceback__):
        _, other = sides_of(frame) or (None, None)
        if isinstance(other, TapSnapshot):
            return True
        if frame.f_code is body and "tap_snapshot" not in linecache.getline(body.co_filename, line):
            return False
    return unexplained or "truth value" in str(error)
