"""The text of a snapshot: what is written comes back bit for bit; damage is found and named."""

import datetime
import decimal
import enum
import pathlib
import re
import subprocess

import jax
import ml_dtypes
import numpy as np
import pandas as pd
import pytest

from jaxtap_core.compare.table import Track, TrackKey, tracks_of
from pytest_jaxtap.snapshot import arrays as snapshot_arrays
from pytest_jaxtap.snapshot.format import DamagedSnapshotError, Entry, dump, named_files
from pytest_jaxtap.snapshot.parse import parse

ENVIRONMENT = {"jax": "0.10.2", "x64": False, "matmul_precision": None, "xla_flags": ["--a=b"]}


def bits(dtype, *patterns):
    dtype = np.dtype(dtype)
    return np.array(patterns, f"u{dtype.itemsize}").view(dtype)


LEAVES = {
    "f32": bits(np.float32, 0x3DCCCCCD, 0x80000000, 0x7FC00000, 0xFFC12345, 0x7F800000, 1),
    "f64": bits(np.float64, 0x7FF0000000000001, 1 << 63, 1, 0x3FB999999999999A, 0x7FF << 52, 0),
    "bf16": bits(ml_dtypes.bfloat16, 0x7FC1, 0x8000, 0x0001, 0x7F80, 0xFF80, 0x3DCD),
    "c64": np.array([1 - 2j, complex(-0.0, np.inf), 0.1j, 0, 1j, 1e-45], np.complex64),
    "i64": np.array([-(2**63), 2**63 - 1, 0, -1, 1, 2**53 + 1]),
    "bool": np.array([True, False, True, True, False, False]),
    "int4": np.array([-8, 7, 0, -1, 1, 2], ml_dtypes.int4),
    "matrix": np.arange(36, dtype=np.float32).reshape(6, 2, 3) / 7,
    'odd "name" \u00e9\n[]: in': np.zeros(6, np.int8),
    "empty": np.zeros((6, 0), np.float32),
    "large": np.arange(6 * 300, dtype=np.float32).reshape(6, 300) / 3,
}
STEPS = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]], np.int32)
LANES = np.zeros((6, 1), np.int32)
DEVICE = np.arange(6, dtype=np.int32)
LONG = np.stack([np.arange(3000), np.arange(3000) ** 2], axis=1).astype(np.int32)


def column(length=6, start=0, stride=1):
    return (start + stride * np.arange(length, dtype=np.int32))[:, None]


TRACKS = {
    "every dtype": Track(TrackKey("f", 2, "scan[0]", "carry", "backward", "b"), LEAVES, column()),
    "sampled": Track(TrackKey("f"), {"x": np.arange(6.0)}, column(6, 3, 10), total=99),
    "one step": Track(TrackKey("f"), {"x": np.arange(1.0)}, column(1, 7)),
    "grid": Track(TrackKey("f"), {"x": np.arange(6.0)}, STEPS),
    "ragged": Track(TrackKey("f"), {"x": np.arange(4.0)}, STEPS[[0, 2, 3, 5]]),
    "lanes, devices": Track(TrackKey("f"), {"x": np.arange(6.0)}, STEPS, LANES, DEVICE),
    "twins": Track(TrackKey("f"), {"x": np.arange(3.0)}, column()[[0, 0, 1]]),
    "events": Track(TrackKey("f"), {"x": np.arange(3.0)}, np.empty((3, 0), np.int32)),
    "no events": Track(TrackKey("f"), {"x": np.empty(0)}, np.empty((0, 1), np.int32)),
    "long and ragged": Track(TrackKey("f"), {"x": np.arange(3000.0)}, LONG),
    "value": tracks_of({"a": [0.1, None, "t\u00e9xt"], "b": np.eye(3), "k": jax.random.key(3)})[0],
    "objects": tracks_of(np.array([["a", None], [(1, 2), 2**70]], object))[0],
    "many objects": tracks_of(np.array([str(i) for i in range(2000)], object))[0],
}


class Colour(enum.Enum):
    RED = 1


class Opaque:
    """Its text is an address, as that of most objects."""


OPAQUE = {
    "the value is an object of type function": lambda: 0,
    "the leaf state.x[2] is an object of type test_snapshot_format.Opaque": {"state": {"x": (1, None, Opaque())}},
    "the leaf value[1, 0]['a'][1] is an object of type set": np.array([[0], [{"a": [1, {2}]}]], object),
    "the leaf loss[1] is an object of type test_snapshot_format.Opaque": pd.DataFrame({"loss": ["a", Opaque()]}),
    "the leaf act is an object of type jax._src.custom_derivatives.custom_jvp": {"act": jax.nn.relu},
}


