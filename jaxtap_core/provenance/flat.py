"""Running parts of a program again, with every value of one level in reach.

A *level* is one jaxpr with the calls in it looked through: the program itself, the body of a loop,
its predicate, or a branch. Every value on it gets a number, so that the same inner function called
twice makes different values. A level is evaluated by compiled programs that return what is asked
for: which elements are NaN or infinite (`codes`), or the values themselves.
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
from jaxtap_core.jaxpr.address import Numbering, built_by_jax, phase_of, source_of
from jaxtap_core.jaxpr.structure import BRANCHES, LOOPS, Scan, While, call_of, call_operands
from jaxtap_core.records.kinds import Phase

NAN, INF = (
    1,
    2,
)  # bits of a code: the element (or, of a complex number, one of its parts) is NaN, is infinite
BITS = {"nan": NAN, "inf": INF}

CODE_BYTES = 2**28  # above this much a level keeps one code a value instead of one an element


class CannotReplay(Exception):
    """The program cannot be run again; the message says why."""


@dataclass(eq=False)
class Node:
    """One equation of a level.

    Attributes:
        eqn: the equation.
        segment: its segment of an address, e.g. ``cholesky[0]``.
        inputs, outputs: numbers of its values within the level.
        source, phase: as in `Origin`.
        levels: the inner programs by name, made when first asked for (see `inner`).
        checked: whether it stands in a ``shard_map`` that checks which values vary between shards.
    """

    eqn: Any
    segment: str
    inputs: list[int]
    outputs: list[int]
    source: str
    phase: Phase
    levels: dict[str, Level] = field(default_factory=dict)
    checked: bool = False

    @property
    def primitive(self) -> str:
        """Name of its primitive."""
        return str(self.eqn.primitive.name)

    def inner(self, name: str) -> Level:
        """The inner program ``body``, ``pred`` (of a ``while``), ``b0``, ``b1`` … (of a branch)."""
        if name not in self.levels:
            jaxpr = self._jaxpr(name)
            self.levels[name] = _level(jaxpr, Numbering(), self.source, self.phase, self.checked)
        return self.levels[name]

    def all_inner(self) -> list[Level]:
        """All inner programs."""
        names = {"scan": ["body"], "while": ["body", "pred"], "shard_map": ["shards"]}
        if self.primitive == BRANCHES:
            return [self.inner(f"b{i}") for i in range(len(self.eqn.params["branches"]))]
        return [self.inner(name) for name in names.get(self.primitive, ())]

    def _jaxpr(self, name: str) -> Any:
        if self.primitive == "scan":
            return Scan.of(self.eqn).jaxpr
        if self.primitive == "while":
            loop = While.of(self.eqn)
            return loop.predicate if name == "pred" else loop.body
        return self.eqn.params["branches"][int(name[1:])]


@dataclass(eq=False)
class Level:
    """One jaxpr with calls looked through; values are numbered from 0.

    Attributes:
        avals: shape and dtype of each value.
        producers: index of the node that makes it, ``None`` for inputs and constants.
        consts: the values that are constants of the program, literals included.
        inputs, outputs: numbers of the values that go in and come out.
        nodes: the equations in program order.
        programs: compiled programs that evaluate parts of it, by what they return.
    """

    avals: list[Any] = field(default_factory=list)
    producers: list[int | None] = field(default_factory=list)
    consts: dict[int, Any] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    programs: dict[Any, tuple[Any, Sequence[int]]] = field(default_factory=dict)

    def new(self, aval: Any, producer: int | None = None) -> int:
        """Number a further value."""
        self.avals.append(aval)
        self.producers.append(producer)
        return len(self.avals) - 1

    def has(self, segment: str) -> bool:
        """Whether a node has that segment of an address."""
        return any(node.segment == segment for node in self.nodes)

    def behind(self, wanted: Iterable[int]) -> tuple[list[Node], set[int]]:
        """What ``wanted`` depends on: nodes in program order, and all values they touch."""
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
    structural = eqn.primitive.name in (*LOOPS, BRANCHES) or call_of(eqn) is not None
    writes = any(_compat.is_ref(atom.aval) for atom in eqn.invars)
    return not (eqn.outvars or structural or writes)


def _quiet_equation(eqn: Any) -> Any:
    if not eqn.effects:
        return eqn
    params, before, after = dict(eqn.params), set(), set()
    for name, value in eqn.params.items():
        if _compat.is_jaxpr(value):
            inner: Any = (value,)
        elif isinstance(value, tuple) and any(map(_compat.is_jaxpr, value)):
            inner = value
        else:
            continue
        quieted = [quiet(item) if _compat.is_jaxpr(item) else item for item in inner]
        for old, new in zip(inner, quieted, strict=True):
            if _compat.is_jaxpr(old):
                before |= set(_compat.body_of(old).jaxpr.effects)
                after |= set(_compat.body_of(new).jaxpr.effects)
        if inner is value:
            params[name] = type(value)(*quieted) if hasattr(value, "_fields") else tuple(quieted)
        else:
            params[name] = quieted[0]
    return eqn.replace(params=params, effects=frozenset(set(eqn.effects) - (before - after)))


def flatten(jaxpr: Any, source: str = "", phase: Phase = "forward") -> Level:
    """Number the values of ``jaxpr``; ``source``, ``phase`` are for equations that do not tell."""
    return _level(jaxpr, Numbering(), source, phase, checked=False)


def _level(jaxpr: Any, numbering: Numbering, source: str, phase: Phase, checked: bool) -> Level:
    level, body = Level(), _compat.body_of(jaxpr)
    level.inputs = [level.new(var.aval) for var in body.jaxpr.invars]
    level.outputs = _Flattening(level, numbering, checked).enter(jaxpr, level.inputs, source, phase)
    return level


@dataclass(frozen=True)
class _Flattening:
    level: Level
    numbering: Numbering
    checked: bool

    def enter(self, jaxpr: Any, inputs: Sequence[int], source: str, phase: Phase) -> list[int]:
        """Number what ``jaxpr`` computes of the values ``inputs``; gives the numbers of its outputs."""
        body = _compat.body_of(jaxpr)
        env = dict(zip(body.jaxpr.invars, inputs, strict=True))
        for var, value in zip(body.jaxpr.constvars, body.consts, strict=True):
            env[var] = self._constant(var.aval, value)

        def read(atom: Any) -> int:
            if isinstance(atom, _compat.Literal):
                return self._constant(atom.aval, atom.val)
            return env[atom]

        for eqn in body.jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            here, now = source_of(eqn.source_info, source), phase_of(eqn.source_info, phase)
            call = call_of(eqn)
            if call is not None:
                arguments = call_operands(eqn, call, operands)
                results = self.enter(call.jaxpr, arguments, here, now)
                self.numbering.primitive(eqn.primitive.name)
            else:
                results = self._node(eqn, operands, here, now)
            env.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in body.jaxpr.outvars]

    def _constant(self, aval: Any, value: Any) -> int:
        number = self.level.new(aval)
        if isinstance(value, bool | int | float | complex | np.generic):
            value = np.asarray(value, aval.dtype)  # else it would take whatever type jax gives it now
        self.level.consts[number] = value
        return number

    def _node(self, eqn: Any, operands: list[int], source: str, phase: Phase) -> list[int]:
        name, position = eqn.primitive.name, len(self.level.nodes)
        if name in (*LOOPS, BRANCHES):
            segment = self.numbering.structure(name, built_by_jax(eqn.source_info))
        else:
            segment = self.numbering.primitive(name)
        results = [self.level.new(var.aval, position) for var in eqn.outvars]
        node = Node(eqn, segment, operands, results, source, phase, checked=self.checked)
        if name == "shard_map":  # an address goes on through it, though its values are others
            checked = eqn.params["check_vma"]
            inner = _level(eqn.params["jaxpr"], self.numbering, source, phase, checked)
            node.levels["shards"] = inner
        self.level.nodes.append(node)
        return results


def evaluate(level: Level, inputs: Sequence[Any], wanted: Iterable[int]) -> dict[int, Any]:
    """The values that ``wanted`` depends on (themselves included), by number."""
    nodes, _ = level.behind(wanted)
    env = dict(level.consts)
    env.update(zip(level.inputs, inputs, strict=True))
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
        # A place in a shard_map takes all values for varying, whatever the program knows of them.
        if primitive.name in UNCHECKED:
            return [UNCHECKED[primitive.name](operands[0], params["axes"])]
        if node.primitive in LOOPS or node.primitive == BRANCHES:
            params = {**params, **_retraced(node)}
    results = primitive.bind(*operands, **params)
    return results if primitive.multiple_results else [results]


#: Primitives that exist only where it is checked which values vary, by what they do elsewhere.
UNCHECKED: dict[str, Callable[..., Any]] = {
    "psum_invariant": lax.psum,
    "pvary": lambda x, axes: x,
}


def _retraced(node: Node) -> dict[str, Any]:
    """The inner programs of a loop or branch, traced again where nothing is known to be the same."""

    def trace(name: str) -> Any:
        level = node.inner(name)

        def program(*inputs: Any) -> list[Any]:
            env = evaluate(level, inputs, level.outputs)
            return [env[n] for n in level.outputs]

        return jax.make_jaxpr(program)(*(_compat.unvarying(level.avals[n]) for n in level.inputs))

    if node.primitive == "scan":
        return {"jaxpr": trace("body")}
    if node.primitive == "while":
        return {"cond_jaxpr": trace("pred"), "body_jaxpr": trace("body")}
    return {"branches": tuple(trace(f"b{i}") for i in range(len(node.eqn.params["branches"])))}


def is_inexact(aval: Any) -> bool:
    """Whether values of that type can be NaN."""
    return hasattr(aval, "dtype") and jnp.issubdtype(aval.dtype, jnp.inexact)


def codes(x: Any) -> Any:
    """uint8 of the shape of ``x`` (float or complex): bit `NAN`, bit `INF`."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return codes(jnp.real(x)) | codes(jnp.imag(x))
    x = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x  # not every small float knows infinities
    return jnp.isnan(x).astype(jnp.uint8) * NAN + jnp.isinf(x).astype(jnp.uint8) * INF


