"""What the planner asks about single equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import Numbering, built_by_jax
from jaxtap_core.jaxpr.leaves import Leaves
from jaxtap_core.jaxpr.sharding import explicit_sharding
from jaxtap_core.jaxpr.structure import BRANCHES, LOOPS, SHARDED, Scan, ShardMap, While, call_of


def _is_inexact(aval: Any) -> bool:
    return hasattr(aval, "dtype") and jnp.issubdtype(aval.dtype, jnp.inexact)


def inexact_places(avals: Sequence[Any]) -> list[int]:
    """Which of ``avals`` can hold a NaN."""
    return [i for i, aval in enumerate(avals) if _is_inexact(aval) and 0 not in aval.shape]


def explicit_mesh(avals: Sequence[Any]) -> Any:
    """The mesh over whose explicit axes any of ``avals`` is sharded, or ``None``."""
    shardings = map(explicit_sharding, avals)
    return next((sharding.mesh for sharding in shardings if sharding is not None), None)


def can_bear_nan(eqn: Any) -> bool:
    """Whether an equation computes something: a NaN can be born there, not only moved or carried by a loop."""
    return (
        eqn.primitive.name not in (*LOOPS, BRANCHES)
        and call_of(eqn) is None
        and bool(inexact_places([var.aval for var in eqn.outvars]))
    )


def number_along(jaxpr: Any, numbering: Numbering) -> None:
    """Number what stands in a program that is not observed, so that the addresses behind it are what they should be."""
    for eqn in _compat.body_of(jaxpr).jaxpr.eqns:
        name, call = eqn.primitive.name, call_of(eqn)
        if name in (*LOOPS, BRANCHES):
            numbering.structure(name, built_by_jax(eqn.source_info))
            continue
        if call is not None:
            number_along(call.jaxpr, numbering)
        elif name == SHARDED:
            number_along(ShardMap.of(eqn).jaxpr, numbering)
        numbering.primitive(name)


def selected_once(jaxpr: Any) -> dict[Any, int]:
    """Variables whose only use is as a case of one ``select_n``, with the position of that equation."""
    inner = _compat.body_of(jaxpr).jaxpr
    uses: dict[Any, list[int | None]] = {}
    for position, eqn in enumerate(inner.eqns):
        call = call_of(eqn)
        # jnp.where is a jitted function: its program is a single select of its operands
        is_select = eqn.primitive.name == "select_n" or (call is not None and _is_where(call.jaxpr))
        for i, atom in enumerate(eqn.invars):
            if not isinstance(atom, _compat.Literal):
                uses.setdefault(atom, []).append(position if is_select and i > 0 else None)
    for atom in inner.outvars:
        if not isinstance(atom, _compat.Literal):
            uses.setdefault(atom, []).append(None)
    return {var: at[0] for var, at in uses.items() if len(at) == 1 and at[0] is not None}


def _is_where(jaxpr: Any) -> bool:
    """Whether a called program only selects among its operands, its first operand being the choice."""
    inner = _compat.body_of(jaxpr).jaxpr
    names = {eqn.primitive.name for eqn in inner.eqns}
    return "select_n" in names and names <= {"select_n", "broadcast_in_dim", "convert_element_type"}


def carry_avals(eqn: Any) -> list[Any]:
    """Avals of a loop's carries, in the equation's order."""
    if eqn.primitive.name == "scan":
        return [var.aval for var in eqn.outvars[: Scan.of(eqn).num_carry]]
    return [var.aval for var in eqn.outvars]


def output_avals(eqn: Any) -> list[Any]:
    """Avals of one step's outputs: those of the body, without the axis of steps."""
    scan = Scan.of(eqn)
    return [var.aval for var in _compat.body_of(scan.jaxpr).jaxpr.outvars[scan.num_carry :]]


def leaf_avals(eqn: Any, leaves: Leaves) -> list[Any]:
    """Avals of a loop's carry leaves, in the user's order."""
    if eqn.primitive.name == "scan":
        consts, carry, _ = Scan.of(eqn).split([atom.aval for atom in eqn.invars])
    else:
        _, consts, carry = While.of(eqn).split([atom.aval for atom in eqn.invars])
    return leaves.values(consts, carry)
