"""The text of a snapshot: what is written comes back bit for bit; damage is found and named."""

import contextlib
import datetime
import decimal
import enum
import json
import pathlib
import re
import subprocess
import tracemalloc
import zlib

import jax
import ml_dtypes
import numpy as np
import pandas as pd
import pytest

from jaxtap_core.compare.diff import diff
from jaxtap_core.compare.table import Track, TrackKey, tracks_of
from pytest_jaxtap.snapshot import arrays as snapshot_arrays
from pytest_jaxtap.snapshot.format import DamagedSnapshotError, Entry, digest_of, dump, named_files
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
    "long, without values": Track(TrackKey("f"), {}, column(5000)),
    "long, of no bytes": Track(
        TrackKey("f"), {"x": np.zeros((5000, 0)), "y": np.zeros(5000, jax.dtypes.float0)}, column(5000)
    ),
    "types": tracks_of({"a": (1, [2.0]), "k": jax.random.key(0), "f": pd.DataFrame({"c": pd.Categorical(["x"])})})[0],
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
        "enum": '{"$Colour": "Colour.RED"}', "day": '{"$date": "2026-07-01"}', "path": '{"$PurePosixPath": "a/b"}',
        "exact": '{"$Decimal": "0.10"}', "bytes": '{"$bytes": "b\'ab\'"}', "dtype": '{"$dtype": "float32"}',
        "gap": '{"$NAType": "<NA>"}', "period": '{"$Period": "2026"}',
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
    assert (back.key, back.total, back.types, list(back.leaves)) == (
        track.key,
        track.total,
        track.types,
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
        == f"""# jaxtap snapshot, schema 2

entry "test_a"
environment
  jax: "0.10.2"
stream {{{place}, "phase": "forward", "label": "", "total": 3}}
index {{"depth": 1, "range": [0, 3, 1]}}
leaf "step_size" float32 [3]
  0: 0.1
  1: 0.0987
  2: "nan:7fc00000"
end {text.splitlines()[-1].split()[-1]}
"""
    )


def test_a_million_values_make_a_short_text_and_one_file(tmp_path):
    path = tmp_path / "a.jaxtap"
    values = np.random.default_rng(0).standard_normal(10**6).astype(np.float32)
    write({"x": Entry(tuple(tracks_of(values)), ENVIRONMENT)}, path)
    assert path.stat().st_size < 2000
    (stored,) = (p for p in tmp_path.iterdir() if p != path)
    assert stored.name.startswith("a.") and stored.stat().st_size < 4_000_000
    assert read(path)["x"].tracks[0].leaves["value"].tobytes() == values.tobytes()
    assert f"~ [0]: {values[0]!s}" in path.read_text() and f"[999999]: {values[-1]!s}" in path.read_text()


def test_files_that_no_text_names_are_discarded(tmp_path):
    path, other = tmp_path / "a.jaxtap", tmp_path / "a.b.jaxtap"
    for text in (path, other):
        for number in (1, 2):
            write({"x": Entry(tuple(tracks_of(np.full(2000, number))), {})}, text)
    snapshot_arrays.discard_unnamed(path, named_files(path.read_text()))
    assert len(list(tmp_path.glob("a.*.bin"))) == 3
    assert read(path)["x"].tracks[0].leaves["value"][0, 0] == 2


