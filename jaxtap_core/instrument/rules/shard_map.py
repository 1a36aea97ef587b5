"""``shard_map``: every shard has states of its own, which leave the mapped program stacked along a first axis.

Where one stands in another, the outer shards come first along that axis: each map takes its own part of it, and the
innermost, of which there is one row left, drops it.
A shard never stops early: others may be waiting for what it sends.
"""

from __future__ import annotations

from collections.abc import Callable
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
        with interpreter.in_shard(mapped.axes, around):
            here = {number for number in states if interpreter.stands_here(number)}
            own = _at(here, states, lambda x: x[0])
            with interpreter.borrow(own):
                outs = interpreter.evaluate(plan.bodies[0], mapped.jaxpr, operands)
                after = {number: interpreter.states[number] for number in own}
        return tuple(outs), _at(here, after, lambda x: x[None])

    run = jax.shard_map(
        shard,
        mesh=None if interpreter.maps else mapped.mesh,
        in_specs=(apart, P(), *mapped.in_specs),
        out_specs=(mapped.out_specs, apart),
        axis_names=set(mapped.axes),
        check_vma=mapped.checked,
    )
    outs, after = run(states, interpreter.around, *values)
    interpreter.states.update(after)
    return list(outs)


def _at(numbers: set[int], states: dict[int, Any], change: Callable[[Any], Any]) -> dict[int, Any]:
    """``states`` with every array of those of these ``numbers`` changed."""
    return {number: jax.tree.map(change, x) if number in numbers else x for number, x in states.items()}
