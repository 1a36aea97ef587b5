"""``tap_snapshot`` through pytest and syrupy: what matches, what fails, and that nothing is lost.

Runs of pytest inside pytest are costly, so each has many cases. To try another syrupy, put it first
on PYTHONPATH.
"""

import pytest
from snapshots import FOLDER, files

pytest_plugins = ["pytester", "snapshots"]

MADE = '''
import numpy as np
from jaxtap_core.recording.recording import Recording
from jaxtap_core.telemetry.stream import Stream, StreamKey

N = 100
X = (np.arange(N, dtype=np.float32) + 1) / 7
LONG = np.arange(5000.0)


def record(x=X, path="scan[0]", name="step_size", steps=None, extra=False):
    """A recording of one scalar stream, made by hand."""
    recording = Recording()
    for where in [path, "while[9]"] if extra else [path]:
        key = StreamKey("train", 0, where, "carry", N, 1, "forward", "m.py:1 (f)", (name,), tuple)
        stream = recording.stream(key, None, lambda: Stream(key, [x.dtype], [x.shape[1:]]))
        stream.steps.extend(np.asarray(np.arange(len(x)) if steps is None else steps, np.int32)[:, None])
        stream.leaves[0].extend(x)
    return recording


def changed(array, at, value):
    array = array.copy()
    array[at] = value
    return array


def up(array, at):
    return changed(array, at, np.nextafter(array[at], np.inf, dtype=array.dtype))
'''


@pytest.fixture(autouse=True)
def made(pytester):
    pytester.makepyfile(made=MADE)


MUTATIONS = """
import os
import numpy as np
import pytest
from made import *

CASES = {
    "one-ulp": (lambda: record(), lambda: record(up(X, 57))),
    "minus-zero": (lambda: record(changed(X, 3, 0.0)), lambda: record(changed(X, 3, -0.0))),
    "dtype": (lambda: record(), lambda: record(X.astype(np.float64))),
    "missing-step": (lambda: record(), lambda: record(X[:-1])),
    "extra-step": (lambda: record(), lambda: record(np.append(X, X[:1]))),
    "extra-stream": (lambda: record(), lambda: record(extra=True)),
    "renamed-stream": (lambda: record(), lambda: record(path="scan[1]")),
    "renamed-leaf": (lambda: record(), lambda: record(name="eps")),
    "nan": (lambda: LONG, lambda: changed(LONG, 2500, np.nan)),
    "swapped-steps": (lambda: record(), lambda: record(X[np.r_[:30, 31, 30, 32:N]])),
    "shape": (lambda: LONG.reshape(50, 100), lambda: LONG.reshape(100, 50)),
    "list": (lambda: [1, 2.5], lambda: [1, 2.5, 3]),
}

@pytest.mark.parametrize("case", CASES)
def test_case(case, tap_snapshot):
    assert CASES[case][os.environ["VALUE"] == "mutated"]() == tap_snapshot
"""
HEADLINES = {
    "one-ulp": "step_size: 1 of 100 steps differs, at step 57 (1 ulp) [scan[0] (train)]",
    "minus-zero": "step_size: 1 of 100 steps differs, at step 3 (sign of zero) [scan[0] (train)]",
    "dtype": "step_size: dtype: expected float32, got float64 [scan[0] (train)]",
    "missing-step": "missing step 99: expected 100 events, got 99 [scan[0] (train)]",
    "extra-step": "extra step 100: expected 100 events, got 101 [scan[0] (train)]",
    "extra-stream": "extra stream while[9] (train)",
    "renamed-stream": "stream scan[0] (train) is now scan[1] (train), with equal values",
    "renamed-leaf": "leaf step_size is now called eps, with equal values [scan[0] (train)]",
    "nan": "value: 1 of 5000 elements differs, at [2500] (NaN on one side)",
    "swapped-steps": "step_size: step 30 and step 31 are swapped [scan[0] (train)]",
    "shape": "value: shape: expected (50, 100), got (100, 50)",
    "list": "extra leaf [2]",
}


