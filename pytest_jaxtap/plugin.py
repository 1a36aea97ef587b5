"""PYTEST_DONT_REWRITE

Hooks and fixtures and nothing but; imports neither jax nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxtap import failure, fixtures, judge, markers, options, watch
from pytest_jaxtap.demand import demand_of

if TYPE_CHECKING:
    from pytest_jaxtap.fixtures import TapRecorder


def pytest_addoption(parser: pytest.Parser) -> None:
    options.declare(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    options.apply_numerics(early_config)


def pytest_configure(config: pytest.Config) -> None:
    markers.register(config)
    config.stash[options.KEY] = options.read(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    options.check_primitives(session.config.stash[options.KEY])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    markers.check(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    config = item.config
    demand = demand_of(item, config.stash[options.KEY])
    item.stash[watch.KEY] = watch.Watch(demand, verbose=config.get_verbosity() >= 2)
    config.stash[fixtures.RUNNING] = item


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with judge.watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    failure.show(item, call, report)
    return report


@pytest.fixture(scope="session")
def tap_recorder(request: pytest.FixtureRequest) -> TapRecorder:
    """Record values inside JAX programs: ``with tap_recorder(select="loss") as rec:``, as `jaxtap_core.record`."""
    return fixtures.TapRecorder(request.config)


@pytest.fixture(scope="session")
def assert_bitwise() -> Callable[..., None]:
    """Fail unless observing leaves every bit as it is: ``assert_bitwise(f, *args, grad=True)``."""
    return fixtures.assert_bitwise


@pytest.fixture
def tap_snapshot(request: pytest.FixtureRequest) -> Any:
    """Compare with a stored snapshot, bit for bit unless told otherwise: ``assert rec == tap_snapshot(rtol=1e-5)``."""
    from pytest_jaxtap.snapshot import make_tap_snapshot

    return make_tap_snapshot(request)
