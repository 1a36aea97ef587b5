"""The gate fails a test in its call phase, whatever kind of test it is, and leaves others alone."""

from __future__ import annotations

import pytest
from inner import BORN, HEADLINE, lay, outcomes, run

KINDS = """
import asyncio
import unittest
from pytest_jaxtap import JaxtapFailure

def test_good():
    descend(1e6)

def test_bad():
    descend(1.0)

@pytest.mark.parametrize("x", [1.0, 1e6])
def test_param(x):
    descend(x)

@pytest.mark.xfail
def test_xfail():
    descend(1.0)

@pytest.mark.xfail(raises=JaxtapFailure, strict=True)
def test_raises():
    descend(1.0)

@pytest.mark.xfail(raises=ZeroDivisionError)
def test_raises_other():
    descend(1.0)

class TestClass:
    def test_method(self):
        descend(1.0)

class TestCase(unittest.TestCase):
    def setUp(self):
        descend(1.0)  # not the body
    def test_bad(self):
        descend(1.0)
    def test_good(self):
        descend(1e6)
    @unittest.expectedFailure
    def test_expected(self):
        descend(1.0)

class TestAsyncCase(unittest.IsolatedAsyncioTestCase):
    async def test_bad(self):
        await asyncio.sleep(0)
        descend(1.0)

def test_subtests(subtests):
    for x in (1e6, 1.0):
        with subtests.test(x=x):
            descend(x)

def test_own_failure():
    descend(1.0)
    raise LookupError("my own")

def test_skipped():
    descend(1.0)
    pytest.skip("for another reason")

@pytest.fixture
def bad_fixture():
    descend(1.0)
    yield
    descend(1.0)

def test_fixture(bad_fixture):
    pass

def test_exempt():
    with tap.allow_nan():
        descend(1.0)
    with tap.unobserved():
        descend(1.0)
"""
EXPECTED = {
    "test_good": "passed",
    "test_bad": "failed",
    "test_param[1.0]": "failed",
    "test_param[1000000.0]": "passed",
    "test_xfail": "xfail",
    "test_raises": "xfail",
    "test_raises_other": "failed",
    "TestClass::test_method": "failed",
    "TestCase::test_bad": "failed",
    "TestCase::test_good": "passed",
    "TestCase::test_expected": "xfail",
    "TestAsyncCase::test_bad": "failed",
    "test_subtests": "failed",
    "test_own_failure": "failed",
    "test_skipped": "skipped",
    "test_fixture": "passed",
    "test_exempt": "passed",
}


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "n2"])
def test_every_kind_of_test_fails_as_an_ordinary_test_does(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    lay(pytester, KINDS)
    result = run(pytester, "-v", "--jaxtap-nan", "--strict-markers", *workers)
    assert outcomes(result) == EXPECTED
    result.stdout.fnmatch_lines(["*_ test_bad _*", HEADLINE, BORN, "  why:  *"])


def test_an_exception_of_the_body_is_reported_as_it_is_and_findings_beside_it(
    pytester: pytest.Pytester,
) -> None:
    lay(pytester, KINDS)
    result = run(pytester, "--jaxtap-nan", "-k", "test_own_failure")
    result.stdout.fnmatch_lines(["*LookupError: my own", "*- jaxtap -*", HEADLINE, BORN])
    assert "judge.py" not in result.stdout.str()


def test_without_options_nothing_is_different(pytester: pytest.Pytester) -> None:
    lay(
        pytester,
        """
def test_bad(request):
    descend(1.0)
    assert request.node.obj is test_bad
""",
    )
    result = run(
        pytester,
        "-v",
        "-W",
        "error",
    )
    result.assert_outcomes(passed=1)
    assert "jaxtap" not in result.stdout.str().partition("collected")[2]


def test_warnings_as_errors_and_no_syrupy(pytester: pytest.Pytester) -> None:
    lay(pytester, "def test_bad():\n    descend(1.0)\ndef test_good():\n    descend(1e6)\n")
    result = run(
        pytester,
        "--jaxtap-nan",
        "-Werror",
        "-p",
        "no:syrupy",
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([HEADLINE])


def test_a_doctest_is_gated_too(pytester: pytest.Pytester) -> None:
    lay(pytester, "")
    pytester.makepyfile(
        documented='''
def f():
    """
    >>> from model import descend
    >>> float(descend(1.0))
    nan
    """
'''
    )
    result = run(pytester, "--jaxtap-nan", "--doctest-modules", "documented.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([HEADLINE])


def test_last_failed_knows_the_test(pytester: pytest.Pytester) -> None:
    lay(pytester, "def test_bad():\n    descend(1.0)\ndef test_good():\n    descend(1e6)\n")
    run(pytester, "--jaxtap-nan", needs=["cacheprovider"]).assert_outcomes(failed=1, passed=1)
    again = run(pytester, "--jaxtap-nan", "--lf", needs=["cacheprovider"])
    again.assert_outcomes(failed=1)


def test_reruns_start_afresh(pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest_rerunfailures")
    lay(
        pytester,
        """
runs = []

def test_flaky():
    runs.append(1)
    descend(1.0 if len(runs) == 1 else 1e6)

def test_bad():
    descend(1.0)
""",
    )
    result = run(pytester, "--jaxtap-nan", "--reruns", "1", "--jaxtap-json", "out.json")
    result.assert_outcomes(failed=1, passed=1)
    assert (pytester.path / "out.json").read_text().count('"nodeid"') == 1


ASYNC = """
import asyncio

{mark}
async def test_bad():
    await asyncio.sleep(0)
    descend(1.0)

{mark}
async def test_good():
    descend(1e6)
"""


@pytest.mark.parametrize(("plugin", "mark"), [("pytest_asyncio", "asyncio"), ("anyio", "anyio")])
def test_coroutines(pytester: pytest.Pytester, plugin: str, mark: str) -> None:
    pytest.importorskip(plugin)
    lay(pytester, ASYNC.format(mark=f"@pytest.mark.{mark}"))
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n")
    result = run(pytester, "-v", "--jaxtap-nan", "-W", "ignore", needs=[mark])
    assert outcomes(result) == {"test_bad": "failed", "test_good": "passed"}
    result.stdout.fnmatch_lines([HEADLINE])


def test_the_plugin_alone_loads_no_jax(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_plain="def test_plain(): pass")
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            print("LOADED", *sorted(m for m in sys.modules if m.partition(".")[0] in {
                "jax", "numpy", "jaxtap_core", "pytest_jaxtap"}))
        """
    )
    result = run(pytester, "-p", "jaxtap", subprocess=True)
    result.assert_outcomes(passed=1)
    loaded = next(line for line in result.outlines if line.startswith("LOADED")).split()[1:]
    assert loaded == [
        "pytest_jaxtap",
        "pytest_jaxtap.markers",
        "pytest_jaxtap.observe",
        "pytest_jaxtap.observe.failure",
        "pytest_jaxtap.observe.running",
        "pytest_jaxtap.options",
        "pytest_jaxtap.plugin",
        "pytest_jaxtap.report",
        "pytest_jaxtap.report.base",
        "pytest_jaxtap.report.collector",
        "pytest_jaxtap.report.formats",
        "pytest_jaxtap.report.formats.github",
        "pytest_jaxtap.report.formats.html",
        "pytest_jaxtap.report.formats.json",
        "pytest_jaxtap.report.formats.jsonl",
        "pytest_jaxtap.report.formats.junit",
        "pytest_jaxtap.report.registry",
        "pytest_jaxtap.report.wire",
        "pytest_jaxtap.stash",
    ]
