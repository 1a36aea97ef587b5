"""``while``: the step counter, the states and the gate's verdicts join the carry.

The predicate is evaluated as often as in production. Only where something in the predicate itself is observed, or an
outer transformation is being traced, is it moved to the end of the body and carried, so that the body knows whether
its lane is running.

A loop that ``vmap`` batched over its predicate is rebuilt with a scalar predicate (any lane still running) and the
carry masked by hand, just as the lowering does it, while counter and states stay out of the mask: masked along, a
whole buffer would be selected over at every step.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxtap_core.instrument.interpreter import Interpreter
from jaxtap_core.instrument.plan import Budget, EqnPlan
from jaxtap_core.instrument.registry import rule
from jaxtap_core.instrument.rules.scan import close_loop, next_firsts, start_firsts
from jaxtap_core.instrument.selection import storable
from jaxtap_core.instrument.stop_flag import STOP_FLAG, Ended, History, next_history, start_history
from jaxtap_core.jaxpr.structure import loop_of


@rule("while")
def while_rule(interpreter: Interpreter, eqn: Any, plan: EqnPlan, values: list[Any]) -> list[Any]:
    """One event a body execution; a batched loop tells which lanes ran."""
    loop = loop_of(eqn)
    predicate_consts, body_consts, init, _ = loop.split(values)
    predicate_plan, body_plan = plan.bodies
    states = interpreter.states_of(plan.bodies, plan)
    masked = bool(loop.lanes)
    budget = plan.budget
    # with a budget it must be known at the end whether the loop would have gone on
    carried = interpreter.inside or bool(predicate_plan.plans) or budget is not None
    diagnosing = budget is not None and interpreter.diagnosing
    check = plan.check

    def predicate(carry: list[Any]) -> Any:
        return interpreter.evaluate(predicate_plan, loop.predicate, [*predicate_consts, *carry])[0]

    def running(state: Any) -> Any:
        carry, pred, step, *_, states = state
        lanes = pred if carried else predicate(carry)
        go_on = jnp.any(lanes) if masked else lanes
        if STOP_FLAG in states:
            go_on = go_on & (states[STOP_FLAG].place < 0)
        if budget is not None:
            go_on = go_on & (step < interpreter.settings.max_trips)
        return go_on

    def body(state: Any) -> Any:
        carry, pred, step, history, firsts, states = state
        active = None
        if masked or interpreter.inside:
            active = pred if carried else predicate(carry)
        with interpreter.borrow(states), interpreter.in_loop(step, _within(interpreter.active, active)):
            new = interpreter.evaluate(body_plan, loop.body, [*body_consts, *carry])
            if masked:
                new = [_where(active, x, old) for x, old in zip(new, carry, strict=True)]
            if plan.leaves is not None:
                leaves = plan.leaves
                interpreter.visit(plan.carry, lambda: leaves.values(body_consts, new))
            firsts = next_firsts(interpreter, check, firsts, new, step, active if masked else None)
            after = {number: interpreter.states[number] for number in states}
        if diagnosing:
            history = next_history(history, carry, new, step)
        if carried:
            with interpreter.borrow(after), interpreter.in_loop(step + 1, _within(interpreter.active, active)):
                pred = predicate(new)
                after = {number: interpreter.states[number] for number in after}
        return new, pred, step + 1, history, firsts, after

    firsts = start_firsts(interpreter, check, init)
    first_predicate = None
    if carried:
        everywhere = jnp.ones(loop.lanes, bool) if masked or interpreter.inside else None
        with interpreter.borrow(states), interpreter.in_loop(jnp.int32(0), _within(interpreter.active, everywhere)):
            first_predicate = predicate(init)
            states = {number: interpreter.states[number] for number in states}
    history = start_history(init, loop.lanes) if diagnosing else None
    carry, pred, step, history, firsts, after = lax.while_loop(
        running, body, (init, first_predicate, jnp.int32(0), history, firsts, states)
    )
    interpreter.states.update(after)
    if budget is not None:
        _close_budget(interpreter, budget, carry, pred, step, history)
    if check is not None:
        close_loop(interpreter, check, firsts)
    return list(carry)


def _close_budget(
    interpreter: Interpreter, budget: Budget, carry: list[Any], pred: Any, step: Any, history: History | None
) -> None:
    """After the loop: raise the stop flag where it would have gone on, and keep what tells why."""
    over = jnp.any(pred) & (step >= interpreter.settings.max_trips) & ~interpreter.stopped
    if history is not None:
        ended = Ended([storable(x) for x in carry], history.since, history.cycle, pred)
        before = interpreter.states[budget.number]
        interpreter.states[budget.number] = lax.cond(over, lambda: ended, lambda: before)
    interpreter.raise_stop_flag(budget.number, over)


def _within(outer: Any, inner: Any) -> Any:
    """Lanes that run in a loop and in the masked loop around it, where both tell the same lanes apart."""
    if outer is None or inner is None or outer.shape != inner.shape:
        return inner
    return outer & inner


def _where(lanes: Any, new: Any, old: Any) -> Any:
    """``new`` in the lanes that are running, else ``old``; lanes are the leading axes."""
    shape = lanes.shape + (1,) * (new.ndim - lanes.ndim)
    return lax.select_n(jnp.broadcast_to(lanes.reshape(shape), new.shape), old, new)
