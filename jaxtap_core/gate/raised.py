"""A program that raised (`equinox.error_if`, a callback, a solver's ``throw``), and the NaN that it raised for.

The program is evaluated again up to the equation that acts on the host; nothing on the host is called again. Only a
NaN that reaches an operand of that equation is told, and the user's error stays what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from jaxtap_core import _compat
from jaxtap_core.gate.executed import Executed
from jaxtap_core.jaxpr.structure import inner_programs
from jaxtap_core.jaxpr.values import can_hold_nan, is_inexact
from jaxtap_core.jaxpr.visit import equations
from jaxtap_core.provenance.activation import Activation
from jaxtap_core.provenance.flat import NAN, flatten, quiet
from jaxtap_core.provenance.locate import Target

CALLBACKS = frozenset({"io_callback", "pure_callback"})


def raised_for(executed: Executed, inputs: Sequence[Any]) -> Target | None:
    """The operand that holds a NaN of the first equation that may have raised, or ``None`` where none does."""
    with _compat.set_current_trace(_compat.eval_trace):
        flat = flatten(quiet(executed.jaxpr()))
        here = Activation(flat, list(inputs), complete=False)
        acting = [node for node in flat.nodes if _acts(node.eqn)]
        for node in acting:
            if any(one in acting for one in flat.backward_slice(node.inputs)[0]):
                return None  # what it got came from the host
            for operand, number in enumerate(node.inputs):
                if is_inexact(flat.avals[number]) and (here.code(number) & NAN).any():
                    return Target("operand", node.segment, (), operand)
    return None


def _acts(eqn: Any) -> bool:
    """Whether an equation calls the host, by itself or in one of its programs."""
    inner = (one for program in inner_programs(eqn).values() for one in equations(program.jaxpr))
    return any(one.primitive.name in CALLBACKS for one in (eqn, *inner))


def has_raised(values: Any) -> bool:
    """Whether any of some arrays is what a program left that raised."""
    for x in values:
        if isinstance(x, jax.Array) and can_hold_nan(x) and not x.is_deleted():
            try:
                x.block_until_ready()
            except jax.errors.JaxRuntimeError:
                return True
    return False
