"""What the lens reports: events, alerts, findings, certificates. Plain immutable data; nothing here knows of JAX."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

import numpy as np

from jaxtap_core.records.bits import same
from jaxtap_core.records.kinds import Kind, Phase, Verdict
from jaxtap_core.records.story import tell
from jaxtap_core.records.text import plain, short


class _Record:
    """Shares among the data types below the way to plain Python, and when two are equal: as `same` says of values.

    They can be hashed as long as they live: by their fields that are plain.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        kin = getattr(type(other), "__dataclass_fields__", None) is getattr(type(self), "__dataclass_fields__", 0)
        if not kin:
            return NotImplemented
        return self is other or all(same(getattr(self, n), getattr(other, n)) for n in told_fields(type(self)))

    def __hash__(self) -> int:
        values = (getattr(self, name) for name in told_fields(type(self)))
        return hash(tuple(value for value in values if isinstance(value, str | int)))

    def to_dict(self) -> dict[str, Any]:
        """The same content in plain Python types (see `plain`)."""
        return {name: plain(getattr(self, name)) for name in told_fields(type(self))}


def told_fields(record: Any) -> list[str]:
    """Names of the fields of a record's class that are data: all but the handles, which belong to this process."""
    return [field.name for field in fields(record) if field.metadata.get("told", True)]


@dataclass(frozen=True, slots=True, eq=False)
class TapEvent(_Record):
    """One observed value.

    Attributes:
        path: address inside the program, e.g. ``scan[0]/while[1]`` or ``scan[0]/cholesky[0]``.
        step: step of the innermost enclosing loop, counted from 0 by iterations (-1 outside of loops).
        total: length of that loop, ``None`` where it is not known beforehand.
        steps: the whole index vector, outermost loop first.
        value: the selected pytree with NumPy leaves of the exact dtype.
        kind: ``"carry"``, ``"output"`` or ``"primitive"``.
        program: name of the jitted function, or of the eager primitive.
        call: how often that program had run before in this recording.
        lane: lane indices when the lens sits inside ``vmap``, else ``None``.
        active: which lanes ran this step, for a loop batched over its predicate, else ``None``.
        device: index of the device or shard that emitted it, ``None`` on one device.
        phase: ``"forward"``, ``"backward"`` (inside a transposed computation) or ``"recompute"``.
        source: ``file.py:line (function)`` of the user's line that built the observed operation.
        time: host arrival in seconds (monotonic) of a live event; ``None`` for one that came as data.
    """

    path: str
    step: int
    total: int | None
    steps: tuple[int, ...]
    value: Any
    kind: Kind
    program: str
    call: int
    lane: tuple[int, ...] | None = None
    active: np.ndarray | None = None
    device: int | None = None
    phase: Phase = "forward"
    source: str = ""
    time: float | None = None

    @property
    def position(self) -> str:
        """Step and length for people: ``7/25``, or ``7`` in a loop of unknown length; empty outside of loops."""
        if self.step < 0:
            return ""
        return f"{self.step}/{self.total}" if self.total is not None else str(self.step)

    def __str__(self) -> str:
        place = " ".join(part for part in (self.path, self.position) if part)
        lane = f" lane {','.join(map(str, self.lane))}" if self.lane is not None else ""
        device = f" device {self.device}" if self.device is not None else ""
        return f"{place}{lane}{device}: {short(self.value)}"


@dataclass(frozen=True, slots=True, eq=False)
class Alert(_Record):
    """A predicate on an event that came true, with its message and the user's source line."""

    event: TapEvent
    message: str
    source: str

    def __str__(self) -> str:
        place = " ".join(part for part in (self.event.path, self.event.position) if part)
        where = f" ({self.source})" if self.source else ""
        return f"{place}: {self.message}{where}"


