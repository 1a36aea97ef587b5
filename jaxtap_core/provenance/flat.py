"""Running parts of a program again, with every value in reach.

A `FlatProgram` is one jaxpr with the calls in it looked through: the program itself, the body of a loop, its
predicate, or a branch. Every value in it gets a number, so that the same inner function called twice makes different
values. It is evaluated by compiled programs that return what is asked for: which elements are NaN or infinite
(`codes`), or the values themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import function_of_jax, phase_of, source_of
from jaxtap_core.jaxpr.structure import WITHIN, EqnKind, ShardMap, inner_programs, kind_of
from jaxtap_core.jaxpr.values import is_inexact
from jaxtap_core.jaxpr.visit import Addressed, addressed, map_programs
from jaxtap_core.records.kinds import Phase

# bits of a code: the element (or, of a complex number, one of its parts) is NaN, is infinite
NAN, INF = 1, 2
BITS = {"nan": NAN, "inf": INF}

CODE_BYTES = 2**28  # above this much a program keeps one code a value instead of one an element


class CannotReplay(Exception):
    """The program cannot be run again; the message says why."""


@dataclass(eq=False)
class Node:
    """One equation of a flat program.

    Attributes:
        eqn: the equation.
        segment: its segment of an address, e.g. ``cholesky[0]``.
        inputs, outputs: numbers of its values within the program.
        source, phase: as in `Origin`.
        checked: whether it stands in a ``shard_map`` that checks which values vary between shards.
        library: name of the function of JAX's library (the outermost one) whose inside it stands in, or empty.
        programs: the inner programs by name, made when first asked for (see `inner`).
    """

    eqn: Any
    segment: str
    inputs: list[int]
    outputs: list[int]
    source: str
    phase: Phase
    checked: bool = False
    library: str = ""
    programs: dict[str, FlatProgram] = field(default_factory=dict)

    @property
    def primitive(self) -> str:
        """Name of its primitive."""
        return str(self.eqn.primitive.name)

    @property
    def kind(self) -> EqnKind:
        """What it is; calls are looked through and so never nodes."""
        return kind_of(self.eqn)

    def inner(self, name: str) -> FlatProgram:
        """The inner program of that name (see `structure`), made when first asked for."""
        if name not in self.programs:
            jaxpr = inner_programs(self.eqn)[name].jaxpr
            self.programs[name] = _flat(jaxpr, addressed(jaxpr), self.source, self.phase, self.checked, self.library)
        return self.programs[name]

    def all_inner(self) -> list[FlatProgram]:
        """All inner programs."""
        return [self.inner(name) for name in inner_programs(self.eqn)]

    def given(self, name: str, position: int) -> int:
        """Number of the value that input ``position`` of an inner program is given (a carry, at the first step)."""
        return self.inputs[inner_programs(self.eqn)[name].operands[position]]


@dataclass(eq=False)
class FlatProgram:
    """One jaxpr with the calls in it looked through; values are numbered from 0.

    Attributes:
        avals: shape and dtype of each value.
        producers: index of the node that makes it, ``None`` for inputs and constants.
        consts: the values that are constants of the program, literals included.
        inputs, outputs: numbers of the values that go in and come out.
        nodes: the equations in program order.
        compiled: compiled programs that evaluate parts of it, by what they return.
    """

    avals: list[Any] = field(default_factory=list)
    producers: list[int | None] = field(default_factory=list)
    consts: dict[int, Any] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    compiled: dict[Any, tuple[Any, Sequence[int]]] = field(default_factory=dict)

    def new(self, aval: Any, producer: int | None = None) -> int:
        """Number a further value."""
        self.avals.append(aval)
        self.producers.append(producer)
        return len(self.avals) - 1

    def node_at(self, segment: str) -> Node | None:
        """The node with that segment of an address."""
        return next((node for node in self.nodes if node.segment == segment), None)

    def backward_slice(self, wanted: Iterable[int]) -> tuple[list[Node], set[int]]:
        """What ``wanted`` depends on: nodes in program order, and all values that they touch."""
        needed, nodes = set(wanted), []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                nodes.append(node)
                needed.update(node.inputs)
        return nodes[::-1], needed


def quiet(jaxpr: Any) -> Any:
    """``jaxpr`` without what only has an effect on the host (debug callbacks), at every depth."""
    inner = _compat.body_of(jaxpr).jaxpr
    if not inner.effects:
        return jaxpr
    kept, dropped = [], set()
    for eqn in inner.eqns:
        if _only_effects(eqn):
            dropped |= set(eqn.effects)
        else:
            kept.append(_quiet_equation(eqn))
            dropped |= set(eqn.effects) - set(kept[-1].effects)
    remain = {effect for eqn in kept for effect in eqn.effects}
    return _compat.with_equations(jaxpr, kept, inner.effects - (dropped - remain))


def _only_effects(eqn: Any) -> bool:
    structural = kind_of(eqn) in ("call", "branches", "loop")
    writes = any(_compat.is_ref(atom.aval) for atom in eqn.invars)
    return not (eqn.outvars or structural or writes)


def _quiet_equation(eqn: Any) -> Any:
    if not eqn.effects:
        return eqn
    params = map_programs(eqn.params, quiet)
    dropped = _effects_inside(eqn.params) - _effects_inside(params)
    return eqn.replace(params=params, effects=frozenset(set(eqn.effects) - dropped))


def _effects_inside(params: dict[str, Any]) -> set[Any]:
    return {effect for _, inner in _compat.sub_jaxprs(params) for effect in _compat.body_of(inner).jaxpr.effects}


def flatten(jaxpr: Any, source: str = "", phase: Phase = "forward") -> FlatProgram:
    """Number the values of ``jaxpr``; ``source``, ``phase`` are for equations that do not tell."""
    return _flat(jaxpr, addressed(jaxpr), source, phase, checked=False)


def _flat(
    jaxpr: Any, equations: Sequence[Addressed], source: str, phase: Phase, checked: bool, library: str = ""
) -> FlatProgram:
    flat = FlatProgram()
    flat.inputs = [flat.new(var.aval) for var in _compat.body_of(jaxpr).jaxpr.invars]
    flat.outputs = _Flattening(flat, checked).enter(jaxpr, equations, flat.inputs, source, phase, library)
    return flat


@dataclass(frozen=True)
class _Flattening:
    flat: FlatProgram
    checked: bool

    def enter(
        self,
        jaxpr: Any,
        equations: Sequence[Addressed],
        inputs: Sequence[int],
        source: str,
        phase: Phase,
        library: str,
    ) -> list[int]:
        """Number what ``jaxpr`` computes of the values ``inputs``; gives the numbers of its outputs."""
        library = library or function_of_jax(jaxpr)
        body = _compat.body_of(jaxpr)
        env = dict(zip(body.jaxpr.invars, inputs, strict=True))
        for var, value in zip(body.jaxpr.constvars, body.consts, strict=True):
            env[var] = self._constant(var.aval, value)

        def read(atom: Any) -> int:
            if isinstance(atom, _compat.Literal):
                return self._constant(atom.aval, atom.val)
            return env[atom]

        for one in equations:
            operands = [read(atom) for atom in one.eqn.invars]
            here, now = source_of(one.eqn.source_info, source), phase_of(one.eqn.source_info, phase)
            if one.kind == "call":
                wrapped = inner_programs(one.eqn)[WITHIN]
                results = self.enter(wrapped.jaxpr, one.within, wrapped.arguments(operands), here, now, library)
            else:
                results = self._node(one, operands, here, now, library)
            env.update(zip(one.eqn.outvars, results, strict=True))
        return [read(atom) for atom in body.jaxpr.outvars]

    def _constant(self, aval: Any, value: Any) -> int:
        number = self.flat.new(aval)
        if isinstance(value, bool | int | float | complex | np.generic):
            value = np.asarray(value, aval.dtype)  # else it would take whatever type jax gives it now
        self.flat.consts[number] = value
        return number

    def _node(self, one: Addressed, operands: list[int], source: str, phase: Phase, library: str) -> list[int]:
        results = [self.flat.new(var.aval, len(self.flat.nodes)) for var in one.eqn.outvars]
        node = Node(one.eqn, one.segment, operands, results, source, phase, self.checked, library)
        if one.kind == "sharded":  # an address goes on through it, though its values are others
            mapped = ShardMap.of(one.eqn)
            node.programs[WITHIN] = _flat(mapped.jaxpr, one.within, source, phase, mapped.checked, library)
        self.flat.nodes.append(node)
        return results


def evaluate(flat: FlatProgram, inputs: Sequence[Any], wanted: Iterable[int]) -> dict[int, Any]:
    """The values that ``wanted`` depends on (themselves included), by number."""
    nodes, _ = flat.backward_slice(wanted)
    env = dict(flat.consts)
    env.update(zip(flat.inputs, inputs, strict=True))
    for node in nodes:
        foreign = [effect for effect in node.eqn.effects if not _compat.is_internal_effect(effect)]
        if foreign:
            raise CannotReplay(f"{node.segment} ({node.source}) acts outside the program, and is not repeated")
        operands = [env[number] for number in node.inputs]
        with _compat.equation_context(node.eqn):
            results = _bind(node, operands)
        env.update(zip(node.outputs, results, strict=True))
    return env


def _bind(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    primitive, params = node.eqn.primitive, _compat.bind_params(node.eqn)
    if node.checked:
        # An activation in a shard_map takes all values for varying, whatever the program knows of them.
        if primitive.name in UNCHECKED:
            return [UNCHECKED[primitive.name](operands[0], params["axes"])]
        if node.kind in ("loop", "branches"):
            params = _retraced(node, params)
    results = primitive.bind(*operands, **params)
    return results if primitive.multiple_results else [results]


#: Primitives that exist only where it is checked which values vary, by what they do elsewhere.
UNCHECKED: dict[str, Callable[..., Any]] = {
    "psum_invariant": lax.psum,
    "pvary": lambda x, axes: x,
}


def _retraced(node: Node, params: dict[str, Any]) -> dict[str, Any]:
    """``params`` with the inner programs of a loop or branch traced again where nothing is known to be the same."""
    names = {id(inner.jaxpr): name for name, inner in inner_programs(node.eqn).items()}

    def trace(jaxpr: Any) -> Any:
        flat = node.inner(names[id(jaxpr)])

        def program(*inputs: Any) -> list[Any]:
            env = evaluate(flat, inputs, flat.outputs)
            return [env[n] for n in flat.outputs]

        return jax.make_jaxpr(program)(*(_compat.unvarying(flat.avals[n]) for n in flat.inputs))

    return map_programs(params, trace)


def codes(x: Any) -> Any:
    """uint8 of the shape of ``x`` (float or complex): bit `NAN`, bit `INF`."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return codes(jnp.real(x)) | codes(jnp.imag(x))
    x = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x  # not every small float knows infinities
    return jnp.isnan(x).astype(jnp.uint8) * NAN + jnp.isinf(x).astype(jnp.uint8) * INF


