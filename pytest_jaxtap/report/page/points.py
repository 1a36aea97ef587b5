"""PYTEST_DONT_REWRITE

Two columns of numbers as a plot that a page can hold.

A plot has at most `MOST_POINTS` points; each stands for a run of steps by their smallest and largest
value, their NaNs and their largest difference. So no peak and no NaN is lost, and the first step that
differs is always a point of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxtap_core.compare.diff import aligned
from jaxtap_core.compare.leaf_diff import LeafDifference, Point
from jaxtap_core.compare.table import Track
from jaxtap_core.compare.tolerance import Tolerance, allowed, gap
from jaxtap_core.records.text import word
from pytest_jaxtap.report.wire import Record

MOST_POINTS = 500


class Ranges(NamedTuple):
    """Values of one side at each spot: smallest and largest (finite) value, counts of NaN and Inf."""

    low: np.ndarray
    high: np.ndarray
    nan: np.ndarray
    inf: np.ndarray

    @property
    def there(self) -> np.ndarray:
        """At which spots there is a value at all."""
        return ~np.isnan(self.low) | (self.nan + self.inf > 0)


class Side(NamedTuple):
    """One side: where its rows stand, ``(n, k)``, and their values, ``(n, m)``."""

    spots: np.ndarray
    values: np.ndarray


class Drawing:
    """Expected and observed values over one axis of spots: steps, events or elements.

    Args:
        a, b: the tracks, ``None`` on a side that lacks the stream.
        x, y: their columns, ``None`` on a side that lacks the leaf.
        differences: what the comparison found there.
        tolerance: how far off a value might have been; ``None`` where that is not told.

    Attributes:
        size: number of spots; 0 if this cannot be drawn.
        apart: whether any two values differ.
    """

    def __init__(
        self,
        a: Track | None,
        b: Track | None,
        x: np.ndarray | None,
        y: np.ndarray | None,
        differences: Sequence[LeafDifference],
        tolerance: Tolerance | None = None,
    ) -> None:
        there = [(track, side) for track, side in ((a, x), (b, y)) if track is not None and side is not None]
        self.size, self.apart, self._first, self._parted, self._band = 0, False, None, None, None
        drawable = all(side.dtype.kind in "biufV" and side.dtype.itemsize and side.size for _, side in there)
        if not drawable or len({track.depth for track, _ in there}) > 1:
            return
        depth = there[0][0].depth
        self.unit = "step" if depth else "element" if all(track.length == 1 for track, _ in there) else "event"
        sides = [None if t is None or c is None else self._column(t, c) for t, c in ((a, x), (b, y))]
        self._spots = _union([side.spots for side in sides if side is not None])
        self.size = len(self._spots)
        self._expected, self._observed = (None if s is None else _ranges(s, self._spots) for s in sides)
        self._shape = there[0][1].shape[1:]
        self._digits = 17 if any(side.dtype.itemsize > 4 for _, side in there) else 9
        self._many = max(side.values.shape[1] for side in sides if side is not None)
        self._gaps = np.full(self.size, np.nan)
        if sides[0] is not None and sides[1] is not None and _same_shape(x, y):
            self._compare(a, b, *sides)
        self.apart = bool((self._gaps > 0).any())
        self._first = self._first_difference(differences)
        parted = [self._spot(one.parted) for one in differences if one.parted is not None]
        self._parted = min((spot for spot in parted if spot is not None), default=None)
        if sides[0] is not None and tolerance is not None and not tolerance.exact:
            self._band = self._allowed(sides[0], tolerance)

    def _column(self, track: Track, column: np.ndarray) -> Side:
        if self.unit == "element":
            return Side(np.arange(column[0].size)[:, None], column.reshape(-1, 1))
        spots = track.steps if track.depth else np.arange(track.length)[:, None]
        return Side(spots.astype(np.int64), column.reshape(len(column), -1))

    def _compare(self, a: Any, b: Any, left: Any, right: Any) -> None:
        """The largest difference at each spot, of the rows that both sides have."""
        rows = (np.arange(len(left.spots)),) * 2
        if self.unit != "element":
            indices = a.index(), b.index()
            if indices[0].shape[1] != indices[1].shape[1]:
                return
            rows = aligned(*indices)
        e, g = left.values[rows[0]], right.values[rows[1]]
        apart = gap(e, g) if e.dtype == g.dtype else np.abs(_wide(g) - _wide(e))
        apart = np.where(np.isinf(apart), np.nan, apart)
        worst = np.fmax.reduce(apart, axis=1, initial=np.nan)
        np.fmax.at(self._gaps, _numbers(left.spots[rows[0]], self._spots), worst)

    def _allowed(self, expected: Side, tolerance: Tolerance) -> Ranges:
        """What would pass at each spot: from the smallest such value to the largest."""
        wide, width = _wide(expected.values), allowed(expected.values, tolerance)
        low = _ranges(Side(expected.spots, wide - width), self._spots)
        high = _ranges(Side(expected.spots, wide + width), self._spots)
        return Ranges(low.low, high.high, np.zeros_like(low.nan), np.zeros_like(low.inf))

    def _first_difference(self, differences: Sequence[LeafDifference]) -> int | None:
        """The first spot where a value does not pass, or one side has none."""
        found = [spot for one in differences if (spot := self._spot(one.first)) is not None]
        if self._expected is not None and self._observed is not None:
            found += np.flatnonzero(self._expected.there != self._observed.there)[:1].tolist()
        return min(found, default=None)

    def _spot(self, point: Point) -> int | None:
        if self.unit == "step":
            hits = np.flatnonzero((self._spots == np.asarray(point.steps)).all(axis=1))
        elif self.unit == "element":
            hits = np.ravel_multi_index(point.index, self._shape).reshape(1) if point.index else np.zeros(1, int)
        else:
            hits = np.flatnonzero(self._gaps > 0)
        return int(hits[0]) if len(hits) else None

    @property
    def caption(self) -> str:
        """What is drawn, in words."""
        if not self.size:
            return "not numbers: nothing is drawn"
        runs = -(-self.size // MOST_POINTS)
        told = [_count(self.size, self.unit)]
        if self._many > 1:
            told.append(f"the band spans the {self._many} values of a {self.unit}")
        if runs > 1:
            told.append(f"each point spans the smallest and largest value of up to {runs} {self.unit}s")
        for name, side in (("expected", self._expected), ("observed", self._observed)):
            for bad, counts in (("nan", side.nan), ("inf", side.inf)) if side is not None else ():
                if counts.any():
                    at = self._where(int(np.flatnonzero(counts)[0]))
                    told.append(f"{word(bad)} {name} in {_count(int((counts > 0).sum()), self.unit)}, first at {at}")
        if self._parted is not None:
            told.append(f"bits differ from {self._where(self._parted)} on")
        if self._first is not None:
            beyond = "" if self._parted is None else " beyond the tolerance"
            told.append(f"first difference{beyond} at {self._where(self._first)}")
        return "; ".join(told)

    def _where(self, spot: int) -> str:
        *outer, inner = self._spots[spot].tolist()
        return f"{self.unit} {inner}" + (f" (outer {', '.join(map(str, outer))})" if outer else "")

    def points(self) -> Record:
        """The points of the plot, in plain types.

        Returns:
            ``unit``; ``x``, ``until``: first and last position of each point, numbers of steps (or
            of step vectors, in their order, where loops nest: ``steps`` has the vectors);
            ``expected``, ``observed``: dicts of ``low``, ``high`` and the counts ``nan``, ``inf``
            (what is all zero, or ``high`` where it is ``low``, is left out), or ``None``; ``gap``:
            largest differences, or ``None`` if there is none; ``band``: ``low`` and ``high`` of what
            the tolerance lets pass, or ``None``; ``first``: number of the point at which the sides
            part, or ``None``; ``parted``: that at which their bits do, if it is another.
        """
        starts = self._starts()
        nested = self._spots.shape[1] > 1
        x = np.arange(self.size) if nested else self._spots[:, 0]
        ends = np.append(starts[1:], self.size) - 1
        return {
            "unit": self.unit,
            "x": x[starts].tolist(),
            "until": x[ends].tolist() if len(starts) < self.size else None,
            "steps": self._spots[starts].tolist() if nested else None,
            "expected": self._side(self._expected, starts),
            "observed": self._side(self._observed, starts),
            "gap": _numerals(np.fmax.reduceat(self._gaps, starts), 6) if self.apart else None,
            "band": self._side(self._band, starts),
            "first": self._point_of(self._first, starts),
            "parted": self._point_of(self._parted, starts),
        }

    @staticmethod
    def _point_of(spot: int | None, starts: np.ndarray) -> int | None:
        return None if spot is None else int(np.flatnonzero(starts == spot)[0])

    def _starts(self) -> np.ndarray:
        """At which spot each point starts; the first differences are points of their own."""
        if self.size <= MOST_POINTS:
            return np.arange(self.size)
        starts = np.linspace(0, self.size, MOST_POINTS - 4, endpoint=False).astype(int)
        own = [
            at for spot in (self._first, self._parted) if spot is not None for at in (spot, spot + 1) if at < self.size
        ]
        return np.unique(np.append(starts, np.asarray(own, int)))

    def _side(self, side: Ranges | None, starts: np.ndarray) -> Record | None:
        if side is None:
            return None
        low, high = np.fmin.reduceat(side.low, starts), np.fmax.reduceat(side.high, starts)
        points: Record = {"low": _numerals(low, self._digits)}
        if not np.array_equal(low, high, equal_nan=True):
            points["high"] = _numerals(high, self._digits)
        for name, counts in (("nan", side.nan), ("inf", side.inf)):
            if counts.any():
                points[name] = np.add.reduceat(counts, starts).tolist()
        return points


def _same_shape(x: Any, y: Any) -> bool:
    return x.shape[1:] == y.shape[1:]


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def _union(spots: Sequence[np.ndarray]) -> np.ndarray:
    """All spots in order, each once."""
    one = spots[0]
    if all(np.array_equal(one, other) for other in spots[1:]) and _increases(one):
        return one  # as nearly always; sorting rows is slow
    return np.unique(np.concatenate(spots), axis=0)


def _increases(spots: np.ndarray) -> bool:
    """Whether each row comes after the one before it."""
    steps = np.diff(spots, axis=0)
    leading = np.take_along_axis(steps, (steps != 0).argmax(axis=1)[:, None], axis=1)
    return bool((leading > 0).all())


def _numbers(spots: np.ndarray, among: np.ndarray) -> np.ndarray:
    """The number of each spot in the sorted ``among``, which holds them all."""
    if np.array_equal(spots, among):
        return np.arange(len(among))
    _, numbers = np.unique(np.concatenate([among, spots]), axis=0, return_inverse=True)
    return numbers.reshape(-1)[len(among) :]


def _ranges(side: Side, among: np.ndarray) -> Ranges:
    numbers, values, size = _numbers(side.spots, among), _wide(side.values), len(among)
    finite = np.isfinite(values)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, numbers, np.where(finite, values, np.inf).min(axis=1))
    np.maximum.at(high, numbers, np.where(finite, values, -np.inf).max(axis=1))
    nan, inf = np.zeros(size, int), np.zeros(size, int)
    np.add.at(nan, numbers, np.isnan(values).sum(axis=1))
    np.add.at(inf, numbers, np.isinf(values).sum(axis=1))
    none = ~np.isfinite(low)
    return Ranges(np.where(none, np.nan, low), np.where(none, np.nan, high), nan, inf)


def _numerals(values: np.ndarray, digits: int) -> list[float | None]:
    """Numbers for JSON with as many digits as give their bits back; ``None`` for none."""
    return [float(f"{value:.{digits}g}") if value == value else None for value in values.tolist()]


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