def assert_each_fails_by_name(result):
    result.assert_outcomes(failed=len(HEADLINES))
    text = result.stdout.str()
    for case, headline in HEADLINES.items():
        part = text.partition(f"_ test_case[{case}] _")[2].partition("_ test_case[")[0]
        assert f"E       AssertionError: assert jaxtap: {headline}" in part, part


def test_each_mutation_fails_with_a_report_that_names_it(pytester, run):
    pytester.makepyfile(test_it=MUTATIONS)
    run("--snapshot-update").assert_outcomes(passed=len(HEADLINES))
    stored = files(pytester)
    run().assert_outcomes(passed=len(HEADLINES))
    assert_each_fails_by_name(run(value="mutated"))
    assert files(pytester) == stored


FORMS = """
import jax, jax.numpy as jnp, numpy as np, pandas as pd, pytest
from made import *

VALUES = {
    "numpy": np.arange(6.0).reshape(2, 3),
    "numpy scalar": np.float32(0.1),
    "jax": jnp.arange(5),
    "jax scalar": jnp.float32(2),
    "key": jax.random.key(0),
    "series": pd.Series([1.5, 2.5, None], name="loss"),
    "frame": pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
    "index": pd.Index([1, 2]),
    "telemetry": record().df(),
    "recording": record(),
    "tree": {"a": [1, 2.5, None], "b": (jnp.ones(2), "text")},
    "text": "hello",
    "none": None,
    "nothing": [],
}

@pytest.mark.parametrize("which", VALUES)
@pytest.mark.parametrize("reflected", [False, True])
def test_form(which, reflected, tap_snapshot):
    value = VALUES[which]
    same = tap_snapshot == value if reflected else value == tap_snapshot
    assert same is True
    assert not value != tap_snapshot
"""


def test_any_value_is_compared_whole_from_either_side(pytester, run):
    pytester.makepyfile(test_it=FORMS)
    run("--snapshot-update").assert_outcomes(passed=28)
    run().assert_outcomes(passed=28)
    texts = [data for name, data in files(pytester).items() if name.endswith(".jaxtap")]
    assert len(texts) == 28 and all(text.count(b"\nentry ") == 2 for text in texts)


TOLERANCES = """
import os
import numpy as np
from made import *

def test_within(tap_snapshot):
    drift = float(os.environ["VALUE"] or 0)
    assert record(X * np.float32(1 + drift)) == tap_snapshot(rtol=1e-5, name="loose")
    assert {"a": np.arange(3.0), "b": X + drift} == tap_snapshot(columns={"b": {"atol": 1e-5}})
    assert 7 == tap_snapshot(name="exact")
"""


def test_values_inside_the_tolerance_are_not_rewritten(pytester, run):
    pytester.makepyfile(test_it=TOLERANCES)
    run("--snapshot-update")
    stored = files(pytester)
    for _ in range(3):
        run("--snapshot-update", value="8e-6").assert_outcomes(passed=1)
    assert files(pytester) == stored
    result = run(value="3e-5")
    result.stdout.fnmatch_lines(
        [
            "*assert jaxtap: step_size: 100 of 100 steps differ, first at step 0 (* ulp), worst *",
            "*tolerance: rtol 1e-05 (call)",
            "*snapshot 'test_within[[]loose]' in __tap_snapshots__*test_within.jaxtap",
        ]
    )
    run("--snapshot-update", value="3e-5").assert_outcomes(passed=1)
    (old,), (new,) = stored.values(), files(pytester).values()
    assert old.split(b"\nentry ")[3] == new.split(b"\nentry ")[3]
    assert [entry.split(b"\n")[0] for entry in new.split(b"\nentry ")[1:]] == [
        b'"test_within[loose]"',
        b'"test_within.1"',
        b'"test_within[exact]"',
    ]


DAMAGED = """
import numpy as np

def test_a(tap_snapshot):
    assert np.arange(5.0) == tap_snapshot
    assert np.arange(2000.0) == tap_snapshot
"""


