"""Damage by machine: a damaged file is read with the same values, or told with file and line; it takes no room."""

import collections
import os
import random
import re
import time
import tracemalloc
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from mutations import damaged
from snapshots import FOLDER, files

import jaxtap_core as tap
from jaxtap_core.compare.diff import compare
from jaxtap_core.compare.table import tracks_of
from jaxtap_core.compare.tolerance import Tolerances
from jaxtap_core.recording.stored import read_jsonl
from jaxtap_core.records.events import Alert
from pytest_jaxtap.snapshot.arrays import store
from pytest_jaxtap.snapshot.extension import JaxtapExtension
from pytest_jaxtap.snapshot.format import Entry, dump

pytest_plugins = ["pytester", "snapshots"]

MOST_BYTES = 200 * 2**20
MOST_SECONDS = 1.0  # of the processor
FEW, MANY = 150, 2500  # changes of each file


def recorded():
    """A real recording: loops in loops, lanes, taps, per-step outputs, an alert."""

    def step(state, t):
        inner = jax.lax.fori_loop(0, 2, lambda i, x: x * 0.5 + i, state["x"])
        return {"x": inner, "n": state["n"] + 1, "ok": state["n"] > 2}, jnp.log(inner)

    with tap.record(carry=True, select_ys=lambda ys: ys, taps=(tap.on("mul"), tap.on("mul", select=lambda o: o[0] + 1)),
                    alert=lambda event: event.path == "scan[0]" and event.step == 4) as rec:  # fmt: skip
        jax.lax.scan(step, {"x": jnp.float32([1.5, -2]), "n": 0, "ok": False}, jnp.arange(5))
        jax.vmap(lambda x: jax.lax.while_loop(lambda x: x < 3, lambda x: x + 0.7, x))(jnp.arange(3.0))
    return rec


def values():
    """One of each kind of plain value."""
    return {
        "list": [1, 2.5, None, "text \u2028 é"], "tuple": (np.float32("nan"), 1 - 2j), "key": jax.random.key(1),
        "frame": pd.DataFrame({"a": [0.1, 0.2], "c": pd.Categorical(["x", "y"])}), "bf": jnp.bfloat16([1, 2]),
    }  # fmt: skip


BOMB = zlib.compress(bytes(5 * 10**8))
LARGE = {"x": np.arange(3000.0), "t": np.array([f"item {i}" for i in range(1500)], object)}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    """A snapshot file as `tap_snapshot` writes it."""
    path = tmp_path_factory.mktemp("snapshots") / "test_a.jaxtap"
    environment = {"jax": "0.12", "x64": False, "xla_flags": []}
    made = {"run": recorded(), "values": values(), "large": LARGE, "small": np.float32(0.1)}
    entries = {name: Entry(tuple(tracks_of(value)), environment) for name, value in made.items()}
    path.write_text(dump(entries, store(entries.values(), path)))
    return path, {name: entry.tracks for name, entry in entries.items()}


@pytest.fixture(scope="module")
def jsonl(tmp_path_factory):
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    rec = recorded()
    assert rec.alerts and isinstance(rec.alerts[0], Alert)
    rec.to_jsonl(path)
    return path, rec


def entries_of(path, names):
    """What `tap_snapshot` is given to compare with, by name."""
    files = JaxtapExtension()
    read = lambda name: files.read_snapshot_data_from_location(
        snapshot_location=str(path), snapshot_name=name, session_id=""
    )
    return {name: entry.tracks for name in names if (entry := read(name)) is not None}


def judged(told, path, read, is_same):
    """Read a damaged file: whether it was read as it was, or told; anything else fails."""
    tracemalloc.reset_peak()
    before, started = tracemalloc.get_traced_memory()[0], time.process_time()
    try:
        found = read(path)
    except ValueError as error:
        assert re.match(rf"{re.escape(str(path))}, line \d+: \S", str(error)), (told, error)
        assert not isinstance(error, UnicodeError) and len(str(error)) < 1000, told
        outcome = "told"
    else:
        assert is_same(found), told
        outcome = "the same"
    # Of the processor, on which no other process counts: a hundred times what an undamaged file takes.
    assert time.process_time() - started < MOST_SECONDS, told
    assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES, told
    return outcome


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


