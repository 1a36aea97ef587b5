"""``cond`` and ``switch``: only the branch that is taken is observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax import lax

if TYPE_CHECKING:
    from jaxtap_core.instrument.interpreter import Observer
    from jaxtap_core.instrument.plan import EqnPlan, Level


def branch_rule(observer: Observer, eqn: Any, plan: EqnPlan, values: list[Any]) -> list[Any]:
    """The states go into the branch and come out of it beside its outputs."""
    index, *operands = values
    states = observer.states_of(plan.levels, plan)

    def branch(level: Level, jaxpr: Any) -> Any:
        def run(states: dict[int, Any], *operands: Any) -> tuple[list[Any], dict[int, Any]]:
            with observer.borrow(states):
                outs = observer.evaluate(level, jaxpr, operands)
                return outs, {number: observer.states[number] for number in states}

        return run

    branches = [branch(level, jaxpr) for level, jaxpr in zip(plan.levels, eqn.params["branches"], strict=True)]
    outs, after = lax.switch(index, branches, states, *operands)
    observer.states.update(after)
    return outs
