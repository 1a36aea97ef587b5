"""What is said to people: hints at what they meant, without JAX where nobody needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jaxtap_core.errors import did_you_mean, nearest

KNOWN = ["select", "select_ys", "taps"]


@pytest.mark.parametrize(
    ("given", "options", "hint"),
    [
        ("selct", {}, "; did you mean 'select'?"),
        ("selct", {"hint": " ({})"}, " (did you mean 'select'?)"),
        ("select_y", {"most": 2}, "; did you mean 'select_ys' or 'select'?"),
        ("x", {}, ""),
        ("", {}, ""),
    ],
)
def test_a_hint_asks_for_what_is_spelt_alike(given: str, options: dict[str, object], hint: str) -> None:
    assert did_you_mean(given, iter(KNOWN), **options) == hint  # type: ignore[arg-type]


def test_how_much_must_agree_can_be_set() -> None:
    # two letters of four and two of four are the same: four of eight
    assert nearest("taxi", KNOWN, alike=0.5) == ["taps"]
    assert nearest("taxi", KNOWN, alike=0.6) == []


def test_it_needs_no_jax() -> None:
    """The plugin asks it for hints before any test has imported JAX."""
    code = "import sys, jaxtap_core.errors; print([m for m in ('jax', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
