"""PYTEST_DONT_REWRITE

``--jaxtap-jsonl``: the recordings of a test as JSON Lines, in files named after it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from pytest_jaxtap.options import Declarations, path_given
from pytest_jaxtap.report.base import Report

if TYPE_CHECKING:
    from jaxtap_core import Recording
    from pytest_jaxtap.observe.watch import Watch
    from pytest_jaxtap.report.wire import Record

LONGEST_NAME = 120


class JsonlReport(Report):
    """Written as each test ends, in the process that ran it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def declare(cls, declarations: Declarations) -> None:
        declarations.value("jsonl", "DIR", str, "write every recording to DIR as JSON Lines, a file per test")

    @classmethod
    def asked(cls, config: pytest.Config) -> Self | None:
        folder = path_given(config, "jsonl", folder=True)
        return None if folder is None else cls(folder)

    def tested(self, item: pytest.Item, watch: Watch, record: Record) -> None:
        """Write the recordings; the record says where they are, and why any could not be written."""
        written, errors = _write(item.nodeid, (seen.recording for seen in watch.seen), self._folder)
        record["files"] += written
        record["errors"] += errors


def _write(nodeid: str, recordings: Iterable[Recording], folder: Path) -> tuple[list[str], list[str]]:
    """Write each recording that holds events to ``folder``: ``NAME.jsonl``, the second
    ``NAME.2.jsonl``.

    Returns:
        The paths that were written, and messages about those that could not be.
    """
    written: list[str] = []
    errors: list[str] = []
    for recording in recordings:
        if not len(recording):
            continue
        number = f".{len(written) + 1}" if written else ""
        path = folder / f"{file_name(nodeid)}{number}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            recording.to_jsonl(path)
        except OSError as error:
            errors.append(f"{path}: {error}")
        else:
            written.append(str(path))
    return written, errors


def file_name(nodeid: str) -> str:
    """A name for a file of the test ``nodeid``: readable, legal everywhere, and its alone.

    Example:
        >>> file_name("tests/test_model.py::test_fit[x/y]")
        'tests-test_model.py-test_fit-x-y-e9a973cb'
    """
    readable = re.sub(r"[^\w.]+", "-", nodeid, flags=re.ASCII).strip("-")[-LONGEST_NAME:]
    return f"{readable}-{hashlib.sha256(nodeid.encode()).hexdigest()[:8]}"
