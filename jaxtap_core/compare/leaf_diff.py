"""How one column of numbers differs from the same column of another run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtap_core.compare.growth import Growth, growth
from jaxtap_core.compare.table import Track
from jaxtap_core.compare.tolerance import NaN, Tolerance, gap, unlike
from jaxtap_core.records.text import plain
from jaxtap_core.telemetry.ulp import NO_DISTANCE, distance, is_nan, parts, words


@dataclass(frozen=True, slots=True)
class Point:
    """One value that differs.

    Attributes:
        at: the step, for people; empty outside of loops.
        steps: the step vector.
        index: index of the element in the value; ``()`` for a scalar.
        expected, got: in decimal, the shortest that gives the bits back.
        expected_hex, got_hex: the bits; of a complex number those of both parts.
        absolute: ``|got - expected|``; ``relative``: of ``|expected|``; ``None`` where undefined.
        ulp: representable numbers between the two, for floats.
        note: what is special: ``"NaN on one side"``, ``"NaN payload"``, ``"sign of zero"``; or
            empty.
    """

    at: str
    steps: tuple[int, ...]
    index: tuple[int, ...]
    expected: str
    got: str
    expected_hex: str
    got_hex: str
    absolute: float | None
    relative: float | None
    ulp: int | None
    note: str

    @property
    def place(self) -> str:
        """Step and element."""
        element = str(list(self.index)) if self.index else ""
        return " ".join(part for part in (self.at, element) if part)

    @property
    def distance(self) -> str:
        """The distance in its most telling unit."""
        if self.note:
            return self.note
        if self.ulp is not None and self.ulp < 10_000:
            return f"{self.ulp} ulp"
        return "" if self.absolute is None else f"{self.absolute:.3g}"

    def __str__(self) -> str:
        pair = f"expected {_with(self.expected, self.expected_hex)}, "
        pair += f"got {_with(self.got, self.got_hex)}"
        if self.note:
            return f"{self.place}: {pair} ({self.note})".removeprefix(": ")
        facts = []
        if self.absolute is not None:
            facts.append(f"off by {self.absolute:.3g}")
        if self.relative is not None:
            facts.append(f"relative {self.relative:.3g}")
        if self.ulp is not None:
            facts.append(f"{self.ulp} ulp")
        return f"{self.place}: {pair}{'; ' if facts else ''}{', '.join(facts)}".removeprefix(": ")


def _with(decimal: str, bits: str) -> str:
    return f"{decimal} = {bits}" if bits else decimal


@dataclass(frozen=True, slots=True)
class LeafDifference:
    """A column that differs beyond its tolerance.

    Attributes:
        stream: the place of its track, for people; empty for plain values.
        leaf: its name.
        source: the user's line.
        differing, compared: rows (steps) that do not pass, of how many; of plain values, elements.
        unit: what was counted: ``"step"`` or ``"element"``.
        first, worst: the first value that does not pass, and the one farthest off.
        unlike: rows, or elements, whose bits differ, those within the tolerance too.
        parted: the first value whose bits differ, where that passes; else ``None``.
        tolerance: what would have passed, and who said so.
        growth: how the difference grows, where there are steps to tell; that of all bits that differ.
        swapped: whether the same values are there in another order, in words; or empty.
    """

    stream: str
    leaf: str
    source: str
    differing: int
    compared: int
    unit: str
    first: Point
    worst: Point
    unlike: int
    parted: Point | None
    tolerance: Tolerance
    growth: Growth | None
    swapped: str

    @property
    def headline(self) -> str:
        """The whole story on one line."""
        where = f" [{self.stream}]" if self.stream else ""
        if self.swapped:
            return f"{self.leaf}: {self.swapped}{where}"
        verb = "differs" if self.differing == 1 else "differ"
        unit = self.unit if self.compared == 1 else f"{self.unit}s"
        some_pass = self.unlike > self.differing
        story = f"{self.differing} of {self.compared} {unit} {verb}{' beyond the tolerance' if some_pass else ''}"
        if self.first == self.worst:
            story += f", at {self.first.place}" if self.first.place else ""
            story += f" ({self.first.distance})" if self.first.distance else ""
        else:
            story += f", first at {self.first.place} ({self.first.distance})"
            story += f", worst at {self.worst.place} ({self.worst.distance})"
        if some_pass:
            start = self.parted or self.first
            story += f"; bits differ in {self.unlike}{f', first at {start.place}' if start.place else ''}"
        if self.growth is not None and self.growth.story:
            story += f"; {self.growth.story}"
        return f"{self.leaf}: {story}{where}"

    @property
    def details(self) -> list[str]:
        """The lines below the headline."""
        lines = [f"first {self.first}"]
        if self.parted is not None:
            lines = [f"first in bits {self.parted}", f"first beyond the tolerance {self.first}"]
        if self.worst != self.first:
            lines.append(f"worst {self.worst}")
        lines.append(f"tolerance: {self.tolerance}")
        if self.growth is not None and not self.swapped:
            lines.append(f"growth: {self.growth}")
        if self.source:
            lines.append(f"observed at {self.source}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The same content in plain Python types."""
        point = lambda p: {name: plain(getattr(p, name)) for name in Point.__slots__}
        tolerance = {name: getattr(self.tolerance, name) for name in Tolerance.__slots__}
        return {
            "problem": "values",
            "stream": self.stream,
            "leaf": self.leaf,
            "source": self.source,
            "differing": self.differing,
            "compared": self.compared,
            "unit": self.unit,
            "first": point(self.first),
            "worst": point(self.worst),
            "unlike": self.unlike,
            "parted": None if self.parted is None else point(self.parted),
            "tolerance": tolerance,
            "growth": None if self.growth is None else plain(self.growth.to_dict()),
            "swapped": self.swapped,
            "text": self.headline,
        }


