"""An equation that made a NaN or an infinity of good operands: what is known of it, why it did, how that is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtap_core.provenance.dependence import Box, Index, is_single
from jaxtap_core.records.text import word

DOUBLE_WHERE = "give the branch that is not taken a harmless input too: jnp.where(ok, f(jnp.where(ok, x, 1.0)), other)"


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
        untaken: the branch that was not taken whose cotangent a zero among the operands is, in words, or empty.
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
    untaken: str = ""
    cause: str = ""

    @property
    def made(self) -> str:
        """The bad value, in words."""
        return "an infinity" if self.bad == "inf" else word(self.bad)

    @property
    def dtype(self) -> str:
        """Type of the bad output."""
        return str(self.outputs[self.output].dtype)

    def part(self, operand: int) -> np.ndarray:
        """The elements of an operand that count, as float64 or complex128."""
        boxes = [box for i, box in self.boxes if i == operand]
        return widen(self.operands[operand][boxes[0]]) if boxes else np.empty(0)

    def element(self, operand: int = 0) -> Any:
        """The element of an operand that counts; of more, the first not finite, or the first."""
        part = self.part(operand).ravel()
        if not part.size:
            return np.float64("nan")
        odd = np.flatnonzero(~np.isfinite(part))
        return part[odd[0] if odd.size else 0]


Reason = Callable[[Birth], Why | None]
REASONS: dict[str, Reason] = {}  # by primitive


def explain(birth: Birth) -> Why:
    """The reason why ``birth`` happened."""
    reason = REASONS.get(birth.primitive)
    why = reason(birth) if reason is not None else None
    return why or _general(birth)


def _general(birth: Birth) -> Why:
    given, clean = [], True
    for value in birth.operands:
        numbers = widen(value)
        if numbers.dtype.kind in "fciub":
            text = f"{value.dtype}{list(value.shape)}"
            given.append(f"{text} = {show(numbers[()])}" if value.ndim == 0 else text)
            clean &= bool(np.isfinite(numbers).all())
    kind = "finite" if clean else "NaN-free"
    what = f"{birth.primitive} made {birth.made} out of {kind} operands ({', '.join(given)})"
    if clean and birth.primitive in ("add", "sub", "mul", "neg") and birth.bad == "nan":
        what += ", which it cannot do alone: XLA rewrote it together with what is around it"
    return Why(with_cause(birth, what))


def facts(value: np.ndarray, box: Box | None = None) -> dict[str, Any]:
    """Facts about an operand: shape, dtype, range of its finite elements, the offending element."""
    result: dict[str, Any] = {"shape": tuple(value.shape), "dtype": str(value.dtype)}
    numbers = widen(value)
    if numbers.size and numbers.dtype.kind in "fiu":
        finite = numbers[np.isfinite(numbers)]
        if finite.size:
            result |= {"min": finite.min().item(), "max": finite.max().item()}
        result["nonfinite"] = int(numbers.size - finite.size)
    if box is not None and is_single(box) and np.ndim(numbers[box]) == 0:  # a typed key is more than one number
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


def show(x: Any, *edges: float) -> str:
    """A number for people: six digits, or as many as it takes to tell it from ``edges`` that it does not equal.

    Example:
        >>> show(1.00000011920929), show(1.00000011920929, -1, 1), show(1.0, -1, 1)
        ('1', '1.0000001', '1')
    """
    if np.iscomplexobj(x):
        return f"{complex(x):.6g}"
    number = float(x)
    near = [edge for edge in edges if edge != number]
    texts = (f"{number:.{digits}g}" for digits in range(6, 18))
    return next((text for text in texts if float(text) not in near), repr(number))


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


def with_cause(birth: Birth, reason: str) -> str:
    return f"{reason}; {birth.cause}" if birth.cause else reason


def overflow(birth: Birth, what: str, exact: Any = None) -> Why:
    """``what`` overflowed; ``exact`` is its value in float64, where that can be had: it may not be too big at all."""
    if exact is not None and abs(exact) <= largest(birth.dtype):
        return Why(
            f"overflow on the way: {what} is {show(exact)}, within {birth.dtype}, but an intermediate result is not",
            "compute in another order, or scale the numbers",
        )
    return Why(f"overflow: {what} is beyond the largest {birth.dtype} ({show(largest(birth.dtype))})")


def wider(dtype: str) -> str:
    """A type with more digits than ``dtype`` that XLA computes in, or empty where there is none."""
    if dtype in ("float64", "complex128"):
        return ""
    return "complex128" if dtype.startswith("complex") else "float64"


def untaken(birth: Birth, operation: str, zero: str = "0") -> Why:
    reason = f"{operation} in the backward pass, where the {zero} is the cotangent of {birth.untaken}"
    return Why(with_cause(birth, reason), DOUBLE_WHERE)
