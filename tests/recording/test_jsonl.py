"""Recordings as JSON Lines: the same bits back, valid JSON, and clear words about damaged files."""

import importlib.resources
import json
import os
import re
import stat
from dataclasses import replace

import jax
import jax.numpy as jnp
import jsonschema
import ml_dtypes
import numpy as np
import pytest
from handmade import add, fill

import jaxtap_core as tap
from jaxtap_core.recording import jsonl, stored
from jaxtap_core.recording.recording import Recording
from jaxtap_core.records.events import Alert, Certificate, Finding, Origin, ProgramVerdict, TapEvent
from jaxtap_core.telemetry.codec import decode, encode, row_texts, rows_from


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """A fingerprint without a backend: these tests are about files."""
    monkeypatch.setattr(jsonl, "fingerprint", lambda: {"jax": "1.2.3", "x64": False})


def bits(dtype, *patterns):
    dtype = np.dtype(dtype)
    return np.array(patterns, f"u{dtype.itemsize}").view(dtype)


COLUMNS = {
    "f32": bits(np.float32, 0x3DCCCCCD, 0x80000000, 0x7FC00000, 0xFFC12345, 0x7F800001, 0x00000001),
    "f64": bits(np.float64, 0x7FF0000000000001, 1 << 63, 1, 0x3FB999999999999A, 0x7FF << 52, 0),
    "f16": bits(np.float16, 0x7E01, 0x8000, 0x0001, 0x7C00, 0xFC00, 0x3C00),
    "bf16": bits(ml_dtypes.bfloat16, 0x7FC1, 0x8000, 0x0001, 0x7F80, 0xFF80, 0x3DCD),
    "f8": bits(ml_dtypes.float8_e4m3fn, 0x7F, 0xFF, 0x80, 0x01, 0x38, 0x7E),
    "c64": np.array([1 - 2j, complex(-0.0, np.inf), complex(np.nan, -0.0), 0, 1j, 1e-45], np.complex64),
    "i64": np.array([-(2**63), 2**63 - 1, 0, -1, 1, 2**53 + 1]),
    "u64": np.array([2**64 - 1, 0, 1, 2, 3, 4], np.uint64),
    "i4": np.array([-8, 7, 0, -1, 1, 2], ml_dtypes.int4),
    "b": np.array([True, False, True, True, False, False]),
    "zero": np.zeros(6, jax.dtypes.float0),
    "vec": np.arange(18, dtype=np.float32).reshape(6, 3) / 7,
    "empty": np.zeros((6, 0), np.float32),
    "large": np.arange(6 * 100, dtype=np.int32).reshape(6, 10, 10),
}


