"""How often observing changes a bit: the share of random programs whose results are not production's, by mode.

Run: python bench/identity.py [PROGRAMS] [FIRST_SEED]     (under XLA_FLAGS of the strict profile with --strict)
"""

from __future__ import annotations

import collections
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "core"))

import jaxtap_core as tap

if "--strict" in sys.argv:
    sys.argv.remove("--strict")
    tap.numerics("strict")

import jax
from random_programs import TAPPED, bits, draw

TAPS = tuple(tap.on(name) for name in TAPPED)
LIVE = tuple(tap.on(name, on_value=lambda event: None) for name in TAPPED)
ignore = lambda event: None
MODES: dict[str, dict[str, Any]] = {
    "default (auto), everything": {"taps": TAPS, "carry": True, "select_ys": lambda leaves: leaves},
    "gate escape": {"gate": "escape"},
    "gate born": {"gate": "born"},
    "inline, carries and outputs": {"identity": "inline", "carry": True, "select_ys": lambda leaves: leaves},
    "inline, primitives": {"identity": "inline", "taps": TAPS},
    "inline, live carries": {"identity": "inline", "on_step": ignore},
    "inline, live primitives": {"identity": "inline", "taps": LIVE},
    "inline, watch_nan on all": {"identity": "inline", "taps": tap.watch_nan("*")},
}


def main(programs: int, first: int) -> None:
    changed: collections.Counter[str] = collections.Counter()
    unreproducible = 0
    for seed in range(first, first + programs):
        program = draw(seed)
        production = bits(program.run(*program.args))
        if bits(program.run(*program.args)) != production:
            unreproducible += 1
            continue
        for mode, options in MODES.items():
            with tap.record(**options):
                result = bits(program.run(*program.args))
            changed[mode] += result != production
        jax.clear_caches()
        if (seed - first) % 20 == 19:
            print(f"{seed - first + 1} programs", dict(changed), file=sys.stderr, flush=True)
    counted = programs - unreproducible
    print(f"jax {jax.__version__}, seeds {first} to {first + programs - 1}, {unreproducible} unreproducible")
    for mode in MODES:
        print(f"{mode:32s} {changed[mode]:4d} of {counted} ({100 * changed[mode] / max(counted, 1):.1f} %)")


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:]]
    main(*(numbers + [100, 0][len(numbers) :]))
