"""One way through a program for all who go through one.

`addressed` gives the equations of one level of a program with their segments of an address. Whoever speaks of
addresses (the planner, the replay) takes them from here, so that all number alike, whatever they skip.
`programs` and `equations` give everything at every depth, to those who only look for something; `executed` what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import Numbering, built_by_jax
from jaxtap_core.jaxpr.structure import WITHIN, EqnKind, inner_programs, kind_of


class Addressed(NamedTuple):
    """One equation, and where it stands.

    Attributes:
        eqn: the equation.
        segment: its segment of an address: ``scan[0]``, ``jax:while[0]``, ``cholesky[1]``.
        kind: what it is.
        within: the equations inside a call or a ``shard_map``, through which the numbering goes on.
    """

    eqn: Any
    segment: str
    kind: EqnKind
    within: tuple[Addressed, ...] = ()

    @property
    def by_library(self) -> bool:
        """Whether it is a loop or branch that JAX's own library code built."""
        return self.segment.startswith("jax:")


def addressed(jaxpr: Any, numbering: Numbering | None = None) -> tuple[Addressed, ...]:
    """The equations of one level in program order: of the program itself, of a loop's body, of a branch.

    Loops and branches begin a level of their own inside: to see it, ask again with their inner program.

    Args:
        jaxpr: the program.
        numbering: of the level that ``jaxpr`` is a part of; a new one where it is all of it.

    Example:
        >>> import jax
        >>> f = lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + 1.0, x * 2.0)
        >>> [one.segment for one in addressed(jax.make_jaxpr(f)(1.0))]
        ['mul[0]', 'scan[0]']
    """
    numbering = Numbering() if numbering is None else numbering
    found = []
    for eqn in _compat.body_of(jaxpr).jaxpr.eqns:
        name, kind = eqn.primitive.name, kind_of(eqn)
        within: tuple[Addressed, ...] = ()
        if kind in ("loop", "branches"):
            segment = numbering.structure(name, built_by_jax(eqn.source_info))
        else:
            if kind != "plain":
                within = addressed(inner_programs(eqn)[WITHIN].jaxpr, numbering)
            segment = numbering.primitive(name)
        found.append(Addressed(eqn, segment, kind, within))
    return tuple(found)


def programs(jaxpr: Any) -> Iterator[Any]:
    """``jaxpr`` and every program in the parameters of its equations, at every depth; shared ones once for each use."""
    yield jaxpr
    for eqn in _compat.body_of(jaxpr).jaxpr.eqns:
        for _, inner in _compat.sub_jaxprs(eqn.params):
            yield from programs(inner)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of ``jaxpr`` and of every program inside it."""
    for program in programs(jaxpr):
        yield from _compat.body_of(program).jaxpr.eqns


def map_programs(params: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Parameters of an equation, every program among them changed."""

    def changed(value: Any) -> Any:
        if _compat.is_jaxpr(value):
            return change(value)
        if isinstance(value, tuple) and any(map(_compat.is_jaxpr, value)):
            items = [change(item) if _compat.is_jaxpr(item) else item for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return value

    return {name: changed(value) for name, value in params.items()}


def executed(jaxpr: Any) -> Iterator[Any]:
    """Every equation that runs when ``jaxpr`` does, at every depth: not those of the rules of derivatives."""
    for eqn in _compat.body_of(jaxpr).jaxpr.eqns:
        yield eqn
        for inner in inner_programs(eqn).values():
            yield from executed(inner.jaxpr)
