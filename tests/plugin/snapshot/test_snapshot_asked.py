"""A comparison that was never made fails: where another ``==`` answers first, and where there is nothing to compare."""

import pytest

pytest_plugins = ["pytester", "snapshots"]

OWN = """
import equinox as eqx, jax.numpy as jnp, numpy as np, pytest
from unittest import mock

class Module(eqx.Module):
    w: jnp.ndarray

class Like:
    def __init__(self):
        self.x = np.ones(2)

class HandsOn(Like):
    def __eq__(self, other): return self.x == other

class HandsOnCarefully(Like):
    def __eq__(self, other):
        try:
            return self.x == other
        except Exception:
            return False

class HandsOnDeep(Like):
    def __eq__(self, other): return [each == other for each in (self.x,)][0]

class Refuses(Like):
    def __eq__(self, other): return jnp.equal(self.x, other)

class ByElement(Like):
    def __eq__(self, other): return np.array([True, False])

class Never(Like):
    def __eq__(self, other): return False

class Always(Like):
    def __eq__(self, other): return True

VALUES = [
    Module(jnp.ones(2)), HandsOn(), HandsOnCarefully(), HandsOnDeep(), Refuses(), ByElement(), Never(), Always(),
    mock.ANY, np.ma.array([1.0, 2.0], mask=[0, 1]),
]

@pytest.mark.parametrize("which", range(len(VALUES)))
def test_bare(which, tap_snapshot):
    assert VALUES[which] == tap_snapshot

@pytest.mark.parametrize("which", range(len(VALUES)))
def test_with_settings(which, tap_snapshot):
    assert VALUES[which] == tap_snapshot(rtol=1e-5, name="x")

def test_after_another(tap_snapshot):
    assert 1 == tap_snapshot
    assert Never() == tap_snapshot

@pytest.fixture
def check(tap_snapshot):
    def check(value):
        assert value == tap_snapshot(name="x")
    return check

def test_through_a_fixture(check):
    check(VALUES[0])

def test_nothing(tap_snapshot):
    pass
"""


@pytest.mark.parametrize("options", [[], ["--assert=plain"]], ids=["rewritten", "plain"])
def test_an_object_whose_own_equality_answers_first_fails_with_what_to_write(pytester, run, options):
    pytester.makepyfile(test_it=OWN)
    text = run("--snapshot-update", *options, fresh=True).stdout.str()
    parts = text.partition("= short test summary")[0].split("\n____")[1:]
    assert len(parts) == 23
    for part in parts:
        # Without rewriting nobody is told what was compared, unless the test itself shows it.
        hidden = options and ("test_after_another" in part or "test_through_a_fixture" in part)
        assert "assert tap_snapshot == x" in part or hidden, part
    assert not list(pytester.path.rglob("*test_bare*.jaxtap"))


FINE = """
import dataclasses, equinox as eqx, jax, jax.numpy as jnp, numpy as np, pandas as pd, pytest

class Module(eqx.Module):
    w: jnp.ndarray

@dataclasses.dataclass
class Pair:
    x: object

@pytest.fixture
def check(tap_snapshot):
    return lambda value: value == tap_snapshot

def test_a_fixture_that_is_not_used(check):
    pass

@pytest.mark.usefixtures("tap_snapshot")
def test_for_its_effect():
    pass

def test_the_other_way_round(tap_snapshot):
    assert tap_snapshot == Module(jnp.ones(2))

def test_settings_of_settings(tap_snapshot):
    loose = tap_snapshot(rtol=1e-3)
    assert 1.0 == loose(name="a")

def test_inside_a_dataclass(tap_snapshot):
    assert Pair(np.ones(2)) == Pair(tap_snapshot)

@pytest.mark.parametrize("value", [
    pd.Categorical(["a"]), pd.Index([1]), pd.array([1]), pd.Series([1.0]), pd.DataFrame({"a": [1]}), np.float32(1),
    jnp.ones(2), jax.random.key(0), (1, 2), {"a": 1}, "text", None,
])
def test_values(value, tap_snapshot):
    assert value == tap_snapshot

def test_skipped(tap_snapshot):
    pytest.skip("today")
"""


def test_what_leaves_the_answer_to_the_snapshot_passes(pytester, run):
    pytester.makepyfile(test_it=FINE)
    for options in (["--snapshot-update"], []):
        run(*options, fresh=True).assert_outcomes(passed=17, skipped=1)


def test_a_failure_of_another_kind_is_left_alone(pytester, run):
    pytester.makepyfile(
        test_it="""
        import pytest

        def test_error(tap_snapshot):
            assert 1 / 0 == tap_snapshot

        def test_wrong(tap_snapshot):
            assert 1 == 2

        @pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
        def test_expected(tap_snapshot):
            1 / 0
        """
    )
    result = run()
    result.assert_outcomes(failed=2, xfailed=1)
    result.stdout.no_fnmatch_line("*jaxtap*")


EMPTY = """
import jax, os

def record(tap_recorder):
    with tap_recorder() as rec, jax.disable_jit(os.environ["VALUE"] == "off"):
        jax.lax.fori_loop(0, 3, lambda i, c: c + 1, 0)
    return rec

def test_run(tap_recorder, tap_snapshot):
    assert record(tap_recorder) == tap_snapshot

def test_reflected(tap_recorder, tap_snapshot):
    assert tap_snapshot(name="x", rtol=1) == record(tap_recorder)

def test_meant(tap_recorder, tap_snapshot):
    assert record(tap_recorder) == tap_snapshot(empty=True)
"""


def test_a_recording_without_events_is_no_snapshot_unless_that_is_meant(pytester, run):
    pytester.makepyfile(test_it=EMPTY)
    for options in (["--snapshot-update"], []):
        result = run(*options, value="off")
        result.assert_outcomes(failed=2, passed=1)
        result.stdout.fnmatch_lines(["*the recording holds no events*", "*if that is meant, write *empty=True*"])
    assert len(list(pytester.path.rglob("*.jaxtap"))) == 1
    run("--snapshot-update", value="on").assert_outcomes(passed=3)
    result = run(value="off")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*jaxtap: missing stream scan*"])


@pytest.mark.parametrize("argument", ["'loss'", "3", "[1, 2]"])
def test_what_is_no_mapping_in_the_first_place_is_named(pytester, run, argument):
    pytester.makepyfile(test_it=f"def test_it(tap_snapshot):\n    assert [1.0] == tap_snapshot({argument})\n")
    result = run("--snapshot-update")
    result.assert_outcomes(failed=1)
    hint = "; write tap_snapshot(name='loss')" if argument == "'loss'" else ""
    message = f"E *TypeError: the first argument gives limits to columns, by name, not {argument}{hint}"
    result.stdout.fnmatch_lines([message.replace("[", "[[]")])


def test_two_recordings_that_differ_say_how(pytester, run):
    pytester.makepyfile(
        test_it="""
        import jax, jax.numpy as jnp
        import jaxtap_core as tap

        def run(k):
            with tap.record() as rec:
                jax.lax.scan(lambda c, t: (c * k + t, None), 1.0, jnp.arange(50.0))
            return rec

        def test_it():
            assert run(0.5) == run(0.25)
        """
    )
    result = run()
    result.stdout.fnmatch_lines(
        [
            "E *assert jaxtap: the recordings differ (got == expected)",
            "E *: 50 of 50 steps differ, first at step 0 (*",
            "E * first step 0: expected 0.25 = 0x3e800000, got 0.5 = 0x3f000000; *",
        ]
    )
    assert len(result.outlines) < 40
