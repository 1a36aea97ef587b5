"""The rewriting itself: evaluates a program under its plan, so that tracing the evaluation gives the observed program.

Equations without a plan are bound again as they are, under the settings they were built with. For the others the
`registry` knows how each kind of primitive is rebuilt. The interpreter keeps what the rules need:
the loop counters, which lanes are active, and the states (buffers, verdicts) that are threaded through every loop and
branch around the sites they belong to.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxtap_core import _compat
from jaxtap_core.instrument import emission
from jaxtap_core.instrument.control_flow import once_if
from jaxtap_core.instrument.gate_state import BORN, MASKED, Verdicts, no_verdicts
from jaxtap_core.instrument.nonfinite import any_bad, has_bad
from jaxtap_core.instrument.plan import GATE_ROWS, BodyPlan, Check, EqnPlan, Look, Plan, Site
from jaxtap_core.instrument.registry import rule_of
from jaxtap_core.instrument.shadow_step import Pass, shielded, stays
from jaxtap_core.instrument.stop_flag import STOP_FLAG, not_ended, not_raised, raised_by
from jaxtap_core.jaxpr.structure import WITHIN, inner_programs, kind_of
from jaxtap_core.jaxpr.values import is_inexact
from jaxtap_core.request.settings import Settings
from jaxtap_core.request.taps import Tap


class HostEnds(NamedTuple):
    """The host's end of the emissions of one program."""

    live: Callable[[Site], emission.HostEnd]
    flush: Callable[[Site], emission.HostEnd]


