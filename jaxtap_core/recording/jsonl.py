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
from typing import Any, Protocol

from jaxtap_core.records.events import Alert, Certificate, Finding
from jaxtap_core.telemetry.codec import decode, dtype_name, encode, row_texts
from jaxtap_core.telemetry.environment import Environment, fingerprint
from jaxtap_core.telemetry.files import write_atomically
from jaxtap_core.telemetry.stream import Stream, StreamKey

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


def write_jsonl(recording: Contents, path: Any) -> None:
    """Write ``recording`` to ``path``; the file appears whole or not at all.

    Args:
        recording: what to write.
        path: file to make or replace; its folder must exist.

    Raises:
        OSError: the path cannot be written.
    """
    write_atomically(os.fspath(path), (f"{line}\n".encode() for line in lines(recording)))


def lines(recording: Contents) -> Iterator[str]:
    """The lines of the file, without line ends."""
    environment = recording.environment
    yield json.dumps(HEADER)
    yield json.dumps({"environment": fingerprint() if environment is None else environment})
    streams = recording.streams  # asked for once: the recording may be growing
    for number, stream in enumerate(streams):
        yield json.dumps(described(number, stream))
        yield from event_lines(number, stream)
    for alert in recording.alerts:
        yield json.dumps({"alert": encode(alert)})
    for finding in recording.findings:
        yield json.dumps({"finding": encode(finding)})
    if recording.certificate is not None:
        yield json.dumps({"certificate": encode(recording.certificate)})
    yield closing(sum(map(len, streams)), recording.unobserved, recording.unobservable)


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
        **{field: getattr(key, field) for field in KEY_FIELDS},
        "leaves": leaves,
        "tree": json.loads(Template.of(key).form),
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
