"""What an update may delete: snapshots of tests that are gone or passed without them, and nothing else."""

import pytest
from snapshots import FOLDER, files

pytest_plugins = ["pytester", "snapshots"]

OLD = """
import numpy as np, pytest

def test_first(tap_snapshot):
    assert 1 == tap_snapshot

def test_many(tap_snapshot):
    assert np.arange(2000.0) == tap_snapshot
    assert "b" == tap_snapshot(name="b")
    assert 3 == tap_snapshot

@pytest.mark.parametrize("p", ["x" * 300, "a/b"])
def test_odd(p, tap_snapshot):
    assert p == tap_snapshot

def test_platform(tap_snapshot):
    assert 1 == tap_snapshot(platform=True)
"""
OTHER = "def test_other(tap_snapshot):\n    assert 1 == tap_snapshot\n"


@pytest.fixture
def stored(pytester, run):
    """Snapshots of two modules; all files of the folder."""
    pytester.makepyfile(test_it=OLD, test_other=OTHER)
    run("--snapshot-update").assert_outcomes(passed=6)
    return everything(pytester)


def everything(pytester):
    found = {**files(pytester), **{f"cpu/{n}": d for n, d in files(pytester, f"{FOLDER}.cpu").items()}}
    assert found
    return found


def before(line, code):
    """The old tests with ``code`` before a line that starts so."""
    return OLD.replace(line, f"{code}\n{line}")


MANY, ARRAY, TEXT = "def test_many", "    assert np", '    assert "b"'
LATE = "@pytest.fixture\ndef bad():\n    yield\n    assert 0"
STOPPED = {
    "an exception": (before(ARRAY, "    raise RuntimeError"), []),
    "after its first comparison": (before(TEXT, "    raise RuntimeError"), []),
    "a wrong value": (before(TEXT, "    assert False"), []),
    "skipped in its body": (before(ARRAY, "    pytest.skip()"), []),
    "expected to fail": (before(ARRAY, "    pytest.xfail()"), []),
    "skipped": (before(MANY, "@pytest.mark.skip"), []),
    "a fixture that fails": (before(MANY, "@pytest.fixture\ndef bad(): assert 0").replace("many(", "many(bad, "), []),
    "a fixture that fails late": (before(MANY, LATE).replace("many(", "many(bad, "), ["-k", "not odd"]),
    "interrupted": (before(ARRAY, "    raise KeyboardInterrupt"), []),
    "the end of the session": (before(ARRAY, "    pytest.exit('enough')"), []),
    "first failure": (before("    assert 1 == tap_snapshot\n\ndef test_many", "    assert 0"), ["-x"]),
    "most failures": (before("    assert 1 == tap_snapshot\n\ndef test_many", "    assert 0"), ["--maxfail=1"]),
    "deselected": (OLD, ["--deselect=test_it.py::test_many"]),
    "not its word": (OLD, ["-k", "not many"]),
    "only another's word": (OLD, ["-k", "other"]),
    "not its mark": (before(MANY, "@pytest.mark.slow"), ["-m", "not slow"]),
    "another test by name": (OLD, ["test_it.py::test_first"]),
    "another module by name": (OLD, ["test_other.py"]),
    "its module ignored": (OLD, ["--ignore=test_it.py"]),
    "its module broken": ("import not_there\n" + OLD, []),
    "its module broken, and going on": ("import not_there\n" + OLD, ["--continue-on-collection-errors"]),
    "its module skipped": ("import pytest\npytest.skip(allow_module_level=True)\n" + OLD, []),
    "collected only": (OLD.replace("test_many", "test_few"), ["--collect-only"]),
}  # fmt: skip


@pytest.mark.parametrize("how", STOPPED)
def test_an_update_keeps_the_snapshots_of_tests_that_did_not_pass(pytester, run, stored, how):
    source, options = STOPPED[how]
    pytester.makepyfile(test_it=source)
    pytester.makeini("[pytest]\nmarkers = slow\n")
    for update in ([], ["--snapshot-update"]):
        result = run(*update, *options, fresh=how == "interrupted")
        assert everything(pytester) == stored
        assert "unused" not in result.stdout.str() and "INTERNALERROR" not in result.stdout.str()


def test_an_update_of_the_last_failures_keeps_the_others(pytester, run, stored):
    pytester.makepyfile(test_it=OLD.replace("assert 3 ==", "assert 4 =="))
    run(cache=True).assert_outcomes(passed=5, failed=1)
    result = run("--snapshot-update", "--lf", cache=True)
    result.assert_outcomes(passed=1)
    changed = {name for name, data in everything(pytester).items() if data != stored[name]}
    assert changed == {"test_it/test_many.jaxtap"} and everything(pytester).keys() == stored.keys()


