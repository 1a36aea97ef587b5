"""Why an equation made a NaN or an infinity of good operands: one rule for each primitive or family.

A rule gets a `Birth`, looks at the numbers, and answers with a `Why`, or ``None`` where it does not know. Rules are
registered on the line after them. Where none answers, the facts are stated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtap_core.influence import Box, Index

DOUBLE_WHERE = (
    "give the branch that is not taken a harmless input too: "
    "jnp.where(ok, f(jnp.where(ok, x, 1.0)), other)"
)


class Why(NamedTuple):
    """One line that says the reason, and what usually helps (or empty)."""

    reason: str
    advice: str = ""


@dataclass(frozen=True, eq=False)
class Birth:
    """An equation that made a bad value, with all that it was made of.

    Attributes:
        primitive, params: of the equation.
        operands, outputs: their values.
        output: which output is bad, at element ``index`` (``None``: not known where).
        boxes: (operand, elements of it) that this element was made of.
        bad: ``"nan"`` or ``"inf"``.
        phase: as in `Origin`.
        unselected: a zero among the operands is the cotangent of a ``where`` branch that was not taken.
        cause: where an infinite or zero operand came from, or empty.
    """

    primitive: str
    params: dict[str, Any]
    operands: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    output: int
    index: Index | None
    boxes: tuple[tuple[int, Box], ...]
    bad: str
    phase: str = "forward"
    unselected: bool = False
    cause: str = ""

    @property
    def dtype(self) -> str:
        """Type of the bad output."""
        return str(self.outputs[self.output].dtype)

    def part(self, operand: int) -> np.ndarray:
        """The elements of an operand that count, as float64 or complex128."""
        boxes = [box for i, box in self.boxes if i == operand]
        return widen(self.operands[operand][boxes[0]]) if boxes else np.empty(0)

    def element(self, operand: int = 0) -> Any:
        """The one element of an operand that counts; where there are more, the first that is not finite, or the first."""
        part = self.part(operand).ravel()
        if not part.size:
            return np.float64("nan")
        odd = np.flatnonzero(~np.isfinite(part))
        return part[odd[0] if odd.size else 0]


Rule = Callable[[Birth], Why | None]
RULES: dict[str, Rule] = {}


def explain(birth: Birth) -> Why:
    """The reason why ``birth`` happened."""
    rule = RULES.get(birth.primitive)
    why = rule(birth) if rule is not None else None
    return why or _general(birth)


def facts(value: np.ndarray, box: Box | None = None) -> dict[str, Any]:
    """Facts about an operand: shape, dtype, least and greatest finite element, and the offending element."""
    result: dict[str, Any] = {"shape": tuple(value.shape), "dtype": str(value.dtype)}
    numbers = widen(value)
    if numbers.size and numbers.dtype.kind in "fiu":
        finite = numbers[np.isfinite(numbers)]
        if finite.size:
            result |= {"min": finite.min().item(), "max": finite.max().item()}
        result["nonfinite"] = int(numbers.size - finite.size)
    if box is not None and not any(isinstance(part, slice) for part in box):
        result |= {"element": numbers[box].item(), "index": tuple(box)}
    elif numbers.dtype.kind in "fc" and not np.isfinite(numbers).all():
        index = tuple(int(k) for k in np.argwhere(~np.isfinite(numbers))[0])
        result |= {"element": numbers[index].item(), "index": index}
    return result


def widen(value: np.ndarray) -> np.ndarray:
    """``value`` in a type in which NumPy computes: float64, complex128, or as it is."""
    if value.dtype.kind == "c":
        return value.astype(np.complex128)
    if jnp.issubdtype(value.dtype, jnp.floating):
        return value.astype(np.float64)
    return value


def show(x: Any) -> str:
    """A number for people."""
    return f"{complex(x):.6g}" if np.iscomplexobj(x) else f"{float(x):.6g}"


def largest(dtype: str) -> float:
    """Largest finite number of a type."""
    return float(jnp.finfo(dtype).max)


def is_subnormal(x: Any, dtype: str) -> bool:
    """Whether ``x`` is nonzero but so small that XLA on CPU takes it for zero."""
    return bool(0 < abs(x) < float(jnp.finfo(dtype).tiny))


def is_zero(x: Any, dtype: str) -> bool:
    """Whether ``x`` is zero, or counts as zero."""
    return bool(x == 0) or is_subnormal(x, dtype)


def zero_text(x: Any, dtype: str) -> str:
    """``0``, or why it counts as 0."""
    if not is_subnormal(x, dtype):
        return "0"
    return f"{show(x)}, a subnormal {dtype} number, which XLA flushes to zero (NumPy does not)"


def _with_cause(birth: Birth, reason: str) -> str:
    return f"{reason}; {birth.cause}" if birth.cause else reason


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
    return Why(_with_cause(birth, what))


def _overflow(birth: Birth, what: str) -> Why:
    return Why(
        f"overflow: {what} is beyond the largest {birth.dtype} ({show(largest(birth.dtype))})"
    )


# -- functions of one number, defined on a part of the line

_POSITIVE = "keep the operand positive (clip it, or compute in log space)"
_NOT_NEGATIVE = "keep the operand from falling below 0: jnp.maximum(x, 0)"
_UNIT = "clip the operand to [-1, 1]; rounding may take it just outside"

# name: (lower end, upper end, advice). Outside of them NaN, at an end 0 or a number, or a pole where _POLES has it.
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
            return Why(_with_cause(birth, f"{name} of {text}"), advice)
    if not low <= x <= high:
        what = "a negative number" if low == 0 else f"a number outside [{show(low)}, {show(high)}]"
        return Why(_with_cause(birth, f"{name} of {what} ({show(x)})"), advice)
    return None


for _name in _DOMAINS:
    RULES[_name] = _domain


def _gamma(birth: Birth) -> Why | None:
    x = birth.element()
    if x <= 0 and x == np.floor(x):
        return Why(
            f"{birth.primitive} has a pole at {show(x)}", "keep the operand off 0, -1, -2, …"
        )
    return _overflow(birth, f"{birth.primitive}({show(x)})") if birth.bad == "inf" else None


for _name in ("lgamma", "digamma"):
    RULES[_name] = _gamma


def _growing(birth: Birth) -> Why | None:
    x = birth.element()
    if not np.isfinite(x):
        return None
    return _overflow(birth, f"{birth.primitive}({show(x)})")._replace(
        advice="subtract the greatest exponent first (logsumexp, softmax), or compute in log space"
    )


for _name in ("exp", "exp2", "expm1", "sinh", "cosh"):
    RULES[_name] = _growing


def _periodic(birth: Birth) -> Why | None:
    x = birth.element()
    return Why(_with_cause(birth, f"{birth.primitive} of an infinity")) if np.isinf(x) else None


for _name in ("sin", "cos", "tan"):
    RULES[_name] = _periodic


# -- arithmetic


def _unselected(birth: Birth, operation: str) -> Why:
    reason = f"{operation} in the backward pass, where the 0 is the cotangent of a where branch that was not taken"
    return Why(_with_cause(birth, reason), DOUBLE_WHERE)


def _sum(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    if np.isinf(x) and np.isinf(y):
        return Why(_with_cause(birth, "inf - inf"), "keep one of the two finite")
    sign = "-" if birth.primitive == "sub" else "+"
    return _overflow(birth, f"{show(x)} {sign} {show(y)}") if birth.bad == "inf" else None


for _name in ("add", "sub", "add_any"):
    RULES[_name] = _sum


def _product(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    if (x == 0 and np.isinf(y)) or (y == 0 and np.isinf(x)):
        if birth.unselected:
            return _unselected(birth, "0 * inf")
        return Why(_with_cause(birth, "0 * inf"))
    return _overflow(birth, f"{show(x)} * {show(y)}") if birth.bad == "inf" else None


RULES["mul"] = _product


def _quotient(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    dtype = str(birth.operands[1].dtype)
    if is_zero(x, dtype) and is_zero(y, dtype):
        if birth.unselected:
            return _unselected(birth, "0/0")
        small = zero_text(y if is_subnormal(y, dtype) else x, dtype)
        reason = "0/0" if small == "0" else f"0/0 ({small})"
        return Why(
            _with_cause(birth, reason), "guard the denominator; a mean over nothing gives this too"
        )
    if is_zero(y, dtype):
        return Why(
            _with_cause(birth, f"division of {show(x)} by {zero_text(y, dtype)}"),
            "guard the denominator",
        )
    if np.isinf(x) and np.isinf(y):
        return Why(
            _with_cause(birth, "inf/inf"), "divide before the two overflow, or compute in log space"
        )
    return _overflow(birth, f"{show(x)} / {show(y)}") if birth.bad == "inf" else None


RULES["div"] = _quotient


def _remainder(birth: Birth) -> Why | None:
    x, y = birth.element(0), birth.element(1)
    if y == 0:
        return Why(f"remainder of {show(x)} by 0", "guard the denominator")
    return (
        Why(_with_cause(birth, f"remainder of an infinity by {show(y)}")) if np.isinf(x) else None
    )


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
        return Why(_with_cause(birth, f"division by zero: 0 ** {show(y)}"), "guard the base")
    return _overflow(birth, text) if birth.bad == "inf" else None


for _name in ("pow", "integer_pow"):
    RULES[_name] = _power


def _square(birth: Birth) -> Why | None:
    return _overflow(birth, f"{show(birth.element())} ** 2") if birth.bad == "inf" else None


RULES["square"] = _square


def _convert(birth: Birth) -> Why | None:
    if birth.bad == "inf":
        source = birth.operands[0].dtype
        return _overflow(birth, f"{show(birth.element())} ({source})")._replace(
            advice="scale the value, or keep the wider type here"
        )
    return None


for _name in ("convert_element_type", "reduce_precision"):
    RULES[_name] = _convert


# -- sums and products of many


def _total(birth: Birth) -> Why | None:
    part = birth.part(0)
    if birth.primitive.startswith("scatter"):
        part = np.concatenate([part.ravel(), birth.part(2).ravel()])
    if np.isposinf(part.real).any() and np.isneginf(part.real).any():
        return Why(_with_cause(birth, f"inf - inf in a sum of {part.size} numbers"))
    if birth.bad == "inf" and np.isfinite(part).all():
        return _overflow(
            birth, f"a sum of {part.size} numbers up to {show(np.abs(part).max(initial=0))}"
        )
    return None


for _name in ("reduce_sum", "cumsum", "psum", "reduce_window_sum", "scatter-add", "cumlogsumexp"):
    RULES[_name] = _total


def _product_of_many(birth: Birth) -> Why | None:
    part = birth.part(0)
    if np.isinf(part).any() and (part == 0).any():
        return Why(_with_cause(birth, f"0 * inf in a product of {part.size} numbers"))
    return _overflow(birth, f"a product of {part.size} numbers") if birth.bad == "inf" else None


for _name in ("reduce_prod", "cumprod"):
    RULES[_name] = _product_of_many


def _extreme(birth: Birth) -> Why | None:
    return (
        Why(f"{birth.primitive} of nothing", "guard the empty case")
        if birth.part(0).size == 0
        else None
    )


for _name in ("reduce_max", "reduce_min"):
    RULES[_name] = _extreme


def _contraction(birth: Birth) -> Why | None:
    a, b = birth.part(0), birth.part(1)
    infinite = np.isinf(a).any() or np.isinf(b).any()
    if birth.bad == "nan" and infinite:
        zero = (a == 0).any() or (b == 0).any()
        text = (
            "0 * inf, or inf - inf, in a sum of products"
            if zero
            else "inf - inf in a sum of products"
        )
        return _unselected(birth, text) if birth.unselected else Why(_with_cause(birth, text))
    if not infinite:
        most = show(np.abs(a).max(initial=0)), show(np.abs(b).max(initial=0))
        return _overflow(birth, f"a sum of products of numbers up to {most[0]} and {most[1]}")
    return None


for _name in ("dot_general", "conv_general_dilated", "ragged_dot_general"):
    RULES[_name] = _contraction


def _transform(birth: Birth) -> Why | None:
    part = birth.part(0)
    if not np.isfinite(part).all():
        return Why(_with_cause(birth, "the transform of an infinity"))
    return _overflow(birth, f"a sum of numbers up to {show(np.abs(part).max(initial=0))}")


RULES["fft"] = _transform


# -- matrices


def _cholesky(birth: Birth) -> Why | None:
    matrix = _matrix(birth, 0)
    if not np.isfinite(matrix).all():
        return Why(_with_cause(birth, "the matrix holds an infinity"))
    dtype = birth.operands[0].dtype
    lower = np.tril(matrix)
    symmetric = lower + np.tril(matrix, -1).conj().T  # only the lower triangle is read
    least = np.linalg.eigvalsh(symmetric)[0]
    reason = f"the matrix is not positive definite (smallest eigenvalue {show(least)}, {dtype})"
    scale = np.abs(matrix).max(initial=0)
    if np.abs(matrix - matrix.conj().T).max(initial=0) > 1e3 * float(jnp.finfo(dtype).eps) * scale:
        return Why(f"{reason}, nor symmetric", "symmetrise it: (A + A.T) / 2")
    if least > 0:
        greatest = np.linalg.eigvalsh(symmetric)[-1]
        reason = f"the matrix is too near singular for {dtype} (eigenvalues {show(least)} to {show(greatest)})"
    return Why(reason, "add a small multiple of the identity, or compute in float64")


RULES["cholesky"] = _cholesky


def _matrix(birth: Birth, operand: int) -> np.ndarray:
    """The matrix of a batch that counts."""
    part = birth.part(operand)
    while part.ndim > 2:
        part = part[0]
    return part


def _triangular(birth: Birth) -> Why | None:
    matrix = _matrix(birth, 0)
    if not birth.params.get("unit_diagonal"):
        zeros = np.flatnonzero(np.diagonal(matrix) == 0)
        if zeros.size:
            k = int(zeros[0])
            return Why(
                _with_cause(
                    birth, f"the triangular matrix is singular: 0 on its diagonal at [{k}, {k}]"
                ),
                "the system has no unique solution; regularise the matrix",
            )
    if not (np.isfinite(matrix).all() and np.isfinite(birth.part(1)).all()):
        return Why(_with_cause(birth, "the system holds an infinity"))
    least = np.abs(np.diagonal(matrix)).min(initial=np.inf)
    return Why(
        f"overflow: the triangular matrix is nearly singular (least diagonal element {show(least)})"
    )


RULES["triangular_solve"] = _triangular


def _factorization(birth: Birth) -> Why | None:
    matrix = _matrix(birth, 0)
    if not np.isfinite(matrix).all():
        return Why(_with_cause(birth, f"{birth.primitive} of a matrix that holds an infinity"))
    values = np.linalg.svd(matrix, compute_uv=False) if matrix.ndim == 2 else np.empty(0)
    if values.size:
        spread = f"singular values {show(values[-1])} to {show(values[0])}"
        return Why(f"{birth.primitive} did not succeed on a finite matrix ({spread})")
    return None


for _name in (
    "lu",
    "qr",
    "geqrf",
    "householder_product",
    "svd",
    "eigh",
    "eig",
    "schur",
    "tridiagonal_solve",
):
    RULES[_name] = _factorization


# -- reading from outside of an array


def _gather(birth: Birth) -> Why | None:
    if birth.boxes and birth.bad == "inf":
        return None
    size, indices = list(birth.operands[0].shape), birth.operands[1]
    low, high = (int(indices.min()), int(indices.max())) if indices.size else (0, 0)
    return Why(
        f"reading outside of the array: shape {size}, indices {low} to {high}, "
        "and elements out of bounds are filled with NaN",
        'correct the index, or say what is meant: .at[i].get(mode="clip"), jnp.take(..., mode="clip")',
    )


RULES["gather"] = _gather


# -- what comes from the host


def _foreign(birth: Birth) -> Why | None:
    word = "NaN" if birth.bad == "nan" else "an infinity"
    return Why(f"the function behind {birth.primitive} returned {word}")


for _name in ("pure_callback", "io_callback", "ffi_call", "call_exported"):
    RULES[_name] = _foreign


def _bits(birth: Birth) -> Why | None:
    return Why("the bits, read as a float, are not a finite number")


RULES["bitcast_convert_type"] = _bits
