"""PYTEST_DONT_REWRITE

``tap_snapshot``: telemetry compared with what was stored, bit for bit unless told otherwise.

    def test_adaptation(tap_recorder, tap_snapshot):
        with tap_recorder(select="step_size") as rec:
            warmup.run(key, x0, 500)
        assert rec == tap_snapshot                                  # exact bits
        assert rec == tap_snapshot(rtol=1e-5, name="loosely")
        assert rec == tap_snapshot(columns={"step_size": {"ulp": 4}}, name="by column")

``pytest --snapshot-update`` writes what does not match; values inside the tolerance are not
rewritten, so drift cannot ratchet. What is compared may be a recording, a pandas object, a NumPy or
JAX array, or a pytree of these and plain values.

Of ``x == tap_snapshot`` Python asks ``x`` first. Most objects leave the answer to this side; one whose
own ``==`` has an answer for everything never asks it, and must stand on the right:
``tap_snapshot == x``. A test in which nothing was compared fails and says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NoReturn

import pytest

from jaxtap_core.compare.table import tracks_of
from jaxtap_core.compare.tolerance import NaN, Tolerances
from jaxtap_core.telemetry.environment import fingerprint
from jaxtap_core.telemetry.stream import Streamed

# What pytest shows of a failed comparison without -vv.
_SHOWN_LINES, _SHOWN_CHARACTERS = 8, 640


class TapSnapshot:
    """One comparison with a snapshot; call it to set how.

    Attributes:
        report: the lines that say how the last comparison failed; empty if it did not.
        against: ``id`` of what it was last compared with.
        asked: whether it was compared, or gave another one.
    """

    # NumPy, pandas and JAX leave the comparison to this side, whole, instead of going by element.
    __array_ufunc__: ClassVar[None] = None
    __array_priority__: ClassVar[float] = 10_000.0
    __pandas_priority__: ClassVar[int] = 10_000
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        test: _Test,
        tolerances: Tolerances,
        nan: NaN = "payload",
        name: str | None = None,
        platform: str = "",
        empty: bool = False,
    ) -> None:
        self._test = test
        self._tolerances = tolerances
        self._nan = nan
        self._name = name
        self._platform = platform
        self._empty = empty
        self.report: list[str] = []
        self.against: int | None = None
        self.asked = False
        test.made.append(self)

    def __call__(
        self,
        columns: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        rtol: float = 0.0,
        atol: float = 0.0,
        ulp: int = 0,
        nan: NaN = "payload",
        name: str | None = None,
        platform: bool = False,
        empty: bool = False,
    ) -> TapSnapshot:
        """Set how to compare, and with which entry.

        Args:
            columns: limits of their own for single columns, ``{"step_size": {"rtol": 1e-5}}``.
            rtol, atol, ulp: what passes besides equal bits (see `jaxtap_core.compare.tolerance.Tolerance`).
            nan: ``"payload"``: NaNs are equal if their bits are; ``"any"``: all are.
            name: name of the entry; without one entries are numbered.
            platform: keep one file per backend (CPU, GPU, ...).
            empty: let a recording without events pass.

        Raises:
            TypeError, ValueError: an argument cannot be.
        """
        __tracebackhide__ = True
        self.asked = True
        if columns is not None and not isinstance(columns, Mapping):
            hint = f"; write tap_snapshot(name={columns!r})" if isinstance(columns, str) else ""
            raise TypeError(f"the first argument gives limits to columns, by name, not {columns!r}{hint}")
        if nan not in ("payload", "any"):
            raise ValueError(f"nan must be 'payload' or 'any', not {nan!r}")
        if name is not None and (not isinstance(name, str) or not name):
            raise TypeError(f"name must be a string that is not empty, not {name!r}")
        try:
            tolerances = Tolerances.of(rtol, atol, ulp, columns)
        except (TypeError, ValueError) as error:
            raise error.with_traceback(None) from None  # the way that it took in here helps nobody
        return TapSnapshot(self._test, tolerances, nan, name, _backend() if platform else "", empty)

    def __eq__(self, other: object) -> bool:
        __tracebackhide__ = True
        self.asked, self.against = True, id(other)
        if (owner := _went_between(self)) is not None:
            pytest.fail(answered_first(owner))
        if isinstance(other, Streamed) and not other.streams and not self._empty:
            self.report = _without_events(other)
            return False
        try:
            self.report = self._test.compare(other, self._tolerances, self._nan, self._name, self._platform)
        except (TypeError, ValueError, OSError) as error:
            raise error.with_traceback(None) from None
        return not self.report

    def __repr__(self) -> str:
        return f"<tap_snapshot{': ' if self.report else ''}{''.join(self.report[:1])}>"


class _Test:
    """What the comparisons of one test share: syrupy's assertions, and the names in their order."""

    def __init__(self, request: pytest.FixtureRequest, snapshot: Any) -> None:
        self.made: list[TapSnapshot] = []  # of this test, the fixture itself first
        self._node = request.node
        self._snapshot = snapshot
        self._assertions: dict[str, Any] = {}
        self._names: dict[str, list[str]] = {}
        self._used: set[tuple[type, str | None]] = set()
        self._verbose = request.config.get_verbosity(pytest.Config.VERBOSITY_ASSERTIONS) >= 2
        self._plain = request.config.getoption("assertmode") == "plain"
        self._root = request.config.rootpath

    def compare(self, value: Any, tolerances: Tolerances, nan: NaN, name: str | None, platform: str) -> list[str]:
        """Ask syrupy whether ``value`` matches; the report, empty if it does.

        Raises:
            DamagedSnapshotError: the snapshot cannot be read.
            TypeError, ValueError: the value cannot be stored, or a tolerance is for no column.
        """
        __tracebackhide__ = True
        from pytest_jaxtap.snapshot.comparison import tell_reports
        from pytest_jaxtap.snapshot.extension import Question, extension_for, older
        from pytest_jaxtap.snapshot.format import Entry

        assertion = self._assertions.get(platform)
        if assertion is None:
            assertion = self._snapshot.use_extension(extension_for(platform))
            self._assertions[platform] = assertion
        tracks = tuple(tracks_of(value))
        made_in = value.environment if isinstance(value, Streamed) else None
        entry = Entry(tracks, fingerprint() if made_in is None else made_in)
        names = self._names.setdefault(platform, [])
        question = Question(entry, tolerances, nan, names)
        leaves = [leaf for track in tracks for leaf in track.leaves]
        if assertion.update_snapshots or getattr(assertion, "update_new_snapshots_only", False):  # not in syrupy 5
            tolerances.check(leaves)  # before syrupy has it to write
        with self._updates(assertion, name):
            matched = assertion(name=name) == question
        result = assertion.executions[assertion.num_executions - 1]
        if result.exception is not None:
            raise result.exception.with_traceback(None)
        # At once, so that what cannot be written fails here, and a crash later loses nothing.
        assertion.session.flush_snapshot_write_queue()
        if question.difference is None:  # there is nothing yet to find a misspelt column with
            tolerances.check(leaves)
        names.append(result.snapshot_name)
        where = self._where(result.snapshot_location)
        tell_reports(self._node, question, result, where)
        if matched:
            return []
        if question.difference is None:
            lines = [f"jaxtap: there is no snapshot {result.snapshot_name!r} yet"]
            lines.append(f"  run pytest --snapshot-update to write it to {where}")
            if (old := older(Path(result.snapshot_location))) is not None:
                lines.append(f"  ({self._where(str(old))} is of an older version and is not read: delete it)")
        else:
            lines = f"jaxtap: {question.difference}".splitlines()
            lines.append(f"snapshot {result.snapshot_name!r} in {where}")
        if self._plain or (_is_long(lines) and not self._verbose):  # pytest would not show it
            self._node.add_report_section("call", "jaxtap snapshot", "\n".join(lines))
        return lines

    @contextmanager
    def _updates(self, assertion: Any, name: str | None) -> Iterator[None]:
        """A name that was used before in this test is compared with, never written again."""
        update = assertion.update_snapshots
        assertion.update_snapshots = update and (assertion.extension_class, name) not in self._used
        try:
            yield
        finally:
            assertion.update_snapshots = update
            if name is not None:
                self._used.add((assertion.extension_class, name))

    def _where(self, location: str) -> str:
        path = Path(location)
        return str(path.relative_to(self._root) if path.is_relative_to(self._root) else path)


