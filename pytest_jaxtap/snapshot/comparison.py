"""PYTEST_DONT_REWRITE

What the reports are told of a comparison with a snapshot.
"""

from __future__ import annotations

from typing import Any

import pytest

from pytest_jaxtap.report.comparison import Comparison, Outcome
from pytest_jaxtap.report.record import compared
from pytest_jaxtap.snapshot.extension import Question


def tell_reports(item: pytest.Item, question: Question, result: Any, file: str) -> None:
    """Hand a comparison to the reports.

    Args:
        item: the test.
        question: what was compared, and the answer.
        result: syrupy's account of it.
        file: where the snapshot is, for people.
    """
    outcome: Outcome = "missing"
    found = question.difference
    if result.created or result.updated:
        outcome, found = "written", None
    elif found is not None:
        outcome = "matched" if found.equal else "different"
    expected = () if found is None else result.recalled_data.tracks
    compared(item, Comparison(result.snapshot_name, file, outcome, expected, question.entry.tracks, found))
