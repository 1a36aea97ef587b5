"""PYTEST_DONT_REWRITE

The text of a snapshot file: entries of a test in the order it asserts them, one value a line.

::

    # jaxtap snapshot, schema 2

    entry "test_adaptation"
    environment
      jax: "0.10.2"
    stream {"program": "warmup", "call": 0, "path": "scan[0]", ...}
    index {"depth": 1, "range": [0, 500, 1]}
    leaf "step_size" float32 [500]
      0: 0.1
      1: 0.098765
    end 3f1c0a9d52e7b864

Floats are the shortest decimals that round to their bits; NaN carries its bits. A column of more
than `TEXT_ELEMENTS` elements lies in a binary file beside (see `arrays`); its digest and its length
are here, and a few of its rows in lines that start with ``~``, for the reviewer only. A plain value
stands under ``value`` in place of ``stream`` and ``index``, and lines such as ``type ["a", "tuple"]``
say what its columns do not.

After ``end`` stands a digest of all lines of the entry but those of the environment: an entry that was
changed or merged by hand is no run's. What a line says is checked besides, so most damage is found
where it is.

`parse` reads it. Another schema is refused: version 1 did not keep the types of plain values.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from jaxtap_core.compare.table import Track, TrackKey
from jaxtap_core.compare.values import Types
from jaxtap_core.telemetry.codec import dtype_name, row_texts
from jaxtap_core.telemetry.environment import Environment
from pytest_jaxtap.snapshot.index import Index

#: Version of the format.
SCHEMA = 2

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
    """A column that lies in a binary file: its name there, its length in bytes, what it holds, where it is named."""

    digest: str
    size: int
    dtype: np.dtype
    shape: tuple[int, ...]
    line: int


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """One snapshot: the tracks of a value and the environment they were made in."""

    tracks: tuple[Track, ...]
    environment: Environment


@dataclass(frozen=True, eq=False, slots=True)
class Draft:
    """A track as a text has it: its large columns are not loaded, its index is not spread out.

    Attributes:
        index: ``None`` for a plain value.
        leaves: by name; their first axis is that of the rows.
    """

    key: TrackKey
    total: int | None
    index: Index | None
    types: Types
    leaves: dict[str, np.ndarray | Stored]


@dataclass(frozen=True, eq=False, slots=True)
class WrittenEntry:
    """One snapshot of a file; it keeps its lines when others change."""

    drafts: tuple[Draft, ...]
    environment: Environment
    lines: tuple[str, ...]


def dump(entries: Mapping[str, Entry | WrittenEntry], files: Mapping[int, tuple[str, int]]) -> str:
    """The text of a file.

    Args:
        entries: by name, in order.
        files: digest and length of the large columns of new entries, by ``id`` of the array; of large
            indices, by ``id`` of the track (see `arrays.store`).
    """
    lines = [f"{HEADER}{SCHEMA}"]
    for name, entry in entries.items():
        lines += ["", *(entry.lines if isinstance(entry, WrittenEntry) else _dump_entry(name, entry, files))]
    return "\n".join([*lines, ""])


def named_files(text: str) -> set[str]:
    """The digests of the binary files that a text names."""
    return set(re.findall(r" in ([0-9a-f]{64}), \d+ bytes$", text, re.MULTILINE))


def digest_of(name: str, content: Sequence[str]) -> str:
    """The digest of an entry: of its name and its lines between the environment and ``end``."""
    return hashlib.sha256("\n".join([name, *content]).encode()).hexdigest()[:16]


def _dump_entry(name: str, entry: Entry, files: Mapping[int, tuple[str, int]]) -> list[str]:
    environment = [f"  {key}: {json.dumps(value)}" for key, value in entry.environment.items()]
    content = list(_content(entry.tracks, files))
    head = [f"entry {json.dumps(name)}", "environment"]
    return [*head, *environment, *content, f"end {digest_of(name, content)}"]


def _content(tracks: Sequence[Track], files: Mapping[int, tuple[str, int]]) -> Iterator[str]:
    seen: list[str] = []
    for track in tracks:
        if is_plain(track):
            yield "value"
            yield from (f"type {json.dumps(pair)}" for pair in track.types)
            for leaf, column in track.leaves.items():  # its one row is left out, and it is shown along its first axis
                yield from _dump_column(
                    "leaf", leaf, column[0:1].reshape(column.shape[1:]), plain_label, files.get(id(column))
                )
            continue
        index = index_of(track)
        place = json.dumps({**asdict(track.key), "total": track.total})
        seen.append(place)
        yield f"stream {place}{f' again {seen.count(place) - 1}' if seen.count(place) > 1 else ''}"
        yield f"index {json.dumps(index.form())}"
        if index.told is not None:
            yield from _dump_column("rows", "index", index.told, str, files.get(id(track)))
        for leaf, column in track.leaves.items():
            yield from _dump_column("leaf", leaf, column, index.label, files.get(id(column)))


def _dump_column(
    word: str, name: str, column: np.ndarray, label: Callable[[int], str], file: tuple[str, int] | None
) -> Iterator[str]:
    head = f"{word} {json.dumps(name)} {_dtype_text(column.dtype)} {json.dumps(column.shape)}"
    rows = column if column.ndim else column[None]
    label = label if column.ndim else lambda _: SCALAR
    if file is None:
        yield head
        yield from (f"  {label(row)}: {text}" for row, text in enumerate(_texts(rows)))
    else:
        yield f"{head} in {file[0]}, {file[1]} bytes"
        yield from (f"  ~ {line}" for line in _preview(rows, label))


def plain_label(row: int) -> str:
    """What stands before the colon in the rows of an array."""
    return f"[{row}]"


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


def is_large(column: np.ndarray) -> bool:
    """Whether a column lies in a file of its own."""
    return max(column.size, *column.shape[:2]) > TEXT_ELEMENTS  # rows may be empty


def index_of(track: Track) -> Index:
    """The index of a stream: in short where the file holds data for every row, or where rows are few.

    A reader believes a number of rows only as far as the data goes.
    """
    index = Index.of(track)
    warranted = index.length <= TEXT_ELEMENTS or any(column.nbytes for column in track.leaves.values())
    return index if warranted else index.explicit()