@dataclass(frozen=True, slots=True, eq=False)
class Origin(_Record):
    """Where a non-finite value was born, found by replaying the program on the same inputs.

    Attributes:
        primitive: name of the equation that made it, e.g. ``cholesky``; empty where none was found.
        path: its address, e.g. ``scan[0]/while[1]/cholesky[0]``.
        steps: index vector of the step, outermost loop first.
        lane: lane indices of the first bad element of a loop batched over its predicate, else ``None``.
        source: ``file.py:line (function)`` of the user's line.
        phase: ``"forward"``, ``"backward"`` or ``"recompute"``.
        operands: one dict an operand: ``shape``, ``dtype``, ``min``, ``max``, ``element`` (the offending one).
        reason: one line for people.
        advice: what usually helps, or empty.
        reproduced: whether the replay met the non-finite value again.
    """

    primitive: str
    path: str
    steps: tuple[int, ...]
    lane: tuple[int, ...] | None
    source: str
    phase: Phase
    operands: tuple[dict[str, Any], ...]
    reason: str
    advice: str = ""
    reproduced: bool = True

    def __str__(self) -> str:
        if not self.primitive:
            return self.reason
        return f"{self.primitive} at {self.source}, {self.path}, {self.phase}: {self.reason}"


class Evidence(Protocol):
    """A program and the inputs that it failed on, as long as somebody holds the finding."""

    def save(self, finding: Finding, directory: str) -> str:
        """Write them, with a script that runs them; gives its path."""


@dataclass(frozen=True, slots=True, eq=False)
class Finding(_Record):
    """A NaN (or Inf) that entered a loop carry, a per-step output or a program's result.

    Attributes:
        event: where and when it was met; ``event.value`` is the bad leaf where it is at hand, else ``None``.
        leaf: name of the leaf, e.g. ``state.L``.
        kind: ``"nan"`` or ``"inf"``.
        count: number of bad elements, and ``size`` of how many; ``None`` where the replay could not tell.
        first_index: index of the first bad element.
        last_good: what the leaf held at the last finite step: ``step``, ``min``, ``max``; or ``None``.
        origin: where it was born, or ``None`` where nobody asked.
        size: number of elements of the leaf.
        masked: whether selects drop all that became of it, so that it harms nothing; such a finding fails no test.
        entries: in how many entries of its loop the leaf turned bad (a primitive: in how many runs of it); the event
            is that of the first.
        evidence: what runs the program on the failing inputs again, in the process that found it; else ``None``. It
            keeps those inputs alive as long as the finding lives.
    """

    event: TapEvent
    leaf: str
    kind: Literal["nan", "inf"]
    count: int | None = None
    first_index: tuple[int, ...] | None = None
    last_good: dict[str, Any] | None = None
    origin: Origin | None = None
    size: int | None = None
    masked: bool = False
    entries: int = 1
    evidence: Evidence | None = field(default=None, repr=False, metadata={"told": False})

    def __str__(self) -> str:
        return "\n".join(tell(self))

    def save(self, directory: str) -> str:
        """Write the failing inputs and a script that reproduces the finding alone.

        Args:
            directory: folder to write to; made where it does not exist.

        Returns:
            Path of the script.

        Raises:
            ValueError: the inputs are not at hand (donated, or the finding came from another process).
            NotADirectoryError: `directory` is a file, or lies in one.
        """
        if self.evidence is None:
            raise ValueError(
                "the inputs of this finding are not at hand: they are kept in the process that found it, for the first "
                "finding of a program and the first few programs of a recording; save one of those"
            )
        return self.evidence.save(self, directory)


@dataclass(frozen=True, slots=True, eq=False)
class ProgramVerdict(_Record):
    """How the results of one observed program compare with production's."""

    name: str
    call: int
    verdict: Verdict
    reason: str = ""
    leaf: str = ""
    index: tuple[int, ...] | None = None
    expected: str = ""
    got: str = ""
    ulp: int | None = None

    def __str__(self) -> str:
        text = f"{self.name} (call {self.call}): {self.verdict}"
        if self.verdict == "different":
            distance = f", {self.ulp} ulp" if self.ulp is not None else ""
            text += f" in {self.leaf}{list(self.index or ())}: {self.expected} observed as {self.got}{distance}"
        return text + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True, eq=False)
class Certificate(_Record):
    """Whether observing changed a bit, program by program, in the order they ran."""

    programs: tuple[ProgramVerdict, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether every program was certified and none differed."""
        return all(program.verdict == "identical" for program in self.programs)

    def to_dict(self) -> dict[str, Any]:
        """The same content in plain Python types."""
        return {"identical": self.identical, "programs": plain(self.programs)}

    def __str__(self) -> str:
        if self.identical:
            return f"identical: {len(self.programs)} programs"
        bad = [str(program) for program in self.programs if program.verdict != "identical"]
        return "\n".join([f"{len(bad)} of {len(self.programs)} programs not identical:", *bad])
