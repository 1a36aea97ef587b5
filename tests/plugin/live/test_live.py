"""``--jaxtap-live``: the line on the terminal, what it must not touch, and where it must not be."""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtap_core as tap
from jaxtap_core.runtime.progress import MOST_EVENTS, Ahead, Loop, Progress, watching
from pytest_jaxtap.live.progress import told

if sys.platform != "win32":
    from terminal import COLUMNS, run, screen

pytest_plugins = ["pytester"]

SLOW = """
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import jaxtap_core as tap
from jax.experimental import io_callback

calls, shouts = [], []


def wait(x):
    calls.append(1)
    time.sleep(0.02)
    return x


@jax.jit
def train(x):
    def body(c, t):
        c = jax.pure_callback(wait, jax.ShapeDtypeStruct((), np.float32), c)
        c, _ = jax.lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * 0.5 + 1, s[1] + 1), (c, 0))
        return c, jnp.log(c)

    return jax.lax.scan(body, x, jnp.arange(25))


def test_first():
    pass


def test_slow():
    seen = train(1.0)
    with tap.unobserved():
        tap.assert_bitwise_equal(seen, train(1.0))
"""
MORE = """

@pytest.mark.tap(max_trips=5)
def test_budget():
    jax.lax.while_loop(lambda s: s[0] >= 0, lambda s: (s[0] * 0, s[1] + 1), (1.0, 0))


@pytest.mark.tap(watch_nan=True)
def test_nan():
    jax.lax.scan(lambda c, _: (jnp.sqrt(c) - 1, None), jnp.float32(1), length=4)


@pytest.mark.tap(bitwise=True)
def test_certified():
    jax.lax.fori_loop(0, 5, lambda i, x: x * 1.1 + i, 1.0)


@pytest.mark.tap(fail_fast=True, alert=lambda event: event.step == 2)
def test_stops():
    jax.lax.while_loop(lambda s: s >= 0, lambda s: s + 1, 0)


def test_recorders(tap_recorder):
    for record in (tap_recorder, tap.record):
        with record(select="x") as rec:
            jax.lax.fori_loop(0, 25, lambda i, x: x * 1.1, 1.0)
        assert len(rec) == 25 and all(event.time is None for event in rec.events)


def test_effects_once():
    debug = lambda i, x: (jax.debug.callback(lambda: shouts.append("debug")), x)[1]
    io = lambda i, x: io_callback(lambda x: (shouts.append("io"), x)[1], x, x, ordered=True)
    for step in (debug, io):
        jax.lax.fori_loop(0, 4, step, jnp.float32(1)).block_until_ready()
    jax.effects_barrier()
    assert sorted(shouts) == ["debug"] * 4 + ["io"] * 4


def test_donated():
    x = jnp.ones(3)
    jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + 1, x), donate_argnums=0)(x)
    assert x.is_deleted()
"""
LINE = re.compile(r"\x1b7\x1b\[B\r\x1b\[K([^\x1b]*)\x1b8")
QUIET = ["-pno:cacheprovider", "-pno:hypothesispytest", "-pno:anyio", "-pno:asyncio"]


@pytest.fixture
def on_terminal(pytester: pytest.Pytester) -> Any:
    """Run pytest on a terminal of its own; what it wrote there."""
    pytest.importorskip("pty")

    def start(*arguments: str, **variables: str) -> str:
        environment = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR", "PYTEST_ADDOPTS")}
        environment |= {"TERM": "xterm", **variables}
        return run([sys.executable, "-m", "pytest", *QUIET, *arguments], str(pytester.path), environment)

    return start


def without_seconds(lines: list[str]) -> list[str]:
    return [re.sub(r"=*( \d+ .*) in [\d.]+s =*", r"\1", line) for line in lines]


def test_the_line_tells_loops_steps_and_rates_and_leaves_a_clean_terminal(pytester: Any, on_terminal: Any) -> None:
    pytester.makepyfile(test_it=SLOW + MORE)
    plain, live = on_terminal("--tb=line", "-v"), on_terminal("--tb=line", "-v", "--jaxtap-live")
    lines = LINE.findall(live)
    shape = r"test_slow: train, [\d.]+ s \| scan\[0\] (\d+)/25 [\d.,]+/s \| scan\[0\]/while\[0\] \d+ [\d.,]+/s"
    steps = [int(match[1]) for line in lines if (match := re.fullmatch(shape, line))]
    assert len(set(steps)) > 1 and steps == sorted(steps)
    assert any(line.startswith("test_slow: train, again for its results, ") for line in lines)
    assert all(len(line) < COLUMNS for line in lines)
    # the same tests end in the same way for the same reasons, and nothing of the line is left
    assert without_seconds(screen(live)) == without_seconds(screen(plain))
    told = "\n".join(screen(live))
    assert "3 failed, 6 passed" in told
    assert "jaxtap: while[0] did not end within 5 trips" in told
    assert "jaxtap: NaN entered scan[0] at step 2 of 4" in told


