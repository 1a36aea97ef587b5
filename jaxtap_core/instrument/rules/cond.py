"""``cond`` and ``switch``: only the branch that is taken is observed."""

from __future__ import annotations

from typing import Any

from jax import lax

from jaxtap_core.instrument.interpreter import Interpreter
from jaxtap_core.instrument.plan import BodyPlan, EqnPlan
from jaxtap_core.instrument.registry import rule
from jaxtap_core.jaxpr.structure import inner_programs


@rule("cond")
def branch_rule(interpreter: Interpreter, eqn: Any, plan: EqnPlan, values: list[Any]) -> list[Any]:
    """The states go into the branch and come out of it beside its outputs."""
    index, *operands = values
    states = interpreter.states_of(plan.bodies, plan)

    def branch(body: BodyPlan, jaxpr: Any) -> Any:
        def run(states: dict[int, Any], *operands: Any) -> tuple[list[Any], dict[int, Any]]:
            with interpreter.borrow(states):
                outs = interpreter.evaluate(body, jaxpr, operands)
                return outs, {number: interpreter.states[number] for number in states}

        return run

    programs = inner_programs(eqn).values()
    branches = [branch(body, program.jaxpr) for body, program in zip(plan.bodies, programs, strict=True)]
    outs, after = lax.switch(index, branches, states, *operands)
    interpreter.states.update(after)
    return outs