def test_an_update_by_workers_keeps_them_too(pytester, run, stored):
    pytester.makepyfile(test_it=before(ARRAY, "    raise RuntimeError"))
    run("--snapshot-update", "-n", "2", fresh=True).assert_outcomes(passed=5, failed=1)
    assert everything(pytester) == stored


def test_tests_that_a_conftest_drops_in_silence_keep_theirs(pytester, run, stored):
    pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            items[:] = [item for item in items if "many" not in item.name]
        """
    )
    run("--snapshot-update").assert_outcomes(passed=5)
    assert everything(pytester) == stored


def test_a_session_without_the_plugin_deletes_nothing(pytester, run, stored):
    pytester.makepyfile(test_amber="def test_amber(snapshot):\n    assert 1 == snapshot\n")
    result = run("--snapshot-update", "-p", "no:jaxtap", "-p", "syrupy", fresh=True)
    result.assert_outcomes(passed=1, errors=6)
    assert everything(pytester) == stored


PLAIN = "def test_plain():\n    pass\n"
GONE = {
    "a test": (OLD.replace("test_many", "test_few"), {}),
    "its use of the fixture": (before(ARRAY, "    return").replace("many(tap_snapshot)", "many()"), {}),
    "the last test that compares": (PLAIN, {"test_other": PLAIN}),
    "a module": (None, {}),
}


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["one process", "workers"])
def test_what_is_gone_is_told_and_then_deleted_with_its_arrays(pytester, run, stored, how, options):
    source, others = GONE[how]
    (pytester.path / "test_it.py").unlink()
    for name, text in {"test_it": source, **others}.items():
        if text is not None:
            pytester.makepyfile(**{name: text})
    result = run(*options, fresh=bool(options))
    assert result.ret != 0 and "unused" in result.stdout.str()
    assert everything(pytester) == stored
    run("--snapshot-update", *options, fresh=bool(options))
    left = files(pytester)
    assert not any("test_many" in name for name in left)
    assert any("test_first" in name for name in left) == (how in ("a test", "its use of the fixture"))
    assert any("test_other" in name for name in left) == (how != "the last test that compares")
    assert (pytester.path / FOLDER).exists() == bool(left)


def test_an_array_that_is_asserted_no_more_goes(pytester, run, stored):
    pytester.makepyfile(test_it=OLD.replace("    assert np.arange(2000.0) == tap_snapshot\n", ""))
    run("--snapshot-update")
    assert not any(name.endswith(".bin") for name in files(pytester))


def test_arrays_lie_in_plain_sight(pytester, run, stored):
    assert sum(name.endswith(".bin") for name in stored) == 1
    assert not any(part.startswith(".") for name in stored for part in name.split("/"))


def test_a_damaged_file_harms_no_other_and_is_never_deleted(pytester, run, stored):
    damaged = pytester.path / FOLDER / "test_it" / "test_many.jaxtap"
    others = {name: data for name, data in stored.items() if "test_many" not in name}
    for content in (b"", b"\xff\xfe\x00", b"x" * 10**6, damaged.read_bytes().replace(b"end", b"and")):
        damaged.write_bytes(content)
        for options in ([], ["--snapshot-update"], ["--snapshot-update", "-k", "not many"]):
            result = run(*options)
            assert result.parseoutcomes()["passed"] == 5 and "error" not in result.parseoutcomes()
            if "-k" not in options:
                result.stdout.fnmatch_lines(["E *test_many.jaxtap, line *: damaged: *"])
            assert damaged.read_bytes() == content
    pytester.makepyfile(test_it=OLD.replace("test_many", "test_few"))
    run("--snapshot-update").assert_outcomes(passed=6)
    assert damaged.read_bytes() == content
    assert {name: data for name, data in everything(pytester).items() if name in others} == others


def test_a_folder_in_place_of_a_file_is_told(pytester, run, stored):
    path = pytester.path / FOLDER / "test_it" / "test_first.jaxtap"
    path.unlink()
    path.mkdir()
    result = run()
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["E *test_first.jaxtap: cannot be read: *"])


def test_a_file_of_the_first_version_is_told(pytester, run):
    old = pytester.path / "__snapshots__" / "test_it" / "test_other.jaxtap"
    old.parent.mkdir(parents=True)
    old.write_text("# jaxtap snapshot, schema 1\n")
    pytester.makepyfile(test_it=OTHER)
    run().stdout.fnmatch_lines(
        [
            "*there is no snapshot 'test_other' yet",
            "*run pytest --snapshot-update to write it to __tap_snapshots__*",
            "*(__snapshots__*test_other.jaxtap is of an older version and is not read: delete it)",
        ]
    )
