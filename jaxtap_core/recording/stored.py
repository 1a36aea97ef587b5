"""Reading recordings from JSON Lines files (see `jsonl`): every line checked, every mistake told by its line."""

from __future__ import annotations

import json
import os
from typing import Any

from jaxtap_core.recording.jsonl import KEY_FIELDS, SCHEMA, Template, columns_of
from jaxtap_core.recording.recording import Recording
from jaxtap_core.telemetry.codec import decode, dtype_named, rows_from
from jaxtap_core.telemetry.column import Column
from jaxtap_core.telemetry.environment import Environment
from jaxtap_core.telemetry.stream import Stream, StreamKey


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
        for number, line in enumerate(file, start=1):
            if partial and not line.endswith(b"\n"):
                break  # cut off in the middle
            reader.take(number, line)
    return reader.finish(partial)


class _Reader:
    """Collects lines, then turns them into columns at once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.recording = StoredRecording()
        self.streams: dict[int, Stream] = {}
        self.rows: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        self.header = False
        self.end: dict[str, Any] | None = None

    def error(self, line: int, reason: object) -> ValueError:
        return ValueError(f"{self.path}, line {line}: {reason}")

    def take(self, number: int, line: bytes) -> None:
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
            if self.end is not None:
                raise ValueError("there are lines after the closing line")
            if not self.header:
                self._header(record)
            elif "stream" in record:
                self.rows[record["stream"]].append((number, record))
            else:
                self._other(record)
        except KeyError as missing:
            raise self.error(number, f"{missing} is missing or not known") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise self.error(number, f"damaged: {error}") from None

    def _header(self, record: dict[str, Any]) -> None:
        if record.get("jaxtap") != "recording":
            raise ValueError("this is not a recording: its first line is not a jaxtap header")
        if not isinstance(record.get("schema"), int):
            raise ValueError("the header has no schema version")
        if record["schema"] > SCHEMA:
            raise ValueError(
                f"written by a newer pytest-jaxtap (schema {record['schema']}, "
                f"this one reads up to {SCHEMA}): upgrade to read it"
            )
        self.header = True

    def _other(self, record: dict[str, Any]) -> None:
        recording = self.recording
        if "define" in record:
            stream = _stream_from(record)
            number = record["define"]
            self.rows[number] = []
            self.streams[number] = recording.stream(stream.key, record["lanes"], lambda: stream)
        elif "environment" in record:
            recording.made_in = dict(record["environment"])
        elif "alert" in record:
            recording.alerts.append(decode(record["alert"]))
        elif "finding" in record:
            recording.findings.append(decode(record["finding"]))
        elif "certificate" in record:
            recording.certificate = decode(record["certificate"])
        elif "end" in record:
            self.end = record["end"]
            recording.unobserved = record["end"]["unobserved"]
            recording.unobservable = list(record["end"]["unobservable"])
        else:
            raise ValueError(f"unknown record with {', '.join(map(repr, record)) or 'no keys'}")

    def finish(self, partial: bool) -> StoredRecording:
        if not self.header and not partial:
            raise ValueError(f"{self.path} is empty")
        for number, rows in self.rows.items():
            self._fill(self.streams[number], rows)
        held = sum(map(len, self.rows.values()))
        if not partial:
            if self.end is None:
                raise ValueError(
                    f"{self.path} was cut off after {held} events: its closing line is missing. "
                    "read_jsonl(path, partial=True) takes what is there"
                )
            if self.end["events"] != held:
                raise ValueError(f"{self.path} holds {held} events, its closing line says {self.end['events']}")
        return self.recording

    def _fill(self, stream: Stream, rows: list[tuple[int, dict[str, Any]]]) -> None:
        for line, record in rows:
            if len(record.get("values", ())) != len(stream.leaves):
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
        except (ValueError, TypeError, OverflowError):
            for line, cell in cells:
                try:
                    rows_from([cell], dtype, shape)
                except (ValueError, TypeError, OverflowError) as error:
                    raise self.error(line, f"damaged: {name}: {error}") from None
            raise


def _stream_from(record: dict[str, Any]) -> Stream:
    leaves = record["leaves"]
    key = StreamKey(
        **{field: record[field] for field in KEY_FIELDS},
        names=tuple(leaf["name"] for leaf in leaves),
        rebuild=Template(json.dumps(record["tree"])),
    )
    return Stream(
        key,
        [dtype_named(leaf["dtype"]) for leaf in leaves],
        [tuple(leaf["shape"]) for leaf in leaves],
        live=record["time"],
        active=record["active"],
        lanes=record["lanes"],
        sharded=record["device"],
    )
