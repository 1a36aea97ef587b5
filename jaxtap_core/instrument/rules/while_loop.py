"""``while``: the step counter, the states and the gate's verdicts join the carry.

The predicate is evaluated as often as in production. Only where something in the predicate itself is observed, or an
outer transformation is being traced, is it moved to the end of the body and carried, so that the body knows whether
its lane is running.

A loop that ``vmap`` batched over its predicate is rebuilt with a scalar predicate (any lane still running) and the
carry masked by hand, just as the lowering does it, while counter and states stay out of the mask: masked along, a
whole buffer would be selected over at every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax

from jaxtap_core.instrument.rules.scan import close_loop, next_firsts, start_firsts
from jaxtap_core.instrument.selection import storable
from jaxtap_core.instrument.stop_flag import BRAKE, Ended, Trail, next_trail, start_trail
from jaxtap_core.jaxpr.structure import While

if TYPE_CHECKING:
    from jaxtap_core.instrument.interpreter import Observer
    from jaxtap_core.instrument.plan import Budget, EqnPlan


def while_rule(observer: Observer, eqn: Any, plan: EqnPlan, values: list[Any]) -> list[Any]:
    """One event a body execution; a batched loop tells which lanes ran."""
    loop = While.of(eqn)
    predicate_consts, body_consts, init = loop.split(values)
    predicate_level, body_level = plan.levels
    states = observer.states_of(plan.levels, plan)
    masked = bool(loop.lanes)
    budget = plan.budget
    # with a budget it must be known at the end whether the loop would have gone on
    carried = observer.inside or bool(predicate_level.plans) or budget is not None
    diagnosing = budget is not None and observer.diagnosing
    check = plan.check

    def predicate(carry: list[Any]) -> Any:
        return observer.evaluate(predicate_level, loop.predicate, [*predicate_consts, *carry])[0]

    def running(state: Any) -> Any:
        carry, pred, step, *_, states = state
        lanes = pred if carried else predicate(carry)
        go_on = jnp.any(lanes) if masked else lanes
        if BRAKE in states:
            go_on = go_on & (states[BRAKE].place < 0)
        if budget is not None:
            go_on = go_on & (step < observer.settings.max_trips)
        return go_on

    def body(state: Any) -> Any:
        carry, pred, step, trail, firsts, states = state
        active = None
        if masked or observer.inside:
            active = pred if carried else predicate(carry)
        with observer.borrow(states), observer.in_loop(step, _within(observer.active, active)):
            new = observer.evaluate(body_level, loop.body, [*body_consts, *carry])
            if masked:
                new = [_where(active, x, old) for x, old in zip(new, carry, strict=True)]
            if plan.leaves is not None:
                leaves = plan.leaves
                observer.visit(plan.carry, lambda: leaves.values(body_consts, new))
            firsts = next_firsts(observer, check, firsts, new, step, active if masked else None)
            after = {number: observer.states[number] for number in states}
        if diagnosing:
            trail = next_trail(trail, carry, new, step)
        if carried:
            with observer.borrow(after), observer.in_loop(step + 1, _within(observer.active, active)):
                pred = predicate(new)
                after = {number: observer.states[number] for number in after}
        return new, pred, step + 1, trail, firsts, after

    firsts = start_firsts(observer, check, init)
    first_predicate = None
    if carried:
        everywhere = jnp.ones(loop.lanes, bool) if masked or observer.inside else None
        with observer.borrow(states), observer.in_loop(jnp.int32(0), _within(observer.active, everywhere)):
            first_predicate = predicate(init)
            states = {number: observer.states[number] for number in states}
    trail = start_trail(init, loop.lanes) if diagnosing else None
    carry, pred, step, trail, firsts, after = lax.while_loop(
        running, body, (init, first_predicate, jnp.int32(0), trail, firsts, states)
    )
    observer.states.update(after)
    if budget is not None:
        _close_budget(observer, budget, carry, pred, step, trail)
    if check is not None:
        close_loop(observer, check, firsts)
    return list(carry)


def _close_budget(
    observer: Observer, budget: Budget, carry: list[Any], pred: Any, step: Any, trail: Trail | None
) -> None:
    """After the loop: pull the brake where it would have gone on, and keep what tells why."""
    over = jnp.any(pred) & (step >= observer.settings.max_trips) & ~observer.braked
    if trail is not None:
        ended = Ended([storable(x) for x in carry], trail.since, trail.cycle, pred)
        before = observer.states[budget.number]
        observer.states[budget.number] = lax.cond(over, lambda: ended, lambda: before)
    observer.pull(budget.number, over)


def _within(outer: Any, inner: Any) -> Any:
    """Lanes that run in a loop and in the masked loop around it, where both tell the same lanes apart."""
    if outer is None or inner is None or outer.shape != inner.shape:
        return inner
    return outer & inner


def _where(lanes: Any, new: Any, old: Any) -> Any:
    """``new`` in the lanes that are running, else ``old``; lanes are the leading axes."""
    shape = lanes.shape + (1,) * (new.ndim - lanes.ndim)
    return lax.select_n(jnp.broadcast_to(lanes.reshape(shape), new.shape), old, new)
