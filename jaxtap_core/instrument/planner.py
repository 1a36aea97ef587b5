"""Planning: what is observed where, decided from the jaxpr alone before anything is rewritten."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from jaxtap_core import _compat
from jaxtap_core.errors import warn
from jaxtap_core.instrument.plan import BodyPlan, Budget, Check, EqnPlan, Look, Plan, Site
from jaxtap_core.instrument.selection import Met, Selection, select_leaves, select_values
from jaxtap_core.jaxpr.address import join, phase_of, source_of
from jaxtap_core.jaxpr.equations import (
    can_bear_nan,
    carry_avals,
    dropped_at,
    explicit_mesh,
    inexact_places,
    leaf_avals,
    output_avals,
)
from jaxtap_core.jaxpr.leaves import carry_leaves, output_names
from jaxtap_core.jaxpr.liveness import LiveEquation, Liveness, liveness
from jaxtap_core.jaxpr.structure import BODY, PREDICATE, RULED, WITHIN, Loop, ShardMap, inner_programs, loop_of
from jaxtap_core.jaxpr.visit import Addressed, addressed
from jaxtap_core.records.kinds import Kind, Phase
from jaxtap_core.request.settings import Settings

# Callbacks for debugging: they give nothing back, so that a replica can do without them.
DEBUG_PRIMITIVES = frozenset({"debug_callback", "debug_print"})


@dataclass(frozen=True)
class Scope:
    """Where the planner stands: address, enclosing loops, and what is inherited from them.

    ``live`` is what lives of the program it goes through, ``None`` where nothing does (or nobody asks).
    """

    prefix: str = ""
    depth: int = 0
    total: int | None = None
    bound: int | None = 1
    phase: Phase = "forward"
    source: str = ""
    lanes: tuple[int, ...] = ()
    shards: int = 0
    live: Liveness | None = None
    maps: int = 0
    axes: frozenset[str] = frozenset()
    spread: bool = False

    def in_shards(self, mapped: ShardMap) -> Scope:
        """The inside of a ``shard_map``, which may stand in another."""
        axes = self.axes | set(mapped.axes)
        return replace(
            self,
            shards=max(1, self.shards) * mapped.shards,
            maps=self.maps + 1,
            axes=axes,
            spread=axes != set(mapped.mesh.axis_names),
        )


class Planner:
    """Goes through one program and enters what is observed.

    Args:
        settings: what the lens is asked to do.
        program: its name.
        replica: whether debug callbacks are left out.
    """

    def __init__(self, settings: Settings, program: str = "", *, replica: bool = False, inside: bool = False) -> None:
        self.settings = settings
        self.program = program
        self.replica = replica
        self.inside = inside
        self.sites: dict[int, Site] = {}
        self.checks: dict[int, Check] = {}
        self.budgets: dict[int, Budget] = {}
        self.depth = 0
        self.met = Met()
        self.paths: list[str] = []
        self._numbers = itertools.count()
        self._top = 0

    def plan(self, jaxpr: Any, source: str, phase: Phase = "forward", shards: int = 0) -> Plan:
        """The plan of the program ``jaxpr``.

        Args:
            jaxpr: the program.
            source: stands in where JAX kept no line.
            phase: in which it is run.
            shards: how many run it, where it is the inside of a ``shard_map``.
        """
        live = liveness(jaxpr) if self.settings.level is not None else None
        body = self._program(jaxpr, Scope(source=source, phase=phase, live=live, shards=shards))
        return Plan(
            body,
            self.sites,
            self.checks,
            self.budgets,
            self.met,
            self.depth,
            self.settings.fail_fast or bool(self.budgets),
            tuple(self.paths),
        )

    # -- through the program

    def _program(self, jaxpr: Any, scope: Scope) -> BodyPlan:
        """The plan of a program, a loop's body or predicate, or a branch."""
        return self._body(jaxpr, addressed(jaxpr), scope)

    def _body(self, jaxpr: Any, equations: Sequence[Addressed], scope: Scope) -> BodyPlan:
        """The plan of ``jaxpr``, all of a level or the inside of a call in it, whose ``equations`` these are."""
        body = BodyPlan()
        selects = dropped_at(jaxpr) if self._watches_births else {}
        for position, one in enumerate(equations):
            path = join(scope.prefix, one.segment)
            if not scope.prefix:
                self._top += 1
            lives = scope.live.equations[position] if scope.live is not None else None
            if one.kind == "loop":
                self._loop(body, position, one, path, scope, lives)
            elif one.kind == "branches":
                self._branches(body, position, one, path, scope, lives)
            elif one.kind == "call":
                self._call(body, position, one, _inside(scope, lives, WITHIN))
            elif one.kind == "sharded":
                self._shard_map(body, position, one, _inside(scope, lives, WITHIN))
            elif self.replica and one.eqn.primitive.name in DEBUG_PRIMITIVES:
                body.add(position, EqnPlan(drop=True))
            self._primitive(body, position, one, path, scope, selects, computed=lives is not None)
        return body

    @property
    def _watches_births(self) -> bool:
        level = self.settings.level
        return level is not None and level.name in ("born", "primitives")

    def _at(self, eqn: Any, scope: Scope) -> Scope:
        return replace(
            scope,
            phase=phase_of(eqn.source_info, scope.phase),
            source=source_of(eqn.source_info, scope.source),
        )

    def _call(self, body: BodyPlan, position: int, one: Addressed, scope: Scope) -> None:
        if self.inside and one.eqn.primitive.name in RULED:
            return  # an outer transformation still needs the rule
        wrapped = inner_programs(one.eqn)[WITHIN]
        inner = self._body(wrapped.jaxpr, one.within, self._at(one.eqn, scope))
        if inner.plans:
            body.add(position, EqnPlan(bodies=(inner,)), (inner,))

    def _shard_map(self, body: BodyPlan, position: int, one: Addressed, scope: Scope) -> None:
        mapped = ShardMap.of(one.eqn)
        inside = self._at(one.eqn, scope).in_shards(mapped)
        if inside.spread and (self.inside or mapped.explicit):
            # nothing leaves an outer transformation but by a call of the host; and buffers that an explicit axis
            # splits cannot go in
            return
        inner = self._body(mapped.jaxpr, one.within, inside)
        if inner.plans:
            body.add(position, EqnPlan(bodies=(inner,)), (inner,))

    def _branches(
        self,
        body: BodyPlan,
        position: int,
        one: Addressed,
        path: str,
        scope: Scope,
        lives: LiveEquation | None,
    ) -> None:
        here = self._at(one.eqn, scope)
        bodies = tuple(
            self._program(branch.jaxpr, replace(_inside(here, lives, name), prefix=f"{path}/{name}"))
            for name, branch in inner_programs(one.eqn).items()
        )
        if any(inner.plans for inner in bodies):
            body.add(position, EqnPlan(path=path, bodies=bodies), bodies)

    def _loop(
        self,
        body: BodyPlan,
        position: int,
        one: Addressed,
        path: str,
        scope: Scope,
        lives: LiveEquation | None,
    ) -> None:
        eqn, loop = one.eqn, loop_of(one.eqn)
        inside = replace(
            self._at(eqn, scope),
            prefix=path,
            depth=scope.depth + 1,
            total=loop.length,
            bound=None if scope.bound is None or loop.length is None else scope.bound * loop.length,
            lanes=loop.lanes or scope.lanes,
        )
        bodies: tuple[BodyPlan, ...] = ()
        if loop.predicate is not None:
            before = replace(_inside(inside, lives, PREDICATE), prefix=f"{path}/{PREDICATE}")
            bodies += (self._program(loop.predicate, before),)
        bodies += (self._program(loop.body, _inside(inside, lives, BODY)),)
        self.paths.append(f"{path} ({inside.source})" if inside.source else path)
        plan = EqnPlan(path=path, bodies=bodies)
        self.depth = max(self.depth, inside.depth)
        # one shard that stops while others go on would leave them waiting for what it does not send
        if self.settings.max_trips is not None and loop.predicate is not None and not scope.shards:
            plan.budget = self._budget(eqn, loop, path, inside)
        if self._emits(path, eqn, inside):
            self._loop_sites(plan, one, loop, inside)
        level = self.settings.level
        if level is not None and lives is not None and level.looks_into(scope.depth):
            # what the program keeps, or all that it computes
            judged = lives.results if level.name == "escape" else (*lives.carries, *lives.results[loop.num_carry :])
            plan.check = self._loop_check(eqn, loop, path, inside, judged, once=scope.bound == 1)
        own = plan.carry or plan.output or plan.check or plan.budget
        if own or any(inner.plans for inner in bodies):
            body.add(position, plan, bodies)
            for site in (plan.carry, plan.output):
                if site is not None:
                    self._enter(body, site)
            body.states += [own.number for own in (plan.check, plan.budget) if own is not None]

    def _emits(self, path: str, eqn: Any, scope: Scope) -> bool:
        settings = self.settings
        if not (settings.emits_carry or settings.emits_outputs):
            return False
        if eqn.primitive.name not in settings.ops:
            return False
        if settings.max_depth is not None and scope.depth > settings.max_depth:
            return False
        if settings.filter is None:
            return True
        self.met.asked.append(f"{path} ({scope.source})" if scope.source else path)
        passed = settings.filter.fits(path, self.program, scope.source)
        self.met.passed += passed
        return passed

    # -- sites

    def _enter(self, body: BodyPlan, site: Site) -> None:
        self.sites[site.number] = site
        if site.live:
            body.has_live = True
        else:
            body.states.append(site.number)

    def _number(self) -> int:
        return next(self._numbers)

    def _site(
        self, path: str, kind: Kind, scope: Scope, selection: Selection, live: bool, tap: int | None = None
    ) -> Site:
        bound = scope.bound
        every = self.settings.sample_every
        if bound is not None and scope.total is not None and every > 1 and scope.total:
            bound = bound // scope.total * -(-scope.total // every)
        return Site(
            number=self._number(),
            path=path,
            kind=kind,
            total=scope.total,
            depth=scope.depth,
            phase=scope.phase,
            source=scope.source,
            selection=selection,
            lanes=scope.lanes,
            bound=bound,
            live=(live or self.inside) and not scope.spread,
            tap=tap,
            shards=scope.shards,
            maps=scope.maps,
            spread=scope.spread,
        )

    def _loop_sites(self, plan: EqnPlan, one: Addressed, loop: Loop, scope: Scope) -> None:
        settings, path, eqn = self.settings, plan.path, one.eqn
        leaves = plan.leaves = carry_leaves(eqn)
        if settings.emits_carry:
            chosen = select_leaves(settings.select, leaves.names, leaf_avals(eqn, leaves), path)
            if isinstance(chosen, Selection):
                self.met.fitted["select"] += 1
                plan.carry = self._site(path, "carry", scope, chosen, settings.live_carry)
                if not leaves.ordered and callable(settings.select) and not self.replica:
                    warn(
                        f"{path}: the user's order of the carry leaves is not known; they are given as "
                        f"{list(leaves.names)}"
                    )
            elif not one.by_library:
                self.met.misfits.append(("select", chosen))
        avals = output_avals(eqn) if loop.length is not None else []
        if settings.emits_outputs and avals:
            chosen = select_leaves(settings.select_ys, output_names(eqn), avals, path)
            if isinstance(chosen, Selection):
                self.met.fitted["select_ys"] += 1
                plan.output = self._site(path, "output", scope, chosen, settings.live_outputs)
            elif not one.by_library:
                self.met.misfits.append(("select_ys", chosen))

    def _primitive(
        self,
        body: BodyPlan,
        position: int,
        one: Addressed,
        path: str,
        scope: Scope,
        selects: dict[Any, int],
        *,
        computed: bool,
    ) -> None:
        eqn, name = one.eqn, one.eqn.primitive.name
        taps = [
            (i, tap)
            for i, tap in enumerate(self.settings.taps)
            if tap.fits(name) and not (one.kind != "plain" and tap.primitives == "*")
        ]
        level = self.settings.level
        watched = level is not None and computed and level.watches(name) and can_bear_nan(eqn)
        if not (taps or watched):
            return
        here = self._at(eqn, scope)
        plan = body.plans.get(position) or EqnPlan()
        avals = [var.aval for var in eqn.outvars]
        for number, tap in taps:
            self.met.taps.add(number)
            selection = select_values(tap, name, avals, path)
            if selection is None:
                continue
            site = self._site(path, "primitive", here, selection, self.settings.live_tap(tap), number)
            plan.sites += (site,)
            self._enter(body, site)
        if watched:
            plan.check = Check(
                number=self._number(),
                kind="primitive",
                path=path,
                total=scope.total,
                depth=scope.depth,
                phase=here.phase,
                source=here.source,
                looks=self._looks(inexact_places(avals), [f"out[{i}]" for i in range(len(avals))]),
                top=self._top,
                carries=0,
                lanes=scope.lanes,
                once=scope.bound == 1,
                consumer=selects.get(eqn.outvars[0]) if len(eqn.outvars) == 1 else None,
                shards=scope.shards,
                maps=scope.maps,
                mesh=explicit_mesh(avals),
            )
            self.checks[plan.check.number] = plan.check
            body.states.append(plan.check.number)
        if plan.sites or plan.check:
            body.plans[position] = plan

    def _looks(self, indices: Sequence[int], names: Sequence[str], first: int = 0) -> tuple[Look, ...]:
        """NaN is always looked for, Inf apart and only when asked for: each has its own first step.

        ``first`` is the output of the equation that has index 0.
        """
        kinds: tuple[Literal["nan", "inf"], ...] = ("nan", "inf") if self.settings.inf else ("nan",)
        return tuple(Look(names[i], i, bad, first + i) for bad in kinds for i in indices)

    def _budget(self, eqn: Any, loop: Loop, path: str, scope: Scope) -> Budget:
        predicate = _compat.body_of(loop.predicate).jaxpr
        used = {id(atom) for e in predicate.eqns for atom in e.invars} | {id(v) for v in predicate.outvars}
        names = {leaf.index: leaf.name for leaf in carry_leaves(eqn).leaves if leaf.role == "carry"}
        avals = carry_avals(eqn)
        budget = Budget(
            number=self._number(),
            path=path,
            source=scope.source,
            depth=scope.depth - 1,
            names=tuple(names.get(i, "") for i in range(len(avals))),
            read=tuple(id(v) in used for v in predicate.invars[loop.predicate_consts :]),
            avals=tuple(avals),
            lanes=loop.lanes,
        )
        self.budgets[budget.number] = budget
        return budget

    def _loop_check(
        self, eqn: Any, loop: Loop, path: str, scope: Scope, judged: Sequence[bool], *, once: bool
    ) -> Check | None:
        if loop.length == 0:
            return None  # no step can make anything bad
        avals = carry_avals(eqn)
        names = {leaf.index: leaf.name for leaf in carry_leaves(eqn).leaves if leaf.role == "carry"}
        carry_names = [names.get(i, f"carry[{i}]") for i in range(len(avals))]
        carries = self._looks([i for i in inexact_places(avals) if judged[i]], carry_names)
        places = [i for i in inexact_places(output_avals(eqn)) if judged[len(avals) + i]]
        outputs = self._looks(places, output_names(eqn), first=len(avals))
        if not carries + outputs:
            return None
        check = Check(
            number=self._number(),
            kind="carry",
            path=path,
            total=scope.total,
            depth=scope.depth,
            phase=scope.phase,
            source=scope.source,
            looks=carries + outputs,
            top=self._top,
            carries=len(carries),
            lanes=loop.lanes,
            once=once,
            shards=scope.shards,
            maps=scope.maps,
            mesh=explicit_mesh([var.aval for var in eqn.outvars]),
        )
        self.checks[check.number] = check
        return check


def _inside(scope: Scope, lives: LiveEquation | None, name: str) -> Scope:
    """Where the planner stands in an inner program: what lives of it is known where its equation lives."""
    return replace(scope, live=None if lives is None else lives.inner[name])
