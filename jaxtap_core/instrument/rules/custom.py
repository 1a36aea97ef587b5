"""Custom rules under an outer transformation: the call stays one with the user's rules, its inside is observed.

An outer ``grad`` or ``vmap`` replaces such a call by the rule that its author gave, and may come later than the lens.
So the call is bound again with an observed inside and the rule as it was; what is known of the place where it stands
(the run, loop counters, running lanes) goes in as operands of its own, of which the rule never hears.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxtap_core.instrument.interpreter import Interpreter
from jaxtap_core.instrument.plan import EqnPlan
from jaxtap_core.jaxpr.structure import WITHIN, inner_programs


def _observed(interpreter: Interpreter, eqn: Any, plan: EqnPlan, places: int) -> Callable[..., list[Any]]:
    """The inside of a call as a function of what is known of the place (``places`` arrays), then of its operands."""
    jaxpr, structure = inner_programs(eqn)[WITHIN].jaxpr, jax.tree.structure(interpreter.around)

    def run(*operands: Any) -> list[Any]:
        with interpreter.at(jax.tree.unflatten(structure, operands[:places])):
            return interpreter.walk(plan.bodies[0], jaxpr, operands[places:])

    return run


def _with_inside(param: str) -> Callable[..., list[Any]]:
    """For calls whose leading operands are constants, ``num_consts`` of them: the place joins those."""

    def rebuild(interpreter: Interpreter, eqn: Any, plan: EqnPlan, values: Sequence[Any]) -> list[Any]:
        place = jax.tree.leaves(interpreter.around)
        inside = jax.make_jaxpr(_observed(interpreter, eqn, plan, len(place)))(*place, *values)
        changed = {param: inside, "num_consts": eqn.params["num_consts"] + len(place)}
        return _bound(eqn, changed, [*place, *values])

    return rebuild


def _batched_by_rule(interpreter: Interpreter, eqn: Any, plan: EqnPlan, values: Sequence[Any]) -> list[Any]:
    """``custom_vmap``: what is known of the place may be batched, which its constants must not be."""
    place = jax.tree.leaves(interpreter.around)
    rule, structure = eqn.params["rule"], eqn.params["in_tree"]
    call = jax.custom_batching.custom_vmap(_observed(interpreter, eqn, plan, len(place)))

    @call.def_vmap
    def theirs(size: int, batched: Sequence[bool], *operands: Any) -> tuple[list[Any], list[bool]]:
        own = slice(len(place), None)
        parts = jax.tree.unflatten(structure, operands[own])
        outs, outs_batched = rule(size, jax.tree.unflatten(structure, batched[own]), *parts)
        return jax.tree.leaves(outs), jax.tree.leaves(outs_batched)

    return list(call(*place, *values))


def _solved(interpreter: Interpreter, eqn: Any, plan: EqnPlan, values: Sequence[Any]) -> list[Any]:
    """``custom_linear_solve``: the place joins the constants of ``solve``."""
    place = jax.tree.leaves(interpreter.around)
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    consts, rhs = values[before : before + lengths.solve], values[sum(lengths) :]
    inside = jax.make_jaxpr(_observed(interpreter, eqn, plan, len(place)))(*place, *consts, *rhs)
    changed = {
        "const_lengths": lengths._replace(solve=lengths.solve + len(place)),
        "jaxprs": jaxprs._replace(solve=inside),
    }
    return _bound(eqn, changed, [*values[:before], *place, *values[before:]])


def _root(interpreter: Interpreter, eqn: Any, plan: EqnPlan, values: Sequence[Any]) -> list[Any]:
    """``custom_root`` as jax 0.12 has it: its derivative is asked of the call as it was."""
    place = jax.tree.leaves(interpreter.around)
    inside = _observed(interpreter, eqn, plan, len(place))
    inputs = len(place) + len(inner_programs(eqn)[WITHIN].operands)

    @jax.custom_jvp
    def solved(*operands: Any) -> list[Any]:
        return inside(*operands[:inputs])

    @solved.defjvp
    def theirs(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        own = slice(len(place), None)
        return jax.jvp(lambda *operands: _bound(eqn, {}, operands), primals[own], tangents[own])

    return list(solved(*place, *values))


def _bound(eqn: Any, changed: dict[str, Any], operands: Sequence[Any]) -> list[Any]:
    params = eqn.primitive.get_bind_params({**eqn.params, **changed})
    return list(eqn.primitive.bind(*operands, **params))


CUSTOM: dict[str, Callable[[Interpreter, Any, EqnPlan, Sequence[Any]], list[Any]]] = {
    "custom_jvp_call": _with_inside("call_jaxpr"),
    "custom_vjp_call": _with_inside("call_jaxpr"),
    "custom_vmap_call": _batched_by_rule,
    "call_hi_primitive": _root,
    "custom_linear_solve": _solved,
}
