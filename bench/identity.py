"""How often observing changes a bit: the share of random programs whose results are not production's, by mode.

Run: python bench/identity.py [--programs 100] [--seed 0] [--strict] [--modes "default, everything" "gate escape" ...]
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "helpers"))

import jaxtap_core as tap

if "--strict" in sys.argv:  # before JAX starts a backend
    tap.numerics("strict")

import jax
from random_programs import TAPPED, bits, draw

from jaxtap_core.numerics import current_profile

TAPS = tuple(tap.on(name) for name in TAPPED)
LIVE = tuple(tap.on(name, on_value=lambda event: None) for name in TAPPED)
EVERYTHING: dict[str, Any] = {"taps": TAPS, "carry": True, "select_ys": lambda leaves: leaves}
ignore = lambda event: None
MODES: dict[str, dict[str, Any]] = {
    "default, everything": EVERYTHING,
    "gate escape": {"gate": "escape"},
    "gate born": {"gate": "born"},
    "inline, everything": {"identity": "inline", **EVERYTHING},
    "inline, carries and outputs": {"identity": "inline", "carry": True, "select_ys": lambda leaves: leaves},
    "inline, primitives": {"identity": "inline", "taps": TAPS},
    "inline, gate born": {"identity": "inline", "gate": "born"},
    "inline, watch_nan on all": {"identity": "inline", "taps": tap.watch_nan("*")},
    "inline, live carries": {"identity": "inline", "on_step": ignore},
    "inline, live primitives": {"identity": "inline", "taps": LIVE},
}


def main(programs: int, first: int, modes: dict[str, dict[str, Any]]) -> None:
    """Draw ``programs`` programs from seed ``first`` on and print what changed in each mode."""
    changed: collections.Counter[str] = collections.Counter()
    unreproducible, untrue, uncertified = 0, [], 0
    for seed in range(first, first + programs):
        program = draw(seed)
        production = bits(program.run(*program.args))
        if bits(program.run(*program.args)) != production:
            unreproducible += 1
            continue
        verdict = None
        for mode, options in modes.items():
            with tap.record(**options) as rec:
                result = bits(program.run(*program.args))
            if result != production:
                changed[mode] += 1
                if not mode.startswith("inline"):
                    print(f"seed {seed}: {mode} changed bits", file=sys.stderr, flush=True)
            if mode == "default, everything":
                verdict = rec.certificate.programs[0].verdict if rec.certificate else None
                uncertified += verdict is None
            if mode == "inline, everything" and verdict not in (None, _truth(result == production)):
                untrue.append(seed)
        jax.clear_caches()
        if (seed - first) % 20 == 19:
            print(f"{seed - first + 1} programs", dict(changed), file=sys.stderr, flush=True)
    counted = programs - unreproducible
    drawn = f"seeds {first} to {first + programs - 1}"
    print(f"jax {jax.__version__}, {current_profile()}, {drawn}, {unreproducible} unreproducible")
    for mode in modes:
        print(f"{mode:32s} {changed[mode]:4d} of {counted} ({100 * changed[mode] / max(counted, 1):.1f} %)")
    print(f"certificates: {counted - uncertified}, of which untrue: {len(untrue)} {untrue or ''}")


def _truth(same: bool) -> str:
    return "identical" if same else "different"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--strict", action="store_true", help="strict numerics")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    asked = parser.parse_args()
    main(asked.programs, asked.seed, {mode: MODES[mode] for mode in asked.modes})