def _whole(code: Any) -> Any:
    return (code & NAN).max(initial=0) | (code & INF).max(initial=0)


def survey(flat: FlatProgram, roots: Sequence[int]) -> tuple[Any, list[int]]:
    """A program that returns what is needed to go backward from ``roots``, and the numbers of the values it returns.

    Of floats the codes; of booleans and integers, which steer what is selected or where it is
    moved, the values. Where that would be too much, a float is given one code for the whole (of
    shape ``()``).
    """
    _, touched = flat.backward_slice(roots)
    floats = [n for n in sorted(touched) if n not in flat.consts and is_inexact(flat.avals[n])]
    steering = [n for n in sorted(touched) if n not in flat.consts and _steers(flat.avals[n])]
    size = sum(flat.avals[n].size for n in floats)
    size += sum(flat.avals[n].size * flat.avals[n].dtype.itemsize for n in steering)
    fits = size <= CODE_BYTES

    def program(*inputs: Any) -> list[Any]:
        env = evaluate(flat, inputs, roots)
        found = [codes(env[n]) for n in floats]
        if fits:
            return found + [env[n] for n in steering]
        return [_whole(code) for code in found]

    return program, floats + (steering if fits else [])


def _steers(aval: Any) -> bool:
    kinds = (jnp.bool_, jnp.integer)
    return hasattr(aval, "dtype") and any(jnp.issubdtype(aval.dtype, kind) for kind in kinds)


def fetch(flat: FlatProgram, wanted: Sequence[int]) -> Any:
    """A program that returns the values ``wanted``."""

    def program(*inputs: Any) -> list[Any]:
        env = evaluate(flat, inputs, wanted)
        return [env[n] for n in wanted]

    return program
