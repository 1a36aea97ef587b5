"""What the planner asks about single equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import written_by_jax
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
    return kind_of(eqn) in ("plain", "sharded") and bool(inexact_places([var.aval for var in eqn.outvars]))


def dropped_at(jaxpr: Any) -> dict[Any, int]:
    """Variables that one equation alone uses which may drop what is bad in them, with its position.

    That is a ``select_n`` of which they are a case, or a function of JAX's library (``jnp.where``, ``jnp.nan_to_num``).
    """
    inner = _compat.body_of(jaxpr).jaxpr
    uses: dict[Any, set[int | None]] = {}
    for position, eqn in enumerate(inner.eqns):
        drops, chooses = _may_drop(eqn), eqn.primitive.name == "select_n"
        for i, atom in enumerate(eqn.invars):
            if not isinstance(atom, _compat.Literal):
                uses.setdefault(atom, set()).add(position if drops and not (chooses and i == 0) else None)
    for atom in inner.outvars:
        if not isinstance(atom, _compat.Literal):
            uses.setdefault(atom, set()).add(None)
    return {
        var: at for var, positions in uses.items() if len(positions) == 1 and (at := next(iter(positions))) is not None
    }


def _may_drop(eqn: Any) -> bool:
    """Whether what is bad in an operand may end at an equation: at a select, or in a function of JAX's library."""
    if kind_of(eqn) != "call":
        return bool(eqn.primitive.name == "select_n")
    return written_by_jax(inner_programs(eqn)[WITHIN].jaxpr)


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
