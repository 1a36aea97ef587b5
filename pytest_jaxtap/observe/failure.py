"""PYTEST_DONT_REWRITE

How a test fails: the exception, and the report that shows what it says and nothing else.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


class JaxtapFailure(AssertionError):
    """The lens saw what the test does not allow: a NaN, an alert, a changed bit.

    An ordinary failed assertion to pytest and unittest: ``xfail(raises=JaxtapFailure)``, reruns and
    JUnit treat it as any other.
    """


def show(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Put what a `JaxtapFailure`, or an exceeded trip budget, says in place of a traceback through our lines.

    Notes on the exception (Hypothesis' falsifying example) stay below it. ``--full-trace``
    shows the traceback.
    """
    import pytest

    excinfo = call.excinfo
    if excinfo is None or (said := _said_by(error := excinfo.value)) is None:
        return
    if not hasattr(report.longrepr, "reprcrash") or item.config.getoption("fulltrace", False):
        return
    text = "\n".join([said, *_notes(error)])
    told = JaxtapFailure(text).with_traceback(error.__traceback__)
    shown = pytest.ExceptionInfo.from_exception(told).getrepr(style="value", tbfilter=False)
    file, line, _ = item.location
    if shown.reprcrash is not None:  # the line of the summary, of --tb=line and of JUnit
        shown.reprcrash.path = file
        shown.reprcrash.lineno = (line or 0) + 1
        shown.reprcrash.message = text.partition("\n")[0]
    report.longrepr = shown


def _said_by(error: BaseException) -> str | None:
    """What an exception of ours says to people; ``None`` for any other."""
    if isinstance(error, JaxtapFailure):
        return str(error)
    stop = sys.modules.get("jaxtap_core.runtime.stop")  # if nobody has loaded it, nothing was stopped
    if stop is not None and isinstance(error, stop.LoopBudgetExceeded):
        return f"jaxtap: {error}"
    return None


def _notes(error: BaseException) -> list[str]:
    """The notes on an exception, without those on frames and lines that are ours or JAX's, of no use to anybody."""
    kept: list[str] = []
    explaining = False
    for note in getattr(error, "__notes__", []):
        explaining = note == "Explanation:" or (explaining and note.startswith(" "))
        if not explaining and "JAX has removed its internal frames" not in note:
            kept.append(note)
    return kept
