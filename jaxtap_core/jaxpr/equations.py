"""What the planner asks about single equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtap_core import _compat
from jaxtap_core.jaxpr.leaves import Leaves
from jaxtap_core.jaxpr.sharding import explicit_sharding
from jaxtap_core.jaxpr.structure import WITHIN, inner_programs, kind_of, loop_of
from jaxtap_core.jaxpr.values import can_hold_nan


def inexact_places(avals: Sequence[Any]) -> list[int]:
    """Which of ``avals`` can hold a NaN."""
    return [i for i, aval in enumerate(avals) if can_hold_nan(aval)]


def explicit_mesh(avals: Sequence[Any]) -> Any:
    """The mesh over whose explicit axes any of ``avals`` is sharded, or ``None``."""
    shardings = map(explicit_sharding, avals)
    return next((sharding.mesh for sharding in shardings if sharding is not None), None)


def can_bear_nan(eqn: Any) -> bool:
    """Whether an equation computes something: a NaN can be born there, not only moved or carried by a loop."""
    return kind_of(eqn.primitive) in ("plain", "sharded") and bool(inexact_places([var.aval for var in eqn.outvars]))


def selected_once(jaxpr: Any) -> dict[Any, int]:
    """Variables whose only use is as a case of one ``select_n``, with the position of that equation."""
    inner = _compat.body_of(jaxpr).jaxpr
    uses: dict[Any, list[int | None]] = {}
    for position, eqn in enumerate(inner.eqns):
        is_select = _is_select(eqn)
        for i, atom in enumerate(eqn.invars):
            if not isinstance(atom, _compat.Literal):
                uses.setdefault(atom, []).append(position if is_select and i > 0 else None)
    for atom in inner.outvars:
        if not isinstance(atom, _compat.Literal):
            uses.setdefault(atom, []).append(None)
    return {var: at[0] for var, at in uses.items() if len(at) == 1 and at[0] is not None}


def _is_select(eqn: Any) -> bool:
    """Whether an equation only selects among its operands, its first operand being the choice."""
    if kind_of(eqn.primitive) != "call":
        return bool(eqn.primitive.name == "select_n")
    # jnp.where is a jitted function: its program is a single select of its operands
    inner = _compat.body_of(inner_programs(eqn)[WITHIN].jaxpr).jaxpr
    names = {eqn.primitive.name for eqn in inner.eqns}
    return "select_n" in names and names <= {"select_n", "broadcast_in_dim", "convert_element_type"}


def carry_avals(eqn: Any) -> list[Any]:
    """Avals of a loop's carries, in the equation's order."""
    return [var.aval for var in eqn.outvars[: loop_of(eqn).num_carry]]


def output_avals(eqn: Any) -> list[Any]:
    """Avals of one step's outputs: those of the body, without the axis of steps."""
    loop = loop_of(eqn)
    return [var.aval for var in _compat.body_of(loop.body).jaxpr.outvars[loop.num_carry :]]


def leaf_avals(eqn: Any, leaves: Leaves) -> list[Any]:
    """Avals of a loop's carry leaves, in the user's order."""
    _, consts, carry, _ = loop_of(eqn).split([atom.aval for atom in eqn.invars])
    return leaves.values(consts, carry)
