"""PYTEST_DONT_REWRITE

Hooks and fixtures and nothing but; imports neither jax nor numpy, and the rest of the plugin only
where it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxtap import markers, options, stash
from pytest_jaxtap.observe import running
from pytest_jaxtap.report import base, registry

if TYPE_CHECKING:
    from pytest_jaxtap.observe.fixtures import TapRecorder


def pytest_addoption(parser: pytest.Parser) -> None:
    declarations = options.Declarations(parser)
    options.declare(declarations)
    registry.declare(declarations)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    options.apply_numerics(early_config)


def pytest_configure(config: pytest.Config) -> None:
    markers.register(config)
    stash.keep_stderr(config)
    config.stash[stash.COLLECTED] = []
    config.stash[stash.OPTIONS] = options.read(config)
    config.stash[base.REPORTS] = registry.asked(config)
    if not hasattr(config, "workerinput"):  # a worker of xdist reports to its controller
        from pytest_jaxtap.report.collector import Collector

        config.pluginmanager.register(Collector(config), "jaxtap-collector")


def pytest_sessionstart(session: pytest.Session) -> None:
    options.check_primitives(session.config, session.config.stash[stash.OPTIONS])


def pytest_itemcollected(item: pytest.Item) -> None:
    item.config.stash[stash.COLLECTED].append(item)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if wrong := markers.wrong_marks(items):
        from pytest_jaxtap.report import wire

        wire.refuse(config, items, wrong)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    running.begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    chosen = item.config.stash[stash.OPTIONS]
    if not (chosen.watches or chosen.live or markers.is_marked(item)):
        return (yield)
    from pytest_jaxtap.live import hang, progress
    from pytest_jaxtap.observe import body

    with hang.listening(item.nodeid, item.config.stash[stash.STDERR]), progress.shown(item), body.watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    if "tap_snapshot" not in pyfuncitem.fixturenames:
        return (yield)
    from pytest_jaxtap.snapshot import explain

    with explain.asked(pyfuncitem):
        return (yield)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    if op != "==" or not sys.modules.keys() & {"jaxtap_core.recording.recording", "pytest_jaxtap.snapshot.snapshot"}:
        return None
    from pytest_jaxtap.snapshot import explain

    return explain.explained(left, right)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    if item.config.stash[stash.OPTIONS].watches or markers.is_marked(item):
        from pytest_jaxtap.live import hang

        item.stash[stash.TIMER] = hang.timer(item.nodeid, settings.timeout, item.config.stash[stash.STDERR])


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    if (timer := item.stash.get(stash.TIMER, None)) is not None:
        timer.cancel()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    stash.note_outcome(item, report)
    if call.excinfo is not None or running.WATCH in item.stash:
        from pytest_jaxtap.observe import failure
        from pytest_jaxtap.report import record

        failure.show(item, call, report)
        record.put(item, report)
        if call.when == "teardown":
            running.end(item)
    return report


@pytest.hookimpl(wrapper=True)  # before syrupy's own
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    if session.config.pluginmanager.has_plugin("syrupy"):
        from pytest_jaxtap.snapshot import unused

        unused.judge(session)
    return (yield)


@pytest.fixture(scope="session")
def tap_recorder(request: pytest.FixtureRequest) -> TapRecorder:
    """Record values inside JAX programs: ``with tap_recorder(select="loss") as rec:``."""
    from pytest_jaxtap.observe.fixtures import TapRecorder

    return TapRecorder(request.config)


@pytest.fixture(scope="session")
def assert_bitwise() -> Callable[..., None]:
    """Fail unless observing leaves every bit as it is: ``assert_bitwise(f, *args, grad=True)``."""
    from pytest_jaxtap.observe.fixtures import assert_bitwise

    return assert_bitwise


@pytest.fixture
def tap_snapshot(request: pytest.FixtureRequest) -> Any:
    """Compare with a snapshot, exactly unless told otherwise: ``assert rec == tap_snapshot``."""
    from pytest_jaxtap.snapshot.snapshot import make_tap_snapshot

    return make_tap_snapshot(request)
