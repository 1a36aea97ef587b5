"""Sinks under a lens: written as events arrive, and read back as the recording that they were written beside."""

import json
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxtap_core as tap


@jax.jit
def sines(x):
    return lax.scan(lambda c, _: (jnp.sin(c), {"a": c, "b": -c}), x, None, length=3)


LENSES = {
    "carries": {},
    "named": {"select": {"new": "c"}},
    "reducer": {"select": lambda leaves: {"deep": (leaves[0], [leaves[0] * 2])}},
    "outputs": {"select_ys": ("a", "b")},
    "taps": {"taps": (tap.on("sin", label="one"), tap.on("sin", label="two"), tap.on("neg"))},
    "watched": {"taps": tap.watch_nan("sin", label="sine")},
    "listened to": {"on_step": lambda event: None},
    "inline": {"identity": "inline"},
}
lenses = pytest.mark.parametrize("lens", LENSES)


@lenses
def test_a_block_is_read_back(tmp_path, lens):
    path = tmp_path / "run.jsonl"
    with tap.record(**LENSES[lens], sinks=(tap.JSONLSink(path),)) as rec:
        sines(jnp.array([0.5, jnp.nan])), sines(jnp.array([1.0, 2.0]))
    back = tap.read_jsonl(path)
    assert len(rec.events) > 0
    assert back == rec
    assert [s.key.label for s in back.streams] == [s.key.label for s in rec.streams]
    assert [s.key.names for s in back.streams] == [s.key.names for s in rec.streams]
    assert [e.time for e in back.events] == [e.time for e in rec.events]
    assert back.environment == json.loads(json.dumps(tap_fingerprint()))


def tap_fingerprint():
    from jaxtap_core.telemetry.environment import fingerprint

    return fingerprint()


@lenses
@pytest.mark.parametrize("calls", [1, 3])
def test_a_wrapped_function_is_read_back_after_every_call(tmp_path, lens, calls):
    path = tmp_path / "run.jsonl"
    g, rec = tap.record(sines, **LENSES[lens], sinks=(tap.JSONLSink(path),))
    for call in range(calls):
        g(jnp.array([0.5, jnp.nan]) + call)
        assert tap.read_jsonl(path) == rec
        assert {e.call for e in rec.events} == set(range(call + 1))


def test_a_wrapped_function_that_raises_leaves_a_complete_file_too(tmp_path):
    path = tmp_path / "run.jsonl"

    def f(x):
        sines(x)
        raise KeyError("mine")

    g, rec = tap.record(f, sinks=(tap.JSONLSink(path),))
    with pytest.raises(KeyError):
        g(1.0)
    assert len(rec.events) == 3
    assert tap.read_jsonl(path) == rec


def test_a_verbose_function_keeps_its_events_in_the_sink_alone(tmp_path):
    path = tmp_path / "run.jsonl"
    g = tap.verbose(sines, sinks=(tap.JSONLSink(path),))
    g(0.5)
    with tap.record() as rec:
        sines(0.5)
    assert tap.read_jsonl(path) == rec


def test_a_file_is_shorter_by_nothing_when_it_was_complete_before(tmp_path):
    """Completing a file and going on leaves what one that was never completed has."""
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    one, two = map(tap.JSONLSink, paths)
    with tap.record() as rec:
        sines(0.5)
    for event in rec.events:
        one.write(event)
        one.flush()
        one.flush()
        two.write(event)
    one.close(), two.close()
    assert paths[0].read_text() == paths[1].read_text()
    assert tap.read_jsonl(paths[0]) == rec


class Written:
    """A sink of two methods, such as anybody may write."""

    def __init__(self):
        self.steps, self.closed = [], 0

    def write(self, event):
        self.steps.append(event.step)

    def close(self):
        self.closed += 1


def test_a_sink_of_two_methods_serves_every_form():
    sink = Written()
    g, _ = tap.record(sines, sinks=sink)
    g(0.5), g(0.5)
    assert (sink.steps, sink.closed) == ([0, 1, 2] * 2, 0)
    with tap.record(sinks=sink):
        sines(0.5)
    assert (sink.steps, sink.closed) == ([0, 1, 2] * 3, 1)


def test_what_a_sink_raises_when_it_is_flushed_warns_once():
    class Failing(Written):
        def flush(self):
            raise OSError("disk full")

    g, rec = tap.record(sines, sinks=Failing())
    with pytest.warns(tap.JaxtapWarning, match="flush of sink .*disk full") as caught:
        g(0.5), g(0.5)
    assert len(caught) == 1
    assert len(rec.events) == 6


# -- as it arrives


HANGS = {
    "carry": ("{}", "lax.while_loop(lambda c: c >= 0, lambda c: c * 0 + 1, 0)"),
    "tap": ("{'taps': tap.on('sin')}", "lax.while_loop(lambda c: c < 9, lambda c: jnp.sin(c), 0.5)"),
    "output": ("{'select_ys': 'out'}", "lax.scan(lambda c, _: (c + 1, c), 0, None, length=10**8)[0]"),
}


@pytest.mark.parametrize("hang", HANGS)
def test_a_run_that_hangs_and_is_killed_leaves_its_events(tmp_path, hang):
    options, program = HANGS[hang]
    path = tmp_path / "run.jsonl"
    script = f"""
        import jax, jax.numpy as jnp
        from jax import lax
        import jaxtap_core as tap
        with tap.record(**{options}, sinks=(tap.JSONLSink({str(path)!r}),)):
            jax.block_until_ready(jax.jit(lambda: {program})())
    """
    run = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    try:
        ends = time.monotonic() + 300
        while not path.exists() or path.read_bytes().count(b"\n") < 50:
            assert run.poll() is None and time.monotonic() < ends
            time.sleep(0.05)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    with pytest.raises(ValueError, match="cut off"):
        tap.read_jsonl(path)
    rec = tap.read_jsonl(path, partial=True)
    assert len(rec.events) >= 48
    assert [e.step for e in rec.events] == list(range(len(rec.events)))
