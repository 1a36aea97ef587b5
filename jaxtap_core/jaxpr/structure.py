"""What an equation is made of: its kind, the programs inside it, and the roles of its operands and results.

Everything that reads a program (planning, rewriting, replaying, liveness) asks here, so that one place knows where
each primitive keeps its inner programs. A primitive that merely wraps a program is one line of `CALLS`; a loop is one
function, entered in `LOOPS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jax.sharding import AxisType

from jaxtap_core import _compat

EqnKind = Literal["plain", "call", "sharded", "branches", "loop"]

# names of inner programs; a branch is b0, b1 …
WITHIN = ""  # of a call or a shard_map: an address goes on through it
BODY, PREDICATE = "body", "pred"

BRANCH_INDEX = 0  # the operand of a cond that says which branch is taken; the others are what that is given


class InnerProgram(NamedTuple):
    """A program inside an equation.

    Attributes:
        jaxpr: the program.
        operands: for each of its inputs, which operand of the equation it is given: a carry at the first step, of a
            scanned input the row of the step, of a sharded operand the part of the shard.
        results: for each of its outputs, which result of the equation it becomes; none for a predicate.
    """

    jaxpr: Any
    operands: Sequence[int]
    results: Sequence[int]

    def arguments(self, values: Sequence[Any]) -> list[Any]:
        """Of ``values``, one for each operand of the equation, those that are inputs of the program, in its order."""
        return [values[i] for i in self.operands]


# -- calls: an equation that only wraps a program


def _wraps(param: str) -> Callable[[Any], InnerProgram]:
    return lambda eqn: InnerProgram(eqn.params[param], range(len(eqn.invars)), range(len(eqn.outvars)))


def _linear_solve(eqn: Any) -> InnerProgram:
    """Executing ``custom_linear_solve`` means executing its ``solve`` on that program's constants and ``b``."""
    lengths = eqn.params["const_lengths"]
    # operands: matvec, vecmat, solve and transpose_solve constants, then b
    first = lengths.matvec + lengths.vecmat
    operands = [*range(first, first + lengths.solve), *range(sum(lengths), len(eqn.invars))]
    return InnerProgram(eqn.params["jaxprs"].solve, operands, range(len(eqn.outvars)))


def _custom_root(eqn: Any) -> InnerProgram:
    """Newer jax has ``custom_root`` as a primitive of a kind of its own, which is lowered before it is executed."""
    solve = _compat.solve_of_custom_root(eqn.params)
    return InnerProgram(solve, range(len(_compat.body_of(solve).jaxpr.invars)), range(len(eqn.outvars)))


CUSTOM_ROOT = "call_hi_primitive"

CALLS: dict[str, Callable[[Any], InnerProgram]] = {
    "jit": _wraps("jaxpr"),
    "pjit": _wraps("jaxpr"),
    "closed_call": _wraps("call_jaxpr"),
    "core_call": _wraps("call_jaxpr"),
    "eval_jaxpr": _wraps("call_jaxpr"),
    "remat2": _wraps("jaxpr"),
    "checkpoint": _wraps("jaxpr"),
    "custom_jvp_call": _wraps("call_jaxpr"),
    "custom_vjp_call": _wraps("call_jaxpr"),
    "custom_vjp_call_jaxpr": _wraps("call_jaxpr"),
    "custom_vmap_call": _wraps("call"),
    CUSTOM_ROOT: _custom_root,
    "linear_call": _wraps("callee"),
    "remat_opt": _wraps("fwd_jaxpr"),
    "composite": _wraps("jaxpr"),
    "custom_linear_solve": _linear_solve,
}


