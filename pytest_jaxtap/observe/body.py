"""PYTEST_DONT_REWRITE

Puts the lens on round the body of a test, and fails the test from inside its body for what was
seen.

The body is replaced while the test runs, so that whoever calls it sees an ordinary assertion fail:
pytest itself, unittest, a plugin that runs coroutines, or Hypothesis, which calls it once an example.
"""

from __future__ import annotations

import functools
import inspect
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_jaxtap.observe.failure import JaxtapFailure
from pytest_jaxtap.observe.running import watch_of
from pytest_jaxtap.observe.watch import Watch


@contextmanager
def watched(item: pytest.Item) -> Iterator[None]:
    """While this is open, the body of ``item`` runs under the lens, as its watch asks for it."""
    watch = watch_of(item)
    if watch.demand.idle:
        yield
        return
    if not isinstance(item, pytest.Function):  # a doctest, an item of the user's own
        with Body(watch):
            yield
        return
    owner, name = _place_of_body(item)
    body = getattr(owner, name)
    setattr(owner, name, _under_lens(body, watch))
    try:
        yield
    finally:
        setattr(owner, name, body)


def _place_of_body(item: pytest.Function) -> tuple[Any, str]:
    """Where the function hangs that is called once for each example or run."""
    handle = getattr(item.obj, "hypothesis", None)
    if hasattr(handle, "inner_test"):
        return handle, "inner_test"
    if isinstance(item.instance, unittest.TestCase) and inspect.iscoroutinefunction(item.obj):
        return item.instance, item.name  # unittest looks it up there, not in pytest's item
    return item, "obj"


def _under_lens(body: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(body):

        @functools.wraps(body)
        async def observed_coroutine(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with Body(watch):
                return await body(*args, **kwargs)

        return observed_coroutine

    @functools.wraps(body)
    def observed(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with Body(watch):
            return body(*args, **kwargs)

    return observed


class Body:
    """The block around a test's body: opens the lens, and at its end fails for what was seen.

    What the body raises itself goes on as it is.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._block: Any = None
        self._recording: Any = None

    def __enter__(self) -> None:
        from jaxtap_core.api.record import standing

        self._block = standing(**self._watch.demand.body_options())
        self._recording = self._block.__enter__()
        self._watch.add_body(self._recording)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        __tracebackhide__ = True
        # One way through for bodies that raise and those that do not: Hypothesis explains a failing
        # example by the lines that ran only then, and these are of no use to anybody.
        try:
            self._block.__exit__(kind, error, traceback)
        except Exception as closing:
            if error is None and not self._stopped(closing):
                raise
            if error is not None:
                error.add_note(f"jaxtap: closing the lens raised {type(closing).__name__}: {closing}")
        stopped = self._stopped(error)
        own = error is not None and not stopped
        self._watch.note(error)
        text = None if own else self._watch.tell()
        if text is not None:
            raise JaxtapFailure(text) from None
        return not own

    def _stopped(self, error: BaseException | None) -> bool:
        """Whether the lens of this block raised ``error``, to stop at its first alert or finding."""
        from jaxtap_core import TapAlert

        recording = self._recording
        return isinstance(error, TapAlert) and any(
            one is error.finding or one is error.alert for one in (*recording.findings, *recording.alerts)
        )