@pytest.mark.parametrize("arguments", [["-s"], ["-n1"], []], ids=["-s", "-n1", "CI"])
def test_nothing_is_drawn_where_others_write_or_nobody_looks(
    pytester: Any, on_terminal: Any, arguments: list[str]
) -> None:
    pytester.makepyfile(test_it=SLOW + "    assert len(calls) == 50\n")
    written = on_terminal("--jaxtap-live", *arguments, **({} if arguments else {"CI": "true"}))
    assert "2 passed" in written and "scan[0]" not in written and "\x1b7" not in written


def test_nothing_is_drawn_without_a_terminal(pytester: Any) -> None:
    pytester.makepyfile(test_it=SLOW + "    assert len(calls) == 50\n")
    pytester.makeini("[pytest]\njaxtap_live = true\n")
    result = pytester.runpytest_subprocess(*QUIET, "--color=yes")
    result.assert_outcomes(passed=2)
    assert "scan[0]" not in result.stdout.str() + result.stderr.str() and "\x1b7" not in result.stdout.str()


def watched(function: Any, *args: Any) -> tuple[Any, list[Progress], Any]:
    """What ``function`` gives while it runs ahead, the progress as it was in the end, and the recording around it."""
    found: list[Progress] = []

    class Kept(Ahead):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "progress" and value is not None:
                found.append(value)
            super().__setattr__(name, value)

    with watching(Kept(lambda: None)), tap.record() as rec:
        result = function(*args)
    return result, found, rec


def test_steps_are_those_of_the_program_and_its_recording_is_what_it_would_be() -> None:
    def run() -> Any:
        step = lambda x, t: (jax.lax.fori_loop(0, t + 1, lambda i, x: x * 1.25 + i, x), x)
        return jax.lax.scan(step, 0.5, jnp.arange(4))

    function = jax.jit(run)
    with tap.record() as alone:
        expected = function()
    result, (progress,), rec = watched(function)
    tap.assert_bitwise_equal(result, expected)
    assert rec == alone and rec.certificate.identical
    outer, inner = progress.loops
    assert (outer.path, outer.total, outer.steps) == ("scan[0]", 4, (3,))
    assert (inner.path, inner.total, inner.steps) == ("scan[0]/while[0]", None, (3, 3))
    assert inner.rate is not None and inner.rate > 0 and progress.step(outer) == 3


@pytest.mark.parametrize(
    ("lengths", "heard"),
    [
        ((3, 5), {"scan[0]": 3, "scan[0]/scan[0]": 15}),
        ((MOST_EVENTS, 2), {"scan[0]": MOST_EVENTS}),  # 20,000 steps inside are too many to tell
        ((4 * MOST_EVENTS,), {"scan[0]": MOST_EVENTS}),
    ],
)
def test_long_loops_tell_few_of_their_steps(
    lengths: tuple[int, ...], heard: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[str, int] = {}
    hear = Loop.hear

    def counted(loop: Loop, *event: Any) -> bool:
        counts[loop.path] = counts.get(loop.path, 0) + 1
        return hear(loop, *event)

    monkeypatch.setattr(Loop, "hear", counted)

    def nest(x: Any, lengths: tuple[int, ...]) -> Any:
        step = lambda x, _: ((nest(x, lengths[1:]) if lengths[1:] else x + 1), None)
        return jax.lax.scan(step, x, None, length=lengths[0])[0]

    result, _, _ = watched(jax.jit(lambda x: nest(x, lengths)), jnp.int32(0))
    assert result == np.prod(lengths) and counts == heard


def test_programs_of_other_threads_and_those_that_fail_run_as_they_are() -> None:
    def broken(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, x: jax.pure_callback(fail, x, x), x)

    def fail(x: Any) -> Any:
        raise ValueError("from the callback")

    with pytest.raises(Exception, match="from the callback"):
        watched(lambda: jax.block_until_ready(jax.jit(broken)(jnp.float32(1))))
    found: list[Any] = []
    ahead = Ahead(lambda: found.append("over"))

    def elsewhere() -> None:
        with tap.record():
            jax.lax.fori_loop(0, 3, lambda i, x: x + 1, jnp.int32(0))

    with watching(ahead):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert not found


def test_the_line_in_words() -> None:
    loops = tuple(
        Loop(path, total, path.count("/") + 1, 1) for path, total in (("scan[0]", 9), ("scan[0]/while[1]", None))
    )
    progress = Progress("train", loops, since=10.0)
    assert told("test_a", progress, 12.5) == "test_a: train, 2.5 s | scan[0] -/9 | scan[0]/while[1] -"
    for number in range(4):  # 4 steps a tenth of a second apart: 10/s; of the outer loop only the last is known
        loops[1].hear((6, number), None, None, (), 11 + number / 10)
    assert told("test_a", progress, 12.5) == "test_a: train, 2.5 s | scan[0] 6/9 | scan[0]/while[1] 3 10/s"
    progress.counted = False
    assert (
        told("t", progress, 12.5)
        == "t: train, 2.5 s | runs only once, steps are not counted: scan[0], scan[0]/while[1]"
    )
