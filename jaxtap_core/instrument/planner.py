"""Planning: what is observed where, decided from the jaxpr alone before anything is rewritten."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from jaxtap_core import _compat
from jaxtap_core.errors import LensError, warn
from jaxtap_core.instrument.plan import Budget, Check, EqnPlan, Level, Look, Plan, Site
from jaxtap_core.instrument.selection import Misfit, Selection, select_leaves, select_values
from jaxtap_core.jaxpr.address import Numbering, built_by_jax, join, phase_of, source_of
from jaxtap_core.jaxpr.equations import (
    can_bear_nan,
    carry_avals,
    explicit_mesh,
    inexact_places,
    leaf_avals,
    number_along,
    output_avals,
    selected_once,
)
from jaxtap_core.jaxpr.leaves import carry_leaves, output_names
from jaxtap_core.jaxpr.structure import BRANCHES, LOOPS, SHARDED, Call, Scan, ShardMap, While, call_of
from jaxtap_core.records.events import Kind, Phase
from jaxtap_core.request.settings import Settings

# Callbacks for debugging: they give nothing back, so that a replica can do without them.
DEBUG_PRIMITIVES = frozenset({"debug_callback", "debug_print"})


@dataclass(frozen=True)
class _Place:
    """Where the planner stands: address, enclosing loops, and what is inherited from them."""

    prefix: str = ""
    depth: int = 0
    total: int | None = None
    bound: int | None = 1
    phase: Phase = "forward"
    source: str = ""
    lanes: tuple[int, ...] = ()
    shards: int = 0


class Planner:
    """Walks one program and enters what is observed.

    Args:
        settings: what the lens is asked to do.
        replica: whether debug callbacks are left out.
    """

    def __init__(self, settings: Settings, *, replica: bool = False, inside: bool = False) -> None:
        self.settings = settings
        self.replica = replica
        self.inside = inside
        self.sites: dict[int, Site] = {}
        self.checks: dict[int, Check] = {}
        self.budgets: dict[int, Budget] = {}
        self.depth = 0
        self.misfits: list[Misfit] = []
        self.fitted = 0
        self.paths: list[str] = []
        self._numbers = itertools.count()

    def plan(self, jaxpr: Any, source: str, phase: Phase = "forward") -> Plan:
        """The plan of the program ``jaxpr``, run in ``phase``; ``source`` stands in where JAX kept no line."""
        level = self._level(jaxpr, Numbering(), _Place(source=source, phase=phase))
        return Plan(
            level,
            self.sites,
            self.checks,
            self.budgets,
            self.misfits,
            self.fitted,
            self.depth,
            self.settings.fail_fast or bool(self.budgets),
            tuple(self.paths),
        )

    # -- walking

    def _level(self, jaxpr: Any, numbering: Numbering, place: _Place) -> Level:
        level = Level()
        selects = selected_once(jaxpr) if self._watches_births else {}
        for position, eqn in enumerate(_compat.body_of(jaxpr).jaxpr.eqns):
            name = eqn.primitive.name
            path = ""
            if name in LOOPS:
                path = self._loop(level, position, eqn, numbering, place)
            elif name == BRANCHES:
                path = self._branches(level, position, eqn, numbering, place)
            elif (call := call_of(eqn)) is not None:
                self._call(level, position, eqn, call, numbering, place)
            elif name == SHARDED:
                self._shard_map(level, position, eqn, numbering, place)
            elif self.replica and name in DEBUG_PRIMITIVES:
                level.add(position, EqnPlan(drop=True))
            path = path or join(place.prefix, numbering.primitive(name))
            self._primitive(level, position, eqn, path, place, selects)
        return level

    @property
    def _watches_births(self) -> bool:
        level = self.settings.level
        return level is not None and level.name in ("born", "primitives")

    def _at(self, eqn: Any, place: _Place) -> _Place:
        return replace(
            place,
            phase=phase_of(eqn.source_info, place.phase),
            source=source_of(eqn.source_info, place.source),
        )

    def _call(self, level: Level, position: int, eqn: Any, call: Call, numbering: Numbering, place: _Place) -> None:
        if self.inside and eqn.primitive.name.startswith("custom_"):
            return  # an outer transformation still needs the custom rule
        inner = self._level(call.jaxpr, numbering, self._at(eqn, place))
        if inner.plans:
            level.add(position, EqnPlan(levels=(inner,)), (inner,))

    def _shard_map(self, level: Level, position: int, eqn: Any, numbering: Numbering, place: _Place) -> None:
        mapped = ShardMap.of(eqn)
        if self.inside or place.shards or mapped.partial:
            # an outer transformation still needs the equation; one inside another is not told apart; and a shard
            # that is itself spread over devices cannot call the host
            number_along(mapped.jaxpr, numbering)
            return
        inner = self._level(mapped.jaxpr, numbering, replace(self._at(eqn, place), shards=mapped.shards))
        if inner.plans:
            level.add(position, EqnPlan(levels=(inner,)), (inner,))

    def _branches(self, level: Level, position: int, eqn: Any, numbering: Numbering, place: _Place) -> str:
        here = self._at(eqn, place)
        path = join(place.prefix, numbering.structure("cond", built_by_jax(eqn.source_info)))
        levels = tuple(
            self._level(branch, Numbering(), replace(here, prefix=f"{path}/b{i}"))
            for i, branch in enumerate(eqn.params["branches"])
        )
        if any(inner.plans for inner in levels):
            level.add(position, EqnPlan(path=path, levels=levels), levels)
        return path

    def _loop(self, level: Level, position: int, eqn: Any, numbering: Numbering, place: _Place) -> str:
        here = self._at(eqn, place)
        library = built_by_jax(eqn.source_info)
        path = join(place.prefix, numbering.structure(eqn.primitive.name, library))
        scan = Scan.of(eqn) if eqn.primitive.name == "scan" else None
        total = scan.length if scan is not None else None
        inside = replace(here, prefix=path, depth=place.depth + 1, total=total)
        if scan is not None:
            inside = replace(inside, bound=None if place.bound is None else place.bound * scan.length)
            levels: tuple[Level, ...] = (self._level(scan.jaxpr, Numbering(), inside),)
        else:
            loop = While.of(eqn)
            inside = replace(inside, bound=None, lanes=loop.lanes or place.lanes)
            levels = (
                self._level(loop.predicate, Numbering(), replace(inside, prefix=f"{path}/pred")),
                self._level(loop.body, Numbering(), inside),
            )
        self.paths.append(f"{path} ({inside.source})" if inside.source else path)
        plan = EqnPlan(path=path, levels=levels)
        self.depth = max(self.depth, inside.depth)
        # one shard that stops while others go on would leave them waiting for what it does not send
        if self.settings.max_trips is not None and eqn.primitive.name == "while" and not place.shards:
            plan.budget = self._budget(eqn, path, inside)
        if self._emits(path, eqn, inside.depth):
            self._loop_sites(plan, eqn, inside, library)
        if self.settings.level is not None and self.settings.level.name == "escape":
            plan.check = self._loop_check(eqn, path, inside, once=place.bound == 1)
        own = plan.carry or plan.output or plan.check or plan.budget
        if own or any(inner.plans for inner in levels):
            level.add(position, plan, levels)
            for site in (plan.carry, plan.output):
                if site is not None:
                    self._enter(level, site)
            level.states += [own.number for own in (plan.check, plan.budget) if own is not None]
        return path

    def _emits(self, path: str, eqn: Any, depth: int) -> bool:
        settings = self.settings
        if not (settings.emits_carry or settings.emits_outputs):
            return False
        if eqn.primitive.name not in settings.ops:
            return False
        if settings.max_depth is not None and depth > settings.max_depth:
            return False
        if settings.where is None:
            return True
        try:
            return bool(settings.where(path))
        except Exception as error:
            raise LensError(
                f"the path filter where={_name(settings.where)} raised {error!r} for the path {path!r}; "
                "it gets the address of a loop and says True or False"
            ) from error

    # -- sites

    def _enter(self, level: Level, site: Site) -> None:
        self.sites[site.number] = site
        if site.live:
            level.has_live = True
        else:
            level.states.append(site.number)

    def _number(self) -> int:
        return next(self._numbers)

    def _site(
        self, path: str, kind: Kind, place: _Place, selection: Selection, live: bool, tap: int | None = None
    ) -> Site:
        bound = place.bound
        every = self.settings.sample_every
        if bound is not None and place.total is not None and every > 1 and place.total:
            bound = bound // place.total * -(-place.total // every)
        return Site(
            number=self._number(),
            path=path,
            kind=kind,
            total=place.total,
            depth=place.depth,
            phase=place.phase,
            source=place.source,
            selection=selection,
            lanes=place.lanes,
            bound=bound,
            live=live or self.inside,
            tap=tap,
            shards=place.shards,
        )

    def _loop_sites(self, plan: EqnPlan, eqn: Any, place: _Place, library: bool) -> None:
        settings, path = self.settings, plan.path
        leaves = plan.leaves = carry_leaves(eqn)
        if settings.emits_carry:
            chosen = select_leaves(settings.select, leaves.names, leaf_avals(eqn, leaves), path)
            if isinstance(chosen, Selection):
                self.fitted += 1
                plan.carry = self._site(path, "carry", place, chosen, settings.live_carry)
                if not leaves.ordered and callable(settings.select) and not self.replica:
                    warn(
                        f"{path}: the user's order of the carry leaves is not known; they are given as "
                        f"{list(leaves.names)}"
                    )
            elif not library:
                self.misfits.append(chosen)
        if settings.emits_outputs and eqn.primitive.name == "scan":
            avals = output_avals(eqn)
            chosen = select_leaves(settings.select_ys, output_names(eqn), avals, path)
            if isinstance(chosen, Selection):
                self.fitted += 1
                plan.output = self._site(path, "output", place, chosen, settings.live_outputs)
            elif not library:
                self.misfits.append(chosen)

    def _primitive(
        self, level: Level, position: int, eqn: Any, path: str, place: _Place, selects: dict[Any, int]
    ) -> None:
        name = eqn.primitive.name
        structural = name in (*LOOPS, BRANCHES, SHARDED) or call_of(eqn) is not None
        taps = [
            (i, tap)
            for i, tap in enumerate(self.settings.taps)
            if tap.fits(name) and not (structural and tap.primitives == "*")
        ]
        watched = self.settings.level is not None and self.settings.level.watches(name) and can_bear_nan(eqn)
        if not (taps or watched):
            return
        here = self._at(eqn, place)
        plan = level.plans.get(position) or EqnPlan()
        avals = [var.aval for var in eqn.outvars]
        for number, tap in taps:
            selection = select_values(tap, avals, path)
            if selection is None:
                continue
            site = self._site(path, "primitive", here, selection, tap.live, number)
            plan.sites += (site,)
            self._enter(level, site)
        if watched:
            plan.check = Check(
                number=self._number(),
                kind="primitive",
                path=path,
                total=place.total,
                depth=place.depth,
                phase=here.phase,
                source=here.source,
                looks=self._looks(inexact_places(avals), [f"out[{i}]" for i in range(len(avals))]),
                carries=0,
                lanes=place.lanes,
                once=place.bound == 1,
                consumer=selects.get(eqn.outvars[0]) if len(eqn.outvars) == 1 else None,
                shards=place.shards,
                mesh=explicit_mesh(avals),
            )
            self.checks[plan.check.number] = plan.check
            level.states.append(plan.check.number)
        if plan.sites or plan.check:
            level.plans[position] = plan

    def _looks(self, indices: Sequence[int], names: Sequence[str]) -> tuple[Look, ...]:
        """NaN is always looked for, Inf apart and only when asked for: each has its own first step."""
        kinds: tuple[Literal["nan", "inf"], ...] = ("nan", "inf") if self.settings.inf else ("nan",)
        return tuple(Look(names[i], i, bad) for bad in kinds for i in indices)

    def _budget(self, eqn: Any, path: str, place: _Place) -> Budget:
        loop = While.of(eqn)
        predicate = _compat.body_of(loop.predicate).jaxpr
        used = {id(atom) for e in predicate.eqns for atom in e.invars} | {id(v) for v in predicate.outvars}
        names = {leaf.index: leaf.name for leaf in carry_leaves(eqn).leaves if leaf.place == "carry"}
        avals = carry_avals(eqn)
        budget = Budget(
            number=self._number(),
            path=path,
            source=place.source,
            depth=place.depth - 1,
            names=tuple(names.get(i, "") for i in range(len(avals))),
            read=tuple(id(v) in used for v in predicate.invars[loop.predicate_consts :]),
            avals=tuple(avals),
            lanes=loop.lanes,
        )
        self.budgets[budget.number] = budget
        return budget

    def _loop_check(self, eqn: Any, path: str, place: _Place, *, once: bool) -> Check | None:
        avals = carry_avals(eqn)
        names = {leaf.index: leaf.name for leaf in carry_leaves(eqn).leaves if leaf.place == "carry"}
        carry_names = [names.get(i, f"carry[{i}]") for i in range(len(avals))]
        carries = self._looks(inexact_places(avals), carry_names)
        outputs: tuple[Look, ...] = ()
        if eqn.primitive.name == "scan":
            if not Scan.of(eqn).length:
                return None  # no step can make anything bad
            outputs = self._looks(inexact_places(output_avals(eqn)), output_names(eqn))
        if not carries + outputs:
            return None
        check = Check(
            number=self._number(),
            kind="carry",
            path=path,
            total=place.total,
            depth=place.depth,
            phase=place.phase,
            source=place.source,
            looks=carries + outputs,
            carries=len(carries),
            lanes=While.of(eqn).lanes if eqn.primitive.name == "while" else (),
            once=once,
            shards=place.shards,
            mesh=explicit_mesh([var.aval for var in eqn.outvars]),
        )
        self.checks[check.number] = check
        return check


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
