"""A recording of a real program through its DataFrame, its file, and a comparison."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxtap_core as tap
from jaxtap_core.compare.diff import diff
from jaxtap_core.recording.sinks import JSONLSink
from jaxtap_core.recording.stored import read_jsonl


@jax.jit
def chaos(x):
    """Doubles every difference about every step: the dyadic map, made inexact."""
    return jax.lax.scan(lambda c, _: ((c * 1.9375) % 1.0, c), x, None, length=40)


def record(x, **options):
    with tap.record(**options) as rec:
        jax.block_until_ready(chaos(x))
    return rec


def test_the_steps_of_a_scan_end_to_end(tmp_path):
    start = jnp.float32(0.3)
    rec = record(start)
    steps = np.asarray(chaos(start)[1])
    (name,) = rec.streams[0].key.names
    df = rec.df()
    assert len(df) == 40 and df[name].dtype == np.float32
    assert df[name].to_numpy()[:-1].tobytes() == steps[1:].tobytes()
    rec.to_jsonl(tmp_path / "a.jsonl")
    assert rec.diff(read_jsonl(tmp_path / "a.jsonl")).equal
    found = rec.diff(record(np.nextafter(start, np.float32(1))))
    (item,) = found.items
    assert item.differing == 40 and item.first.steps == (0,)
    assert item.growth.kind == "exponential" and 0.8 < item.growth.doubling < 1.3
    assert "test_telemetry.py" in item.source


def test_a_sink_holds_what_the_recording_holds(tmp_path):
    sink = JSONLSink(tmp_path / "live.jsonl")
    rec = record(jnp.ones(3, jnp.bfloat16) / 3, on_step=lambda event: None, sinks=(sink,))
    sink.close()
    live = read_jsonl(tmp_path / "live.jsonl")
    assert len(live) == 40 == len(rec)
    same = [diff(a.value, b.value).equal for a, b in zip(live.events, rec.events, strict=True)]
    assert all(same)
