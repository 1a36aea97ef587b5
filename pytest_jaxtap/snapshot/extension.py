"""How syrupy stores telemetry snapshots: one text file a test, entries in the order of asserting.

syrupy decides when to write and what is unused; this decides where a test's file is, what is in it,
and whether two values match. Works with syrupy 5 to 7.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from unicodedata import category

from syrupy.data import Snapshot, SnapshotCollection, SnapshotCollections
from syrupy.extensions.base import AbstractSyrupyExtension

from jaxtap_core.compare.diff import Difference, compare
from jaxtap_core.compare.tolerance import NaN, Tolerances
from jaxtap_core.telemetry.environment import differences
from jaxtap_core.telemetry.files import write_atomically
from pytest_jaxtap.snapshot.arrays import discard_unnamed, load, read, store
from pytest_jaxtap.snapshot.format import (
    DamagedSnapshotError,
    Entry,
    WrittenEntry,
    dump,
    named_files,
)
from pytest_jaxtap.snapshot.parse import parse
from pytest_jaxtap.snapshot.verdicts import FOLDER, VERDICTS

_LONGEST = 200  # bytes of a file name; file systems take 255, the suffix and the dot files need some
_ODD = re.compile(r'[\\/?*:|"<>]|^[.]|\s$')


@dataclass(eq=False)
class Question:
    """A value on its way through syrupy to `JaxtapExtension.matches`, and the answer.

    Attributes:
        entry: the value that was got.
        tolerances, nan: how to compare it.
        names: the entries that its test has asserted so far, in order.
        difference: what the comparison found; ``None`` before, or where there is no snapshot.
    """

    entry: Entry
    tolerances: Tolerances
    nan: NaN
    names: list[str] = field(default_factory=list)
    difference: Difference | None = None


class JaxtapExtension(AbstractSyrupyExtension):
    """Telemetry snapshots; see the module."""

    file_extension = "jaxtap"
    platform = ""

    def serialize(self, data: Any, **_: Any) -> Any:
        """What was got goes to `matches` and to the file as it is."""
        return data

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:
        """Compare what was got with what is stored, or with what an update is about to store."""
        got: Question = serialized_data
        stored = snapshot_data.entry if isinstance(snapshot_data, Question) else snapshot_data
        got.difference = compare(
            stored.tracks,
            got.entry.tracks,
            got.tolerances,
            got.nan,
            differences(stored.environment, got.entry.environment),
        )
        return got.difference.equal

    @classmethod
    def discovery_dirname(cls, *, test_location: Any) -> str:
        """The folder of all snapshots of a test folder; each platform has its own.

        So no run takes the files of another platform for unused.
        """
        root = f"{FOLDER}.{cls.platform}".rstrip(".")
        return str(Path(test_location.filepath).parent / root)

    @classmethod
    def dirname(cls, *, test_location: Any) -> str:
        """One folder a test module in it."""
        root = Path(cls.discovery_dirname(test_location=test_location))
        name = test_location.snapshot_name
        return str(root / test_location.basename / ("" if _fits(name) else _short(name)))

    @classmethod
    def get_file_basename(cls, *, test_location: Any, index: Any) -> str:
        """The test's name; where no file can be called that, the module's, in a folder of its own.

        syrupy must find the test by the path of the file: it knows these two ways.
        """
        name = test_location.snapshot_name
        return name if _fits(name) else test_location.basename

    def discover_snapshots(self, *, test_location: Any, **_: Any) -> SnapshotCollections:
        """The readable files of this kind; what else lies there is not this extension's.

        Once the tests are over, without those that must stay (see `pytest_jaxtap.snapshot.verdicts`).
        """
        found = SnapshotCollections()
        root = Path(self.discovery_dirname(test_location=test_location))
        verdicts = test_location.item.config.stash.get(VERDICTS, None)
        for path in sorted(root.rglob(f"[!.]*.{self.file_extension}")):
            if verdicts is not None and verdicts.hold(type(self), root, path):
                continue
            collection = self.read_snapshot_collection(snapshot_location=str(path))
            if collection.has_snapshots:
                found.add(collection)
        return found

    def read_snapshot_collection(self, *, snapshot_location: str) -> SnapshotCollection:
        """The names in a file; none of a damaged one, which is not to be deleted."""
        collection = SnapshotCollection(location=snapshot_location)
        try:
            names = list(_read(Path(snapshot_location)))
        except DamagedSnapshotError:
            names = []
        for name in names:
            collection.add(Snapshot(name=name))
        return collection

    def read_snapshot_data_from_location(self, *, snapshot_location: str, snapshot_name: str, session_id: str) -> Any:
        """One entry, or ``None`` where there is none.

        Raises:
            DamagedSnapshotError: the file cannot be read.
        """
        path = Path(snapshot_location)
        if not path.exists():
            return None
        entry = _read(path).get(snapshot_name)
        return None if entry is None else load(entry, path)

    @classmethod
    def write_snapshot(cls, *, snapshot_location: str, snapshots: list[tuple[Any, Any, Any]], **_: Any) -> None:
        """Put new values among the entries of a file; the others keep their text."""
        if not snapshots:
            return
        path = Path(snapshot_location)
        path.parent.mkdir(parents=True, exist_ok=True)
        entries: dict[str, Entry | WrittenEntry] = dict(_read(path)) if path.exists() else {}
        order: list[str] = []
        for question, location, index in snapshots:
            name = cls.get_snapshot_name(test_location=location, index=index)
            entries[name] = question.entry
            order += [*question.names, name]
        order = [name for name in dict.fromkeys(order + list(entries)) if name in entries]
        _write(path, {name: entries[name] for name in order})

    @classmethod
    def write_snapshot_collection(cls, *, snapshot_collection: Any, **_: Any) -> None:
        """Not used: `write_snapshot` needs the whole question."""
        raise NotImplementedError

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:
        """Remove entries; with the last one the file, its arrays and folders that are empty then."""
        path = Path(snapshot_location)
        try:
            entries = {n: e for n, e in _read(path).items() if n not in snapshot_names}
        except DamagedSnapshotError:  # since it was discovered
            return
        if entries:
            _write(path, entries)
            return
        path.unlink()
        discard_unnamed(path, ())
        for folder in path.parents:
            if any(folder.iterdir()):
                break
            folder.rmdir()
            if folder.name.startswith(FOLDER):
                break


@cache
def extension_for(platform: str) -> type[JaxtapExtension]:
    """The extension that keeps the files of one platform; ``""`` for those of all."""
    if not platform:
        return JaxtapExtension
    name = f"{JaxtapExtension.__name__}_{platform}"
    return type(name, (JaxtapExtension,), {"platform": platform, "__module__": __name__})


def older(location: str | Path) -> Path | None:
    """Where the first version of this package kept the file of a test, if one is there."""
    parts = [
        part.replace(FOLDER, "__snapshots__", 1) if part.startswith(FOLDER) else part for part in Path(location).parts
    ]
    path = Path(*parts)
    return path if path.is_file() else None


def __getattr__(name: str) -> Any:
    """syrupy finds the extensions of xdist workers by their names."""
    base, _, platform = name.partition("_")
    if base == "JaxtapExtension" and platform:
        return extension_for(platform)
    raise AttributeError(name)


def _fits(name: str) -> bool:
    """Whether a file can be called that, on every system."""
    odd = _ODD.search(name) or any(category(char).startswith("C") for char in name)
    return not odd and len(name.encode()) <= _LONGEST


def _short(name: str) -> str:
    """A readable beginning and a digest of the whole name."""
    plain = re.sub(r"[^\w.\-]+", "-", name, flags=re.ASCII).strip(".-")[:60]
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _read(path: Path) -> dict[str, WrittenEntry]:
    """The entries of a file; their large columns are not loaded.

    Raises:
        DamagedSnapshotError: it cannot be read.
    """
    try:
        stat = path.stat()
        return _parsed(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise DamagedSnapshotError(f"{path}: cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=4)  # a test with many entries reads its file for each
def _parsed(path: Path, changed: int, size: int) -> dict[str, WrittenEntry]:
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DamagedSnapshotError(
            f"{path}, line {line}: damaged: {error}. The file was left as it is: restore it, or delete it and run "
            "--snapshot-update"
        ) from None
    return parse(text, str(path), lambda column, name: read(column, name, path))


def _write(path: Path, entries: Mapping[str, Entry | WrittenEntry]) -> None:
    """The arrays first, so that no text names a file that is not there."""
    files = store((entry for entry in entries.values() if isinstance(entry, Entry)), path)
    text = dump(entries, files)
    write_atomically(str(path), [text.encode()])
    _parsed.cache_clear()  # a file of the same length may be written twice between two ticks of the clock
    discard_unnamed(path, named_files(text))
