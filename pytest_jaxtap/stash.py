"""PYTEST_DONT_REWRITE

What the plugin keeps on pytest's own objects: on the session's config, and on the test that runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import threading

    from pytest_jaxtap.observe.watch import Watch
    from pytest_jaxtap.options import Options

# on the config
OPTIONS: pytest.StashKey[Options] = pytest.StashKey()
STDERR: pytest.StashKey[int] = pytest.StashKey()
RUNNING: pytest.StashKey[pytest.Item] = pytest.StashKey()

# on an item, from its setup to its teardown; only where somebody observes
WATCH: pytest.StashKey[Watch] = pytest.StashKey()
TIMER: pytest.StashKey[threading.Timer | None] = pytest.StashKey()


def keep_stderr(config: pytest.Config) -> None:
    """Keep a way to the real stderr: while tests run, pytest's capture takes its file descriptor."""
    descriptor = os.dup(2)
    config.stash[STDERR] = descriptor
    config.add_cleanup(lambda: os.close(descriptor))


def begin(item: pytest.Item) -> None:
    """``item`` is set up: what is recorded from now on is its own, nothing of an earlier run is."""
    item.config.stash[RUNNING] = item
    end(item)


def end(item: pytest.Item) -> None:
    """``item`` is torn down, and its recordings, which may be large, with it."""
    if WATCH in item.stash:
        del item.stash[WATCH]


def watch_of(item: pytest.Item) -> Watch:
    """The watch of a test, made when it is first asked for.

    Raises:
        TypeError, ValueError: the marker makes no sense (it may have been added after collection).
    """
    if WATCH not in item.stash:
        from pytest_jaxtap.observe.policy import demand_of
        from pytest_jaxtap.observe.watch import Watch

        demand = demand_of(item, item.config.stash[OPTIONS])
        item.stash[WATCH] = Watch(demand, verbose=item.config.get_verbosity() >= 2)
    return item.stash[WATCH]
