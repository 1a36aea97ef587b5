"""Under Hypothesis every example is judged inside the example, so that it shrinks."""

from __future__ import annotations

import pytest
from inner import HEADLINE, lay, outcomes, run

NEEDS = ["hypothesispytest"]

TESTS = """
from hypothesis import given, settings, strategies as st, assume

quick = settings(max_examples=12, deadline=None, database=None, derandomize=True)
root = jax.jit(jnp.sqrt)

@quick
@given(x=st.integers(-1000, 1000))
def test_shrinks(x):
    root(jnp.float32(x))  # NaN below 0: -1 is the smallest

@quick
@given(x=st.integers(0, 1000))
def test_good(x):
    root(jnp.float32(x))

@quick
@given(x=st.integers(-9, 1000))
def test_assumed(x):
    root(jnp.float32(x))  # a rejected example is not judged
    assume(x >= 0)

class TestClass:
    @quick
    @given(x=st.integers(-2, 1))
    def test_method(self, x):
        root(jnp.float32(x))

@quick
@given(x=st.sampled_from([1.0, 1e6]))
def test_recorder(tap_recorder, x):
    with tap_recorder(select="level") as rec:
        descend(x)
    assert len(rec.events) == 4

@quick
@given(x=st.integers(0, 1000))
def test_own(x):
    root(jnp.float32(x))
    assert x < 7

@pytest.mark.parametrize("scale", [1])
@quick
@given(x=st.integers(0, 10))
def test_parametrised(scale, x):
    root(jnp.float32(scale * x))
"""


def test_examples_shrink(pytester: pytest.Pytester) -> None:
    lay(pytester, TESTS)
    result = run(pytester, "-v", "--jaxtap-nan", needs=NEEDS)
    assert outcomes(result) == {
        "test_shrinks": "failed",
        "test_good": "passed",
        "test_assumed": "passed",
        "TestClass::test_method": "failed",
        "test_recorder": "failed",
        "test_own": "failed",
        "test_parametrised[1]": "passed",
    }
    for name in ("test_shrinks", "TestClass.test_method"):
        result.stdout.fnmatch_lines(
            [
                f"*_ {name} _*",
                "jaxtap: NaN in 'result' of sqrt",
                "  why:  sqrt of a negative number (-1)",
                "*test_*(",
                "*x=-1,",
            ]
        )
    result.stdout.fnmatch_lines(["*_ test_recorder _*", HEADLINE])
    result.stdout.fnmatch_lines(["*_ test_own _*", "*x=7*"])
    for line in result.outlines:
        assert "jaxtap_core/" not in line and "pytest_jaxtap/" not in line


def test_coroutines_shrink_too(pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest_asyncio")
    lay(
        pytester,
        """
from hypothesis import given, settings, strategies as st

@pytest.mark.asyncio
@settings(max_examples=12, deadline=None, database=None, derandomize=True)
@given(x=st.integers(-1000, 1000))
async def test_shrinks(x):
    jnp.sqrt(jnp.float32(x))
""",
    )
    result = run(pytester, "--jaxtap-nan", "-W", "ignore", needs=[*NEEDS, "asyncio"])
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["jaxtap: NaN in 'result' of sqrt", "*x=-1,"])
