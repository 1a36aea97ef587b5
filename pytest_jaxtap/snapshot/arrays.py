"""Large columns of a snapshot: binary files beside its text, named after their content.

A file holds the little-endian bytes of one column, compressed with zlib; objects are stored as
JSON. Its name starts with a dot, for syrupy takes every visible file it does not know for unused
and deletes it; then come the name of the text file and the digest of the uncompressed bytes. Two
branches that change an array make two files, so only the text can conflict.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxtap_core.telemetry.files import write_atomically
from pytest_jaxtap.snapshot.format import (
    TEXT_ELEMENTS,
    DamagedSnapshotError,
    Entry,
    Stored,
    irregular_index,
)

_SUFFIX = ".bin"


def store(entries: Iterable[Entry], text: Path) -> dict[int, str]:
    """Write the large columns and indices of new entries beside ``text``.

    Returns:
        their digests, as `snapshot_format.dump` wants them: by ``id`` of the array, or of the track
        whose index it is.
    """
    large: dict[int, np.ndarray] = {}
    for entry in entries:
        for track in entry.tracks:
            large |= {id(column): column for column in track.leaves.values()}
            index = irregular_index(track)
            if index is not None:
                large[id(track)] = index
    digests = {}
    for key, column in large.items():
        if max(column.size, *column.shape[:2]) > TEXT_ELEMENTS:  # rows may be empty
            data = _bytes(column)
            digests[key] = hashlib.sha256(data).hexdigest()
            path = _path(text, digests[key])
            if not path.exists():
                write_atomically(str(path), [zlib.compress(data, 6)])
    return digests


def load(entry: Entry, text: Path) -> Entry:
    """The entry with its large columns read from beside ``text``.

    Raises:
        DamagedSnapshotError: a file is missing, or does not hold what the text says.
    """
    tracks = []
    for track in entry.tracks:
        leaves = {
            name: read(column, name, text) if isinstance(column, Stored) else column
            for name, column in track.leaves.items()
        }
        tracks.append(replace(track, leaves=leaves))
    return Entry(tuple(tracks), entry.environment)


def discard_unnamed(text: Path, digests: Iterable[str]) -> None:
    """Delete the files that belong to ``text`` and are not among ``digests``."""
    kept = {_path(text, digest).name for digest in digests}
    own = re.compile(rf"\.{re.escape(text.stem)}\.[0-9a-f]{{16}}{re.escape(_SUFFIX)}")
    for path in text.parent.iterdir():
        if own.fullmatch(path.name) and path.name not in kept:
            path.unlink()


def _path(text: Path, digest: str) -> Path:
    return text.with_name(f".{text.stem}.{digest[:16]}{_SUFFIX}")


def _bytes(column: np.ndarray) -> bytes:
    if column.dtype.kind == "O":
        return json.dumps(column.reshape(-1).tolist()).encode()
    return np.ascontiguousarray(column).tobytes()


def read(column: Stored, name: str, text: Path) -> np.ndarray:
    """One column from its file.

    Raises:
        DamagedSnapshotError: see `load`.
    """
    path = _path(text, column.digest)
    try:
        data = zlib.decompress(path.read_bytes())
    except FileNotFoundError:
        reason = "is missing; it belongs into version control with the text"
        raise _damaged(path, name, text, reason) from None
    except (OSError, zlib.error) as error:
        raise _damaged(path, name, text, f"cannot be read ({error})") from None
    if hashlib.sha256(data).hexdigest() != column.digest:
        raise _damaged(path, name, text, "does not hold what the text says") from None
    if column.dtype.kind == "O":
        array = np.empty(column.shape, object)
        array.reshape(-1)[:] = json.loads(data)
        return array
    return np.frombuffer(data, column.dtype).reshape(column.shape)


def _damaged(path: Path, name: str, text: Path, reason: str) -> DamagedSnapshotError:
    return DamagedSnapshotError(
        f"{path}: the file of column {name!r} of {text.name} {reason}. "
        "Restore it, or delete the text and run --snapshot-update"
    )
