"""Evaluating a program with a boolean beside every element of every float: is its NaN owed to a birth, or a source?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import (
    Numbering,
    built_by_jax,
    computed_by_jax,
    ignores_nan,
    join,
    passes_on,
    phase_of,
    written_by_jax,
)
from jaxtap_core.jaxpr.structure import PREDICATE, WITHIN, ShardMap, inner_programs, kind_of, loop_of
from jaxtap_core.jaxpr.values import is_inexact
from jaxtap_core.jaxpr.visit import Addressed, addressed
from jaxtap_core.provenance.flat import UNCHECKED, CannotReplay
from jaxtap_core.provenance.taint.rules import moved
from jaxtap_core.records.kinds import Bad, Phase


class Tainted(NamedTuple):
    """A value, and beside it the flags of its elements; ``None`` where none can be true."""

    value: Any
    flags: Any = None


@dataclass(frozen=True)
class Where:
    """Where the evaluation stands.

    Attributes:
        prefix: of addresses.
        phase: of the enclosing program.
        library: whether the program is the inside of a function of JAX's library, whose own NaN literals are births.
        loop: whether it is the inside of a loop.
    """

    prefix: str = ""
    phase: Phase = "forward"
    library: bool = False
    loop: bool = False


@dataclass
class Evaluation:
    """One evaluation.

    Attributes:
        bad: what is looked for.
        births: whether births taint; else only ``sources`` do.
        sources: by the address of an outermost loop booleans, one for each of its outputs: whether what is bad in it
            taints.
        left: by the address of an outermost loop, the `rows` of its outputs.
    """

    bad: Bad
    births: bool = True
    sources: dict[str, Any] = field(default_factory=dict)
    left: dict[str, Any] = field(default_factory=dict)

    def run(self, jaxpr: Any, args: Sequence[Any], phase: Phase = "forward") -> list[Tainted]:
        """The results of a program."""
        where = Where(phase=phase, library=written_by_jax(jaxpr))
        return self._program(jaxpr, [Tainted(x) for x in args], Numbering(), where)

    def _program(self, jaxpr: Any, args: Sequence[Tainted], numbering: Numbering, where: Where) -> list[Tainted]:
        inner, consts = _compat.body_of(jaxpr)
        env: dict[Any, Tainted] = {var: Tainted(x) for var, x in zip(inner.constvars, consts, strict=True)}
        env.update(zip(inner.invars, args, strict=True))

        def read(atom: Any, library: bool) -> Tainted:
            if not isinstance(atom, _compat.Literal):
                return env[atom]
            value = jnp.asarray(atom.val, atom.aval.dtype) if hasattr(atom.aval, "dtype") else atom.val
            born = self.births and library and is_inexact(value)
            return Tainted(value, self.is_bad(value) if born else None)

        for eqn in inner.eqns:
            library = (where.library or computed_by_jax(eqn.source_info)) and not passes_on(eqn.source_info)
            operands = [read(atom, library) for atom in eqn.invars]
            with _compat.equation_context(eqn):
                outs = self._equation(eqn, operands, numbering, replace(where, library=library))
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom, where.library) for atom in inner.outvars]

    def _equation(self, eqn: Any, operands: list[Tainted], numbering: Numbering, where: Where) -> list[Tainted]:
        kind = kind_of(eqn)
        here = replace(where, phase=phase_of(eqn.source_info, where.phase))
        if kind in ("loop", "branches"):
            segment = numbering.structure(eqn.primitive.name, built_by_jax(eqn.source_info))
            path = join(where.prefix, segment)
            inside = replace(here, prefix=path, loop=here.loop or kind == "loop")
            if kind == "branches":
                return self._branches(eqn, operands, inside)
            outs = self._loop(eqn, operands, inside)
            return outs if here.loop else self._left(path, outs)
        if kind == "call":
            call = inner_programs(eqn)[WITHIN]
            library = here.library or written_by_jax(call.jaxpr)
            inside = replace(here, library=library)
            return self._program(call.jaxpr, call.arguments(operands), numbering, inside)
        if kind == "sharded":
            return self._shards(eqn, operands, numbering, here)
        return self._primitive(eqn, operands, here)

    # -- what taints

    def is_bad(self, value: Any) -> Any:
        """Which elements are NaN (or infinite)."""
        wide = value.astype(jnp.float32) if value.dtype.itemsize == 1 else value
        return jnp.isnan(wide) if self.bad == "nan" else jnp.isinf(wide)

    def _primitive(self, eqn: Any, operands: list[Tainted], where: Where) -> list[Tainted]:
        foreign = [effect for effect in eqn.effects if not _compat.is_internal_effect(effect)]
        if foreign:
            raise CannotReplay(f"{eqn.primitive.name} acts outside the program, and is not repeated")
        values, params = [x.value for x in operands], _compat.bind_params(eqn)
        if eqn.primitive.name in UNCHECKED and "axes" in params:
            outs: Any = [UNCHECKED[eqn.primitive.name](values[0], params["axes"])]
        else:
            outs = eqn.primitive.bind(*values, **params)
            outs = list(outs) if eqn.primitive.multiple_results else [outs]
        if not any(map(is_inexact, outs)):
            return [Tainted(out) for out in outs]
        came = moved(eqn, [x.flags for x in operands], values)
        born: list[Any] = [None] * len(outs)
        if self.births and not ignores_nan(eqn.source_info):
            were = [self.is_bad(value) if is_inexact(value) else None for value in values]
            fresh = moved(eqn, were, values)
            born = [True if flag is None else ~flag for flag in fresh]
        return [self._tainted(*one) for one in zip(outs, came, born, strict=True)]

    def _tainted(self, out: Any, came: Any, born: Any) -> Tainted:
        if not is_inexact(out) or (came is None and born is None):
            return Tainted(out)
        owed = born if came is None else came if born is None else came | born
        return Tainted(out, self.is_bad(out) & owed)

    def _left(self, path: str, outs: list[Tainted]) -> list[Tainted]:
        """What an outermost loop leaves: noted, and tainted where it is a source."""
        if path in self.sources:
            spread = lambda source, out: jnp.broadcast_to(source, jnp.shape(out.value))
            outs = [self._tainted(*out, spread(self.sources[path][i], out)) for i, out in enumerate(outs)]
        self.left[path] = self.rows(outs)
        return outs

    def rows(self, values: Sequence[Tainted]) -> Any:
        """bool[values, 3]: whether each holds something bad, whether some of that is tainted, and some is not."""
        nothing, rows = jnp.zeros((), bool), []
        for value, flags in values:
            bad = self.is_bad(value) if is_inexact(value) else nothing
            rest = bad if flags is None else bad & ~flags
            rows.append(jnp.stack([jnp.any(bad), nothing if flags is None else jnp.any(flags), jnp.any(rest)]))
        return jnp.stack(rows) if rows else jnp.zeros((0, 3), bool)

    # -- control flow

    def _with_flags(self, values: Sequence[Tainted]) -> list[Tainted]:
        """Every float gets flags, so that what goes round a loop keeps its structure."""
        return [
            Tainted(x.value, _flags_like(x.value) if x.flags is None and is_inexact(x.value) else x.flags)
            for x in values
        ]

    def _loop(self, eqn: Any, operands: list[Tainted], where: Where) -> list[Tainted]:
        loop = loop_of(eqn)
        predicate_consts, body_consts, init, xs = loop.split(operands)

        def step(carry: list[Tainted], x: list[Tainted]) -> tuple[list[Tainted], list[Tainted]]:
            outs = self._program(loop.body, [*body_consts, *carry, *x], Numbering(), where)
            outs = self._with_flags(outs)
            return outs[: loop.num_carry], outs[loop.num_carry :]

        if loop.predicate is None:
            carry, ys = lax.scan(step, self._with_flags(init), xs, length=loop.length, reverse=loop.reverse)
            return [*carry, *ys]

        def running(carry: list[Tainted]) -> Any:
            inside = replace(where, prefix=f"{where.prefix}/{PREDICATE}")
            return self._program(loop.predicate, [*predicate_consts, *carry], Numbering(), inside)[0].value

        def body(carry: list[Tainted]) -> list[Tainted]:
            outs, _ = step(carry, [])
            if not loop.lanes:
                return outs
            active = running(carry)
            return [_chosen(active, new, old) for new, old in zip(outs, carry, strict=True)]

        return lax.while_loop(lambda carry: jnp.any(running(carry)), body, self._with_flags(init))

    def _branches(self, eqn: Any, operands: list[Tainted], where: Where) -> list[Tainted]:
        index, *inputs = operands
        jaxprs = [inner.jaxpr for inner in inner_programs(eqn).values()]
        noted = {} if where.loop else _loops(jaxprs, where.prefix)

        def branch(number: int, jaxpr: Any) -> Callable[..., Any]:
            def run(inputs: list[Tainted]) -> Any:
                inner = replace(self, left={})  # a branch's values end with it
                inside = replace(where, prefix=f"{where.prefix}/b{number}")
                outs = self._with_flags(inner._program(jaxpr, inputs, Numbering(), inside))
                left = {path: inner.left.get(path, jnp.zeros((count, 3), bool)) for path, count in noted.items()}
                return outs, left

            return run

        branches = [branch(i, jaxpr) for i, jaxpr in enumerate(jaxprs)]
        outs, left = lax.switch(index.value, branches, self._with_flags(inputs))
        self.left.update(left)
        return outs

    def _shards(self, eqn: Any, operands: list[Tainted], numbering: Numbering, where: Where) -> list[Tainted]:
        mapped = ShardMap.of(eqn)
        if mapped.partial:
            raise CannotReplay("a shard_map over some axes of its mesh only")
        inputs = self._with_flags(operands)
        noted = dict(outermost_loops(mapped.jaxpr, _copied(numbering), where.prefix)) if not where.loop else {}

        def shard(inputs: list[Tainted], sources: dict[str, Any]) -> Any:
            inner = replace(self, sources=sources, left={})
            outs = self._with_flags(inner._program(mapped.jaxpr, inputs, numbering, where))
            return outs, {path: lax.psum(inner.left[path].astype(jnp.int32), mapped.axes) > 0 for path in noted}

        spec = lambda values, specs: [
            Tainted(s, s if x.flags is not None else None) for x, s in zip(values, specs, strict=True)
        ]
        outs, left = jax.shard_map(
            shard,
            mesh=mapped.mesh,
            in_specs=(spec([x.flags is not None for x in inputs], mapped.in_specs), P()),
            out_specs=(spec([is_inexact(var.aval) for var in eqn.outvars], mapped.out_specs), P()),
            axis_names=set(mapped.axes),
            check_vma=False,
        )(inputs, self.sources)
        self.left.update(left)
        return outs


def _flags_like(value: Any) -> Any:
    return jnp.zeros(value.shape, bool)


def _chosen(active: Any, new: Tainted, old: Tainted) -> Tainted:
    """``new`` in the lanes that run, ``old`` in the others."""

    def choose(x: Any, y: Any) -> Any:
        wide = active.reshape(active.shape + (1,) * (x.ndim - active.ndim))
        return lax.select(jnp.broadcast_to(wide, x.shape), x, y)

    return Tainted(choose(new.value, old.value), None if new.flags is None else choose(new.flags, old.flags))


def _copied(numbering: Numbering) -> Numbering:
    copy = Numbering()
    copy._structures.update(numbering._structures)
    return copy


def _loops(branches: Sequence[Any], prefix: str) -> dict[str, int]:
    """The outermost loops in the branches of a ``cond``, with the number of their outputs."""
    found: dict[str, int] = {}
    for number, jaxpr in enumerate(branches):
        found.update(outermost_loops(jaxpr, prefix=f"{prefix}/b{number}"))
    return found


def outermost_loops(jaxpr: Any, numbering: Numbering | None = None, prefix: str = "") -> Iterator[tuple[str, int]]:
    """The loops that stand in no other, with the number of their outputs."""
    return _outermost(addressed(jaxpr, numbering), prefix)


def _outermost(equations: Sequence[Addressed], prefix: str) -> Iterator[tuple[str, int]]:
    for one in equations:
        path = join(prefix, one.segment)
        if one.kind == "loop":
            yield path, len(one.eqn.outvars)
        elif one.kind == "branches":
            yield from _loops([inner.jaxpr for inner in inner_programs(one.eqn).values()], path).items()
        else:
            yield from _outermost(one.within, prefix)
