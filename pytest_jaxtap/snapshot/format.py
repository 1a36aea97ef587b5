"""The text of a snapshot file: entries of a test in the order it asserts them, one value a line.

::

    # jaxtap snapshot, schema 1

    entry "test_adaptation"
    environment
      jax: "0.10.2"
    stream {"program": "warmup", "call": 0, "path": "scan[0]", ...}
    index {"depth": 1, "range": [0, 500, 1]}
    leaf "step_size" float32 [500]
      0: 0.1
      1: 0.098765
    end

Floats are the shortest decimals that round to their bits; NaN carries its bits. A column of more
than `TEXT_ELEMENTS` elements lies in a binary file beside (see `snapshot_arrays`); its digest is
here, and a few of its rows in lines that start with ``~``, for the reviewer only. The words before
a colon are checked when read, so an entry that was merged by hand from two is found.

`snapshot_parse` reads it. A newer schema is refused; when the schema changes, the older ones go on
being read: the version in the first line says how.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from jaxtap_core.compare.table import Track, TrackKey
from jaxtap_core.telemetry.codec import dtype_name, row_texts
from jaxtap_core.telemetry.environment import Environment

#: Version of the format. A reader knows this one and all older ones.
SCHEMA = 1

#: Columns of more elements than this lie in a binary file.
TEXT_ELEMENTS = 1000

_PREVIEW = 12  # rows of such a column that are shown
HEADER = "# jaxtap snapshot, schema "
#: Before the colon of a value that is no array.
SCALAR = "value"


class DamagedSnapshotError(ValueError):
    """A snapshot file that cannot be read; nothing overwrites it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A column that lies in a binary file: its name there, and how to read it."""

    digest: str
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """One snapshot: the tracks of a value and the environment they were made in.

    Attributes:
        tracks: their columns are arrays, or `Stored` where they have not been loaded yet.
        environment: the fingerprint.
        lines: its text, where it comes from a file; kept as it is when other entries change.
    """

    tracks: tuple[Track, ...]
    environment: Environment
    lines: tuple[str, ...] = ()


def dump(entries: Mapping[str, Entry], digests: Mapping[int, str]) -> str:
    """The text of a file.

    Args:
        entries: by name, in order.
        digests: of the large columns of new entries, by ``id`` of the array; of large indices, by
            ``id`` of the track (see `snapshot_arrays.store`).
    """
    lines = [f"{HEADER}{SCHEMA}"]
    for name, entry in entries.items():
        lines += ["", *(entry.lines or _dump_entry(name, entry, digests))]
    return "\n".join([*lines, ""])


def named_files(text: str) -> set[str]:
    """The digests of the binary files that a text names."""
    return set(re.findall(r" in ([0-9a-f]{64})$", text, re.MULTILINE))


def _dump_entry(name: str, entry: Entry, digests: Mapping[int, str]) -> Iterator[str]:
    yield f"entry {json.dumps(name)}"
    yield "environment"
    for key, value in entry.environment.items():
        yield f"  {key}: {json.dumps(value)}"
    for track in entry.tracks:
        if is_plain(track):
            yield "value"
        else:
            yield f"stream {json.dumps({**asdict(track.key), 'total': track.total})}"
            yield f"index {json.dumps(_index_form(track))}"
            index = irregular_index(track)
            if index is not None:
                yield from _dump_column("rows", "index", index, str, digests.get(id(track)))
        for leaf, column in track.leaves.items():
            digest = digests.get(id(column))
            if is_plain(track):  # its one row is left out, and it is shown along its first axis
                yield from _dump_column("leaf", leaf, column[0:1].reshape(column.shape[1:]), plain_label, digest)
            else:
                yield from _dump_column("leaf", leaf, column, partial(stream_label, track), digest)
    yield "end"


def _dump_column(
    word: str, name: str, column: np.ndarray, label: Callable[[int], str], digest: str | None
) -> Iterator[str]:
    head = f"{word} {json.dumps(name)} {_dtype_text(column.dtype)} {json.dumps(column.shape)}"
    rows = column if column.ndim else column[None]
    label = label if column.ndim else lambda _: SCALAR
    if digest is None:
        yield head
        yield from (f"  {label(row)}: {text}" for row, text in enumerate(_texts(rows)))
    else:
        yield f"{head} in {digest}"
        yield from (f"  ~ {line}" for line in _preview(rows, label))


def plain_label(row: int) -> str:
    """What stands before the colon in the rows of an array."""
    return f"[{row}]"


def stream_label(track: Track, row: int) -> str:
    """What stands before the colon in the rows of a stream: ``57``, ``3,57 lane 2 device 0``."""
    label = ",".join(map(str, track.steps[row].tolist()))
    if track.lanes is not None:
        label += f" lane {','.join(map(str, track.lanes[row].tolist()))}"
    if track.device is not None:
        label += f" device {track.device[row]}"
    return label.strip() or f"event {row}"


def _texts(rows: np.ndarray) -> list[str]:
    if rows.dtype.kind != "O":
        return row_texts(rows, shortest=True)
    if rows.ndim == 1:
        return rows.tolist()
    return [f"[{', '.join(row.reshape(-1).tolist())}]" for row in rows]


def _preview(rows: np.ndarray, label: Callable[[int], str]) -> Iterator[str]:
    shown = np.unique(np.linspace(0, len(rows) - 1, _PREVIEW).round().astype(int))
    for i in map(int, shown):
        if rows.ndim == 1:
            yield f"{label(i)}: {_texts(rows[i : i + 1])[0]}"
        elif rows.dtype.kind in "biuf" and rows[i].size:
            yield f"{label(i)}: min {rows[i].min()!s}, max {rows[i].max()!s}"


def _dtype_text(dtype: np.dtype) -> str:
    return "json" if dtype.kind == "O" else dtype_name(dtype)


def is_plain(track: Track) -> bool:
    """Whether the track is of a value, not of a stream."""
    return track.key == TrackKey() and track.depth == 0 and track.length == 1


def irregular_index(track: Track) -> np.ndarray | None:
    """Steps, lanes and device of each row side by side, where no short form says the same."""
    index = _index(track)
    return None if _regular(index) is not None else index


def _index(track: Track) -> np.ndarray:
    columns = [track.steps]
    if track.lanes is not None:
        columns.append(track.lanes)
    if track.device is not None:
        columns.append(track.device[:, None])
    return np.concatenate(columns, axis=1).astype(np.int64)


def _regular(index: np.ndarray) -> dict[str, Any] | None:
    """The index in short: a range of steps, or every combination of a grid; ``None`` if neither."""
    if index.shape[1] == 1 and len(index) > 1:
        first, second, last = (int(index[i, 0]) for i in (0, 1, -1))
        if second > first and np.array_equal(index[:, 0], np.arange(first, last + 1, second - first)):
            return {"range": [first, last + 1, second - first]}
    if len(index) and index.shape[1]:
        sizes = (index.max(axis=0) + 1).tolist()
        if np.prod(sizes, dtype=float) == len(index) and np.array_equal(index, full_grid(sizes)):
            return {"grid": sizes}
    return None


def full_grid(sizes: Sequence[int]) -> np.ndarray:
    return np.indices(sizes).reshape(len(sizes), -1).T.astype(np.int64)


def _index_form(track: Track) -> dict[str, Any]:
    form: dict[str, Any] = {"depth": track.depth}
    if track.lanes is not None:
        form["lanes"] = int(track.lanes.shape[1])
    if track.device is not None:
        form["device"] = True
    return form | (_regular(_index(track)) or {"rows": track.length})
