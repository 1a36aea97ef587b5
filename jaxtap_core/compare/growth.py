"""How a difference between two runs grows with the step: not at all, as a power, exponentially; or how it shrinks.

Rounding differences of a stable program stay, or add up linearly; those of a chaotic one double every
so many steps until they are as large as the values; those of one that forgets its past halve. Which of
them it is says more than the last difference. A power rises steeply at first too, so an exponential is
claimed only where the rise goes on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["constant", "linear", "power", "exponential", "shrinking", "irregular", "unknown"]

_FEWEST = 6  # points that a fit needs; with fewer every curve fits
_MOST = 200  # points that take part: the slopes are taken over all pairs
_RISE = 4.0  # a curve that rises by less over its span is taken for constant,
_CLEAR = 1.25  # unless it rises by this factor at least,
_STEADY = 0.9  # this part of all pairs of points rises,
_CLOSER = 4.0  # and it fits so many times better than a constant does
_LOOSE = np.log(3.0)  # typical misfit, as a factor, beyond which no curve is claimed
_MUCH = 16.0  # an exponential that rises by less over its span must fit
_CLOSELY = 0.1  # so well: typical misfit in the logarithm
_EVEN = 0.5  # an exponential rises in one half of its span at least so much as in the other
_ONE = (0.8, 1.25)  # powers that are told as linear
_FULL = 0.1  # part of the greatest difference at which an exponential may be near its plateau
_CLIMB = 100.0  # rise that a plateau's exponential has before it, at least
_SLOWER = 0.8  # the fit over everything is held back by a plateau if it is slower by this factor


@dataclass(frozen=True, slots=True)
class Growth:
    """The course of a difference over the steps at which it was not zero.

    Attributes:
        kind: ``"constant"``, ``"linear"``, ``"power"`` (of the steps since the first that differs),
            ``"exponential"``, ``"shrinking"`` (linearly or exponentially), ``"irregular"`` (no curve
            fits), ``"unknown"`` (too few points).
        points: number of steps that were fitted.
        first, last: the first and the last of them.
        doubling: steps in which an exponential doubles.
        halving: steps in which one that shrinks exponentially halves.
        slope: growth of a linear difference per step; negative for one that shrinks.
        exponent: of a power.
        unit: what is counted: ``"step"``, or ``"index"`` of an array.
    """

    kind: Kind
    points: int
    first: int
    last: int
    doubling: float | None = None
    halving: float | None = None
    slope: float | None = None
    exponent: float | None = None
    unit: str = "step"

    @property
    def story(self) -> str:
        """Half a sentence for a first line; empty where there is nothing to tell."""
        many = "indices" if self.unit == "index" else "steps"
        if self.doubling is not None:
            return f"the gap doubles every {self.doubling:.3g} {many}"
        if self.halving is not None:
            return f"the gap halves every {self.halving:.3g} {many}"
        if self.slope is not None:
            return f"the gap {'grows' if self.slope > 0 else 'shrinks'} by {abs(self.slope):.3g} per {self.unit}"
        if self.exponent is not None:
            return f"the gap grows as the power {self.exponent:.2g} of the {many}"
        return "the gap stays" if self.kind == "constant" else ""

    def to_dict(self) -> dict[str, Any]:
        """The same content in plain Python types."""
        return asdict(self)

    def __str__(self) -> str:
        span = f"({self.points} points, {self.unit} {self.first} to {self.last})"
        if self.kind == "unknown":
            return f"unknown: too few points for a fit {span}"
        if self.kind == "irregular":
            return f"irregular: neither constant, a power nor exponential {span}"
        return f"{self.kind}: {self.story} {span}"


def growth(steps: np.ndarray, gaps: np.ndarray, unit: str = "step") -> Growth | None:
    """Fit the course of a difference.

    Four curves are fitted from the first step that differs: ``c``, ``a + b t``, ``a t**p``,
    ``a 2**(t / d)``; for one that shrinks, backwards, without the power. Slopes are medians over pairs
    of points (Theil 1950, Sen 1968), so single outliers do not count. The curve of the least median
    misfit in the logarithm is taken. An exponential that ends on a plateau is fitted up to it, one that
    shrinks to a floor down to that.

    Args:
        steps: int array, ascending.
        gaps: float64 array of the same length, absolute differences; zeros, NaN and infinities
            take no part.
        unit: what `steps` counts.

    Returns:
        ``None`` where fewer than two points differ: there is no course to tell of.

    Example:
        >>> str(growth(np.arange(60), 1e-7 * 2.0 ** (np.arange(60) / 11)))
        'exponential: the gap doubles every 11 steps (60 points, step 0 to 59)'
    """
    used = np.isfinite(gaps) & (gaps > 0)
    x, y = steps[used].astype(np.float64), gaps[used].astype(np.float64)
    if len(x) < 2:
        return None
    whole = _fit(x, y, unit)
    for height in (y, y.min() / y):  # a floor is a plateau of the reciprocal
        end = int(np.argmax(height >= _FULL * height.max())) + 1
        if _FEWEST <= end < len(x) and height[end - 1] >= _CLIMB * height[0]:
            front = _fit(x[:end], y[:end], unit)
            before, now = whole.doubling or whole.halving, front.doubling or front.halving
            if now and now < _SLOWER * (before or np.inf):
                return front
    return whole


def _fit(x: np.ndarray, y: np.ndarray, unit: str) -> Growth:
    span = (len(x), int(x[0]), int(x[-1]))
    if len(x) < _FEWEST:
        return Growth("unknown", *span, unit=unit)
    if len(x) > _MOST:
        chosen = np.unique(np.linspace(0, len(x) - 1, _MOST).round().astype(int))
        x, y = x[chosen], y[chosen]
    shrinks = _line(x, np.log(y))[0] < 0
    if shrinks:  # growth, read backwards
        x, y = x[0] + x[-1] - x[::-1], y[::-1]
    logs = np.log(y)
    constant = _misfit(logs, np.full_like(logs, np.median(logs)))
    rate, offset = _line(x, logs)
    rise = np.exp(rate * (x[-1] - x[0]))
    exponential = _misfit(logs, offset + rate * x)
    if not _is_even(x, logs) or (rise < _MUCH and exponential > _CLOSELY):
        exponential = np.inf
    slope, base = _line(x, y)
    fitted = base + slope * x
    linear = _misfit(logs, np.log(fitted)) if (fitted > 0).all() else np.inf
    age = np.log(x - x[0] + np.median(np.diff(x)))  # the first that differs is one step old
    exponent, factor = _line(age, logs)
    power = np.inf if shrinks or exponent <= 0 else _misfit(logs, factor + exponent * age)
    curve = min(exponential, linear, power)
    steady = rise >= _CLEAR and _rising(y) >= _STEADY and _CLOSER * curve <= constant
    if rise < _RISE and constant < _LOOSE and not steady:
        return Growth("constant", *span, unit=unit)
    if min(constant, curve) > _LOOSE:
        return Growth("irregular", *span, unit=unit)
    straight = linear <= min(exponential, power) or (power < exponential and _ONE[0] < exponent < _ONE[1])
    if straight and slope > 0:
        kind: Kind = "shrinking" if shrinks else "linear"
        return Growth(kind, *span, slope=float(-slope if shrinks else slope), unit=unit)
    if exponential < min(constant, power) and rate > 0:
        time = float(np.log(2) / rate)
        if shrinks:
            return Growth("shrinking", *span, halving=time, unit=unit)
        return Growth("exponential", *span, doubling=time, unit=unit)
    if power < constant:
        return Growth("power", *span, exponent=float(exponent), unit=unit)
    return Growth("irregular", *span, unit=unit)


def _is_even(x: np.ndarray, logs: np.ndarray) -> bool:
    """Whether a curve rises by about as many factors in both halves of its span."""
    half = len(x) // 2
    first, second = _line(x[: half + 1], logs[: half + 1])[0], _line(x[half:], logs[half:])[0]
    return min(first, second) > _EVEN * max(first, second)


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope and offset: medians over all pairs of points."""
    i, j = np.triu_indices(len(x), 1)
    slope = float(np.median((y[j] - y[i]) / (x[j] - x[i])))
    return slope, float(np.median(y - slope * x))


def _rising(y: np.ndarray) -> float:
    """Part of all pairs of points that rises."""
    i, j = np.triu_indices(len(y), 1)
    return float(np.mean(y[j] > y[i]))


def _misfit(logs: np.ndarray, fitted: np.ndarray) -> float:
    return float(np.median(np.abs(logs - fitted)))
