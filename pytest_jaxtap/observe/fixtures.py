"""PYTEST_DONT_REWRITE

What tests ask for by name: `TapRecorder` and `assert_bitwise`.

Both belong to the session and keep nothing, so they may stand in a Hypothesis test and in fixtures
of any scope; the recording goes to the test that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxtap.observe.failure import JaxtapFailure
from pytest_jaxtap.observe.running import RUNNING, watch_of
from pytest_jaxtap.observe.watch import Watch

if TYPE_CHECKING:
    from jaxtap_core import Recording


class TapRecorder:
    """Called like ``tap.record``; what it sees is attached to the report of the test if that fails.

    Where the test is gated, its blocks are gated too: a finding fails the test.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __call__(self, f: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        import jaxtap_core as tap

        watch = watch_of(self._config.stash[RUNNING])
        asked = watch.demand.recorder_options(options)
        if f is None:
            return _Block(tap.record(**asked), watch, options)
        wrapped, recording = tap.record(f, **asked)
        watch.add_recorder(recording, options)
        return wrapped, recording


class _Block:
    """The block of `tap.record`, whose recording is handed to the watch of a test."""

    def __init__(self, block: Any, watch: Watch, own: dict[str, Any]) -> None:
        self._block, self._watch, self._own = block, watch, own

    def __enter__(self) -> Recording:
        recording = self._block.__enter__()
        self._watch.add_recorder(recording, self._own)
        return recording

    def __exit__(self, *error: Any) -> Any:
        return self._block.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)


def assert_bitwise(f: Callable[..., Any], /, *args: Any, grad: bool = False, **lens_options: Any) -> None:
    """Fail unless ``f(*args)`` gives the same bits observed as unobserved, and twice unobserved.

    Args:
        f: function that runs JAX programs.
        args: what it is called with, by position; every run gets copies of the arrays.
        grad: whether its gradient is compared too.
        lens_options: what to observe, as for ``tap.record``.

    Raises:
        TypeError: there is no such option of the lens.
        JaxtapFailure: the bits differ, or ``f`` does not reproduce itself.
    """
    __tracebackhide__ = True
    import jaxtap_core as tap
    from jaxtap_core.api.identity import check_as

    with tap.unobserved():  # a gate round the test would observe the production that this compares with
        outcome = check_as("assert_bitwise", f, args, grad, lens_options)
    if outcome.outcome != "identical":
        raise JaxtapFailure(f"jaxtap: {outcome}")
