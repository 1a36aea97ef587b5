"""Reasons of births in functions of numbers: domains, poles, overflow, powers, quotients, conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxtap_core.provenance.reasons.base import (
    REASONS,
    Birth,
    Why,
    is_subnormal,
    is_zero,
    overflow,
    show,
    untaken,
    with_cause,
    zero_text,
)


def in_float64(f: Callable[..., Any], *numbers: Any) -> Any:
    """What ``f`` makes of float64 (or complex128) numbers, silently."""
    with np.errstate(all="ignore"):
        return f(*numbers)


# -- functions of one number, defined on a part of the line

_POSITIVE = "keep the operand positive (clip it, or compute in log space)"
_NOT_NEGATIVE = "keep the operand from falling below 0: jnp.maximum(x, 0)"
_UNIT = "clip the operand to [-1, 1]; rounding may take it just outside"

# name: (lower end, upper end, advice). Outside of them NaN, at an end 0 or a number, or a pole
# where _POLES has it.
_DOMAINS: dict[str, tuple[float, float, str]] = {
    "log": (0, np.inf, _POSITIVE),
    "log2": (0, np.inf, _POSITIVE),
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
    "log2": (0,),
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
        return Why(with_cause(birth, f"{name} of {what} ({show(x, low, high)})"), advice)
    return None


for _name in _DOMAINS:
    REASONS[_name] = _domain


_GROWING = {"exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "sinh": np.sinh, "cosh": np.cosh}


def _growing(birth: Birth) -> Why | None:
    x = birth.element()
    if not np.isfinite(x):
        return None
    return overflow(birth, f"{birth.primitive}({show(x)})", in_float64(_GROWING[birth.primitive], x))._replace(
        advice="subtract the greatest exponent first (logsumexp, softmax), or compute in log space"
    )


for _name in _GROWING:
    REASONS[_name] = _growing


def _periodic(birth: Birth) -> Why | None:
    x = birth.element()
    return Why(with_cause(birth, f"{birth.primitive} of an infinity")) if np.isinf(x) else None


for _name in ("sin", "cos", "tan"):
    REASONS[_name] = _periodic


def _angle(birth: Birth) -> Why | None:
    given = [(birth.element(i), str(birth.operands[i].dtype)) for i in (0, 1)]
    if all(is_zero(x, dtype) for x, dtype in given):
        return Why(f"atan2 of {' and '.join(zero_text(x, dtype) for x, dtype in given)}", "guard the case of 0 and 0")
    return None


REASONS["atan2"] = _angle


def _magnitude(birth: Birth) -> Why | None:
    return overflow(birth, f"the magnitude of {show(birth.element())}", abs(birth.element()))


REASONS["abs"] = _magnitude


# -- arithmetic


def _sum(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    if np.isinf(x) and np.isinf(y):
        return Why(with_cause(birth, "inf - inf"), "keep one of the two finite")
    sign = "-" if birth.primitive == "sub" else "+"
    exact = in_float64(np.subtract if sign == "-" else np.add, x, y)
    return overflow(birth, f"{show(x)} {sign} {show(y)}", exact) if birth.bad == "inf" else None


for _name in ("add", "sub", "add_any"):
    REASONS[_name] = _sum


def _product(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    for zero, other, dtype in ((x, y, str(birth.operands[0].dtype)), (y, x, str(birth.operands[1].dtype))):
        if is_zero(zero, dtype) and np.isinf(other):
            if birth.untaken:
                return untaken(birth, "0 * inf")
            small = zero_text(zero, dtype)
            return Why(with_cause(birth, "0 * inf" if small == "0" else f"0 * inf (the 0 is {small})"))
    return _finite_bad(birth, f"{show(x)} * {show(y)}", in_float64(np.multiply, x, y))


def _finite_bad(birth: Birth, what: str, exact: Any) -> Why | None:
    """An operation on finite numbers that made an infinity; of complex ones it may also be NaN."""
    finite = all(np.isfinite(birth.element(i)) for i in range(len(birth.operands)))
    return overflow(birth, what, exact) if birth.bad == "inf" or (finite and np.iscomplexobj(exact)) else None


REASONS["mul"] = _product


def _quotient(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    dtype = str(birth.operands[1].dtype)
    if is_zero(x, dtype) and is_zero(y, dtype):
        if birth.untaken:
            return untaken(birth, "0/0", "upper 0")
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
    return _finite_bad(birth, f"{show(x)} / {show(y)}", in_float64(np.divide, x, y))


REASONS["div"] = _quotient


def _remainder(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    if is_zero(y, str(birth.operands[1].dtype)):
        small = zero_text(y, str(birth.operands[1].dtype))
        return Why(with_cause(birth, f"remainder of {show(x)} by {small}"), "guard the denominator")
    return Why(with_cause(birth, f"remainder of an infinity by {show(y)}")) if np.isinf(x) else None


REASONS["rem"] = _remainder


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
        small = zero_text(x, dtype)
        text = f"division by zero: 0 ** {show(y)}" + ("" if small == "0" else f" (the 0 is {small})")
        return Why(with_cause(birth, text), "guard the base")
    return overflow(birth, text, in_float64(np.power, x, y)) if birth.bad == "inf" else None


for _name in ("pow", "integer_pow"):
    REASONS[_name] = _power


def _square(birth: Birth) -> Why | None:
    x = birth.element()
    return _finite_bad(birth, f"{show(x)} ** 2", in_float64(np.square, x))


REASONS["square"] = _square


def _one_minus_square(birth: Birth) -> Why | None:
    x = birth.element()
    return _finite_bad(birth, f"1 - {show(x)} ** 2", in_float64(lambda x: 1 - np.square(x), x))


REASONS["one_minus_square"] = _one_minus_square


def _polynomial(birth: Birth) -> Why | None:
    x = birth.element()
    if not np.isfinite(x):
        return Why(with_cause(birth, "a polynomial of an infinity"))
    return overflow(birth, f"a polynomial at {show(x)}")


REASONS["polynomial"] = _polynomial


def _convert(birth: Birth) -> Why | None:
    x, given = birth.element(), birth.operands[0].dtype
    advice = "scale the value, or keep the wider type here"
    if np.isinf(x):
        return Why(with_cause(birth, f"{birth.dtype} has no infinity, and {show(x)} becomes NaN"), advice)
    if birth.bad == "nan":  # types without an infinity
        return Why(f"overflow: {show(x)} ({given}) is beyond {birth.dtype}, which has NaN in the place of inf", advice)
    return overflow(birth, f"{show(x)} ({given})")._replace(advice=advice)


REASONS["convert_element_type"] = _convert


def _reduce_precision(birth: Birth) -> Why | None:
    exponent, mantissa = birth.params["exponent_bits"], birth.params["mantissa_bits"]
    most = (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1)
    x = show(birth.element())
    return Why(
        f"overflow: {x} is beyond the largest number with {exponent} + {mantissa} bits ({show(most)})",
        "scale the value, or keep the wider type here",
    )


REASONS["reduce_precision"] = _reduce_precision
