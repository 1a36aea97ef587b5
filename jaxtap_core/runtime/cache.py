"""Observed programs, found again: a program that was jitted is known by its jaxpr object (held weakly: when JAX forgets
it, so do we); an eager loop by its primitive, its parameters and the types of its operands.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import jax

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import current_phase, source_of
from jaxtap_core.request.equality import Same
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.program import Program

EAGER_PROGRAMS = 512  # eager loops whose rewritten program is kept, least recently used dropped first


class Programs:
    """All programs that were observed in this process, found by their jaxpr and by what the lens does."""

    def __init__(self) -> None:
        self._jitted: dict[int, tuple[Any, dict[int, list[Program]]]] = {}
        self._eager: OrderedDict[Hashable, tuple[Any, Program]] = OrderedDict()

    def jitted(self, params: dict[str, Any], settings: Settings, source_info: Any) -> Program:
        """The program of a ``jit`` equation."""
        jaxpr = params["jaxpr"]
        number = id(jaxpr)
        known = self._jitted.get(number)
        if known is None or known[0]() is not jaxpr:
            forget = lambda _, number=number: self._jitted.pop(number, None)
            known = self._jitted[number] = (weakref.ref(jaxpr, forget), {})
        candidates = known[1].setdefault(settings.device_id, [])
        phase = current_phase()
        for program in candidates:
            if program.phase == phase and program.binds_like(params):
                return program
        source = source_of(source_info())
        candidates.append(Program(jaxpr, params, params["name"], settings, source))
        return candidates[-1]

    def eager(
        self, primitive: Any, args: Sequence[Any], params: dict[str, Any], settings: Settings, source_info: Any
    ) -> tuple[Any, Program]:
        """The jaxpr and program of one eager primitive."""
        key = (
            primitive,
            tuple(_param_key(name, value) for name, value in params.items()),
            tuple(_aval_key(x) for x in args),
            settings.device_id,
            current_phase(),
        )
        known = self._eager.get(key)
        if known is not None:
            self._eager.move_to_end(key)
            return known
        with _compat.set_current_trace(_compat.eval_trace):
            bind = lambda *xs: primitive.bind(*xs, **params)
            jaxpr = jax.make_jaxpr(bind)(*args)
        program = Program(jaxpr, None, primitive.name, settings, source_of(source_info()))
        self._eager[key] = (jaxpr, program)
        if len(self._eager) > EAGER_PROGRAMS:
            self._eager.popitem(last=False)
        return jaxpr, program


def _param_key(name: str, value: Any) -> Hashable:
    if _compat.is_jaxpr(value):
        return name, Same(value)
    if isinstance(value, tuple) and any(map(_compat.is_jaxpr, value)):
        return name, tuple(Same(item) for item in value)
    try:
        hash(value)
    except TypeError:
        return name, Same(value)
    return name, value


def _aval_key(x: Any) -> Hashable:
    aval = jax.typeof(x)
    return (
        getattr(aval, "shape", None),
        getattr(aval, "dtype", None),
        getattr(aval, "weak_type", None),
    )


PROGRAMS = Programs()
