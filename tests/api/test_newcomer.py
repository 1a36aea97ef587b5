"""Mistakes that people make on their first day: each message says what was wrong and what to do."""

from __future__ import annotations

import pytest

import jaxtap_core as tap


def test_a_sink_that_is_none_is_named() -> None:
    with pytest.raises(TypeError, match=r"sinks must be a tuple of sinks such as tap\.JSONLSink\(path\), not 3"):
        tap.record(sinks=3)


def test_a_tap_on_a_number_says_what_it_takes() -> None:
    with pytest.raises(TypeError, match=r"a tap needs the name of a primitive, several names, or .*, not 3"):
        tap.on(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["events", "alerts", "findings", "df"])
def test_a_forgotten_with_is_told(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"with tap\.record\(\.\.\.\) as rec: \.\.\., then rec\.{name}"):
        getattr(tap.record(), name)


def test_a_block_has_no_other_attributes() -> None:
    block = tap.record()
    assert not hasattr(block, "evnts")


def test_a_lens_with_options_as_a_decorator_is_told() -> None:
    with pytest.raises(TypeError, match=r"no decorator.*g, rec = tap\.record\(f, \.\.\.\)"):
        tap.record(select="x")(len)
