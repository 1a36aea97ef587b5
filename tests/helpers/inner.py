"""What the inner test sessions run: one program whose NaN is known by pencil, and how to run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# sqrt(1) - 1 = 0, sqrt(0) - 1 = -1, sqrt(-1) is NaN: from 1 the carry is NaN at step 2.
# From 1e6 it is 999, 30.6, 4.5, 1.1: never.
BAD, GOOD, BAD_STEP = "1.0", "1e6", 2

MODEL = """\
import jax
import jax.numpy as jnp


@jax.jit
def descend(x):
    def step(level, _):
        return jnp.sqrt(level) - 1, None

    return jax.lax.scan(step, jnp.float32(x), None, length=4)[0]


@jax.jit
def overflow(x):
    return jnp.exp(jnp.float32(x))
"""
SQRT_LINE = MODEL.splitlines().index("        return jnp.sqrt(level) - 1, None") + 1

HEADLINE = f"jaxtap: NaN entered scan[[]0] at step {BAD_STEP} of 4, carry leaf 'level'"
BORN = f"  born: sqrt at model.py:{SQRT_LINE} (step)*"


def lay(pytester: Any, tests: str, ini: str = "") -> None:
    """Write the model, a file of tests that imports all of it, and an ini file."""
    head = "import pytest\nimport jaxtap_core as tap\nfrom model import *\n"
    pytester.makepyfile(model=MODEL, test_inner=head + tests)
    pytester.makeini(f"[pytest]\n{ini}\n")


# Slow to start, and not concerned, unless a test says so.
OTHERS = ("hypothesispytest", "asyncio", "anyio", "jaxtyping", "cacheprovider")


def run(pytester: Any, *args: str, subprocess: bool = False, needs: Sequence[str] = ()) -> Any:
    """Run the inner session, in this process unless told otherwise, with the plugins it ``needs``."""
    go = pytester.runpytest_subprocess if subprocess else pytester.runpytest_inprocess
    without = [arg for name in OTHERS if name not in needs for arg in ("-p", f"no:{name}")]
    return go(*without, *args)


def outcomes(result: Any) -> dict[str, str]:
    """Outcome of each test by its name, from the lines of ``-v``."""
    found = {}
    for line in result.outlines:
        for word in ("PASSED", "FAILED", "SKIPPED", "XFAIL", "XPASS", "ERROR"):
            if "::" in line and f" {word}" in f" {line}" and not line.startswith(("FAILED", "ERROR")):
                name = next(part for part in line.split() if "::" in part).split("::", 1)[1]
                found[name] = word.lower()
    return found