def test_a_missing_snapshot_fails_and_a_damaged_one_is_left_alone(pytester, run):
    pytester.makepyfile(test_it=DAMAGED)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E * assert jaxtap: there is no snapshot 'test_a' yet",
            "E *run pytest --snapshot-update to write it to __tap_snapshots__*test_it*test_a.jaxtap",
        ]
    )
    assert not files(pytester)
    run("--snapshot-update").assert_outcomes(passed=1)
    path = pytester.path / FOLDER / "test_it" / "test_a.jaxtap"
    good = path.read_text()
    damages = {
        good[:300]: "*DamagedSnapshotError: *test_a.jaxtap, line *: damaged: *",
        good.replace("  [2]: 2.0", "=======\n"): "*test_a.jaxtap, line *: a merge conflict was left*",
        good.replace("schema 2", "schema 9"): "*line 1: written in schema 9; this pytest-jaxtap reads 2*",
    }
    for damaged, message in damages.items():
        path.write_text(damaged)
        for arguments in ([], ["--snapshot-update"]):
            result = run(*arguments)
            result.assert_outcomes(failed=1)
            result.stdout.fnmatch_lines([message])
            assert path.read_text() == damaged
    path.write_text(good)
    (arrays,) = path.parent.glob("test_a.*.bin")
    arrays.unlink()
    result = run("--snapshot-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_a.jaxtap, line *: damaged: test_a.*.bin, the file of column *, is missing*"])
    assert path.read_text() == good


NAMES = """
import os
import numpy as np
import pytest

BIG = np.arange(2000.0)
PARAMETERS = ["plain", "a/b:c*?", "x" * 300, ".hidden", "0.5", "sp ace", "\\u00e9\\u4e2d", "[odd]"]
IDS = None if os.environ["VALUE"] == "short" else PARAMETERS

@pytest.mark.skipif(os.environ["VALUE"] == "skip", reason="not today")
@pytest.mark.parametrize("p", PARAMETERS[:1] if os.environ["VALUE"] == "fewer" else PARAMETERS, ids=repr)
def test_p(p, tap_snapshot):
    assert p == tap_snapshot
    assert BIG == tap_snapshot(name="big " + p)

class TestA:
    def test_same(self, tap_snapshot):
        assert "a" == tap_snapshot

class TestB:
    def test_same(self, tap_snapshot):
        assert "b" == tap_snapshot
"""


def test_odd_and_long_names_have_files_of_their_own_and_none_is_lost(pytester, run):
    pytester.makepyfile(test_it=NAMES)
    run("--snapshot-update", "-W", "error").assert_outcomes(passed=10)
    stored = files(pytester)
    assert len(stored) == 10 + 8  # texts, and one binary file for each parameter
    assert max(len(part.encode()) for name in stored for part in name.split("/")) < 255
    run("-W", "error").assert_outcomes(passed=10)
    run("--snapshot-update", value="skip").assert_outcomes(passed=2, skipped=8)
    assert files(pytester) == stored
    run("--snapshot-update", "-k", "TestA").assert_outcomes(passed=1, deselected=9)
    assert files(pytester) == stored


def test_unused_snapshots_are_told_and_deleted_with_their_arrays(pytester, run):
    pytester.makepyfile(test_it=NAMES)
    run("--snapshot-update").assert_outcomes(passed=10)
    result = run(value="fewer")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*14 snapshots unused.*"])
    run("--snapshot-update", value="fewer").assert_outcomes(passed=3)
    left = files(pytester)
    assert len(left) == 4 and sum(name.endswith(".bin") for name in left) == 1
    assert run(value="fewer").ret == 0


