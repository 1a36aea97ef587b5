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

A newer schema is refused. When the schema changes, `parse` goes on reading the older ones: the
version in the first line says how.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jaxtap_core.codec import dtype_name, dtype_named, row_texts, rows_from
from jaxtap_core.environment import Environment
from jaxtap_core.tracks import Place, Track

#: Version of the format. A reader knows this one and all older ones.
SCHEMA = 1

#: Columns of more elements than this lie in a binary file.
TEXT_ELEMENTS = 1000

_PREVIEW = 12  # rows of such a column that are shown
_HEADER = "# jaxtap snapshot, schema "
_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")


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
    lines = [f"{_HEADER}{SCHEMA}"]
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
        labels = None
        if is_plain(track):
            yield "value"
        else:
            yield f"stream {json.dumps({**asdict(track.place), 'total': track.total})}"
            yield f"index {json.dumps(_index_form(track))}"
            labels = _labels(track)
            rows = irregular_index(track)
            if rows is not None:
                numbers = [str(row) for row in range(len(rows))]
                yield from _dump_column("rows", "index", rows, numbers, digests.get(id(track)))
        for leaf, column in track.leaves.items():
            yield from _dump_column("leaf", leaf, column, labels, digests.get(id(column)))
    yield "end"


def _dump_column(
    word: str, name: str, column: np.ndarray, labels: Sequence[str] | None, digest: str | None
) -> Iterator[str]:
    shape = column.shape if labels is not None else column.shape[1:]
    head = f"{word} {json.dumps(name)} {_dtype_text(column.dtype)} {json.dumps(shape)}"
    rows, own = table(column, labels)
    if digest is None:
        yield head
        yield from (f"  {label}: {text}" for label, text in zip(own, _texts(rows), strict=True))
    else:
        yield f"{head} in {digest}"
        yield from (f"  ~ {line}" for line in _preview(rows, own))


def table(column: np.ndarray, labels: Sequence[str] | None) -> tuple[np.ndarray, list[str]]:
    """A column as rows with a label each; a plain value, without labels, by its first axis."""
    if labels is not None:
        return column, list(labels)
    if column.ndim == 1:
        return column, ["value"]
    return column[0], [f"[{i}]" for i in range(column.shape[1])]


def _texts(rows: np.ndarray) -> list[str]:
    if rows.dtype.kind != "O":
        return row_texts(rows, shortest=True)
    if rows.ndim == 1:
        return rows.tolist()
    return [f"[{', '.join(row.reshape(-1).tolist())}]" for row in rows]


def _preview(rows: np.ndarray, labels: Sequence[str]) -> Iterator[str]:
    shown = np.unique(np.linspace(0, len(rows) - 1, _PREVIEW).round().astype(int))
    for i in shown:
        if rows.ndim == 1:
            yield f"{labels[i]}: {_texts(rows[i : i + 1])[0]}"
        elif rows.dtype.kind in "biuf" and rows[i].size:
            yield f"{labels[i]}: min {rows[i].min()!s}, max {rows[i].max()!s}"


def _dtype_text(dtype: np.dtype) -> str:
    return "json" if dtype.kind == "O" else dtype_name(dtype)


def _dtype_of(text: str) -> np.dtype:
    return np.dtype(object) if text == "json" else dtype_named(text)


def is_plain(track: Track) -> bool:
    """Whether the track is of a value, not of a stream."""
    return track.place == Place() and track.depth == 0 and track.length == 1


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
        grid = (index.max(axis=0) + 1).tolist()
        if np.prod(grid, dtype=float) == len(index) and np.array_equal(index, _grid(grid)):
            return {"grid": grid}
    return None


def _grid(sizes: Sequence[int]) -> np.ndarray:
    return np.indices(sizes).reshape(len(sizes), -1).T.astype(np.int64)


def _index_form(track: Track) -> dict[str, Any]:
    form: dict[str, Any] = {"depth": track.depth}
    if track.lanes is not None:
        form["lanes"] = int(track.lanes.shape[1])
    if track.device is not None:
        form["device"] = True
    return form | (_regular(_index(track)) or {"rows": track.length})


def _labels(track: Track) -> list[str] | None:
    """What stands before the colon in each row of a stream; ``None`` for a plain value."""
    if is_plain(track):
        return None
    columns = [map(str, axis) for axis in track.steps.T.tolist()]
    labels = [",".join(parts) for parts in zip(*columns, strict=True)] or [""] * track.length
    if track.lanes is not None:
        lanes = [",".join(map(str, lane)) for lane in track.lanes.tolist()]
        labels = [f"{label} lane {lane}" for label, lane in zip(labels, lanes, strict=True)]
    if track.device is not None:
        device = track.device.tolist()
        labels = [f"{label} device {d}" for label, d in zip(labels, device, strict=True)]
    return [label.strip() or f"event {row}" for row, label in enumerate(labels)]


def parse(text: str, path: str, read: Callable[[Stored, str], np.ndarray]) -> dict[str, Entry]:
    """Read a file.

    Args:
        text: its content.
        path: its path, for messages.
        read: loads a large index, given its name for messages.

    Returns:
        its entries by name, in order; large columns are `Stored`.

    Raises:
        DamagedSnapshotError: the text is not what `dump` writes; the message says where and what
            to do.
    """
    return _Parser(text, path, read).entries()