class Interpreter:
    """Evaluates one program under its plan.

    Args:
        plan: what is observed.
        settings: of the lens.
        receivers: where emissions go.
        run: int32 scalar that tells runs of the program apart on the host.
        rows: of the buffers whose final length is not known.
        flushing: whether buffers that may overflow are flushed; else what does not fit is only counted.
        inside: whether an outer transformation is being traced: then every site is live, and each event carries
            whether its lane ran.
        diagnosing: whether loops with a budget keep what tells why they do not end.
        copying: whether values inside a step are taken from a copy of the step, so that the step itself is fused as
            in production.
    """

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        host_ends: HostEnds,
        run: Any,
        *,
        rows: int = 1,
        flushing: bool = False,
        inside: bool = False,
        diagnosing: bool = False,
        copying: bool = False,
    ) -> None:
        self.settings = settings
        self.plan = plan
        self.inside = inside
        self.diagnosing = diagnosing
        self._host_ends = host_ends
        self._run = run
        self._flushing = flushing
        self._rows = rows
        self._copying = copying
        self._pass: Pass | None = None
        self._steps: list[Any] = []
        self._vectors: list[Any] = []  # the index vector inside each loop
        self._active: list[Any] = []
        self._axes: tuple[str, ...] = ()  # of the shard_maps around
        self.maps = 0
        self.states: dict[int, Any] = {}
        for site in plan.sites.values():
            if not site.live:
                self.states[site.number] = _for_each(site.shards, emission.empty(site, self._capacity(site)))
        if plan.may_stop:
            self.states[STOP_FLAG] = not_raised(plan.depth)
        if diagnosing:
            for budget in plan.budgets.values():
                self.states[budget.number] = not_ended(budget.avals, budget.lanes)
        for check in plan.checks.values():
            self.states[check.number] = _for_each(check.shards, no_verdicts(check))

    # -- evaluation

    def evaluate(self, body: BodyPlan, jaxpr: Any, args: Sequence[Any]) -> list[Any]:
        """Outputs of ``jaxpr`` (a program, or the inside of a loop or branch), with everything in ``body`` observed.

        Where values inside are looked at and `copying` is on, it is evaluated twice: as it is, and behind a barrier
        as a copy, whose values are looked at. The compiler drops what of the copy nobody needs.
        """
        outer = self._pass
        try:
            if not (self._copying and self._looks_inside(body, jaxpr)):
                self._pass = None
                return self.walk(body, jaxpr, args)
            self._pass = Pass(collections.deque(), copy=False)
            outs = self.walk(body, jaxpr, args)
            self._pass = self._pass._replace(copy=True)
            self.walk(body, jaxpr, shielded(args))
            return outs
        finally:
            self._pass = outer

    def _looks_inside(self, body: BodyPlan, jaxpr: Any) -> bool:
        """Whether the outputs of some primitive are taken, here or in a call."""
        eqns = _compat.body_of(jaxpr).jaxpr.eqns
        for position, plan in body.plans.items():
            if any(self._is_copied(site) for site in plan.sites):
                return True
            if plan.check is not None and plan.check.kind == "primitive":
                return True
            if kind_of(eqns[position]) == "call":
                wrapped = inner_programs(eqns[position])[WITHIN]
                if any(self._looks_inside(inner, wrapped.jaxpr) for inner in plan.bodies):
                    return True
        return False

    def _is_copied(self, site: Site) -> bool:
        # a test for NaN shares the kernel of what it tests, which is what makes it cheap
        return site.tap is not None and self.settings.taps[site.tap].mode != "nan"

    def walk(self, body: BodyPlan, jaxpr: Any, args: Sequence[Any]) -> list[Any]:
        """`evaluate` for the inside of a call, which is one with what surrounds it."""
        inner, consts = _compat.body_of(jaxpr)
        env: dict[Any, Any] = dict(zip(inner.constvars, consts, strict=True))
        env.update(zip(inner.invars, args, strict=True))
        read = lambda atom: atom.val if isinstance(atom, _compat.Literal) else env[atom]
        deferred: dict[int, list[tuple[Check, list[Any]]]] = {}
        for position, eqn in enumerate(inner.eqns):
            values = [read(atom) for atom in eqn.invars]
            plan = body.plans.get(position)
            if plan is not None and plan.drop:
                continue
            kept = self._pass is not None and stays(eqn)
            with _compat.equation_context(eqn):
                if kept and self._pass is not None and self._pass.copy:
                    outs = self._pass.kept.popleft()
                elif plan is not None and plan.bodies:
                    name = "call" if kind_of(eqn) == "call" else eqn.primitive.name
                    outs = rule_of(name)(self, eqn, plan, values)
                else:
                    outs = eqn.primitive.bind(*values, **_compat.bind_params(eqn))
                    if not eqn.primitive.multiple_results:
                        outs = [outs]
                if plan is not None:
                    self._observe_primitive(plan, values, outs, deferred)
                for check, bad in deferred.pop(position, ()):
                    self._note_births(check, bad, outs)
            if kept and self._pass is not None:
                if self._pass.copy:
                    outs = shielded(outs)
                else:
                    self._pass.kept.append(outs)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in inner.outvars]

    # -- loops

    @contextmanager
    def in_loop(self, step: Any, active: Any = None) -> Iterator[None]:
        """What is observed meanwhile happens at ``step`` of a loop, in the lanes of ``active``."""
        self._steps.append(step)
        # made here, at the level of the loop: what is observed may stand in a branch, whose values end with it
        self._vectors.append(lax.concatenate([lax.reshape(one, (1,)) for one in self._steps], 0))
        self._active.append(active if active is not None else self.active)
        try:
            yield
        finally:
            self._steps.pop()
            self._vectors.pop()
            self._active.pop()

    @property
    def active(self) -> Any:
        """Which lanes are running, or ``None`` where nothing tells lanes apart."""
        return self._active[-1] if self._active else None

    @contextmanager
    def borrow(self, states: dict[int, Any]) -> Iterator[None]:
        """Meanwhile the states are those that a loop or a branch carries."""
        outer = {number: self.states[number] for number in states}
        self.states.update(states)
        try:
            yield
        finally:
            self.states.update(outer)

    @property
    def around(self) -> Any:
        """What is known of the place where an equation stands: the run, the loops it is in, the running lanes."""
        return self._run, self._steps, self._vectors, self._active

    @contextmanager
    def at(self, around: Any) -> Iterator[None]:
        """Meanwhile a program of its own is evaluated, with ``around`` as it got it."""
        outer = self.around
        self._run, self._steps, self._vectors, self._active = around
        try:
            yield
        finally:
            self._run, self._steps, self._vectors, self._active = outer

    @contextmanager
    def in_shard(self, axes: tuple[str, ...], around: Any) -> Iterator[None]:
        """Meanwhile one shard is evaluated, with ``around`` as it got it; its index goes with what it emits."""
        flag, before = self.states.pop(STOP_FLAG, None), self._axes
        self._axes, self.maps = (*before, *axes), self.maps + 1
        run, *place = around
        if run is not None:
            run = jnp.stack([run[0] if run.ndim else run, lax.axis_index(self._axes)])
        try:
            with self.at((run, *place)):
                yield
        finally:
            self._axes, self.maps = before, self.maps - 1
            if flag is not None:
                self.states[STOP_FLAG] = flag

    def stands_here(self, number: int) -> bool:
        """Whether what has the state of that number stands in no further ``shard_map`` than what is evaluated."""
        owner = self.plan.sites.get(number) or self.plan.checks.get(number)
        return owner is None or owner.maps == self.maps

    def states_of(self, bodies: Sequence[BodyPlan], plan: EqnPlan) -> dict[int, Any]:
        """The states that must be threaded through a loop or branch with these inner programs."""
        numbers = set(itertools.chain.from_iterable(body.states for body in bodies))
        for site in (plan.carry, plan.output):
            if site is not None and not site.live:
                numbers.add(site.number)
        if plan.budget is not None:
            numbers.add(plan.budget.number)
        numbers.add(STOP_FLAG)
        # a budget has a state only while diagnosing, a program a stop flag only where something may stop it
        return {number: self.states[number] for number in sorted(numbers) if number in self.states}

    # -- the stop flag

    @property
    def stopped(self) -> Any:
        """Whether the stop flag has been raised; ``None`` for a program without one."""
        flag = self.states.get(STOP_FLAG)
        return None if flag is None else flag.place >= 0

    def raise_stop_flag(self, number: int, condition: Any) -> None:
        """Raise the stop flag on behalf of a place, where ``condition``; a shard has none."""
        if STOP_FLAG not in self.states:
            return
        self.states[STOP_FLAG] = raised_by(self.states[STOP_FLAG], number, self._steps, condition)

    # -- sites

    def visit(self, site: Site | None, values: Callable[[], Sequence[Any]]) -> None:
        """A site is passed: take what is selected of ``values()``, if this step is sampled."""
        if site is None:
            return
        every = self.settings.sample_every
        if every == 1 or not self._steps:
            self._take(site, values())
        else:
            sampled = self._steps[-1] % every == 0
            self._when(sampled, site, values)

    def _when(self, condition: Any, site: Site, values: Callable[[], Sequence[Any]]) -> None:
        """Take what is selected at a site, where ``condition``."""
        if self.inside:
            # an outer transformation may still differentiate: a branch can be, a loop cannot
            lax.cond(condition, lambda: self._take(site, values(), condition), lambda: None)
            return
        numbers = [number for number in (STOP_FLAG if site.live else site.number,) if number in self.states]

        def take(states: dict[int, Any]) -> dict[int, Any]:
            with self.borrow(states):
                self._take(site, values())
                return {number: self.states[number] for number in numbers}

        self.states.update(once_if(condition, take, {number: self.states[number] for number in numbers}))

    def _take(self, site: Site, values: Sequence[Any], condition: Any = None) -> None:
        leaves = site.selection.reduce(values)
        steps = self._step_vector()
        active = self.active
        if site.live:
            if condition is not None:
                active = condition if active is None else active & condition
            receiver = self._host_ends.live(site)
            if self.settings.fail_fast and not site.shards:
                stop = emission.ask(self._run, steps, active, leaves, receiver)
                self.raise_stop_flag(site.number, stop)
            else:
                emission.emit(self._run, steps, active, leaves, receiver)
            return
        buffer = emission.append(self.states[site.number], steps, active, leaves)
        room = self._capacity(site)
        if self._flushing and not site.spread and (site.bound is None or site.bound > room):
            buffer = emission.flush_when_full(buffer, room, self._run, self._host_ends.flush(site))
        self.states[site.number] = buffer

    def _capacity(self, site: Site) -> int:
        return site.capacity(self.settings.buffer_bytes, self._rows)

    def _step_vector(self) -> Any:
        return self._vectors[-1] if self._vectors else jnp.zeros((0,), jnp.int32)

    # -- primitives

    def _observe_primitive(
        self,
        plan: EqnPlan,
        ins: Sequence[Any],
        outs: Sequence[Any],
        deferred: dict[int, list[tuple[Check, list[Any]]]],
    ) -> None:
        in_copy = self._pass is not None and self._pass.copy
        aside = self._pass is not None and not in_copy  # a copy follows
        for site in plan.sites:
            assert site.tap is not None
            tap = self.settings.taps[site.tap]
            if tap.mode == "nan":
                if not in_copy:
                    self._watch(site, tap, outs)
            elif not aside:
                self.visit(site, lambda: outs)
        if plan.check is not None and plan.check.kind == "primitive" and not aside:
            check, bad = plan.check, self._births(plan.check, ins, outs)
            if check.consumer is None:
                self._note_births(check, bad, None)
            else:
                deferred.setdefault(check.consumer, []).append((check, bad))

    def _watch(self, site: Site, tap: Tap, outs: Sequence[Any]) -> None:
        watched = [x for x in site.selection.reduce(outs) if is_inexact(x)]
        if not watched:
            return
        hit = self._bad_somewhere(watched, site.lanes, inf=tap.inf)
        every = self.settings.sample_every
        if every > 1 and self._steps:
            hit = hit & (self._steps[-1] % every == 0)
        self._when(hit, site, lambda: outs)

    def _bad_somewhere(
        self, arrays: Sequence[Any], lanes: tuple[int, ...], *, nan: bool = True, inf: bool = False
    ) -> Any:
        """Whether any array holds a NaN (or an Inf) in a lane that is running."""
        if not lanes or self.active is None:
            return any_bad(arrays, nan=nan, inf=inf)
        hit = jnp.zeros((), bool)
        for x in arrays:
            if x.shape[: len(lanes)] == lanes:
                hit = hit | jnp.any(has_bad(x, nan=nan, inf=inf, keep=len(lanes)) & self.active)
            else:
                hit = hit | has_bad(x, nan=nan, inf=inf)
        return hit

    # -- the gate

    def verdicts(self, check: Check, looks: Sequence[Look], leaves: Sequence[Any]) -> list[Any]:
        """One verdict for each look: a boolean, or one for each lane of a loop that tells its lanes apart."""
        found = []
        for look in looks:
            nan, inf = look.bad == "nan", look.bad == "inf"
            if check.lanes or self.active is None:
                found.append(has_bad(leaves[look.place], nan=nan, inf=inf, keep=len(check.lanes)))
            else:
                found.append(self._bad_somewhere([leaves[look.place]], self.active.shape, nan=nan, inf=inf))
        return found

    def note(self, check: Check, verdicts: Sequence[Any], hit: Any) -> None:
        """Enter one row of verdicts (int32 each, or one for each lane) where ``hit``."""
        parts = [self._step_vector(), *(jnp.ravel(v).astype(jnp.int32) for v in verdicts)]
        if check.once:
            self.states[check.number] = Verdicts(hit.astype(jnp.int32), jnp.concatenate(parts)[None])
            return

        def enter(state: Verdicts) -> Verdicts:
            # rows beyond those that are kept write over the last one's place, where they leave what is there
            at = jnp.minimum(state.count, GATE_ROWS - 1)
            row = jnp.where(state.count < GATE_ROWS, jnp.concatenate(parts), state.rows[GATE_ROWS - 1])
            return Verdicts(state.count + 1, lax.dynamic_update_index_in_dim(state.rows, row, at, 0))

        self.states[check.number] = once_if(hit, enter, self.states[check.number])

    def _births(self, check: Check, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """For each look, whether the primitive made something bad out of operands that were not."""
        operands = [x for x in ins if not _compat.is_ref(getattr(x, "aval", None))]
        bad = []
        for look in check.looks:
            nan, inf = look.bad == "nan", look.bad == "inf"
            out = outs[look.place]
            lanes = check.lanes if out.shape[: len(check.lanes)] == check.lanes else ()
            fresh = ~any_bad(operands, nan=nan, inf=inf)
            bad.append(self._bad_somewhere([out], lanes, nan=nan, inf=inf) & fresh)
        return bad

    def _note_births(self, check: Check, bad: list[Any], selected: Sequence[Any] | None) -> None:
        """Enter what was born; ``selected`` is what came of it in the only select that it goes into."""
        hit = functools.reduce(jnp.logical_or, bad)
        verdicts = [verdict.astype(jnp.int32) for verdict in bad]
        if selected is not None:
            survives = [any_bad(selected, nan=k.bad == "nan", inf=k.bad == "inf") for k in check.looks]
            verdicts = [
                jnp.where(verdict > 0, jnp.where(alive, BORN, MASKED), 0)
                for verdict, alive in zip(verdicts, survives, strict=True)
            ]
        self.note(check, verdicts, hit)
        if self.settings.fail_fast:
            self.raise_stop_flag(check.number, hit)


def _for_each(shards: int, state: Any) -> Any:
    """``state`` once for each shard, stacked along a first axis; as it is where there are none."""
    return jax.tree.map(lambda x: lax.broadcast(x, (shards,)), state) if shards else state