def everything():
    recording = Recording()
    stream = add(
        recording,
        "scan[0]/while[1]",
        depth=2,
        names=tuple(COLUMNS),
        dtypes=[rows.dtype for rows in COLUMNS.values()],
        shapes=[rows.shape[1:] for rows in COLUMNS.values()],
        rebuild=lambda leaves: {"state": tuple(leaves[:-1]), "more": [leaves[-1], None]},
        total=3,
        label='odd "label" \u2028',
        live=True,
        active=(2,),
        lanes=1,
        sharded=True,
    )
    fill(stream, [[i // 3, i % 3] for i in range(6)], *COLUMNS.values())
    stream.lanes.extend(np.arange(6, dtype=np.int32)[:, None])
    stream.device.extend(np.arange(6, dtype=np.int32) % 2)
    stream.active.extend(np.arange(12).reshape(6, 2) % 3 == 0)
    stream.time.extend(np.arange(6) / 7)
    fill(add(recording, "sin[0]", depth=0, kind="primitive", rebuild=lambda x: x[0]), [[]], [0.1])
    event = recording.events[-1]
    operand = {"shape": (2,), "dtype": "float32", "element": np.float32("nan"), "min": -1.5}
    origin = Origin("log", "scan[0]/log[0]", (3,), None, "m.py:3", "forward", (operand,), "log of a negative")
    recording.alerts.append(Alert(event, "too small", "m.py:9 (h)"))
    recording.findings.append(
        Finding(event, "state.L", "nan", 3, (1, 2), {"step": 2, "max": np.float32(0.1)}, origin, 64)
    )
    recording.certificate = Certificate(
        (ProgramVerdict("f", 0, "different", "", "out[0]", (1,), "0x1p+0", "0x1p+1", 8388608),)
    )
    recording.unobserved = 2
    recording.unobservable = ["g: no lens here"]
    return recording


def assert_same(a, b):
    """Two recordings hold the same, to the bit."""
    assert len(a.streams) == len(b.streams)
    for left, right in zip(a.streams, b.streams, strict=True):
        assert replace(left.key, rebuild=tuple) == replace(right.key, rebuild=tuple)
        for name in ("steps", "time", "active", "lanes", "device"):
            assert_column(getattr(left, name), getattr(right, name), left, right)
        for x, y in zip(left.leaves, right.leaves, strict=True):
            assert_column(x, y, left, right)
    for left, right in zip(a.alerts + a.findings, b.alerts + b.findings, strict=True):
        assert left.to_dict() == right.to_dict()
    assert a.certificate.to_dict() == b.certificate.to_dict()
    assert (a.unobserved, a.unobservable) == (b.unobserved, b.unobservable)


def assert_column(x, y, left, right):
    assert (x is None) == (y is None)
    if x is not None:
        assert x.array.dtype == y.array.dtype and x.array.shape == y.array.shape
        assert x.array[left.order()].tobytes() == y.array[right.order()].tobytes()


def strict(text):
    """JSON as its standard has it: Python's extensions are refused."""
    return json.loads(text, parse_constant=lambda token: pytest.fail(f"{token} is no JSON"))


def test_every_dtype_and_record_comes_back_bit_for_bit(tmp_path):
    recording = everything()
    recording.to_jsonl(tmp_path / "a.jsonl")
    back = stored.read_jsonl(tmp_path / "a.jsonl")
    assert_same(recording, back)
    assert back.environment == {"jax": "1.2.3", "x64": False}
    value = back.events[0].value
    assert isinstance(value["state"], tuple) and value["more"][1] is None
    jsonl.write_jsonl(back, tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_lines_are_valid_json_and_follow_the_schema(tmp_path):
    everything().to_jsonl(tmp_path / "a.jsonl")
    folder = importlib.resources.files("jaxtap_core") / "schema"
    schema = json.loads((folder / "recording.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for line in (tmp_path / "a.jsonl").read_text().split("\n")[:-1]:
        validator.validate(strict(line))
    for wrong in ({}, {"stream": 0}, {"define": 0}, {"jaxtap": "recording"}, {"what": 1}):
        assert not validator.is_valid(wrong)


def test_numbers_are_readable_and_exact_for_other_readers(tmp_path):
    recording = Recording()
    stream = add(recording, total=4)
    fill(stream, range(4), np.array([0.1, -0.0, np.inf, np.nan], np.float32))
    recording.to_jsonl(tmp_path / "a.jsonl")
    rows = [strict(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()[3:7]]
    assert [row["values"] for row in rows[:1]] == [[float(np.float32(0.1))]]
    assert [row["values"][0] for row in rows[2:]] == ["inf", "nan:7fc00000"]
    assert np.signbit(rows[1]["values"][0])


DAMAGE = [
    (lambda t: t[: len(t) // 2], "damaged|cut off"),
    (lambda t: cut(t, r'\{"end".*\n'), "cut off after 7 events.*partial=True"),
    (
        lambda t: cut(t, r'(?<="steps": \[0), 1(?=\])'),
        "line 5: damaged: steps: expected a list of 2",
    ),
    (lambda t: cut(t, r'"lane": \[2\], '), "line 6: damaged: lane: expected a list of 1"),
    (lambda t: t.replace(str(2**63 - 1), str(2**63)), "line 5: damaged: values"),
    (lambda t: t.replace('"nan:7f"', '"nonsense"', 1), "line 4: damaged: values"),
    (lambda t: t.replace('"schema": 1', '"schema": 99'), "line 1: damaged: written by a newer"),
    (lambda t: t.replace('"jaxtap"', '"other"'), "not a recording"),
    (lambda t: "<<<<<<< HEAD\n" + t, "line 1: damaged"),
    (lambda t: t + "{}\n", "after the closing line"),
    (lambda t: t.replace('"int4"', '"int5"'), "line 3: damaged: unknown dtype 'int5'"),
    (lambda t: t.replace("$Alert", "$Alarm"), "unknown tag"),
    (lambda t: cut(t, r'.*"lane": \[3\].*\n'), "holds 6 events, its closing line says 7"),
    (lambda t: t.replace('{"stream": 1,', '{"stream": 7,'), "line 11: damaged: 7 is missing or not known"),
    (lambda t: "", "line 1: the file is empty"),
    (lambda t: t.replace("[0.10000000149011612]", "[0.125]"), "line 15: damaged: the digest here is not that"),
    (lambda t: cut(t, r'.*"alert".*\n'), "line 14: damaged: the digest here is not that of the lines before"),
    (lambda t: t.replace('"unobserved": 2', '"unobserved": 3'), "line 15: damaged: the digest here"),
    (lambda t: t.replace('"jax": "1.2.3"', '"jax": "1.2.4"'), "line 15: damaged: the digest here"),
    (lambda t: t.replace('"jax": "1.2.3"', '"jax": "1.2.3", "jax": "1.2.3"'), "line 2: damaged: a key stands twice"),
    (lambda t: t.replace('"jax": "1.2.3"', '"jax": NaN'), "line 2: damaged: NaN is no JSON"),
    (lambda t: t.replace('"jax": "1.2.3"', '"jax": ' + "[" * 200_000), "line 2: damaged: nested too deeply"),
    (lambda t: again(t, '{"environment"'), "line 3: damaged: a second environment"),
    (lambda t: again(t, '{"define": 1'), "line 11: damaged: a second stream 1"),
    (lambda t: again(t, '{"certificate"'), "line 15: damaged: a second certificate"),
    (lambda t: again(t, '{"jaxtap"'), "line 2: damaged: unknown record"),
    (lambda t: again(t, '{"alert"'), "line 16: damaged: the digest here"),
    (lambda t: t.replace('"tree": 0', '"tree": 1'), "line 10: damaged: "),
    (lambda t: t.replace('"tree": 0', '"tree": ' + "[" * 200_000), "line 10: damaged: "),
    (lambda t: t.replace('"path": "sin[0]"', '"path": 7'), "line 10: damaged: expected str, found '7'"),
    (lambda t: t.replace('"depth": 2', '"depth": -2'), "line 3: damaged: "),
    (lambda t: t.replace('"lanes": 1', '"lanes": -1'), "line 3: damaged: "),
    (lambda t: t.replace('"lanes": 1', '"lanes": 4000000000'), "line 4: damaged: lane: expected a list of 4000000000"),
    (lambda t: t.replace('"active": [2]', '"active": [300000000]'), "line 4: damaged: active: expected a list of 3"),
    (
        lambda t: t.replace('"shape": [3]', '"shape": [4000000000]'),
        r"line 4: damaged: values\[11\]: expected a list of 4",
    ),
    (lambda t: t.replace('"shape": [3]', '"shape": [-3]'), "line 3: damaged: "),
    (lambda t: t.replace('"shape": [3]', f'"shape": [{2**32}, {2**32}]'), "line [34]: damaged: "),
    (lambda t: t.replace('"values": [0.10', '"values": 7, "x": [0.10'), "line 4: damaged: expected 14 values"),
    (lambda t: t.replace('{"$Alert"', '{"$tuple": [], "x"'), "line 12: damaged: expected Alert"),
]


def cut(text, pattern):
    return re.sub(pattern, "", text, count=1)


def again(text, start):
    """A text in which the line that starts so stands twice."""
    return re.sub(rf"^({re.escape(start)}.*\n)", r"\1\1", text, count=1, flags=re.MULTILINE)


@pytest.mark.parametrize("number", range(len(DAMAGE)))
def test_damage_is_named_with_its_line(tmp_path, number):
    damage, message = DAMAGE[number]
    everything().to_jsonl(tmp_path / "a.jsonl")
    text = (tmp_path / "a.jsonl").read_text()
    (tmp_path / "bad.jsonl").write_text(damage(text))
    assert damage(text) != text
    with pytest.raises(ValueError, match=message) as caught:
        stored.read_jsonl(tmp_path / "bad.jsonl")
    assert re.search(r"bad\.jsonl, line \d+: ", str(caught.value)) and len(str(caught.value)) < 600


def test_a_file_without_a_digest_is_read(tmp_path):
    """As the first version of this package wrote it, and with other line ends."""
    everything().to_jsonl(tmp_path / "a.jsonl")
    old = cut((tmp_path / "a.jsonl").read_text(), r', "sha256": "\w+"')
    (tmp_path / "old.jsonl").write_text(old)
    (tmp_path / "dos.jsonl").write_bytes((tmp_path / "a.jsonl").read_bytes().replace(b"\n", b"\r\n"))
    assert "sha256" not in old
    for name in ("old.jsonl", "dos.jsonl"):
        assert_same(everything(), stored.read_jsonl(tmp_path / name))


@pytest.mark.parametrize("live", [False, True], ids=["written", "a sink"])
def test_streams_that_look_alike_stay_apart(tmp_path, live):
    """Two taps on one primitive, without labels."""
    path = tmp_path / "a.jsonl"
    twice, more = tap.on("mul", select=lambda outs: outs[0] * 2), tap.on("mul", select=lambda outs: outs[0] + 1)
    with tap.record(taps=(twice, more), sinks=(tap.JSONLSink(path),) if live else ()) as rec:
        jax.lax.scan(lambda c, t: (c * 0.5, None), 1.0, None, length=3)
    if not live:
        rec.to_jsonl(path)
    back = stored.read_jsonl(path)
    assert [stream.leaves[0].array.tolist() for stream in back.streams] == [[1.0, 0.5, 0.25], [1.5, 1.25, 1.125]]
    assert rec.diff(back).equal


def test_streams_of_one_place_keep_their_order(tmp_path):
    """The first two look alike, the third does not."""
    once, twice = tap.on("mul", select=lambda outs: outs[0]), tap.on("mul", select=lambda outs: outs[0] * 2)
    named = tap.on("mul", select=lambda outs: {"more": outs[0] + 1})
    with tap.record(taps=(once, twice, named)) as rec:
        jax.lax.scan(lambda c, t: (c * 0.5, None), 1.0, None, length=3)
    rec.to_jsonl(tmp_path / "a.jsonl")
    back = stored.read_jsonl(tmp_path / "a.jsonl")
    assert [stream.key.names for stream in back.streams] == [("value",), ("value",), ("more",)]
    assert rec.diff(back).equal


def test_what_a_killed_writer_left_can_be_read(tmp_path):
    everything().to_jsonl(tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text().split("\n")
    (tmp_path / "a.jsonl").write_text("\n".join(lines[:6]) + "\n" + lines[6][:20])
    assert len(stored.read_jsonl(tmp_path / "a.jsonl", partial=True)) == 3


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text("precious")

    def breaks(recording):
        yield "half"
        raise RuntimeError("disk")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(jsonl, "lines", breaks)
        jsonl.write_jsonl(Recording(), path)
    assert path.read_text() == "precious" and os.listdir(tmp_path) == ["a.jsonl"]
    mask = os.umask(0o022)
    os.umask(mask)
    jsonl.write_jsonl(Recording(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert len(stored.read_jsonl(path)) == 0


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .*missing does not exist; make it first"):
        Recording().to_jsonl(tmp_path / "missing" / "a.jsonl")
    with pytest.raises(IsADirectoryError, match="that is a folder"):
        Recording().to_jsonl(tmp_path)


def test_a_hundred_thousand_events(tmp_path):
    recording = Recording()
    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    fill(add(recording, total=100_000), range(100_000), values)
    recording.to_jsonl(tmp_path / "a.jsonl")
    back = stored.read_jsonl(tmp_path / "a.jsonl")
    assert back.streams[0].leaves[0].array.tobytes() == values.tobytes()


def test_values_of_alerts_come_back_with_their_containers():
    value = {
        "a": (1, [2.5, None], "text", True, -0.0, float("-inf"), complex(0, float("inf"))),
        3: np.float32(0.1),
        "key": jax.random.key(1),
        "jax": jnp.arange(3),
    }
    back = decode(strict(json.dumps(encode(value))))
    assert back["a"][:4] == value["a"][:4] and str(back["a"][4:]) == str(value["a"][4:])
    assert back[3] == np.float32(0.1) and back[3].dtype == np.float32
    assert back["key"].tolist() == jax.random.key_data(value["key"]).tolist()
    assert back["jax"].dtype == np.int32


def test_an_event_keeps_every_field():
    event = TapEvent("p", 1, None, (0, 1), {"x": np.ones(2)}, "output", "f", 3, (1,),
                     np.array([True]), 2, "recompute", "m.py:1 (f)", 0.1)  # fmt: skip
    assert decode(encode(event)).to_dict() == event.to_dict()


@pytest.mark.parametrize("name", [name for name in COLUMNS if name[0] in "fbc"])
def test_the_shortest_decimals_round_back_to_the_same_bits(name):
    rows = COLUMNS[name]
    texts = row_texts(rows, shortest=True)
    back = rows_from([strict(text) for text in texts], rows.dtype, rows.shape[1:], exact=False)
    assert back.tobytes() == rows.tobytes()
    assert row_texts(np.float32([0.1, 1 / 3]), shortest=True) == ["0.1", "0.33333334"]
