"""PYTEST_DONT_REWRITE

A comparison with a snapshot, for the reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_jaxtap.observe.wire import attach
from pytest_jaxtap.stash import OPTIONS

if TYPE_CHECKING:
    import pytest

    from pytest_jaxtap.snapshot.extension import Question


def keep(node: pytest.Item, question: Question, result: Any, file: str) -> None:
    """Put a comparison into the record of its test, if a report that shows it was asked for.

    Args:
        node: the test.
        question: what was compared, and the answer.
        result: syrupy's account of it.
        file: where the snapshot is, for people.
    """
    options = node.config.stash[OPTIONS]
    if options.json is None and options.html is None:
        return
    found = question.difference
    if result.created or result.updated:
        found, outcome = None, "written"
    elif found is None:
        outcome = "missing"
    else:
        outcome = "matched" if found.equal else "different"
    told: dict[str, Any] = {"compared": 0, "differences": [], "environment": {}} if found is None else found.to_dict()
    told.pop("equal", None)
    attach(node, "comparisons", {"name": result.snapshot_name, "file": file, "outcome": outcome, **told})
    if options.html is not None:
        from pytest_jaxtap.report.curves import curves

        drawn = [] if found is None else curves(result.recalled_data.tracks, question.entry.tracks, found)
        attach(node, "curves", drawn)
