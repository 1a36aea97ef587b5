"""Mistakes that people make on their first day with the plugin."""

from __future__ import annotations

import pytest


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
