"""What production computes of a program: dead code elimination, given as data.

A result that nobody uses, and what only it was made of, is never computed, however often it stands in the program.
`liveness` says what is left, from which outputs are used: a carry of a loop lives where its last value is used, where
the predicate reads it, or where anything that lives reads it at a later step (a fixed point over the carries). Effects
keep an equation alive; a ``pure_callback`` has none. A mutable reference counts as read by somebody, and a loop as
running, however few its steps are.

Example:
    >>> import jax
    >>> def f(x):
    ...     unused = jax.numpy.log(x)
    ...     return jax.lax.fori_loop(0, 3, lambda i, c: (c[0] * 2, c[1] + c[0]), (x, unused))[0]
    >>> log, loop = liveness(jax.make_jaxpr(f)(1.0)).equations
    >>> log is None, loop.carries, loop.results
    (True, (False, True, False), (False, True, False))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtap_core import _compat
from jaxtap_core.jaxpr.structure import BODY, BRANCH_INDEX, PREDICATE, inner_programs, kind_of, loop_of


class LiveEquation(NamedTuple):
    """An equation that is executed.

    Attributes:
        results: which of its results are used after it.
        carries: of a loop, which carries its steps compute: those that are used after it, and those that anything
            which lives needs at a later step. Empty for other equations.
        inner: what lives of its inner programs, by name (see `structure`).
    """

    results: tuple[bool, ...]
    carries: tuple[bool, ...]
    inner: Mapping[str, Liveness]


@dataclass(frozen=True, slots=True)
class Liveness:
    """What lives of a program.

    Attributes:
        outputs: which of its outputs are used, as it was asked.
        inputs: which of its inputs are read by something that lives.
        equations: its equations in program order, those not executed as ``None``.
    """

    outputs: tuple[bool, ...]
    inputs: tuple[bool, ...]
    equations: tuple[LiveEquation | None, ...]


def liveness(jaxpr: Any, used: Sequence[bool] | None = None) -> Liveness:
    """What lives of ``jaxpr`` where ``used`` says which of its outputs are used (``None``: all)."""
    outputs = len(_compat.body_of(jaxpr).jaxpr.outvars)
    return _Analysis().of_program(jaxpr, (True,) * outputs if used is None else tuple(used))


class _Analysis:
    """One analysis: each inner program is looked at once for each set of used outputs, however often it stands."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[bool, ...]], Liveness] = {}

    def of_program(self, jaxpr: Any, used: tuple[bool, ...]) -> Liveness:
        key = id(jaxpr), used
        if key not in self._known:
            self._known[key] = self._go_backward(_compat.body_of(jaxpr).jaxpr, used)
        return self._known[key]

    def _go_backward(self, inner: Any, used: tuple[bool, ...]) -> Liveness:
        read = {atom for atom, wanted in zip(inner.outvars, used, strict=True) if wanted and _is_variable(atom)}
        equations: list[LiveEquation | None] = []
        for eqn in reversed(inner.eqns):
            results = tuple(var in read for var in eqn.outvars)
            if any(results) or any(map(_compat.keeps_alive, eqn.effects)):
                equation, operands = self._of_equation(eqn, results)
                read.update(eqn.invars[i] for i in operands if _is_variable(eqn.invars[i]))
                equations.append(equation)
            else:
                equations.append(None)
        return Liveness(used, tuple(var in read for var in inner.invars), tuple(reversed(equations)))

    def _of_equation(self, eqn: Any, results: tuple[bool, ...]) -> tuple[LiveEquation, set[int]]:
        """An equation that lives, and which of its operands it reads."""
        kind, programs = kind_of(eqn), inner_programs(eqn)
        if kind == "plain":
            return LiveEquation(results, (), {}), _read_by(eqn, results)
        carries: tuple[bool, ...] = ()
        if kind == "loop":
            carries, inner = self._of_loop(eqn, results)
        else:
            inner = {
                name: self.of_program(program.jaxpr, tuple(results[i] for i in program.results))
                for name, program in programs.items()
            }
        reads = {i for name, program in programs.items() for i in _where(inner[name].inputs, program.operands)}
        if kind == "loop":  # also a carry that no step reads may come out as it went in
            reads.update(loop_of(eqn).first_carry + i for i, lives in enumerate(carries) if lives)
        if kind == "branches":
            reads.add(BRANCH_INDEX)
        return LiveEquation(results, carries, inner), reads

    def _of_loop(self, eqn: Any, results: tuple[bool, ...]) -> tuple[tuple[bool, ...], dict[str, Liveness]]:
        loop, inner = loop_of(eqn), {}
        carries, outputs = results[: loop.num_carry], results[loop.num_carry :]
        if loop.predicate is not None:
            inner[PREDICATE] = self.of_program(loop.predicate, (True,))
            carries = _either(carries, inner[PREDICATE].inputs[loop.predicate_consts :])
        while True:
            inner[BODY] = self.of_program(loop.body, (*carries, *outputs))
            _, needed, _ = loop.split_inputs(inner[BODY].inputs)
            grown = _either(carries, needed)
            if grown == carries:
                return carries, inner
            carries = grown


def _read_by(eqn: Any, results: tuple[bool, ...]) -> set[int]:
    """Which operands a plain equation reads: all, unless it passes each on as one of its results."""
    passed = {i for i, wanted in enumerate(results) if wanted}
    if eqn.primitive.name == "optimization_barrier":
        return passed
    if eqn.primitive.name == "sort":
        return passed.union(range(eqn.params["num_keys"]))
    return set(range(len(eqn.invars)))


def _is_variable(atom: Any) -> bool:
    return not isinstance(atom, _compat.Literal)


def _either(some: Sequence[bool], others: Sequence[bool]) -> tuple[bool, ...]:
    return tuple(a or b for a, b in zip(some, others, strict=True))


def _where(flags: Sequence[bool], positions: Sequence[int]) -> list[int]:
    return [i for flag, i in zip(flags, positions, strict=True) if flag]
