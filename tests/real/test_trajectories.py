"""Real trajectories recorded on jax 0.10.2, compared on the jax that runs here: what agrees, and what the report says.

Under strict numerics all of them agree to the bit, from release to release. Natively some do not (the sampler's, on
CPUs with fused multiply-add, from 0.10.2 to 0.12): then the report has to tell everything.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import jax
import pytest

HERE = Path(__file__).parent / "trajectories"
sys.path.insert(0, str(HERE))
from trajectories import run  # noqa: E402

RECORDED = "0.10.2"
PROGRAMS = {"test_adaptation_of_a_sampler", "test_solution_of_an_oscillator", "test_solution_of_a_chaotic_flow"}


def test_under_strict_numerics_all_agree_to_the_bit() -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("strict numerics need an x86 CPU")
    result = run("strict", HERE)
    told = {name: one["outcome"] for name, one in result.comparisons.items()}
    assert told == dict.fromkeys(PROGRAMS, "matched"), result.output
    # the recordings are another release's, wherever this runs on another one
    for comparison in result.comparisons.values():
        changed = comparison["environment"].get("jax", [RECORDED, RECORDED])
        assert changed == [RECORDED, jax.__version__] and "numerics" not in comparison["environment"]


def test_what_does_not_agree_natively_is_told_in_full() -> None:
    result = run("native", HERE)
    assert set(result.comparisons) == PROGRAMS, result.output
    for name, comparison in result.comparisons.items():
        if comparison["outcome"] == "matched":
            assert f"{name} PASSED" in result.output
            continue
        (found,) = (one for one in comparison["differences"] if one["leaf"] in ("step_size", "y"))
        assert 0 < found["differing"] <= found["compared"] > 50
        assert found["stream"] in ("scan[0] (scan)", "while[0] (while)") and found["tolerance"]["source"] == "default"
        for point in ("first", "worst"):
            assert {"steps", "expected", "got", "absolute", "relative", "ulp"} <= found[point].keys()
        first, growth = found["first"], found["growth"]
        for text in (
            f"{found['differing']} of {found['compared']} steps differ",
            f"first step {first['steps'][0]}",
            f"expected {first['expected']} = {first['expected_hex']}, got {first['got']} = {first['got_hex']}; off by ",
            f"relative {first['relative']:.3g}, {first['ulp']} ulp",
            f"worst step {found['worst']['steps'][0]}",
            "tolerance: exact (default)",
            f"growth: {growth['kind']}" if growth else f"{found['differing']} of",
        ):
            assert text in result.output
        if jax.__version__ != RECORDED:
            assert f"environment: jax {RECORDED} -> {jax.__version__}, jaxlib " in result.output
