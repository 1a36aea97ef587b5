"""Observed programs, found again: a program that was jitted is known by its jaxpr object (held weakly: when JAX forgets
it, so do we); an eager loop by its primitive, its parameters, the types of its operands and the user's line.

Each is observed in several ways; of those that equal lenses will not ask for again nothing is kept (`request.lens`).
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import jax

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import current_phase, source_of
from jaxtap_core.request.lens import Lens
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.program import Program

EAGER_PROGRAMS = 512  # eager loops whose rewritten program is kept, least recently used dropped first
MOST_LENSES = 16  # lenses whose rewritten programs of one jaxpr are kept, likewise


class Programs:
    """All programs that were observed in this process, found by their jaxpr and by what the lens does."""

    def __init__(self) -> None:
        self._jitted: dict[int, tuple[Any, _ByLens]] = {}
        self._eager: OrderedDict[Hashable, tuple[Any, _ByLens]] = OrderedDict()

    def jitted(self, params: dict[str, Any], settings: Settings, source_info: Any) -> Program:
        """The program of a ``jit`` equation."""
        jaxpr = params["jaxpr"]
        number = id(jaxpr)
        known = self._jitted.get(number)
        if known is None or known[0]() is not jaxpr:
            forget = lambda _, number=number: self._jitted.pop(number, None)
            known = self._jitted[number] = (weakref.ref(jaxpr, forget), _ByLens())
        candidates = known[1].of(settings.lens)
        phase = current_phase()
        for program in candidates:
            if program.phase == phase and program.binds_like(params):
                program.lenders.add(settings)
                return program
        source = source_of(source_info())
        candidates.append(Program(jaxpr, params, params["name"], settings, source))
        return candidates[-1]

    def eager(
        self, primitive: Any, args: Sequence[Any], params: dict[str, Any], settings: Settings, source_info: Any
    ) -> tuple[Any, Program]:
        """The jaxpr and program of one eager primitive, as called from the user's line: what that alone tells apart
        is compiled once."""
        key = (
            primitive,
            tuple(_param_key(name, value) for name, value in params.items()),
            tuple(_aval_key(x) for x in args),
            current_phase(),
        )
        known = self._eager.get(key)
        if known is None:
            with _compat.set_current_trace(_compat.eval_trace):
                bind = lambda *xs: primitive.bind(*xs, **params)
                jaxpr = jax.make_jaxpr(bind)(*args)
            known = self._eager[key] = (jaxpr, _ByLens())
            if len(self._eager) > EAGER_PROGRAMS:
                self._eager.popitem(last=False)
        self._eager.move_to_end(key)
        jaxpr, lenses = known
        candidates = lenses.of(settings.lens)
        info = source_info()
        source = source_of(info)
        for here, program in candidates:
            if program.source == source:
                program.lenders.add(settings)
                return here, program
        first = candidates[0][1] if candidates else None
        here = _compat.called_from(jaxpr, info) if first is not None else jaxpr
        candidates.append((here, Program(here, None, primitive.name, settings, source, twin=first)))
        return candidates[-1]


class _ByLens:
    """The rewritten programs of one jaxpr, by the lens that they are for."""

    def __init__(self) -> None:
        self._programs: weakref.WeakKeyDictionary[Lens, list[Any]] = weakref.WeakKeyDictionary()
        self._latest: weakref.ref[Lens] | None = None

    def __len__(self) -> int:
        return len(self._programs)

    def of(self, lens: Lens) -> list[Any]:
        """The programs for ``lens``, to be added to."""
        found = self._programs.get(lens)
        if found is not None and self._latest is not None and self._latest() is lens:
            return found
        # the last one, now
        found = self._programs.pop(lens, [])
        self._programs[lens] = found
        self._latest = weakref.ref(lens)
        for other in list(self._programs)[:-MOST_LENSES]:
            self._programs.pop(other, None)
        return found


class _Same:
    """Stands for one object, and keeps it alive; equal only to another that stands for the very same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _param_key(name: str, value: Any) -> Hashable:
    if _compat.is_jaxpr(value):
        return name, _Same(value)
    if isinstance(value, tuple) and any(map(_compat.is_jaxpr, value)):
        return name, tuple(_Same(item) for item in value)
    try:
        hash(value)
    except TypeError:
        return name, _Same(value)
    return name, value


def _aval_key(x: Any) -> Hashable:
    aval = jax.typeof(x)
    return (
        getattr(aval, "shape", None),
        getattr(aval, "dtype", None),
        getattr(aval, "weak_type", None),
    )


PROGRAMS = Programs()