def test_workers_compare_update_and_delete_alike(pytester, run):
    pytester.makepyfile(test_it=MUTATIONS, test_names=NAMES, test_damaged=DAMAGED)
    run("--snapshot-update").assert_outcomes(passed=len(HEADLINES) + 11)
    stored = files(pytester)
    assert_each_fails_by_name(run("-n", "4", "test_it.py", value="mutated", fresh=True))
    assert files(pytester) == stored
    damaged = pytester.path / FOLDER / "test_damaged" / "test_a.jaxtap"
    damaged.write_bytes(damaged.read_bytes()[:300])
    result = run("--snapshot-update", "-n", "4", value="fewer", fresh=True)
    result.assert_outcomes(passed=len(HEADLINES) + 3, failed=1)
    result.stdout.fnmatch_lines(["*DamagedSnapshotError: *test_a.jaxtap, line *: damaged: *"])
    assert len(damaged.read_bytes()) == 300
    left = [name for name in files(pytester) if name.startswith("test_names")]
    assert len(left) == 4 and sum(name.endswith(".bin") for name in left) == 1


def test_one_entry_of_a_test_can_be_unused(pytester, run):
    source = "import numpy as np\ndef test_a(tap_snapshot):\n    assert 1 == tap_snapshot\n"
    more = "    assert np.arange(2000) == tap_snapshot(name='big')\n"
    pytester.makepyfile(test_it=source + more)
    run("--snapshot-update")
    assert len(files(pytester)) == 2
    pytester.makepyfile(test_it=source)
    run("--snapshot-update").stdout.fnmatch_lines(["*1 unused snapshot deleted.*"])
    ((name, text),) = files(pytester).items()
    assert b"big" not in text and name == "test_it/test_a.jaxtap"


REPORTS = """
import os
import numpy as np
from made import *

def test_growing(tap_snapshot):
    gap = np.where(np.arange(N) >= 57, 1e-5 * 2.0 ** (np.arange(N) / 11), 0)
    assert record(np.float32(X + gap * (os.environ["VALUE"] == "drift"))) == tap_snapshot

def test_many(tap_snapshot):
    drift = os.environ["VALUE"] == "drift"
    assert {f"leaf{i}": X + drift for i in range(30)} == tap_snapshot
"""


def test_the_report_tells_the_whole_story(pytester, run):
    pytester.makepyfile(test_it=REPORTS)
    run("--snapshot-update")
    path = pytester.path / FOLDER / "test_it" / "test_growing.jaxtap"
    text = path.read_text()
    path.write_text(text.replace('jaxlib: "', 'jaxlib: "0.0.').replace("x64: false", "x64: true"))
    result = run(value="drift")
    result.stdout.fnmatch_lines(
        [
            "E * assert jaxtap: step_size: 43 of 100 steps differ, first at step 57 (*), worst at "
            "step 99 (*); the gap doubles every 11 steps [[]scan[[]0] (train)]",
            "E * first step 57: expected * = 0x*, got * = 0x*; off by *, relative *, * ulp",
            "E * worst step 99: expected * = 0x*, got * = 0x*; off by *, relative *, * ulp",
            "E * tolerance: exact (default)",
            "E * growth: exponential: the gap doubles every 11 steps (43 points, step 57 to 99)",
            "E * observed at m.py:1 (f)",
            "E * environment: jaxlib 0.0.* -> *, x64 True -> False",
            "E * snapshot 'test_growing' in __tap_snapshots__*test_growing.jaxtap",
        ],
        consecutive=True,
    )
    assert "truncated" not in result.stdout.str().partition("test_many")[0]
    result.stdout.fnmatch_lines(
        ["*leaf0: 100 of 100 elements differ*(and 29 more below)", "*Captured jaxtap snapshot call*"]
    )
    assert result.stdout.str().count("and 20 more differences") == 1
    plain = run("--assert=plain", "-k", "growing", value="drift").stdout
    plain.fnmatch_lines(["*Captured jaxtap snapshot call*", "jaxtap: step_size: 43 of 100 steps*"])


