"""Mistakes that people make on their first day with the plugin."""

from __future__ import annotations

import functools

import pytest

import jaxtap_core as tap


def test_a_forgotten_with_round_the_recorder_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(tap_recorder):\n    tap_recorder(select='x').events\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("E*AttributeError: *with tap.record(...) as rec: ..., then rec.events")


def test_a_damaged_value_is_quoted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(tap_snapshot):\n    assert 4.75 == tap_snapshot\n")
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "--snapshot-update")
    (path,) = pytester.path.rglob("*.jaxtap")
    path.write_text(path.read_text().replace("4.75", "4.7x5"))
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("E*damaged: '4.7x5' is no value*")


DECORATED = {
    "alone": "@tap.record\ndef test_it(tmp_path):\n    pass\n",
    "between": "@pytest.mark.slow\n@tap.record\n@jax.jit\ndef test_it(\n    x,\n):\n    pass\n",
    "method": "class TestIt:\n    @tap.record\n    def test_it(self): pass\n",
}


@pytest.mark.parametrize("way", DECORATED)
def test_a_bare_decorator_hides_no_test_but_says_what_it_is(pytester: pytest.Pytester, way: str) -> None:
    pytester.makepyfile("import jax\nimport pytest\nimport jaxtap_core as tap\n\n" + DECORATED[way])
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("E*TypeError: @tap.record is no decorator: *rec = tap.record(test_it), so that a test*")


def test_wrapping_a_function_is_no_decorator() -> None:
    def inner(x: float) -> float: return x  # fmt: skip

    @functools.wraps(inner)
    def decorated(x: float) -> float:
        return x

    for function in (inner, decorated, lambda x: x):
        g, rec = tap.record(function)
        assert g(2.0) == 2.0 and rec == tap.record(lambda x:
                                                   x)[1]  # fmt: skip


def test_findings_of_a_gate_of_ones_own_are_ones_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import jax.numpy as jnp

        def test_it(tap_recorder):
            with tap_recorder(gate="outputs") as rec:
                jnp.log(jnp.float32(-1))
            assert len(rec.findings) == 1
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "--jaxtap-nan").assert_outcomes(passed=1)
