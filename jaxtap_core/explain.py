"""Why an equation made a NaN or an infinity of good operands: a rule for each primitive or family.

A rule gets a `Birth`, looks at the numbers, and answers with a `Why`, or ``None`` where it does not
know. Rules are registered on the line after them. Where none answers, the facts are stated. This
file has the rules for functions of numbers; `explain_arrays` those for sums, matrices and indices.
"""

from __future__ import annotations

import numpy as np

from jaxtap_core import explain_arrays  # noqa: F401 - registers its rules
from jaxtap_core.birth import (
    RULES,
    Birth,
    Why,
    is_subnormal,
    is_zero,
    overflow,
    show,
    unselected,
    widen,
    with_cause,
    zero_text,
)


def explain(birth: Birth) -> Why:
    """The reason why ``birth`` happened."""
    rule = RULES.get(birth.primitive)
    why = rule(birth) if rule is not None else None
    return why or _general(birth)


def _general(birth: Birth) -> Why:
    word = "NaN" if birth.bad == "nan" else "an infinity"
    given, clean = [], True
    for value in birth.operands:
        numbers = widen(value)
        if numbers.dtype.kind in "fciub":
            text = f"{value.dtype}{list(value.shape)}"
            given.append(f"{text} = {show(numbers[()])}" if value.ndim == 0 else text)
            clean &= bool(np.isfinite(numbers).all())
    kind = "finite" if clean else "NaN-free"
    what = f"{birth.primitive} made {word} out of {kind} operands ({', '.join(given)})"
    if clean and birth.primitive in ("add", "sub", "mul", "neg") and birth.bad == "nan":
        what += ", which it cannot do alone: XLA rewrote it together with what is around it"
    return Why(with_cause(birth, what))


# -- functions of one number, defined on a part of the line

_POSITIVE = "keep the operand positive (clip it, or compute in log space)"
_NOT_NEGATIVE = "keep the operand from falling below 0: jnp.maximum(x, 0)"
_UNIT = "clip the operand to [-1, 1]; rounding may take it just outside"

# name: (lower end, upper end, advice). Outside of them NaN, at an end 0 or a number, or a pole
# where _POLES has it.
_DOMAINS: dict[str, tuple[float, float, str]] = {
    "log": (0, np.inf, _POSITIVE),
    "log1p": (-1, np.inf, "keep the operand above -1"),
    "sqrt": (0, np.inf, _NOT_NEGATIVE),
    "rsqrt": (0, np.inf, _NOT_NEGATIVE),
    "asin": (-1, 1, _UNIT),
    "acos": (-1, 1, _UNIT),
    "acosh": (1, np.inf, "keep the operand at 1 or above"),
    "atanh": (-1, 1, _UNIT),
    "erf_inv": (-1, 1, _UNIT),
}

_POLES: dict[str, tuple[float, ...]] = {
    "log": (0,),
    "log1p": (-1,),
    "rsqrt": (0,),
    "atanh": (-1, 1),
    "erf_inv": (-1, 1),
}


def _domain(birth: Birth) -> Why | None:
    name, x, dtype = birth.primitive, birth.element(), str(birth.operands[0].dtype)
    low, high, advice = _DOMAINS[name]
    if np.iscomplexobj(x):
        return Why(f"{name} of {zero_text(x, dtype)}", advice) if is_zero(x, dtype) else None
    for pole in _POLES.get(name, ()):
        if x == pole or (pole == 0 and is_zero(x, dtype)):
            text = zero_text(x, dtype) if pole == 0 else show(x)
            return Why(with_cause(birth, f"{name} of {text}"), advice)
    if not low <= x <= high:
        what = "a negative number" if low == 0 else f"a number outside [{show(low)}, {show(high)}]"
        return Why(with_cause(birth, f"{name} of {what} ({show(x)})"), advice)
    return None


for _name in _DOMAINS:
    RULES[_name] = _domain


def _gamma(birth: Birth) -> Why | None:
    x = birth.element()
    if x <= 0 and x == np.floor(x):
        return Why(f"{birth.primitive} has a pole at {show(x)}", "keep the operand off 0, -1, -2, …")
    return overflow(birth, f"{birth.primitive}({show(x)})") if birth.bad == "inf" else None


