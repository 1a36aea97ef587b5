"""PYTEST_DONT_REWRITE

What a page shows of a comparison: each column, expected and observed, and how they differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from jaxtap_core.compare.diff import Difference, Structural, by_key
from jaxtap_core.compare.leaf_diff import LeafDifference
from jaxtap_core.compare.table import Track
from jaxtap_core.telemetry.codec import dtype_name
from pytest_jaxtap.report.page.packed import pack
from pytest_jaxtap.report.page.points import Drawing
from pytest_jaxtap.report.wire import Record

Found = Structural | LeafDifference


def curves(expected: Sequence[Track], got: Sequence[Track], difference: Difference) -> list[Record]:
    """One plain dict a column (two for complex numbers), in the order of the tracks.

    Returns:
        ``stream``, ``leaf``, ``type``; ``verdict``: ``"equal"``, ``"within tolerance"``,
        ``"different"``, ``"missing"``, ``"extra"``; ``text``: lines on how it differs; ``caption``:
        what is drawn; ``data``: the packed points (`points.Drawing.points`), empty where there is
        nothing to draw.
    """
    left, right = by_key(expected), by_key(got)
    return [
        curve
        for key in dict.fromkeys([*left, *right])
        for curve in _of_track(left.get(key), right.get(key), difference)
    ]


def _of_track(a: Track | None, b: Track | None, difference: Difference) -> Iterator[Record]:
    title = str(next(track for track in (a, b) if track is not None).key)
    items = [item for item in difference.items if item.stream == title]
    for name in dict.fromkeys([*(a.leaves if a else ()), *(b.leaves if b else ())]):
        x, y = (track.leaves.get(name) if track else None for track in (a, b))
        about = [item for item in items if item.leaf in ("", name)]
        for part, e, g in _real(x, y):
            found = [item for item in about if isinstance(item, LeafDifference)]
            limits = (
                None if part else difference.tolerances.of_column(name)
            )  # that of a complex number is not one of its parts
            drawing = Drawing(a, b, e, g, found, limits)
            yield {
                "stream": title,
                "leaf": name + part,
                "type": " / ".join(dict.fromkeys(_type(side) for side in (x, y) if side is not None)),
                "verdict": _verdict(e, g, about, drawing),
                "text": [line for item in about for line in (item.headline, *(f"  {d}" for d in item.details))],
                "caption": drawing.caption,
                "data": pack(json.dumps(drawing.points(), allow_nan=False)) if drawing.size > 1 else "",
            }


def _real(x: np.ndarray | None, y: np.ndarray | None) -> Iterator[tuple[str, np.ndarray | None, np.ndarray | None]]:
    """A column as columns of real numbers."""
    if not any(side is not None and side.dtype.kind == "c" for side in (x, y)):
        yield "", x, y
        return
    for part, take in (("real", np.real), ("imaginary", np.imag)):
        yield f" ({part})", None if x is None else take(x), None if y is None else take(y)


def _type(column: np.ndarray) -> str:
    shape = column.shape[1:]
    name = "text" if column.dtype.kind == "O" else dtype_name(column.dtype)
    return name + (str(list(shape)) if shape else "")


def _verdict(x: np.ndarray | None, y: np.ndarray | None, items: Sequence[Found], drawing: Drawing) -> str:
    if x is None or y is None:
        return "extra" if x is None else "missing"
    if items:
        return "different"
    return "within tolerance" if drawing.apart else "equal"