def compare_leaf(
    track: Track,
    leaf: str,
    rows: np.ndarray,
    expected: np.ndarray,
    got: np.ndarray,
    tolerance: Tolerance,
    nan: NaN,
) -> LeafDifference | None:
    """Compare the rows that both runs have of one column.

    Args:
        track: where the expected rows stand, for positions and names.
        leaf: name of the column.
        rows: row numbers in ``track``, one for each row of the arrays.
        expected, got: of one dtype and shape.
        tolerance: what passes.
        nan: how NaNs compare (see `jaxtap_core.compare.tolerance.unlike`).

    Returns:
        ``None`` if every value passes.
    """
    bad = unlike(expected, got, tolerance, nan)
    if not bad.any():
        return None
    apart = bad if tolerance.exact else unlike(expected, got, Tolerance(), nan)
    gaps = np.zeros(bad.shape) if expected.dtype.kind == "O" else gap(expected, got)
    stepped = track.depth > 0 or track.length != 1
    count = lambda which: which.reshape(len(which), -1).any(axis=1) if stepped else which
    severity = np.where(bad, np.where(np.isnan(gaps), np.inf, gaps), -1.0)
    point = lambda at: _point(track, rows, expected, got, gaps, tuple(map(int, np.unravel_index(int(at), bad.shape))))
    first, parted = bad.argmax(), apart.argmax()
    return LeafDifference(
        stream=str(track.key),
        leaf=leaf,
        source=track.source,
        differing=int(count(bad).sum()),
        compared=int(count(bad).size),
        unit="step" if stepped else "element",
        first=point(first),
        worst=point(severity.argmax()),
        unlike=int(count(apart).sum()),
        parted=None if parted == first else point(parted),
        tolerance=tolerance,
        growth=_growth(track, rows, np.where(apart, gaps, 0.0), stepped),
        swapped=_swapped(track, rows, expected, got, bad) if stepped else "",
    )


