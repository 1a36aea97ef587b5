"""The plan of one program as data: what is observed at which equation, and the places that values come from.

A `BodyPlan` is one jaxpr with the calls in it looked through. It holds a plan for every equation that is observed, or
that contains something observed; all other equations are left as they are. Each place from which values come is a
`Site`, each place at which the gate looks a `Check`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jaxtap_core.instrument.selection import Met, Selection
from jaxtap_core.jaxpr.leaves import Leaves
from jaxtap_core.records.kinds import Bad, Kind, Phase

GATE_ROWS = 64  # entries of one loop of which the gate keeps the details; the rest is counted


@dataclass(eq=False)
class Site:
    """One place from which values come.

    Attributes:
        number: identifies the site within its program.
        path, kind, total, depth, phase, source: as in `TapEvent`; ``depth`` is the number of enclosing loops.
        selection: what is taken of the values there.
        lanes: shape of the activity mask of the innermost loop batched over its predicate, ``()`` for none.
        bound: how many events one run can bring at most, ``None`` where that is not known.
        tap: which of the lens's taps a primitive site belongs to, else ``None``.
        live: whether values go to the host as they come.
        shards: how many shards pass the site, each for itself; 0 outside of ``shard_map``.
        maps: how many ``shard_map`` it stands in, one inside another.
        spread: whether a shard is itself spread over devices, from where nothing can call the host.
    """

    number: int
    path: str
    kind: Kind
    total: int | None
    depth: int
    phase: Phase
    source: str
    selection: Selection
    lanes: tuple[int, ...]
    bound: int | None
    live: bool
    tap: int | None = None
    shards: int = 0
    maps: int = 0
    spread: bool = False

    @functools.cached_property
    def row_bytes(self) -> int:
        """Bytes that one event takes on the device."""
        leaves = sum(
            int(np.prod(shape)) * np.dtype(dtype).itemsize
            for shape, dtype in zip(self.selection.shapes, self.selection.dtypes, strict=True)
        )
        return leaves + 4 * self.depth + int(np.prod(self.lanes)) * bool(self.lanes)

    def capacity(self, buffer_bytes: int, rows: int) -> int:
        """Rows of the device buffer: all events where they fit into ``buffer_bytes``, else as many as do.

        ``rows`` where their number is not known beforehand.
        """
        most = max(1, buffer_bytes // max(1, self.row_bytes))
        return min(most, max(1, self.bound) if self.bound is not None else rows)


class Look(NamedTuple):
    """One leaf that the gate looks at: its name, its place (among the carries, the per-step outputs, or a primitive's
    outputs), what is looked for, and which output of the equation it is."""

    name: str
    place: int
    bad: Bad
    output: int


@dataclass(eq=False)
class Check:
    """A place where the gate looks for NaN (or Inf): the carries and outputs of a loop, or one primitive.

    Attributes:
        looks: what is looked for: in which leaf, and whether for NaN or Inf. The first ``carries`` are carries, the
            rest outputs.
        lanes: as in `Site`; one verdict a lane.
        consumer: position of the one select that all a primitive puts out goes into, where there is such: whether it
            selects a NaN away is known only after it.
        once: whether the place is passed at most once in a run, so that there is one row of verdicts at most.
        top: how many equations of the program come before the outermost one that the place is in.
        shards, maps: as in `Site`.
        mesh: over whose explicit axes the values looked at are sharded, else ``None``.
    """

    number: int
    kind: Kind
    path: str
    total: int | None
    depth: int
    phase: Phase
    source: str
    looks: tuple[Look, ...]
    carries: int
    lanes: tuple[int, ...]
    once: bool
    top: int = 0
    consumer: int | None = None
    shards: int = 0
    maps: int = 0
    mesh: Any = None


@dataclass(eq=False)
class BodyPlan:
    """Plans of the equations of one jaxpr, by their position, and the numbers of all stateful sites inside."""

    plans: dict[int, EqnPlan] = field(default_factory=dict)
    states: list[int] = field(default_factory=list)
    has_live: bool = False

    def add(self, position: int, plan: EqnPlan, inner: Iterable[BodyPlan] = ()) -> None:
        """Enter the plan of one equation."""
        self.plans[position] = plan
        for body in inner:
            self.states += body.states
            self.has_live |= body.has_live


@dataclass(eq=False)
class EqnPlan:
    """What happens at one equation.

    Attributes:
        path: address of a loop or branch (empty for calls and primitives).
        levels: the inner programs: of a call one, of a scan one, of a while predicate and body, of a branch all.
        sites: primitive sites on the equation's outputs.
        carry, output: sites of a loop.
        leaves: the carry leaves of a loop.
        check: the gate's check.
        drop: whether the equation is left out (a debug callback in a replica).
        budget: of a ``while``, where loops have one.
    """

    path: str = ""
    bodies: tuple[BodyPlan, ...] = ()
    sites: tuple[Site, ...] = ()
    carry: Site | None = None
    output: Site | None = None
    leaves: Leaves | None = None
    check: Check | None = None
    drop: bool = False
    budget: Budget | None = None


@dataclass(frozen=True, eq=False)
class Budget:
    """The trip budget of one ``while``.

    ``names`` are those of its carries, empty for the counter and limit of a ``fori_loop``, which are none of the
    user's; ``read`` says of each carry whether the predicate looks at it.
    """

    number: int
    path: str
    source: str
    depth: int
    names: tuple[str, ...]
    read: tuple[bool, ...]
    avals: tuple[Any, ...]
    lanes: tuple[int, ...]


@dataclass(eq=False)
class Plan:
    """The plan of a whole program.

    ``met`` is what there is of what was asked for; ``paths`` are all loops, with the user's lines.
    """

    body: BodyPlan
    sites: dict[int, Site]
    checks: dict[int, Check]
    budgets: dict[int, Budget]
    met: Met
    depth: int
    may_stop: bool
    paths: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing in the program is observed."""
        return not self.body.plans

    def looks_like(self, other: Plan) -> bool:
        """Whether another plan of the same program looks at the same places."""
        return list(self.sites) == list(other.sites) and list(self.checks) == list(other.checks)

    @functools.cached_property
    def looks_into_steps(self) -> bool:
        """Whether values inside a step are looked at, so that the steps may be fused, and rounded, in another way."""
        return bool(self.sites) or any(check.kind == "primitive" for check in self.checks.values())

    @property
    def live(self) -> bool:
        """Whether any site talks to the host while the program runs."""
        return any(site.live for site in self.sites.values())
