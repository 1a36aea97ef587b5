"""How far apart two values may be, who said so, and whether they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxtap_core.telemetry.ulp import distance, is_nan, parts, words

NaN = Literal["payload", "any"]
_FIELDS = ("rtol", "atol", "ulp")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A value passes if its bits agree, or any of the three limits holds; all zero means exact.

    Attributes:
        rtol, atol: ``|got - expected| <= atol + rtol * |expected|``, in float64.
        ulp: at most this many representable numbers apart; for floats and complex numbers.
        source: who set it: ``"default"``, ``"call"`` or ``"column 'NAME'"``.
    """

    rtol: float = 0.0
    atol: float = 0.0
    ulp: int = 0
    source: str = "default"

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise TypeError(f"{name} must be a number, not {value!r}")
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value!r}")

    @property
    def exact(self) -> bool:
        """Whether only equal bits pass."""
        return not (self.rtol or self.atol or self.ulp)

    def __str__(self) -> str:
        limits = [f"{name} {getattr(self, name):g}" for name in _FIELDS if getattr(self, name)]
        return f"{', '.join(limits) or 'exact'} ({self.source})"


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The tolerance of each column.

    Args:
        default: for columns that are not named.
        columns: by name; a dotted suffix (``"step_size"`` for ``"state.step_size"``) will do.
    """

    default: Tolerance
    columns: Mapping[str, Tolerance]

    @classmethod
    def of(
        cls,
        rtol: float = 0.0,
        atol: float = 0.0,
        ulp: int = 0,
        columns: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Tolerances:
        """From the arguments of a comparison. What a column does not set is 0 for it.

        Raises:
            TypeError: a limit is no number, or a column has another setting.
            ValueError: a limit is negative.
        """
        made = {}
        for name, limits in (columns or {}).items():
            if not isinstance(limits, Mapping) or not set(limits) <= set(_FIELDS):
                raise TypeError(f"column {name!r} needs a dict of rtol, atol and ulp, got {limits!r}")
            made[name] = Tolerance(**limits, source=f"column {name!r}")
        asked = bool(rtol or atol or ulp)
        return cls(Tolerance(rtol, atol, ulp, "call" if asked else "default"), made)

    def check(self, names: Iterable[str]) -> None:
        """Refuse a column that is not there: its tolerance would silently not apply.

        Raises:
            ValueError: with the columns that are.
        """
        known = list(dict.fromkeys(names))
        for column in self.columns:
            if not any(_answers(name, column) for name in known):
                raise ValueError(
                    f"there is no column {column!r} to give a tolerance to; "
                    f"columns: {', '.join(map(repr, known)) or 'none'}"
                )

    def of_column(self, name: str) -> Tolerance:
        """The tolerance of one column: of its name or longest suffix, else the default."""
        hits = [column for column in self.columns if _answers(name, column)]
        return self.columns[max(hits, key=len)] if hits else self.default


def _answers(name: str, column: str) -> bool:
    return name == column or name.endswith(f".{column}")


def gap(expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    """|got - expected| elementwise in float64; NaN where either is NaN; 1 where booleans differ."""
    if not jnp.issubdtype(expected.dtype, jnp.inexact):
        return distance(np.ascontiguousarray(expected), np.ascontiguousarray(got)).astype(np.float64)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        return np.abs(got.astype(wide) - expected.astype(wide))


def allowed(expected: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    """How far from each expected value another one may be: the widest of the three limits.

    Args:
        expected: array of real numbers, or of booleans, which have no tolerance.

    Returns:
        float64 array of its shape, 0 where only equal bits pass; NaN for NaN and infinities.

    Example:
        >>> allowed(np.float32([0, 1, 100]), Tolerance(rtol=0.01, atol=0.25)).tolist()
        [0.25, 0.26, 1.25]
    """
    if expected.dtype == np.bool_:
        return np.zeros(expected.shape)
    wide = expected.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        limit = tolerance.atol + tolerance.rtol * np.abs(wide)
        if tolerance.ulp and jnp.issubdtype(expected.dtype, jnp.floating):
            limit = np.maximum(limit, tolerance.ulp * np.spacing(np.abs(expected)).astype(np.float64))
    return np.where(np.isfinite(wide), limit, np.nan)


def unlike(expected: np.ndarray, got: np.ndarray, tolerance: Tolerance, nan: NaN) -> np.ndarray:
    """Which elements of two arrays of one dtype and shape do not pass.

    Args:
        expected, got: arrays of numbers, or of Python objects, which must be equal.
        tolerance: what passes besides equal bits.
        nan: ``"payload"``: NaNs are equal if their bits are; ``"any"``: all are.

    Returns:
        boolean array of their shape.
    """
    if expected.dtype.kind == "O":
        return np.asarray(expected != got, bool)
    if expected.dtype.itemsize == 0:
        return np.zeros(expected.shape, bool)
    x, y = parts(expected), parts(got)
    bad = words(x) != words(y)
    inexact = jnp.issubdtype(expected.dtype, jnp.inexact)
    if nan == "any" and inexact and bad.any():
        bad &= ~(is_nan(x) & is_nan(y))
    unequal = bad.any(axis=-1)
    if tolerance.exact or expected.dtype == np.bool_ or not unequal.any():
        return unequal
    e, g = expected[unequal], got[unequal]
    with np.errstate(invalid="ignore"):
        limit = tolerance.atol + tolerance.rtol * _size(e)
        passes = gap(e, g) <= np.where(np.isfinite(limit), limit, 0.0)
    if tolerance.ulp and inexact:
        p, q = parts(e), parts(g)
        near = (distance(p, q) <= tolerance.ulp) & ~(is_nan(p) | is_nan(q)) | (words(p) == words(q))
        passes |= near.all(axis=-1)
    unequal[unequal] = ~passes
    return unequal


def _size(values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        if values.dtype.kind == "c":
            return np.abs(values.astype(np.complex128))
        return np.abs(values.astype(np.float64))