MISUSE = """
import pytest
from made import *

def test_column(tap_snapshot):
    assert record() == tap_snapshot(columns={"stepsize": {"rtol": 1}})

def test_negative(tap_snapshot):
    assert record() == tap_snapshot(rtol=-1)

def test_name(tap_snapshot):
    assert record() == tap_snapshot(name="")

def test_opaque(tap_snapshot):
    assert {"model": [X, object()]} == tap_snapshot

def test_twice(tap_snapshot):
    assert 1 == tap_snapshot(name="same")
    assert 1 == tap_snapshot(name="same")
    assert 2 == tap_snapshot(name="same")
"""


def test_misuse_is_named(pytester, run):
    pytester.makepyfile(test_it=MISUSE)
    for arguments in (["--snapshot-update"], []):
        result = run(*arguments)
        result.assert_outcomes(failed=5)
        result.stdout.fnmatch_lines(
            [
                "E *ValueError: there is no column 'stepsize' *; columns: 'step_size'",
                "E *ValueError: rtol must not be negative, got -1",
                "E *TypeError: name must be a string that is not empty, not ''",
                "E *TypeError: the leaf model[[]1] is an object of type object: neither an array nor plain data, *",
                "E * assert jaxtap: value: 1 of 1 element differs*",
                "E * first expected 1, got 2; off by 1, relative 1",
            ]
        )
        assert "jaxtap_core/" not in result.stdout.str()  # no traceback from our inside


def test_with_a_misspelt_column_nothing_is_written(pytester, run):
    pytester.makepyfile(
        test_it="""
        from made import *

        def test_column(tap_snapshot):
            assert record() == tap_snapshot(columns={"stepsize": {"rtol": 1}})
        """
    )
    result = run("--snapshot-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *ValueError: there is no column 'stepsize' *; columns: 'step_size'"])
    assert not list(pytester.path.rglob("*.jaxtap"))
    result.stdout.no_fnmatch_line("*snapshot* generated*")


def test_each_platform_keeps_its_own_file(pytester, run):
    pytester.makepyfile(
        test_it="""
        def test_a(tap_snapshot):
            assert 1.5 == tap_snapshot(platform=True)
            assert 2.5 == tap_snapshot
        """
    )
    run("--snapshot-update").assert_outcomes(passed=1)
    ours = pytester.path / "__tap_snapshots__.cpu" / "test_it" / "test_a.jaxtap"
    other = pytester.path / "__tap_snapshots__.gpu" / "test_it" / "test_a.jaxtap"
    other.parent.mkdir(parents=True)
    other.write_text(ours.read_text().replace("1.5", "1.4375"))
    result = run("--snapshot-update")
    result.assert_outcomes(passed=1)
    assert "unused" not in result.stdout.str() and "1.4375" in other.read_text()
    assert ours.read_text().count("entry") == 1 == len(files(pytester))


def test_other_snapshots_of_the_folder_are_left_alone(pytester, run):
    pytester.makepyfile(
        test_it="def test_a(tap_snapshot):\n    assert 1 == tap_snapshot\n",
        test_amber="def test_b(snapshot):\n    assert 2 == snapshot\n",
    )
    run("--snapshot-update").assert_outcomes(passed=2)
    stored, others = files(pytester), files(pytester, "__snapshots__")
    assert set(stored) == {"test_it/test_a.jaxtap"} and set(others) == {"test_amber.ambr"}
    for one in ("test_it.py", "test_amber.py"):
        run("--snapshot-update", one).assert_outcomes(passed=1)
    run("--snapshot-update").assert_outcomes(passed=2)
    assert (files(pytester), files(pytester, "__snapshots__")) == (stored, others)


def test_without_syrupy_the_fixture_says_so(pytester, run):
    pytester.makepyfile(test_it="def test_a(tap_snapshot):\n    assert 1 == tap_snapshot\ndef test_b(): pass\n")
    result = run("-p", "no:syrupy")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*tap_snapshot stores through syrupy: *switched off (-p no:syrupy)"])
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef snapshot(): return object()\n")
    result = run()
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*the fixture `snapshot` here is a builtins one, not syrupy's"])