def test_streams_at_one_place_are_told_apart(tmp_path):
    """Two taps on one primitive, without labels."""
    tracks = tuple(Track(TrackKey("f"), {"x": np.arange(3.0) + n}, column(3)) for n in range(3))
    write({"x": Entry(tracks, {})}, tmp_path / "a.jaxtap")
    back = read(tmp_path / "a.jaxtap")["x"].tracks
    assert [track.leaves["x"][0] for track in back] == [0.0, 1.0, 2.0]


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
    "schema": (put("schema 2", "schema 3"), "line 1: written in schema 3; this .* reads 2"),
    "other file": ("# serializer version: 1\n", "line 1: damaged: this is not a jaxtap snapshot"),
    "empty": ("", "line 1: damaged: this is not a jaxtap snapshot"),
    "number": (put("  [2]: 12", "  [2]: twelve"), "line 22: damaged: 'twelve' is no value"),
    "dtype": (put("  [2]: 12", "  [2]: 1.5"), "damaged: 1.5 is not a value of int64"),
    "lost line": (put("  [2]: 2\n", ""), r"line 10: damaged: expected '\[2\]:', found '\[3\]"),
    "twice": (GOOD + GOOD.partition("\n")[2], "damaged: a second entry 'first'"),
    "unknown dtype": (put("int64", "int63"), "damaged: unknown dtype 'int63'"),
    "head": (put('leaf "value"', "leaf value"), "damaged: not the head of a leaf"),
    "digit": (
        put("  [2]: 12", "  [2]: 13"),
        "line 25: damaged: the entry 'second', which starts in line 15, is not what",
    ),
    "no digest": (re.sub("end .*", "end", GOOD, count=1), "line 13: damaged: the entry 'first'"),
    "name": (put('entry "first"', 'entry "third"'), "line 13: damaged: the entry 'third'"),
    "nesting": (put("  [2]: 12", "  [2]: " + "[" * 200_000), "line 22: damaged: "),
    "nested environment": (put('jax: "1"', "jax: " + "[" * 200_000), "line 5: damaged: nested too deeply"),
    "no JSON": (put("  [2]: 12", "  [2]: NaN"), "line 22: damaged: 'NaN' is no value"),
    "key twice": (put('jax: "1"', 'jax: {"a": 1, "a": 2}'), "line 5: damaged: a key stands twice"),
    "long line": (put('leaf "value"', "leaf " + "x" * 10**6), "damaged: not the head of a leaf"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_with_its_line(name):
    text, message = DAMAGE[name]
    with pytest.raises(DamagedSnapshotError, match=message) as caught:
        parse(text, "dir/test_a.jaxtap", NO_ARRAYS)
    assert str(caught.value).startswith("dir/test_a.jaxtap, line ")
    assert len(str(caught.value)) < 500


def signed(text):
    """A text whose digests are right, whatever it says: as if it had been written so."""
    lines = text.split("\n")
    name, content = "", 0
    for number, line in enumerate(lines):
        if line.startswith("entry "):
            name, content = json.loads(line.removeprefix("entry ")), 0
        elif line.startswith("end"):
            lines[number] = f"end {digest_of(name, lines[content or number : number])}"
        elif not content and not line.startswith(("environment", "  ", "#")):
            content = number
    return "\n".join(lines)


STREAMS = dump(
    {
        "run": Entry(
            tuple(Track(TrackKey("f", path=path), {"x": np.arange(6.0), "y": np.arange(6)}, column()) for path in "ab"),
            {"jax": "1", "x64": False},
        ),
        "value": Entry(tuple(tracks_of({"a": (1.5, "text"), "b": [np.arange(3)]})), {"jax": "1"}),
    },
    {},
)


def contents(text):
    """What a text holds, in comparable form."""
    return {
        name: [
            (draft.key, draft.total, draft.types, {n: (c.dtype, c.tolist()) for n, c in draft.leaves.items()})
            for draft in entry.drafts
        ]
        for name, entry in parse(text, "a", NO_ARRAYS).items()
    }


def test_no_part_of_a_text_may_stand_twice():
    """Every run of lines, even where the digests say that it was written so."""
    lines = STREAMS.split("\n")
    assert signed(STREAMS) == STREAMS
    for start in range(1, len(lines)):
        for end in range(start + 1, len(lines)):
            text = signed("\n".join([*lines[:end], *lines[start:end], *lines[end:]]))
            try:
                found = contents(text)
            except DamagedSnapshotError as error:
                assert re.match(r"a, line \d+: damaged: ", str(error))
            else:
                assert found == contents(STREAMS), (start, end)


@pytest.mark.parametrize(
    "index",
    [
        '"range": [0, 6, 0]', '"range": [6, 0, 1]', '"range": [6, 0, -1]', '"range": [0, 300000000, 1]',
        '"range": [0, 2147483647, 1]', '"range": [0, 4000000000, 1]', '"range": [0, 1e9, 1]', '"range": [0, 6]',
        '"range": [0, 5, 1]', '"range": [0, 6, true]', '"range": 6', '"range": [0, 6, 1], "grid": [6]',
        '"grid": [300000000]', '"grid": [-6]', '"grid": [0]', '"grid": [2, 3]', '"grid": []',
        '"grid": [99999999999999]',
        '"rows": 6', '"rows": 300000000', '"rows": -1', '"lanes": -1, "range": [0, 6, 1]',
        '"lanes": 300000000, "grid": [6]', '"device": 1, "range": [0, 6, 1]',
        '"more": 1, "range": [0, 6, 1]', '"depth": 1',
    ],
)  # fmt: skip
@pytest.mark.parametrize("leaves", [True, False], ids=["with leaves", "without"])
def test_a_number_of_rows_that_the_data_does_not_have(index, leaves):
    text = STREAMS.replace('"range": [0, 6, 1]', index)
    assert text != STREAMS
    if not leaves:
        if index == '"range": [0, 5, 1]':
            pytest.skip("as good as any")
        text = re.sub(r'leaf "[xy]".*\n(  \d.*\n)+', "", text)
    with bounded(), pytest.raises(DamagedSnapshotError, match=r"a, line \d+: damaged: "):
        contents(signed(text))


@pytest.mark.parametrize(
    "shape",
    ["[300000000]", "[6, 0]", "[6, 300000000]", "[-6]", "[6.0]", "[6, 4294967296, 4294967296]", "[]", "6", "[true]",
     f"[{', '.join(['1'] * 100)}]", "[0]", "[6, 99999999999999999999999]"],
)  # fmt: skip
@pytest.mark.parametrize("where", ["[6]", "[3]"], ids=["a stream", "a value"])
def test_a_shape_that_the_data_does_not_have(shape, where):
    text = signed(STREAMS.replace(f"int64 {where}", f"int64 {shape}", 1))
    with bounded(), pytest.raises(DamagedSnapshotError, match=r"a, line \d+: damaged: "):
        contents(text)


@contextlib.contextmanager
def bounded(most=50 * 2**20):
    """Fails if what runs in it takes more memory than ``most`` bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


LARGE = {
    "numbers": np.arange(2000.0),
    "nearly all zeros": np.r_[np.zeros(10**6), 1.0],
    "texts": np.array([f"item {i}" for i in range(2000)], object),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_file_of_an_array_that_is_gone_or_changed_is_found(tmp_path, name):
    path = tmp_path / "a.jaxtap"
    entry = {"x": Entry(tuple(tracks_of(LARGE[name])), {})}
    write(entry, path)
    (stored,) = tmp_path.glob("a.*.bin")
    data = stored.read_bytes()
    plain = zlib.decompress(data)
    assert str(path) != str(stored) and not stored.name.startswith(".")
    damages = {
        "cut": data[:-5],
        "nothing": b"",
        "more": data + b"x",
        "not packed": plain,
        "twice": data + data,
        "longer": zlib.compress(plain + b"\0" * 8),
        "shorter": zlib.compress(plain[:-8]),
        "other": zlib.compress(bytes(reversed(plain))),
        "bomb": zlib.compress(b"\0" * 500_000_000),
    }
    for damaged in damages.values():
        stored.write_bytes(damaged)
        with (
            bounded(),
            pytest.raises(DamagedSnapshotError, match=r"a\.jaxtap, line [67]: damaged: .*does not hold what"),
        ):
            read(path)
    stored.unlink()
    with pytest.raises(
        DamagedSnapshotError, match=r"line [67]: damaged: a\.\w+\.bin, .* is missing; it belongs into version"
    ):
        read(path)
    stored.mkdir()
    with pytest.raises(DamagedSnapshotError, match="cannot be read"):
        read(path)
    stored.rmdir()
    stored.write_bytes(b"damaged")
    write(entry, path)  # an update heals it
    assert diff(read(path)["x"].tracks[0].leaves["value"], entry["x"].tracks[0].leaves["value"]).equal


@pytest.mark.parametrize("size", [0, 7, 15999, 16001, 10**9, 10**14])
def test_a_length_of_a_file_that_is_wrong_is_found(tmp_path, size):
    path = tmp_path / "a.jaxtap"
    write({"x": Entry(tuple(tracks_of(np.arange(2000))), {})}, path)
    text = path.read_text()
    for shape in ("[2000]", f"[{size // 8}]"):
        path.write_text(signed(text.replace("16000 bytes", f"{size} bytes").replace("[2000]", shape)))
        with bounded(), pytest.raises(DamagedSnapshotError, match=r"a\.jaxtap, line 6: damaged: "):
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
    edited = GOOD.replace('jax: "1"\n', 'jax: "1" \n')  # the environment is for people: it may be edited
    entries = parse(edited, "a", NO_ARRAYS)
    entries["second"] = Entry(tuple(tracks_of(np.arange(5))), {"jax": "1"})
    assert 'jax: "1" \n' in dump(entries, {})
