"""Reasons of births in the special functions of statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxtap_core.provenance.reasons.base import REASONS, Birth, Why, is_zero, overflow, show, with_cause, zero_text


def _gamma(birth: Birth) -> Why | None:
    x, dtype = birth.element(), str(birth.operands[0].dtype)
    if np.isinf(x):
        return Why(with_cause(birth, f"{birth.primitive} of an infinity ({show(x)})"))
    if is_zero(x, dtype):
        return Why(with_cause(birth, f"{birth.primitive} has a pole at {zero_text(x, dtype)}"), _OFF_THE_POLES)
    if x < 0 and x == np.floor(x):
        return Why(f"{birth.primitive} has a pole at {show(x)}", _OFF_THE_POLES)
    if birth.bad == "nan":
        return None
    exact = math.lgamma(x) if birth.primitive == "lgamma" and abs(x) < 1e300 else None
    return overflow(birth, f"{birth.primitive}({show(x)})", exact)


_OFF_THE_POLES = "keep the operand off 0, -1, -2, …"

for _name in ("lgamma", "digamma"):
    REASONS[_name] = _gamma


# name: (names of its arguments, where it is defined, in words and as a test)
_DEFINED: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "igamma": ("ax", "a > 0 and x >= 0", lambda a, x: a > 0 and x >= 0),
    "igammac": ("ax", "a > 0 and x >= 0", lambda a, x: a > 0 and x >= 0),
    "igamma_grad_a": ("ax", "a > 0 and x >= 0", lambda a, x: a > 0 and x >= 0),
    "regularized_incomplete_beta": (
        "abx",
        "a > 0, b > 0 and 0 <= x <= 1",
        lambda a, b, x: a > 0 and b > 0 and 0 <= x <= 1,
    ),
    "zeta": ("xq", "x > 1 and q > 0", lambda x, q: x > 1 and q > 0),
    "polygamma": ("mx", "a whole m >= 0 and x > 0", lambda m, x: m >= 0 and m == np.floor(m) and x > 0),
}


def _defined(birth: Birth) -> Why | None:
    names, words, test = _DEFINED[birth.primitive]
    numbers = [birth.element(i) for i in range(len(names))]
    flushed = [0.0 if is_zero(x, str(birth.operands[i].dtype)) else x for i, x in enumerate(numbers)]
    given = ", ".join(f"{name} = {show(x)}" for name, x in zip(names, numbers, strict=True))
    if not test(*flushed):
        return Why(with_cause(birth, f"{birth.primitive} needs {words}, and got {given}"), "keep the arguments inside")
    if any(np.isinf(x) for x in numbers):
        return Why(with_cause(birth, f"{birth.primitive} of an infinity ({given})"))
    if birth.bad == "inf":
        return overflow(birth, f"{birth.primitive}({', '.join(map(show, numbers))})")
    return Why(f"{birth.primitive} loses its numbers on the way ({given}): they are extreme", "compute in log space")


for _name in _DEFINED:
    REASONS[_name] = _defined


def _gamma_draw(birth: Birth) -> Why | None:
    shape = birth.element(1)  # operand 0 is the key
    if shape > 0:
        return None
    return Why(
        f"a draw of a gamma (or beta, Dirichlet …) needs a shape > 0, and got {show(shape, 0)}", "keep it above 0"
    )


REASONS["random_gamma"] = _gamma_draw
