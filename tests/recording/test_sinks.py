"""Sinks: what is written while the program still runs."""

import threading

import numpy as np
import pytest

from jaxtap_core.recording import sinks
from jaxtap_core.recording.sinks import JSONLSink
from jaxtap_core.recording.stored import read_jsonl
from jaxtap_core.records.events import TapEvent


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setattr(sinks, "fingerprint", lambda: {"jax": "1.2.3"})


def event(step, value, path="scan[0]", **more):
    return TapEvent(path, step, 100, (step,), value, "carry", "f", 0, **more)


def test_events_come_back_whatever_order_they_arrived_in(tmp_path):
    sink = JSONLSink(tmp_path / "a.jsonl")
    value = {"L": np.eye(2, dtype=np.float32), "n": np.int32(3)}
    sink.write(event(1, np.float32(np.nan), time=0.5))
    sink.write(event(0, value, "scan[1]", lane=(4,), active=np.array([True, False]), device=1))
    sink.write(event(0, np.float32(0.1), time=0.75))
    sink.close()
    sink.close()
    back = read_jsonl(tmp_path / "a.jsonl")
    assert back.environment == {"jax": "1.2.3"}
    assert [e.step for e in back.events] == [0, 1, 0] and back.events[0].time == 0.75
    assert back.events[0].value == np.float32(0.1) and np.isnan(back.events[1].value)
    other = back.events[2]
    assert other.value["L"].tolist() == [[1, 0], [0, 1]] and other.value["n"].dtype == np.int32
    assert (other.lane, other.device, other.active.tolist()) == ((4,), 1, [True, False])
    assert other.path == "scan[1]" and back.streams[1].key.names == ("L", "n")


def test_a_line_is_in_the_file_when_write_returns(tmp_path):
    sink = JSONLSink(tmp_path / "a.jsonl")
    sink.write(event(0, np.float32(1)))
    assert len(read_jsonl(tmp_path / "a.jsonl", partial=True)) == 1
    with pytest.raises(ValueError, match="partial=True"):
        read_jsonl(tmp_path / "a.jsonl")
    sink.close()
    with pytest.raises(ValueError, match="closed"):
        sink.write(event(1, np.float32(1)))


def test_threads_do_not_tear_lines(tmp_path):
    sink = JSONLSink(tmp_path / "a.jsonl")

    def write(thread):
        for step in range(200):
            sink.write(event(step, np.int32(thread), f"scan[{thread}]"))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    assert [len(stream) for stream in read_jsonl(tmp_path / "a.jsonl").streams] == [200] * 4


def test_a_path_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="make it first"):
        JSONLSink(tmp_path / "missing" / "a.jsonl")
    with pytest.raises(IsADirectoryError, match="give the name of a file"):
        JSONLSink(tmp_path)