@pytest.mark.parametrize("message", OPAQUE)
def test_what_is_no_data_is_refused_with_its_place_and_type(message):
    with pytest.raises(TypeError, match=re.escape(message) + ": neither an array nor plain data, .* Leave it out"):
        tracks_of(OPAQUE[message])


def test_plain_data_of_many_types_is_kept():
    values = {
        "enum": Colour.RED, "day": datetime.date(2026, 7, 1), "path": pathlib.PurePosixPath("a/b"),
        "exact": decimal.Decimal("0.10"), "bytes": b"ab", "dtype": np.dtype("float32"), "gap": pd.NA,
        "period": pd.Period("2026", freq="Y"), "list": [None, 2**70, "text", 1.5j],
    }  # fmt: skip
    kept = {name: array.tolist()[0] for name, array in tracks_of(values)[0].leaves.items()}
    assert kept == {
        "enum": '"Colour.RED"', "day": '"2026-07-01"', "path": '"a/b"', "exact": '"0.10"', "bytes": '"b\'ab\'"',
        "dtype": '"float32"', "gap": '"<NA>"', "period": '"2026"',
        "list[0]": "null", "list[1]": str(2**70), "list[2]": '"text"', "list[3]": 1.5j,
    }  # fmt: skip


def write(entries, path):
    path.write_text(dump(entries, snapshot_arrays.store(entries.values(), path)))


def read(path):
    load = lambda stored, name: snapshot_arrays.read(stored, name, path)
    found = parse(path.read_text(), str(path), load)
    return {name: snapshot_arrays.load(entry, path) for name, entry in found.items()}


@pytest.mark.parametrize("name", TRACKS)
def test_what_is_written_comes_back_bit_for_bit(tmp_path, name):
    track = TRACKS[name]
    write({"x": Entry((track,), ENVIRONMENT)}, tmp_path / "a.jaxtap")
    entry = read(tmp_path / "a.jaxtap")["x"]
    (back,) = entry.tracks
    assert entry.environment == ENVIRONMENT
    assert (back.key, back.total, list(back.leaves)) == (
        track.key,
        track.total,
        list(track.leaves),
    )
    for key in ("steps", "lanes", "device"):
        expected, got = getattr(track, key), getattr(back, key)
        assert (expected is None) == (got is None)
        assert expected is None or np.array_equal(expected, got)
    for key, expected in track.leaves.items():
        got = back.leaves[key]
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        same = (got == expected).all() if got.dtype.kind == "O" else got.tobytes() == expected.tobytes()
        assert same, key


def test_a_text_is_for_people(tmp_path):
    x = np.float32([0.1, 0.0987, np.nan])
    track = Track(TrackKey("warmup", 0, "scan[0]", "carry"), {"step_size": x}, column(3), total=3)
    text = dump({"test_a": Entry((track,), {"jax": "0.10.2"})}, {})
    place = '"program": "warmup", "call": 0, "path": "scan[0]", "kind": "carry"'
    assert (
        text
        == f"""# jaxtap snapshot, schema 1

entry "test_a"
environment
  jax: "0.10.2"
stream {{{place}, "phase": "forward", "label": "", "total": 3}}
index {{"depth": 1, "range": [0, 3, 1]}}
leaf "step_size" float32 [3]
  0: 0.1
  1: 0.0987
  2: "nan:7fc00000"
end
"""
    )


def test_a_million_values_make_a_short_text_and_one_file(tmp_path):
    path = tmp_path / "a.jaxtap"
    values = np.random.default_rng(0).standard_normal(10**6).astype(np.float32)
    write({"x": Entry(tuple(tracks_of(values)), ENVIRONMENT)}, path)
    assert path.stat().st_size < 2000
    (stored,) = (p for p in tmp_path.iterdir() if p != path)
    assert stored.name.startswith(".a.") and stored.stat().st_size < 4_000_000
    assert read(path)["x"].tracks[0].leaves["value"].tobytes() == values.tobytes()
    assert f"~ [0]: {values[0]!s}" in path.read_text() and f"[999999]: {values[-1]!s}" in path.read_text()


