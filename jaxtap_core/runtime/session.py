"""One block of observation: what happens to each program that is executed while its lens is on."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jaxtap_core import _compat
from jaxtap_core.errors import LensError, describe, warn, warn_once
from jaxtap_core.gate.certify import certify
from jaxtap_core.instrument import emission as emit
from jaxtap_core.instrument.plan import Budget, Plan
from jaxtap_core.instrument.selection import Misfit
from jaxtap_core.instrument.stop_flag import STOP_FLAG
from jaxtap_core.jaxpr.address import current_phase
from jaxtap_core.jaxpr.structure import BRANCHES, CALLS, LOOPS
from jaxtap_core.records.events import Certificate, Finding, ProgramVerdict
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.pending import Pending, Queue, held, is_inexact
from jaxtap_core.runtime.program import PROGRAMS, Program, close_run, open_run
from jaxtap_core.runtime.receiver import Receiver
from jaxtap_core.runtime.status import Running, enter, leave
from jaxtap_core.runtime.stop import Diagnosis, LoopBudgetExceeded, TapAlert, diagnose

STRUCTURAL = frozenset({*LOOPS, BRANCHES, *CALLS})


class Session:
    """Executes programs under one lens and keeps what they bring.

    Args:
        receiver: where everything goes, and what is asked of the lens; it may have served a session before.
        last: whether no session of that receiver follows.
        outer: the session of the block around, whose gate and budget hold in this one too.
    """

    def __init__(self, receiver: Receiver, *, last: bool = True, outer: Session | None = None) -> None:
        self.receiver = receiver
        self.recording = receiver.recording
        self.settings = receiver.settings
        self.findings = self.recording.findings
        self.gate_paused = 0
        if outer is not None:
            self._inherit(outer)
        self._last = last
        receiver.alerted = False
        self._known = len(self.recording.findings), len(self.recording.alerts)
        self._queue = Queue(self._settle)
        self.running: Running | Pending | None = None
        self._judge, self._sound = _gate(self.settings)
        enter(self)
        self._verdicts: list[ProgramVerdict] = []
        self._misfits: dict[str, Misfit] = {}
        self._fitted = False

    def _inherit(self, outer: Session) -> None:
        """A gate round a block must not be blind inside it: what it would have found is still found, and told it."""
        mine, around = self.settings, outer.settings
        if mine.gate is None and around.gate is not None:
            self.settings = replace(mine, gate=around.gate, inf=around.inf, carry=mine.emits_carry)
            self.findings = outer.findings
            self.gate_paused = outer.gate_paused
        if mine.max_trips is None and around.max_trips is not None:
            self.settings = replace(self.settings, max_trips=around.max_trips, carry=mine.emits_carry)

    # -- execution

    def execute(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run one program, observed as far as the lens asks for it; gives what production gives."""
        __tracebackhide__ = True  # what the program or a budget raises is the user's, not ours
        try:
            jaxpr, program = self._find(primitive, args, params)
        except LensError:
            raise
        except Exception as error:
            self._unobservable(primitive, params, error)
            jaxpr = program = None
        name = program.name if program is not None else params.get("name", primitive.name)
        plan = program.plan if program is not None else None
        self.running = Running(name, plan, _compat.current_source(), time.monotonic())
        try:
            if program is None or program.plan.empty:
                return self._unplanned(name, primitive, args, params, program)
            return self._observed(primitive, args, params, jaxpr, program)
        finally:
            self.running = None

    def _find(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Program | None]:
        """The program as the lens sees it, or ``None`` for a primitive in which there is nothing to see."""
        settings = self.settings
        if primitive is _compat.jit_p:
            jaxpr, program = params["jaxpr"], PROGRAMS.jitted(params, settings, _compat.current_source)
        elif self._of_interest(primitive):
            jaxpr, program = PROGRAMS.eager(primitive, args, params, settings, _compat.current_source)
        else:
            return None, None
        self._note_misfits(program)
        return jaxpr, program

    def _of_interest(self, primitive: Any) -> bool:
        name = primitive.name
        if name in STRUCTURAL:
            return True
        if any(tap.fits(name) for tap in self.settings.taps):
            return True
        level = self.settings.level
        return level is not None and not self.gate_paused and level.watches(name)

    def _note_misfits(self, program: Program) -> None:
        plan = program.plan
        self._fitted |= bool(plan.fitted)
        for misfit in plan.misfits:
            self._misfits.setdefault(f"{program.name}: {misfit.path}", misfit)

    def _unobservable(self, primitive: Any, params: dict[str, Any], error: Exception) -> None:
        name = str(params.get("name", primitive.name))
        self.recording.unobservable.append(f"{name}: {describe(error)}")
        warn_once(
            ("unobservable", name, str(error)),
            f"the program {name!r} could not be observed and runs as it is: {describe(error)}",
        )

    def _unplanned(
        self, name: str, primitive: Any, args: Sequence[Any], params: dict[str, Any], program: Program | None
    ) -> Any:
        """Production alone; its results are judged where a gate is on."""
        __tracebackhide__ = True
        run = _bind if program is None else program.production
        twice = self._runs_twice(primitive, args, params)
        if not (self._judges_results or twice):
            return run(primitive, args, params)
        kept = self._held(args, params)
        again = run(primitive, args, params) if twice else None
        outs = run(primitive, args, params)
        flat = outs if primitive.multiple_results else (outs,)
        if twice or any(map(is_inexact, flat)):
            jaxpr = _jaxpr_of(primitive, args, params)
            running = self.running
            assert running is not None
            self._queue.add(
                Pending(
                    name,
                    self.recording.next_call(name),
                    jaxpr,
                    kept,
                    flat,
                    running.since,
                    running.source_info,
                    phase=current_phase() if program is None else program.phase,
                    observed=None if not twice else again if primitive.multiple_results else (again,),
                ),
                None if program is None else program.nbytes,
            )
        return outs

    def _runs_twice(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> bool:
        """Whether a program with nothing to observe is compared with itself: where certificates are asked for."""
        if self.settings.identity != "certified" or primitive is not _compat.jit_p:
            return False
        pure = not _compat.body_of(params["jaxpr"]).jaxpr.effects and not any(params["donated_invars"])
        return pure and not any(_compat.is_ref(jax.typeof(x)) for x in args)

    def _held(self, args: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
        """The inputs of a program to hold until its verdict."""
        donated = params.get("donated_invars", ())
        if not any(donated):
            return args
        self._queue.give_up([x for x, gone in zip(args, donated, strict=True) if gone])
        if self.settings.level is None:
            return args
        return held(args, donated, keep_donated=self.settings.keep_donated)

    @property
    def _judges_results(self) -> bool:
        level = self.settings.level
        return level is not None and level.name in ("escape", "outputs") and not self.gate_paused

    def _observed(
        self, primitive: Any, args: Sequence[Any], params: dict[str, Any], jaxpr: Any, program: Program
    ) -> Any:
        __tracebackhide__ = True
        reason = self._uncertifiable(program, args)
        certified = self._certifies(program) and not reason
        donates = program.donates
        flushing = program.must_flush or (
            program.may_overflow and (donates or (bool(program.effects) and not certified))
        )
        kept = self._held(args, params)
        call = self.recording.next_call(program.name)
        run = open_run(self.receiver, program.name, call)
        try:
            copying = not self._strict  # under strict numerics no look disturbs
            variant = program.variant(jaxpr, args, replica=certified, flushing=flushing, copying=copying)
        except LensError:
            raise
        except Exception as error:
            close_run(run)
            self._unobservable(primitive, params, error)
            return program.production(primitive, args, params)
        plan = program.plan_of(jaxpr, replica=certified)
        try:
            observed, states = variant.run(run.number, args, program.outputs)
            outs = program.production(primitive, args, params) if certified else observed
        except BaseException:
            close_run(run)
            raise
        flat = outs if primitive.multiple_results or not certified else (outs,)
        running = self.running
        assert running is not None
        pending = Pending(
            program.name,
            call,
            lambda: jaxpr,
            kept,
            flat,
            running.since,
            running.source_info,
            observed=observed if certified else None,
            states=states,
            program=program,
            plan=plan,
            run=run,
            flushed=flushing,
            reason=reason,
            phase=program.phase,
        )
        self._queue.add(pending)
        if program.plan.may_stop:
            # what was stopped early must not go on as if it were a result
            self._queue.drain()
            self._raise_if_stopped(pending)
        if certified or primitive.multiple_results:
            return outs
        return outs[0]

    # -- stopping early

    def _raise_if_stopped(self, pending: Pending) -> None:
        __tracebackhide__ = True
        assert pending.states is not None and pending.plan is not None
        flag = pending.states[STOP_FLAG]
        place = int(flag.place)
        if place in pending.plan.budgets:
            raise self._budget_error(pending, pending.plan.budgets[place], np.asarray(flag.steps))
        if self.settings.fail_fast:
            self._raise_alert()

    def _raise_alert(self) -> None:
        """With ``fail_fast``, raise the first alert or finding of this session."""
        findings, alerts = self._known
        for finding in self.recording.findings[findings:]:
            raise TapAlert(str(finding), finding=finding)
        for alert in self.recording.alerts[alerts:]:
            raise TapAlert(str(alert), alert=alert)

    def _budget_error(self, pending: Pending, budget: Budget, steps: np.ndarray) -> LoopBudgetExceeded:
        """Run the program once more, keeping what tells why the loop does not end."""
        program = pending.program
        assert program is not None and self.settings.max_trips is not None
        jaxpr = pending.jaxpr()
        settings = replace(
            self.settings, gate="escape", taps=(), carry=False, select_ys=None, on_ys=None, alert_ys=None
        )
        again = Program(jaxpr, None, program.name, settings, "")
        plan = again.plan_of(jaxpr, replica=True)
        mine = next(b for b in plan.budgets.values() if b.path == budget.path)
        outer = tuple(steps[: budget.depth].tolist())
        lane, diagnosis = None, Diagnosis("too long", "its inputs were donated, so it was not run again", None, {})
        try:
            variant = again.variant(jaxpr, pending.args, replica=True, flushing=False, diagnosing=True)
            _, states = variant.run(0, pending.args, again.outputs)
        except RuntimeError:
            return LoopBudgetExceeded(budget.path, outer, lane, budget.source, self.settings.max_trips, diagnosis)
        ended = jax.tree.map(np.asarray, states[mine.number])
        if mine.lanes:
            lane = tuple(int(i) for i in np.argwhere(ended.running)[0])
            ended = jax.tree.map(lambda x: x[lane], ended)
        diagnosis = diagnose(
            mine.names,
            ended.carry,
            mine.read,
            int(ended.since),
            int(ended.cycle),
            lambda: self._finding_in(pending, plan, states, budget.path),
        )
        return LoopBudgetExceeded(budget.path, outer, lane, budget.source, self.settings.max_trips, diagnosis)

    def _finding_in(self, pending: Pending, plan: Plan, states: Any, path: str) -> Finding | None:
        from jaxtap_core.gate.judge import judge

        seen = replace(pending, plan=plan, states=states, outs=())
        findings = judge(seen, inf=False, level="escape")
        return next((f for f in findings if f.origin is not None and f.event.path == path), None) or (
            findings[0] if findings else None
        )

    # -- identity

    def _certifies(self, program: Program) -> bool:
        identity = self.settings.identity
        if program.plan.may_stop:
            return False  # the guarded program is the result
        if identity == "auto":
            # gates on loops and results run inline: they travel as data and change nothing that shares a kernel
            return program.plan.looks_into_steps and not self._strict
        return identity == "certified"

    @functools.cached_property
    def _strict(self) -> bool:
        """Whether observing changes no bit, because strict numerics hold."""
        from jaxtap_core.numerics import broken_promise, current_profile

        jax.default_backend()  # starts it, as the program is about to: before, only what was asked for is known
        if current_profile() == "strict":
            return True
        if reason := broken_promise():
            warn_once("strict", reason)
        return False

    def _uncertifiable(self, program: Program, args: Sequence[Any]) -> str:
        """Why production cannot be run beside a replica, or empty."""
        if any(_compat.is_ref(jax.typeof(x)) for x in args):
            return "it changes mutable references"
        if not program.debug_only:
            return f"it has side effects ({', '.join(sorted(program.effects))})"
        return ""

    # -- afterwards

    def _settle(self, pending: Pending) -> None:
        # whoever reads the results of a program waits for it
        self.running = pending
        try:
            if pending.program is None and pending.observed is None and self._sound(pending.outs):
                return  # most programs end here
            if pending.program is not None:
                _wait((*pending.outs, *(pending.observed or ())))  # what is live may still be on its way
                self._collect(pending)
            if pending.observed is not None or pending.reason:
                self._verdicts.append(certify(pending))
            if self._judge is not None and not self.gate_paused:
                self.findings += self._judge(pending)
        except jax.errors.JaxRuntimeError:
            pass  # the program itself failed: the user hears of it where the result is used
        except Exception as error:
            warn_once(
                ("settle", pending.name, str(error)),
                f"what was observed of {pending.name!r} could not be read: {describe(error)}",
            )
        finally:
            self.running = None
            if pending.run is not None:
                close_run(pending.run)

    def _collect(self, pending: Pending) -> None:
        program, plan, states = pending.program, pending.plan, pending.states
        assert program is not None and plan is not None and states is not None
        buffers = {site: states[site.number] for site in plan.sites.values() if not site.live}
        if program.may_overflow and not pending.flushed:
            counts = {site: np.asarray(buffer.count).max() for site, buffer in buffers.items()}  # of several shards
            if any(program.overflows(site, int(count)) for site, count in counts.items()):
                buffers = self._again(pending)
        for site, buffer in buffers.items():
            for shard, own in emit.fetched(buffer, site.shards):
                self.receiver.data(site, pending.name, pending.call, own, int(own.count), shard)

    def _again(self, pending: Pending) -> dict[Any, emit.Buffer]:
        """More events than the buffers hold: run the replica once more, handing full buffers to the host."""
        program = pending.program
        assert program is not None and pending.run is not None
        program.overflowed()
        jaxpr = pending.jaxpr()
        variant = program.variant(jaxpr, pending.args, replica=True, flushing=True, copying=not self._strict)
        outs, states = variant.run(pending.run.number, pending.args, program.outputs)
        jax.block_until_ready((outs, states))
        jax.effects_barrier()
        plan = program.plan_of(jaxpr, replica=True)
        return {site: states[site.number] for site in plan.sites.values() if not site.live}

    @property
    def waited_for(self) -> Running | Pending | None:
        """The program that is being executed, as far as is known: that in hand, or the oldest not settled."""
        return self.running or self._queue.oldest

    def settle_now(self) -> None:
        """Wait for all programs that were started, and judge them."""
        self._queue.drain()

    def close(self, *, failed: bool = False) -> None:
        """Wait for everything outstanding and write up the certificate and the warnings."""
        self._queue.drain()
        leave(self)
        jax.effects_barrier()
        if self._verdicts:
            before = self.recording.certificate
            self.recording.certificate = Certificate((*(before.programs if before else ()), *self._verdicts))
        for sink in self.settings.sinks if self._last else ():
            try:
                sink.close()
            except Exception as error:
                warn(f"sink {sink!r} raised {describe(error)} when it was closed")
        if not failed:
            self._tell_misfits()
            if self.settings.fail_fast:
                self._raise_alert()

    def _tell_misfits(self) -> None:
        if not self._misfits:
            return
        lines = [f"{where}: {m.reason}; its leaves: {_some(m.leaves)}" for where, m in self._misfits.items()]
        if self._fitted:
            warn("the selection does not fit some loops, which were skipped:\n  " + "\n  ".join(lines))
        else:
            warn("the selection fits no loop, nothing was recorded:\n  " + "\n  ".join(lines))


def _gate(
    settings: Settings,
) -> tuple[Callable[[Pending], list[Finding]] | None, Callable[[Sequence[Any]], bool]]:
    """What judges a program that has run, where the lens has a gate; and what says that its results need no judge."""
    if settings.level is None:
        return None, lambda results: False
    # the gate brings the replay engine along: loaded by those who use it
    from jaxtap_core.gate.judge import judge, sound

    return (
        functools.partial(judge, inf=settings.inf, level=settings.level.name),
        functools.partial(sound, inf=settings.inf),
    )


def _some(names: Sequence[str], most: int = 12) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _wait(values: Sequence[Any]) -> None:
    for x in values:
        if isinstance(x, jax.Array) and not x.is_deleted():
            x.block_until_ready()


def _bind(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run a primitive as it is: the trace that evaluates is current already."""
    return primitive.bind(*args, **params)


def _jaxpr_of(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Callable[[], Any]:
    if primitive is _compat.jit_p:
        jaxpr = params["jaxpr"]
        return lambda: jaxpr

    def build() -> Any:
        with _compat.set_current_trace(_compat.eval_trace):
            outs = lambda *xs: primitive.bind(*xs, **params)
            return jax.make_jaxpr(lambda *xs: list(outs(*xs)) if primitive.multiple_results else outs(*xs))(*args)

    return build
