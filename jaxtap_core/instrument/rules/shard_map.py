"""``shard_map``: every shard has states of its own, which leave the mapped program stacked along a first axis.

A shard never stops early: others may be waiting for what it sends.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import PartitionSpec as P

from jaxtap_core.instrument.interpreter import Interpreter
from jaxtap_core.instrument.plan import EqnPlan
from jaxtap_core.instrument.registry import rule
from jaxtap_core.instrument.stop_flag import STOP_FLAG
from jaxtap_core.jaxpr.structure import ShardMap


@rule("shard_map")
def shard_rule(interpreter: Interpreter, eqn: Any, plan: EqnPlan, values: list[Any]) -> list[Any]:
    """The inside is evaluated on every shard; what surrounds it (run, loop counters) is the same for all."""
    mapped = ShardMap.of(eqn)
    states = {
        number: state for number, state in interpreter.states_of(plan.bodies, plan).items() if number != STOP_FLAG
    }
    apart = P(mapped.axes)

    def shard(states: Any, around: Any, *operands: Any) -> Any:
        own = jax.tree.map(lambda x: x[0], states)
        with interpreter.in_shard(mapped.axes, around), interpreter.borrow(own):
            outs = interpreter.evaluate(plan.bodies[0], mapped.jaxpr, operands)
            after = {number: interpreter.states[number] for number in own}
        return tuple(outs), jax.tree.map(lambda x: x[None], after)

    run = jax.shard_map(
        shard,
        mesh=mapped.mesh,
        in_specs=(apart, P(), *mapped.in_specs),
        out_specs=(mapped.out_specs, apart),
        axis_names=set(mapped.axes),
        check_vma=mapped.checked,
    )
    outs, after = run(states, interpreter.around, *values)
    interpreter.states.update(after)
    return list(outs)
