"""Comparing two recordings, or two values of any kind: where they part, and how.

    >>> import numpy as np
    >>> expected = np.float32([0.5, 0.25, 0.125])
    >>> print(diff(expected, expected * np.float32([1, 1 + 2**-23, 1])))
    value: 1 of 3 elements differs, at [1] (1 ulp)
      first [1]: expected 0.25 = 0x3e800000, got 0.25000003 = 0x3e800001; off by 2.98e-08, \
relative 1.19e-07, 1 ulp
      tolerance: exact (default)

Exact means the bits: -0.0 is not 0.0, and a NaN equals only a NaN of the same payload.
Recordings are compared in what they observed; alerts, findings and certificates take no part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxtap_core.compare.leaf_diff import LeafDifference, compare_leaf
from jaxtap_core.compare.table import Track, TrackKey, tracks_of
from jaxtap_core.compare.tolerance import NaN, Tolerances
from jaxtap_core.errors import nearest
from jaxtap_core.records.text import plain
from jaxtap_core.telemetry.codec import dtype_name
from jaxtap_core.telemetry.environment import differences, fingerprint
from jaxtap_core.telemetry.stream import Streamed

_SHOWN = 10  # differences told in full; of the rest only the number


@dataclass(frozen=True, slots=True)
class Structural:
    """A difference that is not in the values.

    Attributes:
        problem: ``"missing"``, ``"extra"`` or ``"renamed stream"``; the same of a ``leaf``;
            ``"missing steps"``, ``"extra steps"``, ``"loop"``, ``"type"``, ``"dtype"`` or ``"shape"``.
        stream: the place of the track, for people.
        leaf: name of the leaf, where it is about one.
        headline: the whole story on one line.
    """

    problem: str
    stream: str
    leaf: str
    headline: str
    details: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same content in plain Python types."""
        names = ("problem", "stream", "leaf", "headline")
        return {"text" if n == "headline" else n: getattr(self, n) for n in names}


@dataclass(frozen=True, slots=True)
class Difference:
    """What a comparison found.

    Attributes:
        items: what differs, stream by stream in canonical order.
        environment: what differs between the two environments, ``name: (expected, got)``.
        compared: number of streams compared.
        tolerances: what would have passed.
    """

    items: tuple[Structural | LeafDifference, ...]
    environment: dict[str, tuple[Any, Any]]
    compared: int
    tolerances: Tolerances

    @property
    def equal(self) -> bool:
        """Whether nothing differs beyond the tolerance; environments may."""
        return not self.items

    def __bool__(self) -> bool:
        raise TypeError("a difference is neither true nor false: ask for its .equal, or print it")

    def to_dict(self) -> dict[str, Any]:
        """The same content in plain Python types."""
        return {
            "equal": self.equal,
            "compared": self.compared,
            "differences": [item.to_dict() for item in self.items],
            "environment": {name: plain(pair) for name, pair in self.environment.items()},
        }

    def __str__(self) -> str:
        lines = []
        for item in self.items[:_SHOWN]:
            lines += [item.headline, *(f"  {line}" for line in item.details)]
        if len(self.items) > _SHOWN:
            lines.append(f"and {len(self.items) - _SHOWN} more differences")
        if len(self.items) > 1:
            lines[0] += f" (and {len(self.items) - 1} more below)"
        if self.equal:
            lines.append("equal")
        if self.environment:
            lines.append(f"environment: {environment_text(self.environment)}")
        return "\n".join(lines)


