"""Reading the text of a snapshot file (see `snapshot_format`); what is damaged is told, never guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxtap_core.compare.table import Track, TrackKey
from jaxtap_core.telemetry.codec import dtype_named, rows_from
from jaxtap_core.telemetry.environment import Environment
from pytest_jaxtap.snapshot.format import (
    HEADER,
    SCALAR,
    SCHEMA,
    DamagedSnapshotError,
    Entry,
    Stored,
    full_grid,
    is_plain,
    plain_label,
    stream_label,
)

_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")


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
        if not head.startswith(HEADER):
            raise self.error("damaged: this is not a jaxtap snapshot")
        version = head.removeprefix(HEADER)
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
            empty = Track(TrackKey(), {}, np.empty((1, 0), np.int32))
        else:
            place = json.loads(self.rest("stream"))
            total = place.pop("total")
            empty = self._steps(TrackKey(**place), total)
        leaves: dict[str, Any] = {}
        while self.peek().startswith("leaf "):
            if is_plain(empty):
                name, column = self._column("leaf", plain_label)
                column = self._in_one_row(column)
            else:
                name, column = self._column("leaf", partial(stream_label, empty), empty.length)
            leaves[name] = column
        return Track(empty.key, leaves, empty.steps, empty.lanes, empty.device, empty.total)

    def _steps(self, place: TrackKey, total: int | None) -> Track:
        form = json.loads(self.rest("index"))
        depth, lanes = int(form["depth"]), int(form.get("lanes", 0))
        width = depth + lanes + ("device" in form)
        if "range" in form:
            index = np.arange(*form["range"])[:, None]
        elif "grid" in form:
            index = full_grid(form["grid"])
        else:
            _, index = self._column("rows", str, form["rows"])
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

    @staticmethod
    def _in_one_row(column: np.ndarray | Stored) -> np.ndarray | Stored:
        if isinstance(column, Stored):
            return Stored(column.digest, column.dtype, (1, *column.shape))
        return column[None]

    def _column(self, word: str, label: Callable[[int], str], length: int | None = None) -> tuple[str, Any]:
        match = re.fullmatch(r'("(?:[^"\\]|\\.)*") (\S+) (\[.*?\])(?: in (\w+))?', self.rest(word))
        if match is None:
            raise ValueError(f"not the head of a {word}")
        name, dtype, shape = json.loads(match[1]), _dtype_of(match[2]), tuple(json.loads(match[3]))
        if length is not None and shape[:1] != (length,):
            raise ValueError(f"{name} has {shape[:1]} rows, expected {length}")
        if match[4]:
            while self.peek().startswith("  ~ "):
                self.number += 1
            return name, Stored(match[4], dtype, shape)
        if not shape:
            return name, _rows([self._cell(SCALAR)], dtype, ()).reshape(())
        return name, _rows([self._cell(label(row)) for row in range(shape[0])], dtype, shape[1:])

    def _cell(self, label: str) -> Any:
        line = self.peek()
        prefix = f"  {label}: "
        if not line.startswith(prefix):
            raise self.error(f"damaged: expected {prefix.strip()!r}, found {line[:60].strip()!r}")
        cell = line[len(prefix) :]
        try:
            value = json.loads(cell)
        except ValueError:
            raise self.error(f"damaged: {cell[:60]!r} is no value") from None
        self.number += 1
        return value


def _rows(cells: list[Any], dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    if dtype.kind != "O":
        return rows_from(cells, dtype, shape, exact=False)
    flat = cells if not shape else [item for cell in cells for item in cell]
    column = np.empty(len(flat), object)
    for i, item in enumerate(flat):
        column[i] = json.dumps(item)
    return column.reshape(len(cells), *shape)


def _dtype_of(text: str) -> np.dtype:
    return np.dtype(object) if text == "json" else dtype_named(text)
