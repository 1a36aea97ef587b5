"""One block of observation: what happens to each program that is executed while its lens is on."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxtap_core import _compat
from jaxtap_core.errors import LensError, describe, warn_once
from jaxtap_core.gate.certify import certify
from jaxtap_core.gate.executed import Executed, given
from jaxtap_core.gate.judge import judge, judge_raised
from jaxtap_core.gate.look import bad_results, sound
from jaxtap_core.gate.raised import has_raised
from jaxtap_core.gate.suspects import Case, Suspects
from jaxtap_core.instrument.stop_flag import STOP_FLAG
from jaxtap_core.jaxpr.address import current_phase
from jaxtap_core.jaxpr.sharding import Shards, shards_here
from jaxtap_core.jaxpr.values import can_hold_nan
from jaxtap_core.records.events import Alert, Finding, ProgramVerdict
from jaxtap_core.records.kinds import Bad
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.cache import PROGRAMS
from jaxtap_core.runtime.context import Running, over
from jaxtap_core.runtime.pending import Pending, Queue, collect, held, spared
from jaxtap_core.runtime.policy import Policy, inherited, inherits_gate, uncertifiable
from jaxtap_core.runtime.program import Program
from jaxtap_core.runtime.receiver import Receiver
from jaxtap_core.runtime.runs import close_run, open_run
from jaxtap_core.runtime.stop import TapAlert, budget_error

KEPT = 16  # findings of a recording whose programs and inputs are kept, so that they can be saved


class Session:
    """Executes programs of one thread under one lens and keeps what they bring.

    Args:
        receiver: where everything goes, and what is asked of the lens; it may have served a session before, and serve
            those of other threads meanwhile.
        last: whether no session of that receiver follows.
        outer: the session of the block around, whose gate and budget hold in this one too: what it would have found
            is still found, and told it.

    Attributes:
        findings: where those of its programs go: its recording's, or those of the block whose gate it is.
        found, alerts: what came of its own programs, and of blocks inside that share its gate.
    """

    def __init__(self, receiver: Receiver, *, last: bool = True, outer: Session | None = None) -> None:
        self.receiver = receiver
        self.recording = receiver.recording
        self.findings: list[Finding] = self.recording.findings
        mine = receiver.settings
        self.policy = Policy((mine if outer is None else inherited(mine, outer.settings)).entered())
        self.settings: Settings = self.policy.settings
        self.found: list[Finding] = []
        self.alerts: list[Alert] = []
        self._told: tuple[Session, ...] = ()
        if outer is not None and inherits_gate(mine, outer.settings):
            self.findings = outer.findings
            self._told = (outer, *outer._told)
            self.policy.gate_paused = outer.policy.gate_paused
        self._outer = outer
        self._last = last
        self._closed = False
        self._queue = Queue(self._settle)
        self.running: Running | Pending | None = None
        self._verdicts: list[ProgramVerdict] = []
        self._suspects = Suspects(self._close_case)
        self._order: dict[int, int] = {}
        self._raised = False
        receiver.enter()

    def beside(self) -> Session:
        """A session of another thread (or task) for the same recording, under the same gate and budget.

        What it finds stops, and is raised in, its own thread alone.
        """
        session = Session(self.receiver, last=False, outer=self._outer)
        session._told = ()
        session.policy.gate_paused = self.policy.gate_paused
        return session

    # -- execution

    def execute(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run one program, observed as far as the lens asks for it; gives what production gives."""
        __tracebackhide__ = True  # what the program or a budget raises is the user's, not ours
        try:
            with _compat.unwatched():
                jaxpr, program = self._program_of(primitive, args, params)
        except LensError:
            raise
        except Exception as error:
            self._unobservable(primitive, params, error)
            jaxpr = program = None
        name = program.name if program is not None else params.get("name", primitive.name)
        plan = program.plan if program is not None else None
        self.running = running = Running(name, plan, _compat.current_source(), time.monotonic())
        try:
            if program is None or program.plan.empty:
                return self._unplanned(running, primitive, args, params, program)
            return self._observed(running, primitive, args, params, jaxpr, program)
        finally:
            self.running = None
            if self._closed:  # the block was left in another thread meanwhile
                self._write_up()

    def execute_in_shards(self, primitive: Any, args: Sequence[Any], params: dict[str, Any], within: Any) -> Any:
        """Run one program of every shard of a ``shard_map`` outside of ``jit``.

        What is observed leaves a replica live, and is not certified; a gate does not look into it.

        Args:
            primitive, args, params: as JAX has them.
            within: its trace, which runs them on all shards at once.
        """
        __tracebackhide__ = True
        with _compat.set_current_trace(within):
            try:
                with _compat.unwatched():
                    self._observe_in_shards(primitive, args, params)
            except LensError:
                raise
            except Exception as error:
                self._unobservable(primitive, params, error)
            return primitive.bind(*args, **params)

    def _observe_in_shards(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> None:
        shards = shards_here()
        if shards is None or shards.spread:
            return
        jaxpr, program = self._program_of(primitive, args, params, shards)
        if program is None or not program.plan.sites or not program.debug_only:
            return
        call = self.recording.next_call(program.name)
        run = open_run(self.receiver, program.name, call, program.plan.sites, self.alerts)
        try:
            variant = program.variant(jaxpr, args, replica=True, flushing=False)
            jax.block_until_ready(variant.run(jaxpr, run.number, args))
            jax.effects_barrier()
        finally:
            close_run(run)

    def _program_of(
        self, primitive: Any, args: Sequence[Any], params: dict[str, Any], shards: Shards | None = None
    ) -> tuple[Any, Program | None]:
        """The program as the lens sees it, or ``None`` for a primitive in which there is nothing to see."""
        settings = self.settings if shards is None else self.policy.in_shards
        source = _compat.current_source
        if primitive is _compat.jit_p:
            jaxpr, program = params["jaxpr"], PROGRAMS.jitted(params, settings, source, shards)
        elif self.policy.of_interest(primitive):
            jaxpr, program = PROGRAMS.eager(primitive, args, params, settings, source, shards)
        else:
            return None, None
        self.receiver.unmet.note(program.name, program.plan.met)
        return jaxpr, program

    def _unobservable(self, primitive: Any, params: dict[str, Any], error: Exception) -> None:
        name = str(params.get("name", primitive.name))
        self.recording.unobservable.append(f"{name}: {describe(error)}")
        warn_once(
            ("unobservable", name, str(error)),
            f"the program {name!r} could not be observed and runs as it is: {describe(error)}",
        )

    def _unplanned(
        self,
        running: Running,
        primitive: Any,
        args: Sequence[Any],
        params: dict[str, Any],
        program: Program | None,
    ) -> Any:
        """Production alone; its results are judged where a gate is on."""
        __tracebackhide__ = True
        run = _bind if program is None else program.production
        twice = self.policy.runs_twice(primitive, args, params)
        kept = self._held(args, params)
        if not (self.policy.judges_results or twice):
            return run(primitive, args, params)
        try:
            again = run(primitive, spared(args, params), params) if twice else None
            outs = run(primitive, args, params)
        except Exception:
            self._has_raised(self._pending(running, primitive, args, params, kept, program))
            raise
        flat = tuple(outs) if primitive.multiple_results else (outs,)
        if twice or any(map(can_hold_nan, flat)):
            pending = self._pending(running, primitive, args, params, kept, program)
            pending.outs = flat
            pending.call = self.recording.next_call(running.name)
            pending.observed = None if not twice else again if primitive.multiple_results else (again,)
            self._queue.add(pending, None if program is None else program.nbytes)
        return outs

    def _pending(
        self,
        running: Running,
        primitive: Any,
        args: Sequence[Any],
        params: dict[str, Any],
        kept: Sequence[Any],
        program: Program | None,
    ) -> Pending:
        """A program as it is started, before it has given anything."""
        return Pending(
            running.name,
            0,
            _jaxpr_of(primitive, args, params),
            kept,
            (),
            running.since,
            running.source_info,
            phase=current_phase() if program is None else program.phase,
            eager=program is None or program.eager,
        )

    def _held(self, args: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
        """The inputs of a program to hold until its verdict."""
        donated = params.get("donated_invars", ())
        if not any(donated):
            return args
        self._queue.give_up([x for x, gone in zip(args, donated, strict=True) if gone])
        if self.settings.level is None:
            return args
        with _compat.unwatched():
            return held(args, donated, keep_donated=self.settings.keep_donated)

    def _observed(
        self,
        running: Running,
        primitive: Any,
        args: Sequence[Any],
        params: dict[str, Any],
        jaxpr: Any,
        program: Program,
    ) -> Any:
        __tracebackhide__ = True
        reason = uncertifiable(program, args)
        certified = self.policy.certifies(program) and not reason
        flushing = program.must_flush or (
            program.may_overflow and (program.donates or (bool(program.effects) and not certified))
        )
        kept = self._held(args, params)
        call = self.recording.next_call(program.name)
        run = open_run(self.receiver, program.name, call, program.plan.sites, self.alerts)
        try:
            variant = program.variant(jaxpr, args, replica=certified, flushing=flushing, copying=self._copying)
        except LensError:
            raise
        except Exception as error:
            close_run(run)
            self._unobservable(primitive, params, error)
            return program.production(primitive, args, params)
        try:
            observed, states = variant.run(jaxpr, run.number, args, guarded=not certified)
            outs = program.production(primitive, args, params) if certified else observed
            if not certified:
                _compat.check_finite(primitive, outs)
        except BaseException as error:
            close_run(run)
            if isinstance(error, Exception):
                self._has_raised(self._pending(running, primitive, args, params, kept, program))
            raise
        pending = Pending(
            program.name,
            call,
            lambda: jaxpr,
            kept,
            outs if primitive.multiple_results or not certified else (outs,),
            running.since,
            running.source_info,
            observed=observed if certified else None,
            states=states,
            program=program,
            plan=program.plan_of(jaxpr, replica=certified),
            run=run,
            flushed=flushing,
            reason=reason,
            phase=program.phase,
            eager=program.eager,
        )
        self._queue.add(pending)
        if program.plan.may_stop:
            # what was stopped early must not go on as if it were a result
            self._queue.drain()
            if self._raise_if_stopped(pending):
                # for what is no finding after all: the program must end as production does
                return program.production(primitive, args, params)
        if certified or primitive.multiple_results:
            return outs
        return outs[0]

    @property
    def _copying(self) -> bool:
        return not self.policy.strict  # under strict numerics no look disturbs

    # -- stopping early

    def _raise_if_stopped(self, pending: Pending) -> bool:
        """Raise for what stopped a program; says whether something did that is nothing to raise for."""
        __tracebackhide__ = True
        assert pending.states is not None and pending.plan is not None
        flag = pending.states[STOP_FLAG]
        place = int(flag.place)
        if place in pending.plan.budgets:
            raise budget_error(pending, self.settings, pending.plan.budgets[place], np.asarray(flag.steps))
        if self.settings.fail_fast:
            self._raise_alert()
        return place >= 0

    def _raise_alert(self) -> None:
        """With ``fail_fast``, raise the first alert or finding of this session, or what else is to leave it."""
        for finding in self.found:
            if not finding.masked:
                raise TapAlert(str(finding), finding=finding)
        for alert in self.alerts:
            raise TapAlert(str(alert), alert=alert)
        self.receiver.raise_meant()

    # -- afterwards

    def _settle(self, pending: Pending) -> None:
        with _compat.unwatched():
            self._wait_and_judge(pending)

    def _wait_and_judge(self, pending: Pending) -> None:
        # whoever reads the results of a program waits for it
        self.running = pending
        gated = self.settings.level is not None
        try:
            results = bad_results(pending.outs, inf=self.settings.inf) if gated else {}
            if self._suspects:
                self._suspects.used(given(pending.args), pending.outs, lambda x: not sound([x], inf=self.settings.inf))
            if gated and pending.program is None and pending.observed is None and not results:
                return  # most programs end here
            if pending.program is not None:
                jax.block_until_ready(_still_there((*pending.outs, *(pending.observed or ()))))
                collect(pending, copying=self._copying)  # what is live may still be on its way
            if pending.observed is not None or pending.reason:
                verdict = certify(pending)
                self._verdicts.append(verdict)
                pending.differs = verdict.verdict == "different"
            if gated and not self.policy.gate_paused:
                self._judge(pending, results if self.policy.judges_results else {})
        except jax.errors.JaxRuntimeError:
            self._has_raised(pending)  # the user hears of it where the result is used
        except Exception as error:
            warn_once(
                ("settle", pending.name, str(error)),
                f"what was observed of {pending.name!r} could not be read: {describe(error)}",
            )
        finally:
            self.running = None
            if pending.run is not None:
                close_run(pending.run)

    def _judge(self, pending: Pending, results: Mapping[Bad, Sequence[int]]) -> None:
        if pending.eager and results:
            self._suspects.open(pending, results)
        else:
            self._close_case(Case(pending, results, {}))

    def _has_raised(self, pending: Pending) -> None:
        """A program failed: the first of a block, whose inputs are not those of another that did, is explained."""
        if self._raised or self.settings.level is None or self.policy.gate_paused or has_raised(given(pending.args)):
            return
        self._raised = True
        self._enter(judge_raised(pending), pending)

    def _enter(self, found: list[Finding], executed: Executed) -> None:
        self._order.update((id(finding), executed.number) for finding in found)
        self.findings += found
        for session in (self, *self._told):
            session.found += found

    def _close_case(self, case: Case) -> None:
        level = self.settings.level
        assert level is not None
        kept = sum(finding.evidence is not None for finding in self.findings)
        found = judge(case.executed, case.results, level=level.name, keep=kept < KEPT, masked=case.masked)
        self._enter(found, case.executed)

    @property
    def waited_for(self) -> Running | Pending | None:
        """The program that is being executed, as far as is known: that in hand, or the oldest not settled."""
        return self.running or self._queue.oldest

    def settle_now(self) -> None:
        """Wait for all programs that were started, and judge them."""
        self._queue.drain()

    def close(self, *, failed: bool = False) -> None:
        """Wait for everything outstanding and write up the certificate and the warnings."""
        self._closed = True
        self._write_up()
        over(self)
        jax.effects_barrier()
        self.receiver.rest(last=self.receiver.end(last=self._last))
        if not failed:
            self.receiver.unmet.tell()
            if self.settings.fail_fast:
                self._raise_alert()

    def _write_up(self) -> None:
        self._queue.drain()
        self._suspects.close()
        self.findings.sort(key=lambda finding: (finding.masked, self._order.get(id(finding), -1)))
        verdicts, self._verdicts = self._verdicts, []
        self.recording.certify(verdicts)


def _still_there(values: Sequence[Any]) -> list[Any]:
    return [x for x in values if isinstance(x, jax.Array) and not x.is_deleted()]


def _bind(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run a primitive as it is: the trace that evaluates is current already."""
    return primitive.bind(*args, **params)


def _jaxpr_of(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Callable[[], Any]:
    """A function that gives the program's jaxpr, made when it is first asked for."""
    if primitive is _compat.jit_p:
        jaxpr = params["jaxpr"]
        return lambda: jaxpr

    @functools.cache
    def build() -> Any:
        with _compat.set_current_trace(_compat.eval_trace):
            outs = lambda *xs: primitive.bind(*xs, **params)
            return jax.make_jaxpr(lambda *xs: list(outs(*xs)) if primitive.multiple_results else outs(*xs))(*args)

    return build
