"""Large columns of a snapshot: binary files beside its text, named after their content.

A file holds the little-endian bytes of one column, compressed with zlib; objects are stored as
JSON. Its name is that of the text file and the digest of the uncompressed bytes:
``test_a.0123456789abcdef.bin``. Two branches that change an array make two files, so only the text
can conflict. All of them belong into version control with the text.

The text says how many bytes a file holds, and no more are ever read out of one.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from jaxtap_core.compare.table import Track
from jaxtap_core.telemetry.codec import loads
from jaxtap_core.telemetry.files import write_atomically
from pytest_jaxtap.snapshot.format import (
    DamagedSnapshotError,
    Draft,
    Entry,
    Stored,
    WrittenEntry,
    index_of,
    is_large,
    is_plain,
)

_SUFFIX = ".bin"
_DENSEST = 1040  # bytes that zlib makes of one, at most (1032, and what surrounds them)


def store(entries: Iterable[Entry], text: Path) -> dict[int, tuple[str, int]]:
    """Write the large columns and indices of new entries beside ``text``.

    Returns:
        their digests and lengths, as `pytest_jaxtap.snapshot.format.dump` wants them: by ``id`` of the
        array, or of the track whose index it is.
    """
    large: dict[int, np.ndarray] = {}
    for entry in entries:
        for track in entry.tracks:
            large |= {id(column): column for column in track.leaves.values()}
            if not is_plain(track) and (table := index_of(track).told) is not None:
                large[id(track)] = table
    files = {}
    for key, column in large.items():
        if is_large(column):
            data = _bytes(column)
            digest = hashlib.sha256(data).hexdigest()
            files[key] = digest, len(data)
            write_atomically(str(_path(text, digest)), [zlib.compress(data, 6)])  # anew: an old one may be damaged
    return files


def load(entry: WrittenEntry, text: Path) -> Entry:
    """The entry with its large columns read from beside ``text``.

    Raises:
        DamagedSnapshotError: a file is missing, or does not hold what the text says.
    """
    return Entry(tuple(_track(draft, text) for draft in entry.drafts), entry.environment)


def _track(draft: Draft, text: Path) -> Track:
    leaves = {
        name: read(column, name, text) if isinstance(column, Stored) else column
        for name, column in draft.leaves.items()
    }
    if draft.index is None:
        return Track(draft.key, leaves, np.empty((1, 0), np.int32), types=draft.types)
    return Track(draft.key, leaves, *draft.index.columns(), draft.total)


def discard_unnamed(text: Path, digests: Iterable[str]) -> None:
    """Delete the files that belong to ``text`` and are not among ``digests``."""
    kept = {_path(text, digest).name for digest in digests}
    own = re.compile(rf"{re.escape(text.stem)}\.[0-9a-f]{{16}}{re.escape(_SUFFIX)}")
    for path in text.parent.iterdir():
        if own.fullmatch(path.name) and path.name not in kept:
            path.unlink()


def _path(text: Path, digest: str) -> Path:
    return text.with_name(f"{text.stem}.{digest[:16]}{_SUFFIX}")


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
        packed = path.read_bytes()
    except FileNotFoundError:
        reason = "is missing; it belongs into version control with the text (is there a rule in .gitignore for it?)"
        raise _damaged(path, column, name, text, reason) from None
    except OSError as error:
        raise _damaged(path, column, name, text, f"cannot be read ({error})") from None
    data = _inflated(packed, column.size)
    if data is None or hashlib.sha256(data).hexdigest() != column.digest:
        raise _damaged(path, column, name, text, "does not hold what the text says")
    try:
        return _array(data, column)
    except ValueError as error:
        raise _damaged(path, column, name, text, f"does not hold what the text says ({error})") from None


def _inflated(packed: bytes, size: int) -> bytes | None:
    """So many bytes out of ``packed``; ``None`` if it does not hold them, and no others."""
    if size > _DENSEST * len(packed):
        return None
    unpack = zlib.decompressobj()
    try:
        data = unpack.decompress(packed, size + 1)
    except zlib.error:
        return None
    return data if len(data) == size and unpack.eof and not unpack.unused_data else None


def _array(data: bytes, column: Stored) -> np.ndarray:
    if not column.dtype.itemsize:
        return np.zeros(column.shape, column.dtype)
    if column.dtype.kind != "O":
        return np.frombuffer(data, column.dtype).reshape(column.shape)
    texts = loads(data.decode())
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("not a list of texts")
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(column.shape)


def _damaged(path: Path, column: Stored, name: str, text: Path, reason: str) -> DamagedSnapshotError:
    return DamagedSnapshotError(
        f"{text}, line {column.line}: damaged: {path.name}, the file of column {name!r}, {reason}. "
        "Restore it, or delete the text and run --snapshot-update"
    )
