"""Recordings as JSON Lines: one object a line, one line an event, bit for bit.

The schema is ``jaxtap_core/schema/recording.schema.json``. A file holds, in this order: the header;
the environment; each stream's description, before its first event; the events; alerts, findings and
the certificate; and a closing line with the number of events, by which a file that was cut off is
known, and a digest of all bytes before it, by which one that was changed is. A file that a `JSONLSink`
writes while the program runs has its environment near the end.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol

from jaxtap_core.records.events import Alert, Certificate, Finding
from jaxtap_core.telemetry.codec import dtype_name, encode, row_texts
from jaxtap_core.telemetry.environment import Environment, fingerprint
from jaxtap_core.telemetry.files import write_atomically
from jaxtap_core.telemetry.stream import Stream
from jaxtap_core.telemetry.template import Template

#: Version of the file format. A reader knows this one and all older ones.
SCHEMA = 1

HEADER = {"jaxtap": "recording", "schema": SCHEMA}

# Fields of a stream's description that are fields of its key under the same name.
KEY_FIELDS = ("program", "call", "path", "kind", "total", "depth", "phase", "source", "label")


class Contents(Protocol):
    """What a file holds: a recording."""

    alerts: list[Alert]
    findings: list[Finding]
    certificate: Certificate | None
    unobserved: int
    unobservable: list[str]

    @property
    def streams(self) -> list[Stream]: ...

    @property
    def environment(self) -> Environment | None: ...

    def __len__(self) -> int: ...


def write_jsonl(recording: Contents, path: Any) -> None:
    """Write ``recording`` to ``path``; the file appears whole or not at all.

    Args:
        recording: what to write.
        path: file to make or replace; its folder must exist.

    Raises:
        OSError: the path cannot be written.
    """
    write_atomically(os.fspath(path), (line.encode() for line in lines(recording)))


class Seal:
    """The digest of a file that is written line by line."""

    #: What stands in the last line before the digest, which is of all bytes of the file before this.
    MARK = ', "sha256": "'

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def copy(self) -> Seal:
        """One that goes on from here, while this one stays."""
        other = Seal()
        other._digest = self._digest.copy()
        return other

    def line(self, text: str) -> str:
        """A line with its end."""
        self._digest.update(text.encode() + b"\n")
        return f"{text}\n"

    def last(self, text: str) -> str:
        """The last line, an object, with the digest added to it."""
        head = text.removesuffix("}")
        self._digest.update(head.encode())
        return f'{head}{self.MARK}{self._digest.hexdigest()}"}}\n'


def lines(recording: Contents) -> Iterator[str]:
    """The lines of the file."""
    seal = Seal()
    streams = recording.streams  # asked for once: the recording may be growing
    yield from map(seal.line, _content(recording, streams))
    yield seal.last(closing(sum(map(len, streams)), recording.unobserved, recording.unobservable))


def _content(recording: Contents, streams: Sequence[Stream]) -> Iterator[str]:
    environment = recording.environment
    yield json.dumps(HEADER)
    yield json.dumps({"environment": fingerprint() if environment is None else environment})
    for number, stream in enumerate(streams):
        yield json.dumps(described(number, stream))
        yield from event_lines(number, stream)
    for alert in recording.alerts:
        yield json.dumps({"alert": encode(alert)})
    for finding in recording.findings:
        yield json.dumps({"finding": encode(finding)})
    if recording.certificate is not None:
        yield json.dumps({"certificate": encode(recording.certificate)})


def closing(events: int, unobserved: int = 0, unobservable: Sequence[str] = ()) -> str:
    """The last line of a file, without its digest."""
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
        **{field: getattr(key, field) for field in KEY_FIELDS},
        "leaves": leaves,
        "tree": json.loads(Template.of(key.names, key.rebuild).form),
        "active": None if stream.active is None else list(stream.active.array.shape[1:]),
        "lanes": None if stream.lanes is None else int(stream.lanes.array.shape[1]),
        "device": stream.device is not None,
        "time": stream.time is not None,
    }


def columns_of(stream: Stream) -> list[tuple[str, Any]]:
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
    for name, column in columns_of(stream):
        pieces += [repeat(f'"{name}": '), row_texts(column.array[order]), repeat(", ")]
    pieces.append(repeat('"values": ['))
    for position, leaf in enumerate(stream.leaves):
        pieces += [repeat(", ")] if position else []
        pieces.append(row_texts(leaf.array[order]))
    pieces.append(repeat("]}"))
    return map("".join, zip(*pieces, strict=False))  # `repeat` never ends, the columns do
