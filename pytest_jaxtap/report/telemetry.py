"""PYTEST_DONT_REWRITE

``--jaxtap-jsonl``: the recordings of a test as JSON Lines, in files named after it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtap_core import Recording

LONGEST_NAME = 120


def write(nodeid: str, recordings: Sequence[Recording], folder: Path) -> tuple[list[str], list[str]]:
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
