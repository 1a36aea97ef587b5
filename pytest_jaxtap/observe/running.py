"""PYTEST_DONT_REWRITE

The test that runs, and its watch: kept on pytest's own objects from the setup of the test to its teardown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_jaxtap.stash import OPTIONS

if TYPE_CHECKING:
    from pytest_jaxtap.observe.watch import Watch

# on the config
RUNNING: pytest.StashKey[pytest.Item] = pytest.StashKey()

# on an item; only where somebody observes
WATCH: pytest.StashKey[Watch] = pytest.StashKey()


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