def _growth(track: Track, rows: np.ndarray, gaps: np.ndarray, stepped: bool) -> Growth | None:
    """Growth over the steps of a loop (counted through where loops nest), or over an array."""
    with np.errstate(invalid="ignore"):
        gaps = np.where(np.isfinite(gaps), gaps, 0.0)
    if stepped:
        if track.depth == 0:
            return None
        steps = track.steps[rows]
        new = np.ones(len(steps), bool)
        new[1:] = (steps[1:] != steps[:-1]).any(axis=1)
        profile = gaps.reshape(len(gaps), -1).max(axis=1, initial=0)
        worst = np.maximum.reduceat(profile, np.flatnonzero(new))
        x = steps[new][:, 0] if track.depth == 1 else np.arange(int(new.sum()))
        return growth(x, worst)
    if gaps.ndim < 2 or gaps.shape[1] < 2:
        return None
    profile = gaps[0].reshape(gaps.shape[1], -1).max(axis=1, initial=0)
    found = growth(np.arange(len(profile)), profile, "index")
    return None if found is not None and found.kind == "constant" else found  # nothing goes on along an array


def _swapped(track: Track, rows: np.ndarray, expected: np.ndarray, got: np.ndarray, bad: np.ndarray) -> str:
    """Whether the rows that differ hold the same values in another order."""
    at = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))
    if len(at) < 2 or expected.dtype.itemsize == 0:
        return ""
    left, right = expected[at], got[at]
    if _checksum(left) != _checksum(right) or sorted(_rows(left)) != sorted(_rows(right)):
        return ""
    places = [track.at(int(rows[row])) for row in at]
    if len(at) == 2:
        return f"{places[0]} and {places[1]} are swapped"
    return f"{len(at)} steps hold each other's values, from {places[0]} to {places[-1]}"


def _checksum(rows: np.ndarray) -> int:
    """A number that does not depend on the order of the rows, to spare most comparisons a sort."""
    return 0 if rows.dtype.kind == "O" else int(words(parts(rows)).sum(dtype=np.uint64))


def _rows(rows: np.ndarray) -> list[Any]:
    if rows.dtype.kind == "O":
        return [tuple(row.reshape(-1).tolist()) for row in rows.reshape(len(rows), -1)]
    return [row.tobytes() for row in rows]


def _point(
    track: Track,
    rows: np.ndarray,
    expected: np.ndarray,
    got: np.ndarray,
    gaps: np.ndarray,
    at: tuple[int, ...],
) -> Point:
    row = int(rows[at[0]])
    e, g = expected[at], got[at]
    where, steps, index = track.at(row), tuple(track.steps[row].tolist()), at[1:]
    if expected.dtype.kind == "O":
        return Point(where, steps, index, e, g, "", "", None, None, None, "")
    p, q = (parts(np.asarray(side)).reshape(-1) for side in (e, g))
    inexact = jnp.issubdtype(expected.dtype, jnp.inexact)
    apart = int(distance(p, q).max()) if inexact else None
    absolute = float(gaps[at])
    size = float(np.abs(np.asarray(e).astype(np.complex128)))
    defined = np.isfinite(absolute) and expected.dtype != np.bool_
    return Point(
        where,
        steps,
        index,
        expected=str(e),
        got=str(g),
        expected_hex=_bits(p) if inexact else "",
        got_hex=_bits(q) if inexact else "",
        absolute=absolute if defined else None,
        relative=absolute / size if defined and size and np.isfinite(size) else None,
        ulp=None if apart in (None, NO_DISTANCE) else apart,
        note=_note(p, q) if inexact else "",
    )


def _bits(numbers: np.ndarray) -> str:
    digits = 2 * numbers.dtype.itemsize
    texts = [f"0x{int(word):0{digits}x}" for word in words(np.ascontiguousarray(numbers))]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _note(p: np.ndarray, q: np.ndarray) -> str:
    if (is_nan(p) != is_nan(q)).any():
        return "NaN on one side"
    unlike_bits = words(p) != words(q)
    if is_nan(p[unlike_bits]).any():
        return "NaN payload"
    return "sign of zero" if (p[unlike_bits] == q[unlike_bits]).all() else ""
