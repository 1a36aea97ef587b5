"""Observed programs, found again: a program that was jitted is known by its jaxpr object (held weakly: when JAX forgets
it, so do we); an eager loop by its primitive, its parameters and the types of its operands.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import current_phase, source_of
from jaxtap_core.jaxpr.sharding import Shards
from jaxtap_core.request.equality import Same
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.program import Program

EAGER_PROGRAMS = 512  # eager loops whose rewritten program is kept, least recently used dropped first


class Programs:
    """All programs that were observed in this process, found by their jaxpr and by what the lens does.

    Several threads may ask at once. Planning calls the user's filters and reducers, so that no lock is held meanwhile:
    of two that planned the same program the first counts.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._jitted: dict[int, tuple[Any, dict[int, list[Program]]]] = {}
        self._eager: OrderedDict[Hashable, _Eager] = OrderedDict()

    def jitted(
        self, params: dict[str, Any], settings: Settings, source_info: Any, shards: Shards | None = None
    ) -> Program:
        """The program of a ``jit`` equation; ``shards`` as in `Program`."""
        jaxpr = params["jaxpr"]
        known = self._jitted.get(id(jaxpr))
        if known is None or known[0]() is not jaxpr:
            known = self._entry(jaxpr)
        candidates = known[1].setdefault(settings.device_id, [])
        phase = current_phase()
        fits = lambda program: program.phase == phase and program.binds_like(params, shards)
        found = next(filter(fits, candidates), None)
        if found is not None:
            return found
        program = Program(jaxpr, params, params["name"], settings, source_of(source_info()), shards)
        with self._lock:
            candidates.append(program)
            return next(filter(fits, candidates))

    def _entry(self, jaxpr: Any) -> tuple[Any, dict[int, list[Program]]]:
        number = id(jaxpr)

        def forget(gone: Any) -> None:
            with self._lock:
                if number in self._jitted and self._jitted[number][0] is gone:
                    del self._jitted[number]

        with self._lock:
            known = self._jitted.get(number)
            if known is None or known[0]() is not jaxpr:
                known = self._jitted[number] = (weakref.ref(jaxpr, forget), {})
            return known

    def eager(
        self,
        primitive: Any,
        args: Sequence[Any],
        params: dict[str, Any],
        settings: Settings,
        source_info: Any,
        shards: Shards | None = None,
    ) -> tuple[Any, Program]:
        """The jaxpr and program of one eager primitive; ``shards`` as in `Program`."""
        key = (
            primitive,
            tuple((name, _param_key(value)) for name, value in params.items()),
            tuple(_aval_key(x) for x in args),
            settings.device_id,
            current_phase(),
            shards,
        )
        with self._lock:
            known = self._eager.get(key)
            if known is not None:
                self._eager.move_to_end(key)
                return known.jaxpr(params), known.program
        with _compat.set_current_trace(_compat.eval_trace):
            bind = lambda *xs: primitive.bind(*xs, **params)
            jaxpr = jax.make_jaxpr(bind)(*args)
        program = Program(jaxpr, None, primitive.name, settings, source_of(source_info()), shards)

        def forget(_: Any) -> None:
            with self._lock:
                self._eager.pop(key, None)

        inner = [item for value in params.values() for item in _jaxprs(value)]
        with self._lock:
            known = self._eager.setdefault(key, _Eager.of(jaxpr, program, params))
            known.held += [weakref.ref(one, forget) for one in inner]
            if len(self._eager) > EAGER_PROGRAMS:
                self._eager.popitem(last=False)
        return jaxpr, known.program


@dataclass
class _Eager:
    """A known eager primitive: its program, and its jaxpr without the parameters, of which none is kept alive."""

    form: Any
    program: Program
    held: list[weakref.ref[Any]] = field(default_factory=list)

    @classmethod
    def of(cls, jaxpr: Any, program: Program, params: dict[str, Any]) -> _Eager:
        return cls(_compat.with_params(jaxpr, dict.fromkeys(params)), program)

    def jaxpr(self, params: dict[str, Any]) -> Any:
        """The jaxpr with parameters that are known to be the same as when it was made."""
        return _compat.with_params(self.form, params)


def _jaxprs(value: Any) -> list[Any]:
    """The programs that a parameter is, or holds."""
    items = value if isinstance(value, tuple | list) else (value,)
    return [item for item in items if _compat.is_jaxpr(item)]


def _param_key(value: Any) -> Hashable:
    """Programs count by identity, and are not kept; what can be compared is compared."""
    if _compat.is_jaxpr(value):
        return weakref.ref(value)
    if isinstance(value, tuple) and _jaxprs(value):
        return type(value), tuple(map(_param_key, value))
    try:
        hash(value)
    except TypeError:
        return Same(value)
    return value


def _aval_key(x: Any) -> Hashable:
    aval = jax.typeof(x)
    return (
        getattr(aval, "shape", None),
        getattr(aval, "dtype", None),
        getattr(aval, "weak_type", None),
    )


PROGRAMS = Programs()