for _name in ("lgamma", "digamma"):
    RULES[_name] = _gamma


def _growing(birth: Birth) -> Why | None:
    x = birth.element()
    if not np.isfinite(x):
        return None
    return overflow(birth, f"{birth.primitive}({show(x)})")._replace(
        advice="subtract the greatest exponent first (logsumexp, softmax), or compute in log space"
    )


for _name in ("exp", "exp2", "expm1", "sinh", "cosh"):
    RULES[_name] = _growing


def _periodic(birth: Birth) -> Why | None:
    x = birth.element()
    return Why(with_cause(birth, f"{birth.primitive} of an infinity")) if np.isinf(x) else None


for _name in ("sin", "cos", "tan"):
    RULES[_name] = _periodic


# -- arithmetic


def _sum(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    if np.isinf(x) and np.isinf(y):
        return Why(with_cause(birth, "inf - inf"), "keep one of the two finite")
    sign = "-" if birth.primitive == "sub" else "+"
    return overflow(birth, f"{show(x)} {sign} {show(y)}") if birth.bad == "inf" else None


for _name in ("add", "sub", "add_any"):
    RULES[_name] = _sum


def _product(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    if (x == 0 and np.isinf(y)) or (y == 0 and np.isinf(x)):
        if birth.unselected:
            return unselected(birth, "0 * inf")
        return Why(with_cause(birth, "0 * inf"))
    return overflow(birth, f"{show(x)} * {show(y)}") if birth.bad == "inf" else None


RULES["mul"] = _product


def _quotient(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    dtype = str(birth.operands[1].dtype)
    if is_zero(x, dtype) and is_zero(y, dtype):
        if birth.unselected:
            return unselected(birth, "0/0", "upper 0")
        small = zero_text(y if is_subnormal(y, dtype) else x, dtype)
        reason = "0/0" if small == "0" else f"0/0 ({small})"
        return Why(with_cause(birth, reason), "guard the denominator; a mean over nothing gives this too")
    if is_zero(y, dtype):
        return Why(
            with_cause(birth, f"division of {show(x)} by {zero_text(y, dtype)}"),
            "guard the denominator",
        )
    if np.isinf(x) and np.isinf(y):
        return Why(with_cause(birth, "inf/inf"), "divide before the two overflow, or compute in log space")
    return overflow(birth, f"{show(x)} / {show(y)}") if birth.bad == "inf" else None


RULES["div"] = _quotient


def _remainder(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    if y == 0:
        return Why(f"remainder of {show(x)} by 0", "guard the denominator")
    return Why(with_cause(birth, f"remainder of an infinity by {show(y)}")) if np.isinf(x) else None


RULES["rem"] = _remainder


def _power(birth: Birth) -> Why | None:
    x = birth.element(0)
    y = np.float64(birth.params["y"]) if birth.primitive == "integer_pow" else birth.element(1)
    dtype = str(birth.operands[0].dtype)
    text = f"{show(x)} ** {show(y)}"
    if np.iscomplexobj(x) or np.iscomplexobj(y):
        return None
    if x < 0 and y != np.floor(y):
        return Why(f"a negative number to a fractional power ({text})", _NOT_NEGATIVE)
    if is_zero(x, dtype) and y < 0:
        return Why(with_cause(birth, f"division by zero: 0 ** {show(y)}"), "guard the base")
    return overflow(birth, text) if birth.bad == "inf" else None


for _name in ("pow", "integer_pow"):
    RULES[_name] = _power


def _square(birth: Birth) -> Why | None:
    return overflow(birth, f"{show(birth.element())} ** 2") if birth.bad == "inf" else None


RULES["square"] = _square


def _convert(birth: Birth) -> Why | None:
    if birth.bad == "inf":
        source = birth.operands[0].dtype
        return overflow(birth, f"{show(birth.element())} ({source})")._replace(
            advice="scale the value, or keep the wider type here"
        )
    return None


for _name in ("convert_element_type", "reduce_precision"):
    RULES[_name] = _convert