class _Parser:
    """Reads lines, one ahead."""

    def __init__(self, text: str, path: str, read: Callable[[Stored, str], np.ndarray]) -> None:
        self.lines = text.replace("\r\n", "\n").split("\n")
        self.path = path
        self.read = read
        self.number = 0

    def error(self, reason: object) -> DamagedSnapshotError:
        return DamagedSnapshotError(
            f"{self.path}, line {min(self.number + 1, len(self.lines))}: {reason}. "
            "The file was left as it is: restore it, or delete it and run --snapshot-update"
        )

    def peek(self) -> str:
        if self.number >= len(self.lines):
            raise self.error("damaged: the file ends in the middle of an entry")
        line = self.lines[self.number]
        if line.startswith(_CONFLICT):
            raise self.error("a merge conflict was left here")
        return line

    def take(self) -> str:
        line = self.peek()
        self.number += 1
        return line

    def rest(self, word: str) -> str:
        """The line, which must start with ``word``, without it."""
        line = self.peek()
        if line != word and not line.startswith(f"{word} "):
            raise self.error(f"damaged: expected {word!r}, found {line[:60]!r}")
        self.number += 1
        return line[len(word) :].strip()

    def entries(self) -> dict[str, Entry]:
        head = self.peek()
        if not head.startswith(_HEADER):
            raise self.error("damaged: this is not a jaxtap snapshot")
        version = head.removeprefix(_HEADER)
        if version != str(SCHEMA):
            raise self.error(f"written in schema {version}; this pytest-jaxtap reads {SCHEMA}")
        self.number += 1
        found: dict[str, Entry] = {}
        while self.number < len(self.lines):
            if not self.peek():
                self.number += 1
                continue
            start = self.number
            try:
                name = json.loads(self.rest("entry"))
                if name in found:
                    raise self.error(f"damaged: a second entry {name!r}")
                tracks, environment = self._entry()
                found[name] = Entry(tracks, environment, tuple(self.lines[start : self.number]))
            except DamagedSnapshotError:
                raise
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                self.number -= 1
                raise self.error(f"damaged: {error}") from None
        return found

    def _entry(self) -> tuple[tuple[Track, ...], Environment]:
        self.rest("environment")
        environment = {}
        while self.peek().startswith("  "):
            key, _, value = self.take().strip().partition(": ")
            environment[key] = json.loads(value)
        tracks = []
        while self.peek() != "end":
            tracks.append(self._track())
        self.number += 1
        return tuple(tracks), environment

    def _track(self) -> Track:
        if self.peek() == "value":
            self.number += 1
            empty = Track(Place(), {}, np.empty((1, 0), np.int32))
        else:
            place = json.loads(self.rest("stream"))
            total = place.pop("total")
            empty = self._steps(Place(**place), total)
        leaves: dict[str, Any] = {}
        labels = _labels(empty)
        while self.peek().startswith("leaf "):
            name, column = self._column("leaf", labels)
            leaves[name] = column
        return Track(empty.place, leaves, empty.steps, empty.lanes, empty.device, empty.total)

    def _steps(self, place: Place, total: int | None) -> Track:
        form = json.loads(self.rest("index"))
        depth, lanes = int(form["depth"]), int(form.get("lanes", 0))
        width = depth + lanes + ("device" in form)
        if "range" in form:
            index = np.arange(*form["range"])[:, None]
        elif "grid" in form:
            index = _grid(form["grid"])
        else:
            labels = [str(i) for i in range(form["rows"])]
            _, index = self._column("rows", labels)
            if isinstance(index, Stored):
                index = self.read(index, "index")
        if index.shape[1] != width:
            raise ValueError(f"an index of {index.shape[1]} columns, expected {width}")
        index = index.astype(np.int32)
        return Track(
            place,
            {},
            index[:, :depth],
            index[:, depth : depth + lanes] if "lanes" in form else None,
            index[:, -1] if "device" in form else None,
            total,
        )

    def _column(self, word: str, labels: Sequence[str] | None) -> tuple[str, Any]:
        match = re.fullmatch(r'("(?:[^"\\]|\\.)*") (\S+) (\[.*?\])(?: in (\w+))?', self.rest(word))
        if match is None:
            raise ValueError(f"not the head of a {word}")
        name, dtype, shape = json.loads(match[1]), _dtype_of(match[2]), tuple(json.loads(match[3]))
        if labels is None:
            labels = [f"[{i}]" for i in range(shape[0])] if shape else ["value"]
            inner, shape = shape[1:], (1, *shape)
        else:
            inner = shape[1:]
            if shape[:1] != (len(labels),):
                raise ValueError(f"{name} has {shape[:1]} rows, expected {len(labels)}")
        if match[4]:
            while self.peek().startswith("  ~ "):
                self.number += 1
            return name, Stored(match[4], dtype, shape)
        cells = [self._cell(label) for label in labels]
        return name, _rows(cells, dtype, inner).reshape(shape)

    def _cell(self, label: str) -> Any:
        line = self.peek()
        prefix = f"  {label}: "
        if not line.startswith(prefix):
            raise self.error(f"damaged: expected {prefix.strip()!r}, found {line[:60].strip()!r}")
        self.number += 1
        return json.loads(line[len(prefix) :])


def _rows(cells: list[Any], dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    if dtype.kind != "O":
        return rows_from(cells, dtype, shape, exact=False)
    flat = cells if not shape else [item for cell in cells for item in cell]
    column = np.empty(len(flat), object)
    for i, item in enumerate(flat):
        column[i] = json.dumps(item)
    return column.reshape(len(cells), *shape)