#: On a test, while it runs.
COMPARISONS: pytest.StashKey[_Test] = pytest.StashKey()


def _is_long(lines: list[str]) -> bool:
    return len(lines) > _SHOWN_LINES or sum(map(len, lines)) > _SHOWN_CHARACTERS


def _backend() -> str:
    import jax

    return jax.default_backend()


def _went_between(snapshot: TapSnapshot) -> object | None:
    """The object whose own ``==`` was asked about ``snapshot`` and asks it about something of itself."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        owner, other = sides_of(frame) or (None, None)
        if other is snapshot:
            return owner
        frame = frame.f_back
    return None


def sides_of(frame: FrameType) -> tuple[object, object] | None:
    """Both sides of the comparison that runs in a frame, where one does."""
    code = frame.f_code
    if code.co_name not in ("__eq__", "__ne__") or code.co_argcount != 2:
        return None
    owner, other = (frame.f_locals.get(name) for name in code.co_varnames[:2])
    return owner, other


def answered_first(owner: object) -> str:
    """That the ``==`` of ``owner`` has an answer of its own, and what to do about it."""
    return (
        f"jaxtap: the value was not compared: the == of {type(owner).__qualname__} answers before that of tap_snapshot "
        "is asked. Write it the other way round: assert tap_snapshot == x"
    )


def _without_events(recording: Streamed) -> list[str]:
    lines = ["jaxtap: the recording holds no events, so there is nothing to compare"]
    beside = getattr(recording, "unobserved", 0)
    lines += [f"  {beside} programs ran beside the lens, in other threads or tasks"] if beside else []
    lines += [f"  not observed: {reason}" for reason in list(getattr(recording, "unobservable", ()))[:3]]
    return [*lines, "  if that is meant, write tap_snapshot(empty=True)"]


def make_tap_snapshot(request: pytest.FixtureRequest) -> TapSnapshot:
    """The value of the ``tap_snapshot`` fixture.

    Raises:
        pytest.fail.Exception: syrupy is switched off, or another ``snapshot`` hides its own.
    """
    try:
        snapshot = request.getfixturevalue("snapshot")
    except pytest.FixtureLookupError:
        _unusable("syrupy is not installed, or switched off (-p no:syrupy)")
    if not hasattr(snapshot, "use_extension"):
        _unusable(f"the fixture `snapshot` here is a {type(snapshot).__module__} one, not syrupy's")
    request.node.stash[COMPARISONS] = test = _Test(request, snapshot)
    return TapSnapshot(test, Tolerances.of())


def _unusable(reason: str) -> NoReturn:
    pytest.fail(f"tap_snapshot stores through syrupy: {reason}", pytrace=False)