def environment_text(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """The differing entries on one line."""
    return ", ".join(f"{name} {_show(a)} -> {_show(b)}" for name, (a, b) in changed.items())


def _show(value: Any) -> str:
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return "none" if value in (None, "") else str(value)


def diff(
    a: Any,
    b: Any,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    ulp: int = 0,
    columns: Mapping[str, Mapping[str, Any]] | None = None,
    nan: NaN = "payload",
) -> Difference:
    """Compare two recordings, or two values (arrays, pytrees, pandas objects).

    Args:
        a: what was expected.
        b: what was got.
        rtol, atol, ulp: what passes besides equal bits (see `jaxtap_core.compare.tolerance.Tolerance`).
        columns: other limits for single columns: ``{"step_size": {"rtol": 1e-5}}``; what such a
            dict does not set is 0.
        nan: ``"payload"``: NaNs are equal if their bits are; ``"any"``: all are.

    Raises:
        TypeError, ValueError: a limit is no number or negative, or a column is in neither of them.
    """
    if nan not in ("payload", "any"):
        raise ValueError(f"nan must be 'payload' or 'any', not {nan!r}")
    changed = {}
    made_in = [side.environment if isinstance(side, Streamed) else None for side in (a, b)]
    if any(one is not None for one in made_in):
        # What comes from no file was made in this process.
        expected, got = (fingerprint() if one is None else one for one in made_in)
        changed = differences(expected, got)
    tolerances = Tolerances.of(rtol, atol, ulp, columns)
    return compare(tracks_of(a), tracks_of(b), tolerances, nan, changed)


def compare(
    expected: Sequence[Track],
    got: Sequence[Track],
    tolerances: Tolerances,
    nan: NaN = "payload",
    environment: dict[str, tuple[Any, Any]] | None = None,
) -> Difference:
    """Compare tracks; `diff` for those who have them already."""
    tolerances.check(name for track in (*expected, *got) for name in track.leaves)
    left, right = by_key(expected), by_key(got)
    lost = {key: track for key, track in left.items() if key not in right}
    new = {key: track for key, track in right.items() if key not in left}
    items: list[Structural | LeafDifference] = []
    for key, track in left.items():
        if key in right:
            items += _compare_track(track, right[key], tolerances, nan)
        else:
            items.append(_lost(track, lost, new))
    items += [
        Structural("extra stream", str(track.key), "", f"extra stream {track.key}"
                   f"{_nearest(track, lost.values())}")
        for track in new.values()
    ]  # fmt: skip
    return Difference(tuple(items), environment or {}, len(left.keys() | right.keys()), tolerances)


def by_key(tracks: Iterable[Track]) -> dict[tuple[TrackKey, int], Track]:
    """Tracks by place; several at one place are told apart by their order."""
    seen: Counter[TrackKey] = Counter()
    found = {}
    for track in tracks:
        found[track.key, seen[track.key]] = track
        seen[track.key] += 1
    return found


def _lost(track: Track, lost: dict[Any, Track], new: dict[Any, Track]) -> Structural:
    """What became of an expected stream; a renamed one is taken out of ``new``."""
    title = str(track.key)
    for key, other in new.items():
        if _same_content(track, other):
            del new[key]
            text = f"stream {title} is now {other.key}, with equal values"
            return Structural("renamed stream", title, "", text)
    text = f"missing stream {title}{_nearest(track, new.values())}"
    return Structural("missing stream", title, "", text)


def _same_content(a: Track, b: Track) -> bool:
    return (
        list(a.leaves) == list(b.leaves)
        and np.array_equal(a.index(), b.index())
        and all(_same_bits(x, b.leaves[name]) for name, x in a.leaves.items())
    )


def _same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    return bool((x == y).all()) if x.dtype.kind == "O" else x.tobytes() == y.tobytes()


def _nearest(track: Track, others: Iterable[Track]) -> str:
    names = [str(other.key) for other in others]
    close = nearest(str(track.key), names)
    return f"; the nearest without a partner is {close[0]}" if close else ""


def _compare_track(a: Track, b: Track, tolerances: Tolerances, nan: NaN) -> Iterator[Structural | LeafDifference]:
    a = replace(a, source=b.source or a.source)
    title = str(a.key)
    where = f" [{title}]" if title else ""
    if a.total != b.total:
        was, now = ("unknown" if total is None else total for total in (a.total, b.total))
        yield Structural("loop", title, "", f"loop length: expected {was}, got {now}{where}")
    yield from _types_and_names(a, b, where)
    left, right = a.index(), b.index()
    if left.shape[1] != right.shape[1]:
        text = f"nesting: expected {_nesting(a)}, got {_nesting(b)}{where}"
        yield Structural("loop", title, "", text)
        return
    rows_a, rows_b = aligned(left, right)
    for problem, track, rows in (("missing", a, rows_a), ("extra", b, rows_b)):
        alone = np.ones(track.length, bool)
        alone[rows] = False
        rest = np.flatnonzero(alone)
        if len(rest):
            text = f"{problem} {_steps(track, rest)}: expected {a.length} events, got {b.length}"
            yield Structural(f"{problem} steps", title, "", text + where)
    for name, x in a.leaves.items():
        if name not in b.leaves:
            continue
        y = b.leaves[name]
        if x.dtype != y.dtype:
            text = f"{name}: dtype: expected {_dtype(x)}, got {_dtype(y)}{where}"
            yield Structural("dtype", title, name, text)
        if x.shape[1:] != y.shape[1:]:
            text = f"{name}: shape: expected {x.shape[1:]}, got {y.shape[1:]}{where}"
            yield Structural("shape", title, name, text)
        elif x.dtype == y.dtype:
            limits = tolerances.of_column(name)
            found = compare_leaf(a, name, rows_a, x[rows_a], y[rows_b], limits, nan)
            if found is not None:
                yield found


def _types_and_names(a: Track, b: Track, where: str) -> Iterator[Structural]:
    """What differs in structure: types of what both have, then leaves, then types that only one has."""
    names = list(_leaf_names(a, b, where))
    left, right = dict(a.types), dict(b.types)
    common = [name for name in left if name in right]
    for name in common:
        if left[name] != right[name]:
            yield _type_differs(a, name, left[name], right[name])
    yield from names
    for name in () if names else left.keys() ^ right.keys():
        leaf = name or "value"
        plain = [_column_type(track, leaf) for track in (a, b)]
        yield _type_differs(a, name, left.get(name, plain[0]), right.get(name, plain[1]))


def _column_type(track: Track, leaf: str) -> str:
    """What a leaf is whose dtype says it all."""
    return f"plain {_dtype(track.leaves[leaf])}" if leaf in track.leaves else "nothing"


def _type_differs(track: Track, name: str, expected: str, got: str) -> Structural:
    title = name or "the value"
    leaf = name or "value"
    text = f"{title}: type: expected {expected}, got {got}"
    return Structural("type", str(track.key), leaf if leaf in track.leaves else "", text)


def _leaf_names(a: Track, b: Track, where: str) -> Iterator[Structural]:
    title = str(a.key)
    lost = [name for name in a.leaves if name not in b.leaves]
    new = [name for name in b.leaves if name not in a.leaves]
    for name in lost:
        twin = next((n for n in new if _same_bits(a.leaves[name], b.leaves[n])), None)
        if twin is not None:
            new.remove(twin)
            text = f"leaf {name} is now called {twin}, with equal values{where}"
            yield Structural("renamed leaf", title, name, text)
        else:
            text = f"missing leaf {name} (got {', '.join(new) or 'no other'}){where}"
            yield Structural("missing leaf", title, name, text)
    for name in new:
        yield Structural("extra leaf", title, name, f"extra leaf {name}{where}")


def _nesting(track: Track) -> str:
    lanes = "no lanes" if track.lanes is None else f"lanes of {track.lanes.shape[1]} axes"
    return f"{track.depth} loops with {lanes}{'' if track.device is None else ', several devices'}"


def _dtype(column: np.ndarray) -> str:
    return "objects" if column.dtype.kind == "O" else dtype_name(column.dtype)


def aligned(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of what both have, in the order of the left."""
    if np.array_equal(left, right):
        rows = np.arange(len(left))
        return rows, rows
    x, y = (np.ascontiguousarray(side).view(f"V{8 * side.shape[1]}").reshape(-1) for side in (left, right))
    _, rows_a, rows_b = np.intersect1d(x, y, return_indices=True)
    order = np.argsort(rows_a)
    return rows_a[order], rows_b[order]


def _steps(track: Track, rows: np.ndarray) -> str:
    """The steps of some rows, runs of them shortened: ``steps 3, 7-9``."""
    if track.depth != 1 or track.lanes is not None or track.device is not None:
        places = list(dict.fromkeys(track.at(int(row)) or "event" for row in rows))
        return ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
    steps = np.unique(track.steps[rows, 0])
    ends = np.flatnonzero(np.diff(steps) != 1)
    runs = list(zip(steps[np.r_[0, ends + 1]], steps[np.r_[ends, -1]], strict=True))
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:5]]
    more = f" and {len(runs) - 5} more runs" if len(runs) > 5 else ""
    return f"{'step' if len(steps) == 1 else 'steps'} {', '.join(texts)}{more}"
