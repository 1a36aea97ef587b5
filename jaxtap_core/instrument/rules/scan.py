"""``scan``: the step counter, the states and the gate's verdicts join the carry."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap_core import _compat
from jaxtap_core.instrument.interpreter import Interpreter
from jaxtap_core.instrument.nonfinite import has_bad
from jaxtap_core.instrument.plan import Check, EqnPlan, Look
from jaxtap_core.instrument.registry import rule
from jaxtap_core.instrument.stop_flag import STOP_FLAG
from jaxtap_core.jaxpr.sharding import explicit_sharding, sharded_like
from jaxtap_core.jaxpr.structure import Loop, loop_of

NEVER, FROM_THE_START = -1, -2


@rule("scan")
def scan_rule(interpreter: Interpreter, eqn: Any, plan: EqnPlan, values: list[Any]) -> list[Any]:
    """One event a body execution, counted from 0, also where the scan runs in reverse."""
    scan = loop_of(eqn)
    _, consts, init, xs = scan.split(values)
    states = interpreter.states_of(plan.bodies, plan)
    check = plan.check

    def body(state: Any, x: Any) -> Any:
        carry, step, firsts, states = state
        with interpreter.borrow(states), interpreter.in_loop(step):
            outs = interpreter.evaluate(plan.bodies[0], scan.body, [*consts, *carry, *x])
            new, ys = outs[: scan.num_carry], outs[scan.num_carry :]
            if plan.leaves is not None:
                leaves = plan.leaves
                interpreter.visit(plan.carry, lambda: leaves.values(consts, new))
            interpreter.visit(plan.output, lambda: ys)
            firsts = next_firsts(interpreter, check, firsts, new, step)
            after = {number: interpreter.states[number] for number in states}
        return (new, step + 1, firsts, after), ys

    def stoppable(state: Any, x: Any) -> Any:
        # what a skipped step puts out is known from the program: the body is not traced for it, which would double the
        # work at every loop that stands in another
        zeros = lambda y: sharded_like(jnp.zeros(y.shape, y.dtype), explicit_sharding(y))
        skip = lambda: (state, [zeros(var.aval) for var in _outputs(scan)])
        return lax.cond(state[3][STOP_FLAG].place < 0, lambda: body(state, x), skip)

    firsts = start_firsts(interpreter, check, init)
    (carry, _, firsts, after), ys = lax.scan(
        stoppable if STOP_FLAG in states and interpreter.settings.fail_fast and _zeros_exist(scan) else body,
        (init, jnp.int32(0), firsts, states),
        xs,
        length=scan.length,
        reverse=scan.reverse,
        unroll=scan.unroll,
    )
    interpreter.states.update(after)
    if check is not None:
        close_loop(interpreter, check, firsts, _first_bad_outputs(check, ys, scan))
    return [*carry, *ys]


def _zeros_exist(scan: Loop) -> bool:
    """Whether a skipped step can put something in place of its outputs: there are no zero keys."""
    return not any(jnp.issubdtype(var.aval.dtype, jax.dtypes.extended) for var in _outputs(scan))


def _outputs(scan: Loop) -> list[Any]:
    """The variables of one step's outputs."""
    return list(_compat.body_of(scan.body).jaxpr.outvars[scan.num_carry :])


def start_firsts(interpreter: Interpreter, check: Check | None, init: list[Any]) -> Any:
    """Before the first step: no carry is bad yet, and those that already are do not count.

    All carries of a loop share one array of first bad steps, int32[carries, *lanes], since an array each would be a
    kernel each; ``None`` where no carry is looked at.
    """
    if check is None or not check.carries:
        return None
    entered = jnp.stack(interpreter.verdicts(check, check.looks[: check.carries], init))
    return jnp.where(entered, jnp.int32(FROM_THE_START), jnp.int32(NEVER))


def next_firsts(
    interpreter: Interpreter, check: Check | None, firsts: Any, carry: list[Any], step: Any, active: Any = None
) -> Any:
    """After a step: where a carry has just turned bad, remember the step."""
    if check is None or firsts is None:
        return firsts
    bad = jnp.stack(interpreter.verdicts(check, check.looks[: check.carries], carry))
    if active is not None:
        bad = bad & active
    fresh = (firsts == NEVER) & bad
    if interpreter.settings.fail_fast:
        interpreter.raise_stop_flag(check.number, jnp.any(fresh))
    return jnp.where(fresh, step, firsts)


def close_loop(interpreter: Interpreter, check: Check, firsts: Any, outputs: Any = None) -> None:
    """After the last step: hand the verdicts of this entry of the loop, on carries and outputs, to the gate."""
    verdicts = [found for found in (firsts, outputs) if found is not None]
    hit = functools.reduce(jnp.logical_or, [jnp.any(found >= 0) for found in verdicts])
    interpreter.note(check, verdicts, hit)


def _first_bad_outputs(check: Check, ys: list[Any], scan: Loop) -> Any:
    """For each per-step output the first step, in order of execution, at which it was bad; int32[outputs] or None."""
    looks = check.looks[check.carries :]
    if not looks:
        return None
    order = lax.iota(np.int32, scan.length)
    order = lax.rev(order, (0,)) if scan.reverse else order

    def first(look: Look) -> Any:
        # a minimum is one kernel of the simplest kind: compiling it costs less than a search where there is one
        bad = has_bad(ys[look.place], nan=look.bad == "nan", inf=look.bad == "inf", keep=1)
        least = lax.reduce_min(jnp.where(bad, order, jnp.int32(scan.length)), (0,))
        return jnp.where(least < scan.length, least, jnp.int32(NEVER))

    return jnp.stack([first(look) for look in looks])
