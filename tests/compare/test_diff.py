"""Comparing recordings and values: each mutation is found, and its report names it."""

import json
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from handmade import add, fill

import jaxtap_core as tap
from jaxtap_core.__main__ import main
from jaxtap_core.compare import diff as diff_module
from jaxtap_core.compare.diff import diff
from jaxtap_core.compare.tolerance import Tolerance, allowed
from jaxtap_core.recording import jsonl, stored
from jaxtap_core.recording.recording import Recording

X = (np.arange(100, dtype=np.float32) + 1) / 7
L = np.arange(600, dtype=np.float32).reshape(100, 2, 3)


def record(x=X, L=L, steps=None, **key):
    recording = Recording()
    names = key.pop("names", ("step_size", "state.L"))
    stream = add(
        recording,
        key.pop("path", "scan[0]"),
        names=names,
        dtypes=(x.dtype, L.dtype),
        shapes=[x.shape[1:], L.shape[1:]],
        program=key.pop("program", "train"),
        total=100,
        **key,
    )
    fill(stream, range(100) if steps is None else steps, x, L)
    fill(add(recording, "scan[1]", program="train", total=3), range(3), [1, 2, 3])
    return recording


def changed(array, at, value):
    array = array.copy()
    array[at] = value
    return array


def next_up(array, at):
    return changed(array, at, np.nextafter(array[at], np.inf, dtype=array.dtype))


def cut(*steps):
    rows = np.delete(np.arange(100), steps)
    return record(X[rows], L[rows], rows)


LONGER = np.r_[:100, 0]
MUTATIONS = {
    "one ulp": (
        record(next_up(X, 57)),
        "step_size: 1 of 100 steps differs, at step 57 (1 ulp) [scan[0] (train)]",
    ),
    "minus zero": (
        record(L=changed(L, (0, 0, 0), -0.0)),
        "state.L: 1 of 100 steps differs, at step 0 [0, 0] (sign of zero)",
    ),
    "NaN in the middle": (
        record(L=changed(L, (50, 1, 1), np.nan)),
        "state.L: 1 of 100 steps differs, at step 50 [1, 1] (NaN on one side)",
    ),
    "dtype": (
        record(X.astype(np.float64)),
        "step_size: dtype: expected float32, got float64",
    ),
    "shape": (record(L=L.reshape(100, 3, 2)), "state.L: shape: expected (2, 3), got (3, 2)"),
    "missing step": (cut(40), "missing step 40: expected 100 events, got 99"),
    "missing steps": (cut(3, 7, 8, 9), "missing steps 3, 7-9: expected 100 events, got 96"),
    "extra step": (
        record(X[LONGER], L[LONGER], range(101)),
        "extra step 100: expected 100 events, got 101",
    ),
    "swapped steps": (
        record(X[np.r_[:30, 31, 30, 32:100]]),
        "step_size: step 30 and step 31 are swapped [scan[0] (train)]",
    ),
    "other order": (
        record(X[::-1].copy()),
        "step_size: 100 steps hold each other's values, from step 0 to step 99",
    ),
    "extra stream": (record(), "extra stream while[0] (train)"),
    "renamed stream": (
        record(path="scan[7]"),
        "stream scan[0] (train) is now scan[7] (train), with equal values",
    ),
    "missing stream": (
        record(next_up(X, 3), path="scan[7]"),
        "missing stream scan[0] (train); the nearest without a partner is scan[7] (train)",
    ),
    "renamed leaf": (
        record(names=("eps", "state.L")),
        "leaf step_size is now called eps, with equal values",
    ),
    "missing leaf": (
        record(next_up(X, 3), names=("eps", "state.L")),
        "missing leaf step_size (got eps)",
    ),
}
fill(add(MUTATIONS["extra stream"][0], "while[0]", program="train"), [0], [1.0])


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_found_and_named(name):
    got, headline = MUTATIONS[name]
    found = diff(record(), got)
    assert not found.equal
    first = str(found).splitlines()[0]
    assert first.startswith(headline), str(found)
    assert any(item["text"].startswith(headline) for item in found.to_dict()["differences"])
    json.dumps(found.to_dict(), allow_nan=False)


def test_equal_recordings_are_equal_whatever_order_events_came_in():
    order = np.random.default_rng(0).permutation(100)
    found = record().diff(record(X[order], L[order], order))
    assert found.equal and str(found) == "equal" and found.compared == 2


