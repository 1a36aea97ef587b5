"""``shard_map``: every shard has states of its own, which leave the mapped program stacked along a first axis.

A shard never stops early: others may be waiting for what it sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import PartitionSpec as P

from jaxtap_core.instrument.stop_flag import BRAKE
from jaxtap_core.jaxpr.structure import ShardMap

if TYPE_CHECKING:
    from jaxtap_core.instrument.interpreter import Observer
    from jaxtap_core.instrument.plan import EqnPlan


def shard_rule(observer: Observer, eqn: Any, plan: EqnPlan, values: list[Any]) -> list[Any]:
    """The inside is evaluated on every shard; what surrounds it (run, loop counters) is the same for all."""
    mapped = ShardMap.of(eqn)
    states = {number: state for number, state in observer.states_of(plan.levels, plan).items() if number != BRAKE}
    apart = P(mapped.axes)

    def shard(states: Any, around: Any, *operands: Any) -> Any:
        own = jax.tree.map(lambda x: x[0], states)
        with observer.in_shard(mapped.axes, around), observer.borrow(own):
            outs = observer.evaluate(plan.levels[0], mapped.jaxpr, operands)
            after = {number: observer.states[number] for number in own}
        return tuple(outs), jax.tree.map(lambda x: x[None], after)

    run = jax.shard_map(
        shard,
        mesh=mapped.mesh,
        in_specs=(apart, P(), *mapped.in_specs),
        out_specs=(mapped.out_specs, apart),
        axis_names=set(mapped.axes),
        check_vma=mapped.checked,
    )
    outs, after = run(states, observer.around, *values)
    observer.states.update(after)
    return list(outs)
