"""What is decided about a bad value: whether a birth in the program reaches it, and whether it reaches a result.

The deciding program is compiled once a program and used again.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtap_core import _compat
from jaxtap_core.jaxpr.structure import WITHIN, inner_programs, kind_of
from jaxtap_core.jaxpr.values import is_inexact
from jaxtap_core.jaxpr.visit import programs
from jaxtap_core.provenance.flat import CannotReplay, quiet
from jaxtap_core.provenance.taint.evaluate import Evaluation, outermost_loops
from jaxtap_core.records.kinds import Bad, Phase

BY_ITSELF = 30  # equations of a program without loops up to which it is evaluated one by one, not compiled


class Owed(NamedTuple):
    """For each of several values whether it is bad, whether some of that is owed to a birth or source, some not."""

    bad: np.ndarray
    owed: np.ndarray
    rest: np.ndarray


class Births(NamedTuple):
    """What the results of a program owe to births in it, and what the outermost loops leave, by their address."""

    results: Owed
    left: dict[str, Owed]


def births(jaxpr: Any, args: Sequence[Any], bad: Bad, phase: Phase = "forward") -> Births:
    """Which results of a program, and which outputs of its outermost loops, owe what is bad in them to a birth.

    Raises:
        CannotReplay: the program cannot be evaluated again.
    """
    results, left = _program(jaxpr, bad, phase, births=True)(list(args), {})
    return Births(_owed(results), {path: _owed(rows) for path, rows in left.items()})


def _owed(rows: Any) -> Owed:
    return Owed(*np.asarray(rows).T)


def reached(jaxpr: Any, args: Sequence[Any], bad: Bad, sources: Iterable[tuple[str, int]]) -> Births:
    """What the results owe to some outputs of outermost loops, each given by the loop's address and its number.

    Raises:
        CannotReplay: the program cannot be evaluated again.
    """
    loops = _loop_outputs(jaxpr)
    flags = {path: np.zeros(count, bool) for path, count in loops.items()}
    for path, output in sources:
        if path not in flags:
            raise CannotReplay(f"the program has no {path}")
        flags[path][output] = True
    results, left = _program(jaxpr, bad, "forward", births=False)(list(args), flags)
    return Births(_owed(results), {path: _owed(rows) for path, rows in left.items()})


def _loop_outputs(jaxpr: Any) -> dict[str, int]:
    return dict(outermost_loops(jaxpr))


_programs: dict[int, tuple[Any, dict[Hashable, Callable[..., Any]]]] = {}


def _program(jaxpr: Any, bad: Bad, phase: Phase, *, births: bool) -> Callable[..., Any]:
    """The deciding program of a program: ``(args, sources) -> (rows of the results, rows by loop)``."""
    number = id(jaxpr)
    known = _programs.get(number)
    if known is None or known[0]() is not jaxpr:
        forget = lambda _, number=number, programs=_programs: programs.pop(number, None)  # also when Python ends
        known = _programs[number] = (weakref.ref(jaxpr, forget), {})
    key = bad, phase, births
    if key not in known[1]:
        known[1][key] = _made(jaxpr, bad, phase, births)
    return known[1][key]


def _made(jaxpr: Any, bad: Bad, phase: Phase, births: bool) -> Callable[..., Any]:
    silent = quiet(jaxpr)
    if any(map(_compat.is_ref, _avals(silent))):
        raise CannotReplay("the program changes a mutable reference it was given: its first content is gone")
    if _compat.body_of(silent).jaxpr.effects:
        silent = _compat.without_refs(silent)

    def deciding(args: list[Any], sources: dict[str, Any]) -> Any:
        evaluation = Evaluation(bad, births, sources)
        results = evaluation.run(silent, args, phase)
        return evaluation.rows(results), evaluation.left

    simple = len(_compat.body_of(silent).jaxpr.eqns) <= BY_ITSELF and not _loop_outputs(silent)
    run = deciding if simple else jax.jit(deciding)

    def decided(args: list[Any], sources: dict[str, Any]) -> Any:
        with _compat.set_current_trace(_compat.eval_trace), jax.transfer_guard("allow"):
            return run(args, sources)

    return decided


def _avals(jaxpr: Any) -> list[Any]:
    return [var.aval for var in _compat.body_of(jaxpr).jaxpr.invars]


# -- what nothing bad can reach needs no second evaluation


def reachable(jaxpr: Any, given: Sequence[bool], is_bad: Callable[[Any], bool]) -> list[bool]:
    """For each result of a program, whether a bad input, constant or literal can reach it at all.

    Args:
        jaxpr: the program.
        given: for each input whether it holds something bad.
        is_bad: whether a constant does.
    """
    inner, consts = _compat.body_of(jaxpr)
    reached = {var for var, const in zip(inner.constvars, consts, strict=True) if is_bad(const)}
    reached |= {var for var, there in zip(inner.invars, given, strict=True) if there}

    def read(atom: Any) -> bool:
        return is_bad(np.asarray(atom.val)) if isinstance(atom, _compat.Literal) else atom in reached

    for eqn in inner.eqns:
        operands = [read(atom) for atom in eqn.invars]
        if kind_of(eqn.primitive) == "call":
            call = inner_programs(eqn)[WITHIN]
            outs = reachable(call.jaxpr, call.arguments(operands), is_bad)
        else:
            outs = [any(operands) or _holds(eqn, is_bad)] * len(eqn.outvars)
        reached |= {var for var, there in zip(eqn.outvars, outs, strict=True) if there and is_inexact(var.aval)}
    return [read(atom) for atom in inner.outvars]


def _holds(eqn: Any, is_bad: Callable[[Any], bool]) -> bool:
    """Whether a constant or literal in the inner programs of an equation is bad."""
    inner = (one for program in inner_programs(eqn).values() for one in programs(program.jaxpr))
    return any(is_bad(value) for one in inner for value in _constants(one))


def _constants(jaxpr: Any) -> Iterator[Any]:
    inner, consts = _compat.body_of(jaxpr)
    yield from consts
    for atom in itertools.chain(inner.outvars, *(eqn.invars for eqn in inner.eqns)):
        if isinstance(atom, _compat.Literal):
            yield np.asarray(atom.val)
