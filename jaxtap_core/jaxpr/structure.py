"""What an equation is made of: loops with their operands told apart, branches, and calls that are looked through.

Everything that walks a program (planning, rewriting, replaying) asks here, so that one place knows where each
primitive keeps its inner programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax.sharding import AxisType

from jaxtap_core import _compat


class Call(NamedTuple):
    """An equation that only wraps a program: its inner jaxpr and how many leading operands are not its inputs."""

    jaxpr: Any
    skip: int
    take: int


def _simple(param: str) -> Callable[[Any], Call]:
    return lambda eqn: Call(eqn.params[param], 0, len(eqn.invars))


def _linear_solve(eqn: Any) -> Call:
    """Executing ``custom_linear_solve`` means executing its ``solve`` on that program's constants and ``b``."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    skip = lengths.matvec + lengths.vecmat
    # operands: matvec, vecmat, solve and transpose_solve constants, then b; the last but one group is not for solve
    return Call(jaxprs.solve, skip, lengths.solve)


def _custom_root(eqn: Any) -> Call | None:
    """Newer jax has ``custom_root`` as a primitive of a kind of its own, which is lowered before it is executed."""
    solve = _compat.solve_of_custom_root(eqn.params)
    return None if solve is None else Call(solve, 0, len(_compat.body_of(solve).jaxpr.invars))


CALLS: dict[str, Callable[[Any], Call | None]] = {
    "jit": _simple("jaxpr"),
    "pjit": _simple("jaxpr"),
    "closed_call": _simple("call_jaxpr"),
    "core_call": _simple("call_jaxpr"),
    "eval_jaxpr": _simple("call_jaxpr"),
    "remat2": _simple("jaxpr"),
    "checkpoint": _simple("jaxpr"),
    "custom_jvp_call": _simple("call_jaxpr"),
    "custom_vjp_call": _simple("call_jaxpr"),
    "custom_vmap_call": _simple("call"),
    "call_hi_primitive": _custom_root,
    "linear_call": _simple("callee"),
    "remat_opt": _simple("fwd_jaxpr"),
    "composite": _simple("jaxpr"),
    "custom_linear_solve": _linear_solve,
}


def call_of(eqn: Any) -> Call | None:
    """The program that ``eqn`` merely wraps, or ``None`` for any other equation."""
    rule = CALLS.get(eqn.primitive.name)
    return rule(eqn) if rule is not None else None


def call_operands(eqn: Any, call: Call, values: Sequence[Any]) -> list[Any]:
    """The operands of ``eqn`` (atoms or values) that are inputs of the wrapped program, in its order."""
    inputs = list(values[call.skip : call.skip + call.take])
    if eqn.primitive.name == "custom_linear_solve":
        inputs += values[sum(eqn.params["const_lengths"]) :]
    return inputs


@dataclass(frozen=True, slots=True)
class Scan:
    """A ``scan`` equation taken apart: operands are constants, carries, then scanned inputs."""

    jaxpr: Any
    num_consts: int
    num_carry: int
    length: int
    reverse: bool
    unroll: int

    @classmethod
    def of(cls, eqn: Any) -> Scan:
        """Take ``eqn`` apart."""
        parts = _compat.scan_parts(eqn.params)
        params = eqn.params
        return cls(params["jaxpr"], *parts, params["length"], params["reverse"], params["unroll"])

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """``values`` (operands of the equation) as constants, carries, scanned inputs."""
        consts, carry = self.num_consts, self.num_consts + self.num_carry
        return list(values[:consts]), list(values[consts:carry]), list(values[carry:])


@dataclass(frozen=True, slots=True)
class While:
    """A ``while`` equation taken apart: operands are the predicate's constants, the body's, then carries."""

    predicate: Any
    body: Any
    predicate_consts: int
    body_consts: int

    @classmethod
    def of(cls, eqn: Any) -> While:
        """Take ``eqn`` apart."""
        params = eqn.params
        return cls(params["cond_jaxpr"], params["body_jaxpr"], params["cond_nconsts"], params["body_nconsts"])

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """``values`` (operands of the equation) as predicate's constants, body's constants, carries."""
        first, second = self.predicate_consts, self.predicate_consts + self.body_consts
        return list(values[:first]), list(values[first:second]), list(values[second:])

    @property
    def lanes(self) -> tuple[int, ...]:
        """Shape of the predicate: ``()`` for one lane, ``(lanes,)`` where ``vmap`` gave each lane its own."""
        return tuple(_compat.body_of(self.predicate).jaxpr.outvars[0].aval.shape)


@dataclass(frozen=True, slots=True)
class ShardMap:
    """A ``shard_map`` equation taken apart: the program of one shard, and how values are split and joined.

    ``axes`` are the axes of the mesh along which the shards are told apart, in its order; ``checked`` says whether
    it is checked which values vary between shards.
    """

    jaxpr: Any
    mesh: Any
    in_specs: tuple[Any, ...]
    out_specs: tuple[Any, ...]
    axes: tuple[str, ...]
    checked: bool

    @classmethod
    def of(cls, eqn: Any) -> ShardMap:
        """Take ``eqn`` apart."""
        params = eqn.params
        mesh, manual = params["mesh"], _compat.manual_axes(params)
        axes = tuple(axis for axis in mesh.axis_names if axis in manual)
        specs = tuple(params["in_specs"]), tuple(params["out_specs"])
        return cls(params["jaxpr"], mesh, *specs, axes, params["check_vma"])

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return math.prod(self.mesh.shape[axis] for axis in self.axes)

    @property
    def explicit(self) -> bool:
        """Whether the types of values tell how they are spread over further axes."""
        types = zip(self.mesh.axis_names, self.mesh.axis_types, strict=True)
        return any(axis not in self.axes and kind == AxisType.Explicit for axis, kind in types)

    @property
    def partial(self) -> bool:
        """Whether the values of a shard are spread over devices in turn."""
        return len(self.axes) < len(self.mesh.axis_names)


RULED = ("linear_call", "remat_opt")  # calls with rules of their own that cannot be given to another inside
LOOPS = ("scan", "while")
SHARDED = "shard_map"
BRANCHES = "cond"
