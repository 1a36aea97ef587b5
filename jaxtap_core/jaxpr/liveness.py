"""Liveness: what of a program production computes, given which of its outputs are used.

The compiler removes what nobody uses, through loops, branches and calls; what is not computed must not be observed.
This is the library's own account of it, since jax itself removes no carry of a ``while`` (0.10.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtap_core import _compat
from jaxtap_core.jaxpr.structure import BRANCHES, SHARDED, Scan, ShardMap, While, call_of, call_operands

Used = tuple[bool, ...]


class Liveness:
    """Asks about one program; answers about inner programs are kept, so that a shared one is gone through once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Used], tuple[Any, list[Used], Used]] = {}

    def equations(self, jaxpr: Any, used: Sequence[bool]) -> list[Used]:
        """For each equation of ``jaxpr``, of whose outputs those in ``used`` are used, which of its outputs are used.

        An equation of none is not computed, unless it has an effect.
        """
        return self._gone_through(jaxpr, tuple(used))[1]

    def inputs(self, jaxpr: Any, used: Sequence[bool]) -> Used:
        """Which inputs of ``jaxpr`` are used."""
        return self._gone_through(jaxpr, tuple(used))[2]

    def inner(self, eqn: Any, used: Used) -> list[tuple[Any, Used]]:
        """The inner programs of an equation, with which of their outputs are used when ``used`` of the equation's are.

        In the order of `structure`: of a call one, of a scan one, of a while predicate and body, of a branch all.
        """
        call = call_of(eqn)
        if call is not None:
            return [(call.jaxpr, used[: len(_compat.body_of(call.jaxpr).jaxpr.outvars)])]
        if eqn.primitive.name == "scan":
            scan = Scan.of(eqn)
            carries = self._carries(scan.jaxpr, scan.num_consts, used[: scan.num_carry], used[scan.num_carry :])
            return [(scan.jaxpr, carries + used[scan.num_carry :])]
        if eqn.primitive.name == "while":
            loop = While.of(eqn)
            steering = self.inputs(loop.predicate, (True,))[loop.predicate_consts :]
            wanted = tuple(a or b for a, b in zip(used, steering, strict=True))
            return [(loop.predicate, (True,)), (loop.body, self._carries(loop.body, loop.body_consts, wanted, ()))]
        if eqn.primitive.name == BRANCHES:
            return [(jaxpr, used) for jaxpr in eqn.params["branches"]]
        if eqn.primitive.name == SHARDED:
            return [(ShardMap.of(eqn).jaxpr, used)]
        return []

    def _carries(self, body: Any, consts: int, used: Used, outputs: Used) -> Used:
        """Which carries of a loop are computed: those used after it, and what they are made of."""
        while True:
            needed = self.inputs(body, used + outputs)[consts : consts + len(used)]
            more = tuple(a or b for a, b in zip(used, needed, strict=True))
            if more == used:
                return used
            used = more

    def _gone_through(self, jaxpr: Any, used: Used) -> tuple[Any, list[Used], Used]:
        key = id(jaxpr), used
        if key not in self._known:
            self._known[key] = (jaxpr, *self._go_through(jaxpr, used))  # kept alive, so that its id stays its own
        return self._known[key]

    def _go_through(self, jaxpr: Any, used: Used) -> tuple[list[Used], Used]:
        inner = _compat.body_of(jaxpr).jaxpr
        live = {var for var, one in zip(inner.outvars, used, strict=True) if one and not _is_literal(var)}
        found: list[Used] = []
        for eqn in reversed(inner.eqns):
            outs = tuple(var in live for var in eqn.outvars)
            found.append(outs)
            if any(outs) or eqn.effects:
                operands = self._operands(eqn, outs)
                live.update(v for v, one in zip(eqn.invars, operands, strict=True) if one and not _is_literal(v))
        return found[::-1], tuple(var in live for var in inner.invars)

    def _operands(self, eqn: Any, used: Used) -> Sequence[bool]:
        """Which operands of an equation are used."""
        programs = self.inner(eqn, used)
        if not programs:
            return (True,) * len(eqn.invars)
        call = call_of(eqn)
        if call is not None:
            places = call_operands(eqn, call, list(range(len(eqn.invars))))
            needed = {at for at, one in zip(places, self.inputs(*programs[0]), strict=True) if one}
            return [at in needed for at in range(len(eqn.invars))]
        if eqn.primitive.name == "while":
            loop = While.of(eqn)
            predicate, body = (self.inputs(*program) for program in programs)
            carries = programs[1][1]
            return [*predicate[: loop.predicate_consts], *body[: loop.body_consts], *carries]
        if eqn.primitive.name == "scan":
            scan = Scan.of(eqn)
            consts, _, xs = scan.split(self.inputs(*programs[0]))
            return [*consts, *programs[0][1][: scan.num_carry], *xs]
        if eqn.primitive.name == BRANCHES:
            needed_by = [self.inputs(*program) for program in programs]
            return [True, *(any(one) for one in zip(*needed_by, strict=True))]
        return self.inputs(*programs[0])


def _is_literal(atom: Any) -> bool:
    return isinstance(atom, _compat.Literal)