def _whole(code: Any) -> Any:
    return (code & NAN).max(initial=0) | (code & INF).max(initial=0)


def survey(level: Level, roots: Sequence[int]) -> tuple[Any, list[int]]:
    """A program that returns what the walk needs of all values behind ``roots``, and their numbers.

    Of floats the codes; of booleans and integers, which steer what is selected or where it is
    moved, the values. Where that would be too much, a float is given one code for the whole (of
    shape ``()``).
    """
    _, touched = level.behind(roots)
    floats = [n for n in sorted(touched) if n not in level.consts and is_inexact(level.avals[n])]
    steering = [n for n in sorted(touched) if n not in level.consts and _steers(level.avals[n])]
    size = sum(level.avals[n].size for n in floats)
    size += sum(level.avals[n].size * level.avals[n].dtype.itemsize for n in steering)
    fits = size <= CODE_BYTES

    def program(*inputs: Any) -> list[Any]:
        env = evaluate(level, inputs, roots)
        found = [codes(env[n]) for n in floats]
        if fits:
            return found + [env[n] for n in steering]
        return [_whole(code) for code in found]

    return program, floats + (steering if fits else [])


def _steers(aval: Any) -> bool:
    kinds = (jnp.bool_, jnp.integer)
    return hasattr(aval, "dtype") and any(jnp.issubdtype(aval.dtype, kind) for kind in kinds)


def fetch(level: Level, wanted: Sequence[int]) -> Any:
    """A program that returns the values ``wanted``."""

    def program(*inputs: Any) -> list[Any]:
        env = evaluate(level, inputs, wanted)
        return [env[n] for n in wanted]

    return program


def host(array: Any) -> np.ndarray:
    """``array`` as NumPy holds it; a typed PRNG key as its data."""
    if hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jax.dtypes.extended):
        array = jax.random.key_data(array)
    return np.asarray(array)