SEEDS = [range(FEW), pytest.param(range(FEW, MANY), marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_a_damaged_snapshot_is_read_as_it_was_or_told(snapshot, tmp_path, traced, seeds):
    original, expected = snapshot
    data, path = original.read_bytes(), tmp_path / original.name
    for file in original.parent.glob("*.bin"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    is_same = lambda found: all(compare(expected[name], got, Tolerances.of()).equal for name, got in found.items())
    assert is_same(entries_of(original, expected)) and len(entries_of(original, expected)) == len(expected)
    outcomes = collections.Counter()
    for seed in seeds:
        what, changed = damaged(seed, data)
        path.write_bytes(changed)
        os.utime(path, ns=(seed, seed))
        outcomes[judged((seed, what), path, lambda path: entries_of(path, expected), is_same)] += 1
        assert path.read_bytes() == changed
    assert outcomes["told"] > 0.7 * len(seeds), outcomes


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_a_damaged_array_is_read_as_it_was_or_told(snapshot, tmp_path, traced, seeds):
    original, expected = snapshot
    path = tmp_path / original.name
    path.write_bytes(original.read_bytes())
    files = {file.name: file.read_bytes() for file in sorted(original.parent.glob("*.bin"))}
    is_same = lambda found: all(compare(expected[name], got, Tolerances.of()).equal for name, got in found.items())
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for seed in seeds:
        r = random.Random(seed)
        name = r.choice(list(files))
        data = files[name]
        plain = zlib.decompress(data)
        changed = r.choice(
            [
                lambda: damaged(seed, data)[1],
                lambda: zlib.compress(damaged(seed, plain)[1]),
                lambda: files[r.choice(list(files))],
                lambda: b"",
                lambda: r.choice([zlib.compress(plain + b"\0"), BOMB]),
                lambda: zlib.compress(plain, r.randrange(10)),
                lambda: data + r.randbytes(r.choice([1, 1000])),
            ]
        )()
        (tmp_path / name).write_bytes(changed)
        judged((seed, name), path, lambda path: entries_of(path, expected), is_same)
        assert (tmp_path / name).read_bytes() == changed
        (tmp_path / name).write_bytes(data)


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_a_damaged_recording_is_read_as_it_was_or_told(jsonl, tmp_path, traced, seeds):
    original, recording = jsonl
    data, path = original.read_bytes(), tmp_path / original.name

    def is_same(found):
        told = lambda one: [
            one.unobserved,
            one.unobservable,
            *(each.to_dict() for each in (*one.alerts, *one.findings)),
        ]
        return (
            recording.diff(found).equal
            and told(found) == told(recording)
            and found.certificate.to_dict() == recording.certificate.to_dict()
            and [event.to_dict() for event in found.events] == [event.to_dict() for event in recording.events]
        )

    assert is_same(read_jsonl(original))
    outcomes = collections.Counter()
    for seed in seeds:
        what, changed = damaged(seed, data)
        path.write_bytes(changed)
        outcomes[judged((seed, what), path, read_jsonl, is_same)] += 1
    assert outcomes["told"] > 0.9 * len(seeds), outcomes


TESTS = """
import numpy as np, pytest

@pytest.mark.parametrize("number", range({many}))
def test_damaged(number, tap_snapshot):
    assert {{"a": [1.5, number], "b": (np.arange(3), "text")}} == tap_snapshot
    assert np.arange(1500.0) + number == tap_snapshot(name="large")

def test_innocent(tap_snapshot):
    assert 1 == tap_snapshot
"""


@pytest.mark.parametrize("many", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_damaged_files_harm_no_other_test_and_are_left_as_they_are(pytester, run, many):
    pytester.makepyfile(test_it=TESTS.format(many=many))
    run("--snapshot-update").assert_outcomes(passed=many + 1)
    for path in sorted((pytester.path / FOLDER).rglob("*test_damaged*")):
        seed = int(re.search(r"\d+", path.name)[0])
        if (path.suffix == ".bin") == (seed % 5 == 0):
            path.write_bytes(damaged(seed, path.read_bytes())[1])
    before = files(pytester)
    for options in ([], ["--snapshot-update"]):
        result = run(*options)
        outcomes = result.parseoutcomes()
        assert outcomes["passed"] + outcomes["failed"] == many + 1 and "error" not in outcomes
        assert "INTERNALERROR" not in result.stdout.str()
        assert "test_innocent" not in result.stdout.str()
        whole = {name for name, data in before.items() if b"\nend " not in data or data.count(b"\nentry ") == 2}
        assert {name: data for name, data in files(pytester).items() if name in whole} == {n: before[n] for n in whole}