# -- loops


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop equation taken apart.

    Its operands are constants of the predicate, constants of the body, carries, then scanned inputs; its results are
    carries, then outputs stacked along a first axis of steps.

    Attributes:
        body: the program of one step: (constants, carries, a row of each scanned input) to (carries, outputs).
        predicate: the program (its constants, carries) that says whether there is another step; ``None`` where the
            number of steps is fixed.
        predicate_consts, body_consts, num_carry: how many there are.
        length: the number of steps, ``None`` where the predicate decides.
        reverse: whether the last row is scanned first.
        unroll: how many steps are compiled as one.
    """

    body: Any
    predicate: Any
    predicate_consts: int
    body_consts: int
    num_carry: int
    length: int | None = None
    reverse: bool = False
    unroll: int = 1

    @property
    def lanes(self) -> tuple[int, ...]:
        """Shape of the predicate: ``()`` for one lane, ``(lanes,)`` where ``vmap`` gave each lane its own."""
        if self.predicate is None:
            return ()
        return tuple(_compat.body_of(self.predicate).jaxpr.outvars[0].aval.shape)

    @property
    def first_carry(self) -> int:
        """Which operand the first carry is."""
        return self.predicate_consts + self.body_consts

    def split(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Operands as the predicate's constants, the body's, carries, scanned inputs."""
        return list(operands[: self.predicate_consts]), *self.split_inputs(operands[self.predicate_consts :])

    def split_inputs(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Inputs of the body as constants, carries, rows of scanned inputs."""
        consts, carries = self.body_consts, self.body_consts + self.num_carry
        return list(inputs[:consts]), list(inputs[consts:carries]), list(inputs[carries:])

    def carry_of(self, program: str, position: int) -> int | None:
        """Which carry an input of the body or of the predicate is, ``None`` where it is none."""
        leaf = position - (self.predicate_consts if program == PREDICATE else self.body_consts)
        return leaf if 0 <= leaf < self.num_carry else None

    def is_scanned(self, program: str, position: int) -> bool:
        """Whether an input of the body or of the predicate is a row of a scanned input."""
        return program == BODY and position >= self.body_consts + self.num_carry


def _scan(eqn: Any) -> Loop:
    params = eqn.params
    consts, carries = _compat.scan_parts(params)
    return Loop(params["jaxpr"], None, 0, consts, carries, params["length"], params["reverse"], params["unroll"])


def _while(eqn: Any) -> Loop:
    params = eqn.params
    consts = params["cond_nconsts"], params["body_nconsts"]
    return Loop(params["body_jaxpr"], params["cond_jaxpr"], *consts, len(eqn.outvars))


LOOPS: dict[str, Callable[[Any], Loop]] = {"scan": _scan, "while": _while}


def loop_of(eqn: Any) -> Loop:
    """A loop equation taken apart."""
    return LOOPS[eqn.primitive.name](eqn)


# -- shard_map


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


# -- all kinds

KINDS: dict[str, EqnKind] = {
    **dict.fromkeys(CALLS, "call"),
    **dict.fromkeys(LOOPS, "loop"),
    "cond": "branches",
    "shard_map": "sharded",
}


RULED = ("linear_call", "remat_opt")  # calls with rules of their own that cannot be given to another inside


def kind_of(eqn: Any) -> EqnKind:
    """What an equation is: a ``plain`` one has no inner programs that are looked into."""
    name = eqn.primitive.name
    if name == CUSTOM_ROOT and _compat.solve_of_custom_root(eqn.params) is None:
        return "plain"
    return KINDS.get(name, "plain")


def inner_programs(eqn: Any) -> dict[str, InnerProgram]:
    """The programs inside an equation by name: `WITHIN`; `BODY` and `PREDICATE`; ``b0``, ``b1`` …; none if plain."""
    kind = kind_of(eqn)
    operands, results = range(len(eqn.invars)), range(len(eqn.outvars))
    if kind == "call":
        return {WITHIN: CALLS[eqn.primitive.name](eqn)}
    if kind == "sharded":
        return {WITHIN: InnerProgram(eqn.params["jaxpr"], operands, results)}
    if kind == "branches":
        return {f"b{i}": InnerProgram(branch, operands[1:], results) for i, branch in enumerate(eqn.params["branches"])}
    if kind == "loop":
        loop = loop_of(eqn)
        programs = {BODY: InnerProgram(loop.body, operands[loop.predicate_consts :], results)}
        if loop.predicate is not None:
            carries = operands[loop.first_carry : loop.first_carry + loop.num_carry]
            programs[PREDICATE] = InnerProgram(loop.predicate, [*operands[: loop.predicate_consts], *carries], ())
        return programs
    return {}
