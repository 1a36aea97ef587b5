"""``cond`` and ``switch``: only the branch that is taken is observed."""

from __future__ import annotations

from typing import Any

from jax import lax

from jaxtap_core.instrument.interpreter import Interpreter
from jaxtap_core.instrument.plan import BodyPlan, EqnPlan
from jaxtap_core.instrument.registry import rule


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

    branches = [branch(body, jaxpr) for body, jaxpr in zip(plan.bodies, eqn.params["branches"], strict=True)]
    outs, after = lax.switch(index, branches, states, *operands)
    interpreter.states.update(after)
    return outs
