"""Reading the text of a snapshot file (see `format`); what is damaged is told, never guessed.

A number of rows, or the shape of an array, is believed only as far as the file has data for it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxtap_core.compare.table import TrackKey
from jaxtap_core.telemetry.codec import dtype_named, loads, rows_from
from jaxtap_core.telemetry.environment import Environment
from pytest_jaxtap.snapshot.format import (
    HEADER,
    SCALAR,
    SCHEMA,
    TEXT_ELEMENTS,
    DamagedSnapshotError,
    Draft,
    Stored,
    WrittenEntry,
    digest_of,
    plain_label,
)
from pytest_jaxtap.snapshot.index import Index

_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")
_COLUMN = re.compile(r'("(?:[^"\\]|\\.)*") (\S+) (\[[\d, ]*\])(?: in ([0-9a-f]{64}), (\d{1,15}) bytes)?')
_STREAM = re.compile(r"(\{.*\})(?: again (\d{1,9}))?")
_PLACE = {"program": str, "call": int, "path": str, "kind": str, "phase": str, "label": str}
_MOST_ITEMS = 2**48  # of an array; no file has data for more


def parse(text: str, path: str, read: Callable[[Stored, str], np.ndarray]) -> dict[str, WrittenEntry]:
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
            f"{self.path}, line {min(self.number + 1, len(self.lines))}: {str(reason)[:200]}. "
            "The file was left as it is: restore it, or delete it and run --snapshot-update"
        )

    def peek(self) -> str:
        if self.number >= len(self.lines):
            raise self.error("damaged: the file ends in the middle of an entry")
        line = self.lines[self.number]
        if line.startswith(_CONFLICT):
            raise self.error("a merge conflict was left here")
        return line

    def rest(self, word: str) -> str:
        """The line, which must start with ``word``, without it."""
        line = self.peek()
        if line != word and not line.startswith(f"{word} "):
            raise self.error(f"damaged: expected {word!r}, found {line[:60]!r}")
        self.number += 1
        return line[len(word) :].strip()

    def entries(self) -> dict[str, WrittenEntry]:
        head = self.peek()
        if not head.startswith(HEADER):
            raise self.error("damaged: this is not a jaxtap snapshot")
        version = head.removeprefix(HEADER)
        if version != str(SCHEMA):
            raise self.error(f"written in schema {version[:20]}; this pytest-jaxtap reads {SCHEMA}")
        self.number += 1
        found: dict[str, WrittenEntry] = {}
        while self.number < len(self.lines):
            if not self.peek():
                self.number += 1
                continue
            try:
                name, entry = self._entry()
            except DamagedSnapshotError:
                raise
            except Exception as error:  # whatever a damaged line may lead to
                self.number -= 1
                raise self.error(f"damaged: {error}") from None
            if name in found:
                raise self.error(f"damaged: a second entry {name!r} ends here")
            found[name] = entry
        return found

    def _entry(self) -> tuple[str, WrittenEntry]:
        start = self.number
        name = loads(self.rest("entry"))
        if not isinstance(name, str):
            raise ValueError("the name of an entry is no text")
        environment = self._environment()
        content = self.number
        drafts = self._drafts()
        end = self.number
        digest = self.rest("end")
        if digest != digest_of(name, self.lines[content:end]):
            self.number = end
            raise self.error(
                f"damaged: the entry {name!r}, which starts in line {start + 1}, is not what was written: "
                "its digest here is of other lines"
            )
        return name, WrittenEntry(drafts, environment, tuple(self.lines[start : self.number]))

    def _environment(self) -> Environment:
        if self.rest("environment"):
            raise ValueError("expected nothing after 'environment'")
        found: Environment = {}
        while self.peek().startswith("  "):
            key, _, value = self.peek().strip().partition(": ")
            self.number += 1
            if key in found:
                raise ValueError(f"{key!r} stands twice in an environment")
            found[key] = loads(value)
        return found

    def _drafts(self) -> tuple[Draft, ...]:
        if self.peek() == "value":
            self.number += 1
            return (self._value(),)
        drafts: list[Draft] = []
        seen: Counter[str] = Counter()
        while not self.peek().startswith("end"):
            drafts.append(self._stream(seen))
        return tuple(drafts)

    def _value(self) -> Draft:
        types: dict[str, str] = {}
        while self.peek().startswith("type "):
            pair = loads(self.rest("type"))
            if not isinstance(pair, list) or list(map(type, pair)) != [str, str]:
                raise ValueError("not a name and a type")
            if pair[0] in types:
                raise ValueError(f"a second type of {pair[0]!r}")
            types[pair[0]] = pair[1]
        leaves: dict[str, np.ndarray | Stored] = {}
        while self.peek().startswith("leaf "):
            name, column = self._column("leaf", plain_label)
            if isinstance(column, Stored):
                column = Stored(column.digest, column.size, column.dtype, (1, *column.shape), column.line)
            else:
                column = column[None]
            self._keep(leaves, name, column)
        return Draft(TrackKey(), None, None, tuple(types.items()), leaves)

    def _stream(self, seen: Counter[str]) -> Draft:
        key, total = self._place(seen)
        form = loads(self.rest("index"))
        index = Index.read(form, self._told)
        leaves: dict[str, np.ndarray | Stored] = {}
        while self.peek().startswith("leaf "):
            name, column = self._column("leaf", index.label, index.length)
            self._keep(leaves, name, column)
        if index.told is None and index.length > TEXT_ELEMENTS and not any(map(_has_data, leaves.values())):
            raise ValueError(f"an index of {index.length} rows, and no data for them")
        return Draft(key, total, index, (), leaves)

    def _place(self, seen: Counter[str]) -> tuple[TrackKey, int | None]:
        match = _STREAM.fullmatch(self.rest("stream"))
        place = loads(match[1]) if match else None
        if match is None or not isinstance(place, dict) or "total" not in place:
            raise ValueError("not the head of a stream")
        if seen[match[1]] != int(match[2] or 0):
            raise ValueError("this stream stands here twice")
        seen[match[1]] += 1
        total = place.pop("total")
        if {field: type(value) for field, value in place.items()} != _PLACE:
            raise ValueError("not the place of a stream")
        if total is not None and (type(total) is not int or total < 0):
            raise ValueError("not the length of a loop")
        return TrackKey(**place), total

    def _told(self, length: int) -> np.ndarray:
        """The numbers of an index that is told row by row."""
        name, table = self._column("rows", str, length)
        return self.read(table, name) if isinstance(table, Stored) else table

    @staticmethod
    def _keep(leaves: dict[str, np.ndarray | Stored], name: str, column: np.ndarray | Stored) -> None:
        if name in leaves:
            raise ValueError(f"a second leaf {name!r} ends here")
        leaves[name] = column

    def _column(
        self, word: str, label: Callable[[int], str], length: int | None = None
    ) -> tuple[str, np.ndarray | Stored]:
        line = self.number + 1
        match = _COLUMN.fullmatch(self.rest(word))
        if match is None:
            raise ValueError(f"not the head of a {word}")
        name, dtype, shape = loads(match[1]), _dtype_of(match[2]), tuple(loads(match[3]))
        size = _elements(shape)
        if length is not None and shape[:1] != (length,):
            raise ValueError(f"{name} has {shape[:1]} rows, expected {length}")
        if match[4]:
            if dtype.kind != "O" and size * dtype.itemsize != int(match[5]):
                raise ValueError(f"{match[5]} bytes for {size} elements of {match[2]}")
            while self.peek().startswith("  ~ "):
                self.number += 1
            return name, Stored(match[4], int(match[5]), dtype, shape, line)
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
            value = loads(cell)
        except ValueError:
            raise self.error(f"damaged: {cell[:60]!r} is no value") from None
        self.number += 1
        return value


def _elements(shape: Sequence[int]) -> int:
    """The number of elements of an array.

    Raises:
        ValueError: no array is that large.
    """
    size = 1
    for length in shape:
        if length > _MOST_ITEMS or size > _MOST_ITEMS:
            raise ValueError("no array is that large")
        size *= length
    return size


def _has_data(column: np.ndarray | Stored) -> bool:
    return (column.size if isinstance(column, Stored) else column.nbytes) > 0


def _rows(cells: list[Any], dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    if dtype.kind != "O":
        return rows_from(cells, dtype, shape, exact=False)
    if shape and any(not isinstance(cell, list) or len(cell) != _elements(shape) for cell in cells):
        raise ValueError(f"expected lists of {_elements(shape)} elements")
    flat = [item for cell in cells for item in cell] if shape else cells
    column = np.empty(len(flat), object)
    for i, item in enumerate(flat):
        column[i] = json.dumps(item)
    return column.reshape(len(cells), *shape)


def _dtype_of(text: str) -> np.dtype:
    return np.dtype(object) if text == "json" else dtype_named(text)
