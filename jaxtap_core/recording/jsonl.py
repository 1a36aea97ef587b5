"""Recordings as JSON Lines: one object a line, one line an event, bit for bit.

The schema is ``jaxtap_core/schema/recording.schema.json``. A file holds, in this order: the header;
the environment; each stream's description, before its first event; the events; alerts, findings and
the certificate; and a closing line with the number of events, by which a file that was cut off is
known. A file that a `JSONLSink` writes while the program runs has its environment near the end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from jaxtap_core.recording.recording import Recording, Stream, StreamKey
from jaxtap_core.telemetry.codec import decode, dtype_name, dtype_named, encode, row_texts, rows_from
from jaxtap_core.telemetry.column import Column
from jaxtap_core.telemetry.environment import Environment, fingerprint
from jaxtap_core.telemetry.files import write_atomically

#: Version of the file format. A reader knows this one and all older ones.
SCHEMA = 1

HEADER = {"jaxtap": "recording", "schema": SCHEMA}

# Fields of a stream's description that are fields of its key under the same name.
_KEY = ("program", "call", "path", "kind", "total", "depth", "phase", "source", "label")


class StoredRecording(Recording):
    """A recording read from a file; it knows the environment it was made in.

    Attributes:
        environment: the fingerprint (see `jaxtap_core.telemetry.environment`); empty where the file has none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.environment: Environment = {}


@dataclass(frozen=True, slots=True)
class Template:
    """Puts the leaves of an event back into their pytree; two of equal form are equal.

    Attributes:
        form: JSON of the pytree with the numbers of the leaves in their places.
    """

    form: str

    def __call__(self, leaves: Sequence[Any]) -> Any:
        return _planted(decode(json.loads(self.form)), leaves)

    @classmethod
    def of(cls, key: StreamKey) -> Template:
        """The template of a stream. Containers that JSON cannot name become tuples."""
        numbers = list(range(len(key.names)))
        try:
            return cls(json.dumps(encode(key.rebuild(numbers))))
        except Exception:  # a pytree node of the user's that refuses leaves which are no arrays
            return cls(json.dumps(encode(tuple(numbers) if len(numbers) != 1 else 0)))


def _planted(form: Any, leaves: Sequence[Any]) -> Any:
    if isinstance(form, int):
        return leaves[form]
    if isinstance(form, dict):
        return {key: _planted(item, leaves) for key, item in form.items()}
    if isinstance(form, list | tuple):
        return type(form)(_planted(item, leaves) for item in form)
    return form


def write_jsonl(recording: Recording, path: Any) -> None:
    """Write ``recording`` to ``path``; the file appears whole or not at all.

    Args:
        recording: what to write.
        path: file to make or replace; its folder must exist.

    Raises:
        OSError: the path cannot be written.
    """
    write_atomically(os.fspath(path), (f"{line}\n".encode() for line in lines(recording)))


def lines(recording: Recording) -> Iterator[str]:
    """The lines of the file, without line ends."""
    environment = getattr(recording, "environment", None)
    yield json.dumps(HEADER)
    yield json.dumps({"environment": fingerprint() if environment is None else environment})
    for number, stream in enumerate(recording.streams):
        yield json.dumps(described(number, stream))
        yield from event_lines(number, stream)
    for alert in recording.alerts:
        yield json.dumps({"alert": encode(alert)})
    for finding in recording.findings:
        yield json.dumps({"finding": encode(finding)})
    if recording.certificate is not None:
        yield json.dumps({"certificate": encode(recording.certificate)})
    yield closing(len(recording), recording.unobserved, recording.unobservable)


def closing(events: int, unobserved: int = 0, unobservable: Sequence[str] = ()) -> str:
    """The last line of a file."""
    end = {"events": events, "unobserved": unobserved, "unobservable": list(unobservable)}
    return json.dumps({"end": end})


def described(number: int, stream: Stream) -> dict[str, Any]:
    """What the events of a stream have in common, under the number by which they refer to it."""
    key = stream.key
    leaves = [
        {"name": name, "dtype": dtype_name(leaf.array.dtype), "shape": list(leaf.array.shape[1:])}
        for name, leaf in zip(key.names, stream.leaves, strict=True)
    ]
    return {
        "define": number,
        **{field: getattr(key, field) for field in _KEY},
        "leaves": leaves,
        "tree": json.loads(Template.of(key).form),
        "active": None if stream.active is None else list(stream.active.array.shape[1:]),
        "lanes": None if stream.lanes is None else int(stream.lanes.array.shape[1]),
        "device": stream.device is not None,
        "time": stream.time is not None,
    }


def _columns(stream: Stream) -> list[tuple[str, Any]]:
    """The columns that an event has beside its values, under their names in the file."""
    named = [
        ("steps", stream.steps),
        ("lane", stream.lanes),
        ("device", stream.device),
        ("active", stream.active),
        ("time", stream.time),
    ]
    return [(name, column) for name, column in named if column is not None]


def event_lines(number: int, stream: Stream) -> Iterator[str]:
    """The events of a stream in canonical order, a line each."""
    order = stream.order()
    pieces: list[Iterable[str]] = [repeat(f'{{"stream": {number}, ')]
    for name, column in _columns(stream):
        pieces += [repeat(f'"{name}": '), row_texts(column.array[order]), repeat(", ")]
    pieces.append(repeat('"values": ['))
    for position, leaf in enumerate(stream.leaves):
        pieces += [repeat(", ")] if position else []
        pieces.append(row_texts(leaf.array[order]))
    pieces.append(repeat("]}"))
    return map("".join, zip(*pieces, strict=False))  # `repeat` never ends, the columns do


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
            self.streams[number] = recording.stream(stream.key, lambda: stream)
        elif "environment" in record:
            recording.environment = dict(record["environment"])
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
        for name, column in _columns(stream):
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
        **{field: record[field] for field in _KEY},
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
