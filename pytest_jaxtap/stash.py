"""PYTEST_DONT_REWRITE

What the plugin keeps on pytest's own objects for several rooms.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_jaxtap.options import Options

if TYPE_CHECKING:
    import threading

# on the config
OPTIONS: pytest.StashKey[Options] = pytest.StashKey()
STDERR: pytest.StashKey[int] = pytest.StashKey()
COLLECTED: pytest.StashKey[list[pytest.Item]] = pytest.StashKey()  # those that were deselected later too

# on an item, while it has a timeout
TIMER: pytest.StashKey[threading.Timer | None] = pytest.StashKey()

# on an item that has run: whether all of it passed
PASSED: pytest.StashKey[bool] = pytest.StashKey()


def keep_stderr(config: pytest.Config) -> None:
    """Keep a way to the real stderr: while tests run, pytest's capture takes its file descriptor."""
    descriptor = os.dup(2)
    config.stash[STDERR] = descriptor
    config.add_cleanup(lambda: os.close(descriptor))


def note_outcome(item: pytest.Item, report: pytest.TestReport) -> None:
    """Keep whether all of ``item`` passes; what is stopped in its body does not."""
    so_far = report.when == "call" or (report.when == "teardown" and item.stash.get(PASSED, False))
    item.stash[PASSED] = so_far and report.passed
