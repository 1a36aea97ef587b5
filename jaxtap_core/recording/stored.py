"""Reading recordings from JSON Lines files (see `jsonl`): every line checked, every mistake told by its line."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import replace
from typing import Any

from jaxtap_core.recording.jsonl import KEY_FIELDS, SCHEMA, Seal, columns_of
from jaxtap_core.recording.recording import Recording
from jaxtap_core.records.events import Alert, Certificate, Finding
from jaxtap_core.telemetry.codec import decode, dtype_named, loads, rows_from
from jaxtap_core.telemetry.column import Column
from jaxtap_core.telemetry.environment import Environment
from jaxtap_core.telemetry.stream import Stream, StreamKey
from jaxtap_core.telemetry.template import Template


class StoredRecording(Recording):
    """A recording read from a file; it knows the environment it was made in.

    Attributes:
        environment: the fingerprint (see `jaxtap_core.telemetry.environment`); empty where the file has none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made_in: Environment = {}

    @property
    def environment(self) -> Environment:
        return self.made_in


def read_jsonl(path: Any, *, partial: bool = False) -> StoredRecording:
    """Read what `write_jsonl` or a `JSONLSink` wrote.

    Args:
        path: the file.
        partial: take what is there of a file whose writer was killed, instead of raising.

    Returns:
        the recording, bit for bit, with the ``environment`` it was made in.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or of a newer version; the message names the line.
    """
    reader = _Reader(os.fspath(path))
    with open(path, "rb") as file:
        for line in file:
            if partial and not line.endswith(b"\n"):
                break  # cut off in the middle
            reader.take(line.rstrip(b"\r\n"))
    return reader.finish(partial)