def test_the_report_says_where_by_how_much_and_how_it_grows():
    steps = np.arange(100)
    gap = np.where(steps >= 57, 1e-6 * 2.0 ** ((steps - 57) / 11), 0).astype(np.float32)
    got = (X + gap).astype(np.float32)
    text = str(diff(record(), record(got)))
    first = int(np.flatnonzero(got != X)[0])
    off = abs(float(got[99]) - float(X[99]))
    ulps = int(got[99:].view(np.uint32)[0]) - int(X[99:].view(np.uint32)[0])
    head = text.splitlines()[0]
    assert f"first at step {first} (" in head and f"worst at step 99 ({ulps} ulp)" in head
    doubling = float(re.search(r"the gap doubles every ([\d.]+) steps", head)[1])
    assert doubling == pytest.approx(11, rel=0.05)
    assert f"worst step 99: expected {X[99]!s} = 0x{X.view(np.uint32)[99]:08x}, " in text
    assert f"off by {off:.3g}, relative {off / float(X[99]):.3g}, {ulps} ulp" in text
    assert "tolerance: exact (default)" in text and "growth: exponential" in text
    assert "observed at m.py:1 (f)" in text


def test_nested_loops_lanes_and_devices_have_their_place():
    def make(x):
        recording = Recording()
        stream = add(recording, depth=2, lanes=1, sharded=True)
        fill(stream, [[i // 4, i // 2 % 2] for i in range(8)], x)
        stream.lanes.extend(np.arange(8, dtype=np.int32)[:, None] % 2)
        stream.device.extend(np.zeros(8, np.int32))
        return recording

    x = np.arange(8, dtype=np.float32)
    found = diff(make(x), make(next_up(x, 5)))
    assert "at step 0 (outer 1), lane 1, device 0 (1 ulp)" in found.items[0].headline
    assert found.items[0].first.steps == (1, 0)


def test_events_of_one_step_are_told_apart():
    def make(x):
        recording = Recording()
        fill(add(recording), [0, 0, 1], x)
        return recording

    x = np.float32([1, 2, 3])
    assert diff(make(x), make(x)).equal
    assert "1 of 3 steps differs" in str(diff(make(x), make(next_up(x, 1))))
    recording = Recording()
    fill(add(recording), [0, 1], x[[0, 2]])
    assert str(diff(make(x), recording)).startswith("missing step 0: expected 3 events, got 2")


def test_source_lines_do_not_matter_but_loop_lengths_do():
    a, b = Recording(), Recording()
    fill(add(a, total=9, source="m.py:1 (f)"), [0], [1])
    fill(add(b, total=9, source="m.py:2 (f)"), [0], [1])
    assert diff(a, b).equal
    c = Recording()
    fill(add(c, total=None), [0], [1])
    assert "loop length: expected 9, got unknown" in str(diff(a, c))


TOLERANCES = [
    (np.float32(1), np.float32(1 + 3 * 2**-23), {"ulp": 3}, {"ulp": 2}),
    (np.float32(1e-45), np.float32(-1e-45), {"ulp": 2}, {"ulp": 1}),
    (np.float64(100), np.float64(100.1), {"rtol": 1.1e-3}, {"rtol": 0.9e-3}),
    (np.float64(0), np.float64(1e-9), {"atol": 1e-9}, {"rtol": 1.0}),
    (np.float32(0.0), np.float32(-0.0), {"rtol": 1e-9}, {}),
    (np.complex64(1 + 1j), np.complex64(1 + 1.0000001j), {"ulp": 1}, {}),
    (np.int32(1000), np.int32(1001), {"atol": 1}, {"ulp": 5}),
    (np.int64(2**60), np.int64(2**60 + 1), {"atol": 1}, {"atol": 0.5}),
    (np.float32(np.inf), np.float32(np.finfo(np.float32).max), {"ulp": 1}, {"rtol": 1e9}),
    (np.float32(np.nan), -np.float32(np.nan), {"nan": "any"}, {"ulp": 10**6, "rtol": 1.0}),
    (np.float32(np.nan), np.float32(1), None, {"ulp": 10**9, "rtol": 1.0, "nan": "any"}),
    (np.True_, np.False_, None, {"atol": 2.0}),
    (ml_dtypes.bfloat16(1), ml_dtypes.bfloat16(1.0078125), {"ulp": 1}, {"rtol": 1e-3}),
]


@pytest.mark.parametrize("number", range(len(TOLERANCES)))
def test_tolerances_at_their_edge(number):
    expected, got, passes, fails = TOLERANCES[number]
    assert passes is None or diff(expected, got, **passes).equal
    assert not diff(expected, got, **fails).equal


def test_nan_payloads_count_unless_told_otherwise():
    quiet, other = np.uint32([0x7FC00000, 0x7FC00001]).view(np.float32)
    assert diff({"x": quiet}, {"x": quiet}).equal
    assert "(NaN payload)" in str(diff(quiet, other))
    assert diff(quiet, other, nan="any").equal


def test_a_column_has_its_own_tolerance_and_the_report_says_so():
    got = record(next_up(X, 5), next_up(L, (4, 0, 0)))
    found = diff(record(), got, columns={"step_size": {"ulp": 1}})
    assert [item.leaf for item in found.items] == ["state.L"]
    assert diff(record(), got, columns={"L": {"ulp": 1}, "step_size": {"rtol": 1e-6}}).equal
    text = str(diff(record(), got, ulp=1, columns={"L": {"atol": 1e-12}}))
    assert "tolerance: atol 1e-12 (column 'L')" in text
    assert "tolerance: exact (default)" in str(diff(record(), got))
    assert "tolerance: rtol 1e-12 (call)" in str(diff(record(), got, rtol=1e-12))


def test_a_setting_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"no column 'stepsize'.*'step_size', 'state\.L'"):
        diff(record(), record(), columns={"stepsize": {"rtol": 1}})
    with pytest.raises(TypeError, match="column 'x' needs a dict of rtol, atol and ulp"):
        diff(1.0, 1.0, columns={"x": {"tol": 1}})
    with pytest.raises(ValueError, match="rtol must not be negative"):
        diff(1.0, 1.0, rtol=-1)
    with pytest.raises(TypeError, match="ulp must be a number"):
        diff(1.0, 1.0, ulp="4")
    with pytest.raises(ValueError, match="nan must be"):
        diff(1.0, 1.0, nan="equal")


def test_values_that_are_no_recordings():
    value = {
        "a": [1.5, None, "text"],
        "n": np.arange(5000.0),
        "df": pd.DataFrame({"c": ["x", "y"]}),
    }
    assert diff(value, value).equal
    other = {**value, "n": changed(value["n"], 2500, np.nan)}
    head = "n: 1 of 5000 elements differs, at [2500] (NaN on one side)"
    assert str(diff(value, other)).startswith(head)
    other = {**value, "df": pd.DataFrame({"c": ["x", "z"]})}
    assert 'expected "y", got "z"' in str(diff(value, other))
    assert str(diff(value, {**value, "a": [1.5, None]})).startswith("missing leaf a[2]")
    assert str(diff(value, {**value, "a": [1.5, 0, "text"]})).startswith("a[1]: dtype: expected objects")
    assert "shape: expected (5000,), got (4999,)" in str(diff(value, {**value, "n": value["n"][1:]}))


def test_a_drifting_array_says_how_it_drifts():
    expected = np.linspace(1, 2, 300)
    text = str(diff(expected, expected + 1e-9 * (np.arange(300) + 1)))
    assert "the gap grows by 1e-09 per index" in text.splitlines()[0]


def test_of_an_array_it_is_not_told_that_the_gap_stays():
    expected = np.linspace(1, 2, 300)
    found = diff(expected, expected + 1e-9)
    assert "stays" not in str(found) and "growth" not in str(found)


STEPS = np.arange(400)


def test_the_first_bits_that_differ_and_the_first_beyond_the_tolerance_are_told():
    """A gap that doubles every 40 steps from step 5 on: 2**-30 of the value there, above 1e-7 from 274 on."""
    gap = np.where(STEPS >= 5, 2.0 ** (-30 + (STEPS - 5) / 40), 0.0)
    first = int(np.flatnonzero(gap > 1e-7)[0])
    x = np.ones(400)
    found = diff(record_of(x), record_of(x + gap), rtol=1e-7)
    head, *details = str(found).splitlines()
    assert head.startswith(f"x: {400 - first} of 400 steps differ beyond the tolerance, first at step {first} (")
    assert "; bits differ in 395, first at step 5; the gap doubles every 40 steps" in head
    assert details[0].startswith("  first in bits step 5: expected 1.0 = 0x3ff0000000000000, got ")
    assert details[1].startswith(f"  first beyond the tolerance step {first}: expected 1.0 = ")
    told = found.items[0].to_dict()
    assert (told["unlike"], told["parted"]["steps"], told["first"]["steps"]) == (395, [5], [first])


def test_what_differs_first_may_differ_too_much():
    """Others differ less: said, but there is only one first."""
    x = np.ones(400)
    found = diff(record_of(x), record_of(x + np.where(STEPS == 3, 1.0, 1e-9)), rtol=1e-7)
    assert found.items[0].parted.steps == (0,)
    found = diff(record_of(x), record_of(x + np.where(STEPS == 0, 1.0, 1e-9)), rtol=1e-7)
    assert found.items[0].parted is None
    assert "1 of 400 steps differs beyond the tolerance, at step 0 (1); bits differ in 400, first at step 0" in str(
        found
    )


def test_growth_is_that_of_all_that_differs():
    """Linear from the first step on; only its end is beyond the tolerance, and would look like less."""
    x = np.ones(400)
    found = diff(record_of(x), record_of(x + 1e-9 * (STEPS + 1)), rtol=3e-7)
    assert found.items[0].differing == 100 or found.items[0].differing == 101
    assert found.items[0].growth.kind == "linear" and found.items[0].growth.first == 0
    assert found.items[0].growth.slope == pytest.approx(1e-9, rel=1e-3)


def record_of(x):
    recording = Recording()
    fill(add(recording, dtypes=[x.dtype], total=len(x)), range(len(x)), x)
    return recording


@pytest.mark.parametrize("number", range(len(TOLERANCES)))
def test_how_far_off_a_value_may_be_agrees_with_what_passes(number):
    expected, got, passes, fails = TOLERANCES[number]
    for limits in (passes, fails):
        if limits is None or "nan" in limits or expected.dtype.kind == "c":
            continue
        width = allowed(np.asarray(expected), Tolerance(**limits))
        with np.errstate(invalid="ignore"):
            off = np.abs(np.float64(got) - np.float64(expected))
        if np.isfinite(off) and 0 < abs(expected) < 2**53:
            assert bool(off <= width * (1 + 1e-6)) == diff(expected, got, **limits).equal


def test_many_differences_are_counted_not_listed():
    a, b = Recording(), Recording()
    for number in range(40):
        fill(add(a, f"scan[{number}]"), [0], [1.0])
        fill(add(b, f"scan[{number}]"), [0], [2.0])
    text = str(diff(a, b))
    assert text.splitlines()[0].endswith("(and 39 more below)")
    assert "and 30 more differences" in text and len(text.splitlines()) < 60


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Three files: a recording, the same again on another jax, and one that differs."""
    environment = {"jax": "0.10.2", "x64": False, "xla_flags": []}
    newer = environment | {"jax": "0.12.0.1", "xla_flags": ["--xla_cpu_max_isa=AVX"]}
    made = {"a": environment, "b": newer, "c": newer}
    for name, recording in {"a": record(), "b": record(), "c": record(next_up(X, 57))}.items():
        monkeypatch.setattr(jsonl, "fingerprint", lambda name=name: made[name])
        recording.to_jsonl(tmp_path / f"{name}.jsonl")
    return tmp_path


def test_environments_are_compared_but_do_not_make_a_difference(files, monkeypatch):
    a, b = (stored.read_jsonl(files / name) for name in ("a.jsonl", "b.jsonl"))
    found = a.diff(b)
    assert found.equal
    flags = "xla_flags none -> --xla_cpu_max_isa=AVX"
    assert str(found) == f"equal\nenvironment: jax 0.10.2 -> 0.12.0.1, {flags}"
    monkeypatch.setattr(diff_module, "fingerprint", lambda: a.environment | {"x64": True})
    assert diff(a, record()).environment == {"x64": (False, True)}


def test_the_command_line_has_exit_codes_for_scripts(files, capsys):
    a, b, c = (str(files / f"{name}.jsonl") for name in "abc")
    assert main(["diff", a, b]) == 0
    assert main(["diff", a, c]) == 1
    assert "1 of 100 steps differs, at step 57 (1 ulp)" in capsys.readouterr().out
    assert main(["diff", a, c, "--ulp", "1"]) == 0
    assert main(["diff", a, c, "--rtol", "1e-12"]) == 1
    capsys.readouterr()
    assert main(["diff", a, c, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differences"][0]["first"]["ulp"] == 1
    (files / "c.jsonl").write_text("{")
    assert main(["diff", a, c]) == 2 and "c.jsonl, line 1" in capsys.readouterr().err
    assert main(["diff", a, str(files / "none.jsonl")]) == 2
    with pytest.raises(SystemExit) as usage:
        main(["diff", a])
    assert usage.value.code == 2


def test_the_module_runs(files):
    command = [sys.executable, "-m", "jaxtap_core", "diff", "a.jsonl", "c.jsonl"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run(command, cwd=files, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "step 57" in done.stdout, done.stderr


def test_a_gap_that_the_program_forgets_shrinks():
    def forget(kick):
        step = lambda a, t: ((a * 0.9 + t * 0.1) * jnp.where(t == 7, 1 + kick, 1.0), None)
        return jax.lax.scan(step, jnp.float32(1), jnp.arange(20.0))[0]

    with tap.record() as expected:
        forget(0.0)
    with tap.record() as got:
        forget(1e-3)
    head, *details = str(expected.diff(got)).splitlines()
    halving = float(re.search(r"the gap halves every ([\d.]+) steps", head)[1])
    assert halving == pytest.approx(np.log(0.5) / np.log(0.9), rel=0.02)
    assert any(line.startswith("  growth: shrinking: the gap halves every") for line in details)


@pytest.mark.parametrize("wrong", [np.nan, 7.0])
def test_of_one_value_no_growth_is_told(wrong):
    got = X.copy()
    got[3] = wrong
    for found in (diff(X, got), diff(record(), record(got))):
        assert "growth" not in str(found) and found.items[0].to_dict()["growth"] is None