def test_files_that_no_text_names_are_discarded(tmp_path):
    path, other = tmp_path / "a.jaxtap", tmp_path / "a.b.jaxtap"
    for text in (path, other):
        for number in (1, 2):
            write({"x": Entry(tuple(tracks_of(np.full(2000, number))), {})}, text)
    snapshot_arrays.discard_unnamed(path, named_files(path.read_text()))
    assert len(list(tmp_path.glob(".a.*.bin"))) == 3
    assert read(path)["x"].tracks[0].leaves["value"][0, 0] == 2


def text_of(**entries):
    made = {k: Entry(tuple(tracks_of(np.arange(5) + v)), {"jax": "1"}) for k, v in entries.items()}
    return dump(made, {})


def put(old, new):
    return GOOD.replace(old, new)


NO_ARRAYS = lambda stored, name: None
GOOD = text_of(first=0, second=10)
DAMAGE = {
    "truncated": (GOOD[: len(GOOD) // 2], "line 1[0-9]: damaged: .*restore it, or delete it"),
    "cut at a line": (GOOD[: GOOD.index("  [2]")], "line 10: damaged: expected "),
    "cut after a line": (GOOD[: GOOD.index("  [2]") - 1], "line 9: damaged: the file ends in"),
    "conflict": (put("  [2]: 2", "<<<<<<< HEAD\n  [2]: 2"), "line 10: a merge conflict was left"),
    "schema": (put("schema 1", "schema 2"), "line 1: written in schema 2; this .* reads 1"),
    "other file": ("# serializer version: 1\n", "line 1: damaged: this is not a jaxtap snapshot"),
    "empty": ("", "line 1: damaged: this is not a jaxtap snapshot"),
    "number": (put("  [2]: 12", "  [2]: twelve"), "line 22: damaged: 'twelve' is no value"),
    "dtype": (put("  [2]: 12", "  [2]: 1.5"), "damaged: 1.5 is not a value of int64"),
    "lost line": (put("  [2]: 2\n", ""), r"line 10: damaged: expected '\[2\]:', found '\[3\]"),
    "twice": (GOOD + GOOD.partition("\n")[2], "damaged: a second entry 'first'"),
    "unknown dtype": (put("int64", "int63"), "damaged: unknown dtype 'int63'"),
    "head": (put('leaf "value"', "leaf value"), "damaged: not the head of a leaf"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_with_its_line(name):
    text, message = DAMAGE[name]
    with pytest.raises(DamagedSnapshotError, match=message) as caught:
        parse(text, "dir/test_a.jaxtap", NO_ARRAYS)
    assert str(caught.value).startswith("dir/test_a.jaxtap, line ")


def test_arrays_that_are_gone_or_changed_are_found(tmp_path):
    path = tmp_path / "a.jaxtap"
    write({"x": Entry(tuple(tracks_of(np.arange(2000))), {})}, path)
    (stored,) = tmp_path.glob(".a.*.bin")
    data = stored.read_bytes()
    stored.write_bytes(data[:-5])
    with pytest.raises(DamagedSnapshotError, match="cannot be read"):
        read(path)
    write({"x": Entry(tuple(tracks_of(np.arange(2000) + 1)), {})}, tmp_path / "b.jaxtap")
    (other,) = tmp_path.glob(".b.*.bin")
    stored.write_bytes(other.read_bytes())
    with pytest.raises(DamagedSnapshotError, match="does not hold what the text says"):
        read(path)
    stored.unlink()
    with pytest.raises(DamagedSnapshotError, match="is missing; it belongs into version control"):
        read(path)


def test_git_merges_changes_of_different_entries(tmp_path):
    names = ["ours", "base", "theirs"]
    made = [
        {"first": 1, "second": 10},
        {"first": 0, "second": 10},
        {"first": 0, "second": 11, "third": 5},
    ]
    for name, entries in zip(names, made, strict=True):
        (tmp_path / name).write_text(text_of(**entries))
    subprocess.run(["git", "merge-file", *names], cwd=tmp_path, check=True)
    merged = (tmp_path / "ours").read_text()
    assert merged == text_of(first=1, second=11, third=5)


def test_windows_line_ends_are_read():
    assert list(parse(GOOD.replace("\n", "\r\n"), "a", NO_ARRAYS)) == ["first", "second"]


def test_entries_that_were_read_keep_their_text():
    edited = GOOD.replace("  [2]: 2\n", "  [2]: 2 \n")
    entries = parse(edited, "a", NO_ARRAYS)
    entries["second"] = Entry(tuple(tracks_of(np.arange(5))), {"jax": "1"})
    assert "  [2]: 2 \n" in dump(entries, {})
