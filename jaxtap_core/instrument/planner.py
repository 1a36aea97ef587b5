"""Planning: what is observed where, decided from the jaxpr alone before anything is rewritten."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from jaxtap_core import _compat
from jaxtap_core.errors import LensError, warn
from jaxtap_core.instrument.plan import BodyPlan, Budget, Check, EqnPlan, Look, Plan, Site
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
from jaxtap_core.jaxpr.structure import BRANCHES, LOOPS, RULED, SHARDED, Call, Scan, ShardMap, While, call_of
from jaxtap_core.records.kinds import Kind, Phase
from jaxtap_core.request.settings import Settings

# Callbacks for debugging: they give nothing back, so that a replica can do without them.
DEBUG_PRIMITIVES = frozenset({"debug_callback", "debug_print"})


@dataclass(frozen=True)
class Scope:
    """Where the planner stands: address, enclosing loops, and what is inherited from them."""

    prefix: str = ""
    depth: int = 0
    total: int | None = None
    bound: int | None = 1
    phase: Phase = "forward"
    source: str = ""
    lanes: tuple[int, ...] = ()
    shards: int = 0
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

    def plan(self, jaxpr: Any, source: str, phase: Phase = "forward", shards: int = 0) -> Plan:
        """The plan of the program ``jaxpr``.

        Args:
            jaxpr: the program.
            source: stands in where JAX kept no line.
            phase: in which it is run.
            shards: how many run it, where it is the inside of a ``shard_map``.
        """
        body = self._body(jaxpr, Numbering(), Scope(source=source, phase=phase, shards=shards))
        return Plan(
            body,
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

    def _body(self, jaxpr: Any, numbering: Numbering, scope: Scope) -> BodyPlan:
        body = BodyPlan()
        selects = selected_once(jaxpr) if self._watches_births else {}
        for position, eqn in enumerate(_compat.body_of(jaxpr).jaxpr.eqns):
            name = eqn.primitive.name
            path = ""
            if name in LOOPS:
                path = self._loop(body, position, eqn, numbering, scope)
            elif name == BRANCHES:
                path = self._branches(body, position, eqn, numbering, scope)
            elif (call := call_of(eqn)) is not None:
                self._call(body, position, eqn, call, numbering, scope)
            elif name == SHARDED:
                self._shard_map(body, position, eqn, numbering, scope)
            elif self.replica and name in DEBUG_PRIMITIVES:
                body.add(position, EqnPlan(drop=True))
            path = path or join(scope.prefix, numbering.primitive(name))
            self._primitive(body, position, eqn, path, scope, selects)
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

    def _call(self, body: BodyPlan, position: int, eqn: Any, call: Call, numbering: Numbering, scope: Scope) -> None:
        if self.inside and eqn.primitive.name in RULED:
            number_along(call.jaxpr, numbering)
            return  # an outer transformation still needs the rule
        inner = self._body(call.jaxpr, numbering, self._at(eqn, scope))
        if inner.plans:
            body.add(position, EqnPlan(bodies=(inner,)), (inner,))

    def _shard_map(self, body: BodyPlan, position: int, eqn: Any, numbering: Numbering, scope: Scope) -> None:
        mapped = ShardMap.of(eqn)
        inside = self._at(eqn, scope).in_shards(mapped)
        if inside.spread and (self.inside or mapped.explicit):
            # nothing leaves an outer transformation but by a call of the host; and buffers that an explicit axis
            # splits cannot go in
            number_along(mapped.jaxpr, numbering)
            return
        inner = self._body(mapped.jaxpr, numbering, inside)
        if inner.plans:
            body.add(position, EqnPlan(bodies=(inner,)), (inner,))

    def _branches(self, body: BodyPlan, position: int, eqn: Any, numbering: Numbering, scope: Scope) -> str:
        here = self._at(eqn, scope)
        path = join(scope.prefix, numbering.structure("cond", built_by_jax(eqn.source_info)))
        bodies = tuple(
            self._body(branch, Numbering(), replace(here, prefix=f"{path}/b{i}"))
            for i, branch in enumerate(eqn.params["branches"])
        )
        if any(inner.plans for inner in bodies):
            body.add(position, EqnPlan(path=path, bodies=bodies), bodies)
        return path

    def _loop(self, body: BodyPlan, position: int, eqn: Any, numbering: Numbering, scope: Scope) -> str:
        here = self._at(eqn, scope)
        library = built_by_jax(eqn.source_info)
        path = join(scope.prefix, numbering.structure(eqn.primitive.name, library))
        scan = Scan.of(eqn) if eqn.primitive.name == "scan" else None
        total = scan.length if scan is not None else None
        inside = replace(here, prefix=path, depth=scope.depth + 1, total=total)
        if scan is not None:
            inside = replace(inside, bound=None if scope.bound is None else scope.bound * scan.length)
            bodies: tuple[BodyPlan, ...] = (self._body(scan.jaxpr, Numbering(), inside),)
        else:
            loop = While.of(eqn)
            inside = replace(inside, bound=None, lanes=loop.lanes or scope.lanes)
            bodies = (
                self._body(loop.predicate, Numbering(), replace(inside, prefix=f"{path}/pred")),
                self._body(loop.body, Numbering(), inside),
            )
        self.paths.append(f"{path} ({inside.source})" if inside.source else path)
        plan = EqnPlan(path=path, bodies=bodies)
        self.depth = max(self.depth, inside.depth)
        # one shard that stops while others go on would leave them waiting for what it does not send
        if self.settings.max_trips is not None and eqn.primitive.name == "while" and not scope.shards:
            plan.budget = self._budget(eqn, path, inside)
        if self._emits(path, eqn, inside.depth):
            self._loop_sites(plan, eqn, inside, library)
        if self.settings.level is not None and self.settings.level.name == "escape":
            plan.check = self._loop_check(eqn, path, inside, once=scope.bound == 1)
        own = plan.carry or plan.output or plan.check or plan.budget
        if own or any(inner.plans for inner in bodies):
            body.add(position, plan, bodies)
            for site in (plan.carry, plan.output):
                if site is not None:
                    self._enter(body, site)
            body.states += [own.number for own in (plan.check, plan.budget) if own is not None]
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

    def _loop_sites(self, plan: EqnPlan, eqn: Any, scope: Scope, library: bool) -> None:
        settings, path = self.settings, plan.path
        leaves = plan.leaves = carry_leaves(eqn)
        if settings.emits_carry:
            chosen = select_leaves(settings.select, leaves.names, leaf_avals(eqn, leaves), path)
            if isinstance(chosen, Selection):
                self.fitted += 1
                plan.carry = self._site(path, "carry", scope, chosen, settings.live_carry)
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
                plan.output = self._site(path, "output", scope, chosen, settings.live_outputs)
            elif not library:
                self.misfits.append(chosen)

    def _primitive(
        self, body: BodyPlan, position: int, eqn: Any, path: str, scope: Scope, selects: dict[Any, int]
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
        here = self._at(eqn, scope)
        plan = body.plans.get(position) or EqnPlan()
        avals = [var.aval for var in eqn.outvars]
        for number, tap in taps:
            selection = select_values(tap, avals, path)
            if selection is None:
                continue
            site = self._site(path, "primitive", here, selection, tap.live, number)
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

    def _looks(self, indices: Sequence[int], names: Sequence[str]) -> tuple[Look, ...]:
        """NaN is always looked for, Inf apart and only when asked for: each has its own first step."""
        kinds: tuple[Literal["nan", "inf"], ...] = ("nan", "inf") if self.settings.inf else ("nan",)
        return tuple(Look(names[i], i, bad) for bad in kinds for i in indices)

    def _budget(self, eqn: Any, path: str, scope: Scope) -> Budget:
        loop = While.of(eqn)
        predicate = _compat.body_of(loop.predicate).jaxpr
        used = {id(atom) for e in predicate.eqns for atom in e.invars} | {id(v) for v in predicate.outvars}
        names = {leaf.index: leaf.name for leaf in carry_leaves(eqn).leaves if leaf.place == "carry"}
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

    def _loop_check(self, eqn: Any, path: str, scope: Scope, *, once: bool) -> Check | None:
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
            total=scope.total,
            depth=scope.depth,
            phase=scope.phase,
            source=scope.source,
            looks=carries + outputs,
            carries=len(carries),
            lanes=While.of(eqn).lanes if eqn.primitive.name == "while" else (),
            once=once,
            shards=scope.shards,
            maps=scope.maps,
            mesh=explicit_mesh([var.aval for var in eqn.outvars]),
        )
        self.checks[check.number] = check
        return check


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
