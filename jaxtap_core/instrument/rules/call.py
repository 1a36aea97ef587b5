"""Calls: the wrapped program is evaluated in place; what the wrapper asked of the compiler is kept."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax

from jaxtap_core import _compat
from jaxtap_core.instrument.interpreter import Interpreter
from jaxtap_core.instrument.plan import EqnPlan
from jaxtap_core.instrument.registry import rule
from jaxtap_core.instrument.rules.custom import CUSTOM
from jaxtap_core.jaxpr.structure import WITHIN, inner_programs


def _constrained(values: list[Any], shardings: Any) -> list[Any]:
    """Apply the shardings that an inner ``jit`` was given explicitly."""
    return [
        x if sharding is _compat.UNSPECIFIED else lax.with_sharding_constraint(x, sharding)
        for x, sharding in zip(values, shardings, strict=True)
    ]


@rule("call")
def call_rule(interpreter: Interpreter, eqn: Any, plan: EqnPlan, values: list[Any]) -> list[Any]:
    """``jit``, ``checkpoint``, custom rules, ``custom_linear_solve``: transparent."""
    if interpreter.inside and eqn.primitive.name in CUSTOM:
        return CUSTOM[eqn.primitive.name](interpreter, eqn, plan, values)
    wrapped = inner_programs(eqn)[WITHIN]
    inputs = wrapped.arguments(values)
    params = eqn.params
    if "in_shardings" in params:
        inputs = _constrained(inputs, params["in_shardings"])
    if params.get("differentiated") and params.get("prevent_cse"):
        # rematerialisation is only worth its name while the compiler cannot merge it with the forward pass
        inputs = list(lax.optimization_barrier(tuple(inputs)))
    run = lambda *inputs: interpreter.walk(plan.bodies[0], wrapped.jaxpr, inputs)
    if interpreter.inside and "policy" in params:
        # an outer ``grad`` may follow, and is to rematerialise as the user wished
        run = jax.checkpoint(run, prevent_cse=params["prevent_cse"], policy=params["policy"])
    outs = run(*inputs)
    if "out_shardings" in params:
        outs = _constrained(outs, params["out_shardings"])
    return outs