class _Reader:
    """Collects lines, then turns them into columns at once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.recording = StoredRecording()
        self.streams: dict[int, Stream] = {}
        self.rows: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        self.number = 0  # of the line
        self.places: Counter[tuple[Any, ...]] = Counter()  # of the streams so far
        self.seen: set[str] = set()  # kinds of records that a file has one of
        self.events: int | None = None  # that the closing line tells
        self.digest = hashlib.sha256()
        self.sealed = True

    def error(self, line: int, reason: object) -> ValueError:
        return ValueError(f"{self.path}, line {line}: {str(reason)[:300]}")

    def take(self, line: bytes) -> None:
        self.number += 1
        try:
            record = loads(line.decode())
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
            if self.events is not None:
                raise ValueError("there are lines after the closing line")
            if self.number == 1:
                self._header(record)
            elif "stream" in record:
                self.rows[record["stream"]].append((self.number, record))
            else:
                self._other(record)
        except KeyError as missing:
            raise self.error(self.number, f"damaged: {missing} is missing or not known") from None
        except Exception as error:  # whatever a damaged line may lead to
            raise self.error(self.number, f"damaged: {error}") from None
        if self.events is None:
            self.digest.update(line + b"\n")
        else:
            head, _, digest = line.rpartition(Seal.MARK.encode())
            self.digest.update(head)
            self.sealed = "sha256" not in record or digest == self.digest.hexdigest().encode() + b'"}'

    def _header(self, record: dict[str, Any]) -> None:
        if record.get("jaxtap") != "recording":
            raise ValueError("this is not a recording: its first line is not a jaxtap header")
        if type(record.get("schema")) is not int:
            raise ValueError("the header has no schema version")
        if record["schema"] > SCHEMA:
            raise ValueError(
                f"written by a newer pytest-jaxtap (schema {record['schema']}, "
                f"this one reads up to {SCHEMA}): upgrade to read it"
            )

    def _other(self, record: dict[str, Any]) -> None:
        recording = self.recording
        if "define" in record:
            self._define(record["define"], record)
        elif "environment" in record:
            recording.made_in = _of_type(self._only("environment", record), dict)
        elif "alert" in record:
            recording.alerts.append(_of_type(decode(record["alert"]), Alert))
        elif "finding" in record:
            recording.findings.append(_of_type(decode(record["finding"]), Finding))
        elif "certificate" in record:
            recording.certificate = _of_type(decode(self._only("certificate", record)), Certificate)
        elif "end" in record:
            end = _of_type(record["end"], dict)
            recording.unobserved = _of_type(end["unobserved"], int)
            recording.unobservable = [_of_type(reason, str) for reason in _of_type(end["unobservable"], list)]
            self.events = _of_type(end["events"], int)
        else:
            raise ValueError(f"unknown record with {', '.join(map(repr, record)) or 'no keys'}")

    def _only(self, kind: str, record: dict[str, Any]) -> Any:
        if kind in self.seen:
            raise ValueError(f"a second {kind}")
        self.seen.add(kind)
        return record[kind]

    def _define(self, number: Any, record: dict[str, Any]) -> None:
        if _of_type(number, int) in self.streams:
            raise ValueError(f"a second stream {number}")
        stream = _stream_from(record, self.places)
        self.rows[number] = []
        self.streams[number] = self.recording.stream(stream.key, record["lanes"], lambda: stream)

    def finish(self, partial: bool) -> StoredRecording:
        if not self.number and not partial:
            raise self.error(1, "the file is empty")
        for number, rows in self.rows.items():
            self._fill(self.streams[number], rows)
        held = sum(map(len, self.rows.values()))
        if not partial:
            if self.events is None:
                raise self.error(
                    self.number,
                    f"the file was cut off after {held} events: its closing line is missing. "
                    "read_jsonl(path, partial=True) takes what is there",
                )
            if self.events != held:
                raise self.error(self.number, f"the file holds {held} events, its closing line says {self.events}")
            if not self.sealed:
                raise self.error(self.number, "damaged: the digest here is not that of the lines before")
        return self.recording

    def _fill(self, stream: Stream, rows: list[tuple[int, dict[str, Any]]]) -> None:
        for line, record in rows:
            values = record.get("values")
            if not isinstance(values, list) or len(values) != len(stream.leaves):
                raise self.error(line, f"damaged: expected {len(stream.leaves)} values")
        for name, column in columns_of(stream):
            self._extend(column, name, [(line, record.get(name)) for line, record in rows])
        for i, leaf in enumerate(stream.leaves):
            cells = [(line, record["values"][i]) for line, record in rows]
            self._extend(leaf, f"values[{i}]", cells)

    def _extend(self, column: Column, name: str, cells: list[tuple[int, Any]]) -> None:
        """Parse a column at once; where that fails, find the line that is to blame."""
        dtype, shape = column.array.dtype, column.array.shape[1:]
        try:
            column.extend(rows_from([cell for _, cell in cells], dtype, shape))
        except Exception as error:  # whatever a damaged cell may lead to
            for line, cell in cells:
                try:
                    rows_from([cell], dtype, shape)
                except Exception as its_own:
                    raise self.error(line, f"damaged: {name}: {its_own}") from None
            raise self.error(cells[0][0], f"damaged: {name}: {error}") from None


def _of_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}, found {str(value)[:60]!r}")
    return value


def _stream_from(record: dict[str, Any], places: Counter[tuple[Any, ...]]) -> Stream:
    """A stream from its description; those of one place stay apart, and in the order of the file."""
    leaves = record["leaves"]
    fields = {field: record[field] for field in KEY_FIELDS}
    for field, value in fields.items():
        if field != "total" or value is not None:
            _of_type(value, int if field in ("call", "depth", "total") else str)
    names = tuple(_of_type(leaf["name"], str) for leaf in leaves)
    key = StreamKey(**fields, names=names, rebuild=Template(json.dumps(record["tree"])))
    place = key.order, _of_type(record["lanes"], int) if record["lanes"] is not None else None
    key = replace(key, tap=places[place])
    places[place] += 1
    key.rebuild(range(len(leaves)))  # fails here rather than at the first event
    return Stream(
        key,
        [dtype_named(leaf["dtype"]) for leaf in leaves],
        [tuple(leaf["shape"]) for leaf in leaves],
        live=_of_type(record["time"], bool),
        active=record["active"],
        lanes=record["lanes"],
        sharded=_of_type(record["device"], bool),
    )
