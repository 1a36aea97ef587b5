"""Observed programs, found again: a program that was jitted is known by its jaxpr object (held weakly: when JAX forgets
it, so do we); an eager loop by its primitive, its parameters, the types of its operands and the user's line.

Each is observed in several ways; of those that equal lenses will not ask for again nothing is kept (`request.lens`).
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
from jaxtap_core.request.lens import Lens
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.program import Program

EAGER_PROGRAMS = 512  # eager loops whose rewritten program is kept, least recently used dropped first
MOST_LENSES = 16  # lenses whose rewritten programs of one jaxpr are kept, likewise


class Programs:
    """All programs that were observed in this process, found by their jaxpr and by what the lens does.

    Several threads may ask at once. Planning calls the user's filters and reducers, so that no lock is held meanwhile:
    of two that planned the same program the first counts.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._jitted: dict[int, tuple[Any, _ByLens]] = {}
        self._eager: OrderedDict[Hashable, _Eager] = OrderedDict()

    def jitted(
        self, params: dict[str, Any], settings: Settings, source_info: Any, shards: Shards | None = None
    ) -> Program:
        """The program of a ``jit`` equation; ``shards`` as in `Program`."""
        jaxpr = params["jaxpr"]
        known = self._jitted.get(id(jaxpr))
        if known is None or known[0]() is not jaxpr:
            known = self._entry(jaxpr)
        phase = current_phase()
        fits = lambda program: program.phase == phase and program.binds_like(params, shards)
        with self._lock:
            candidates = known[1].of(settings.lens)
            found = next(filter(fits, candidates), None)
        if found is None:
            program = Program(jaxpr, params, params["name"], settings, source_of(source_info()), shards)
            with self._lock:
                candidates.append(program)
                found = next(filter(fits, candidates))
        found.lenders.add(settings)
        return found

    def _entry(self, jaxpr: Any) -> tuple[Any, _ByLens]:
        number = id(jaxpr)

        def forget(gone: Any) -> None:
            with self._lock:
                if number in self._jitted and self._jitted[number][0] is gone:
                    del self._jitted[number]

        with self._lock:
            known = self._jitted.get(number)
            if known is None or known[0]() is not jaxpr:
                known = self._jitted[number] = (weakref.ref(jaxpr, forget), _ByLens())
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
        """The jaxpr and program of one eager primitive, as called from the user's line: what that alone tells apart
        is compiled once; ``shards`` as in `Program`."""
        key = (
            primitive,
            tuple((name, _param_key(value)) for name, value in params.items()),
            tuple(_aval_key(x) for x in args),
            current_phase(),
            shards,
        )
        with self._lock:
            known = self._eager.get(key)
            if known is not None:
                self._eager.move_to_end(key)
        if known is None:
            known = self._eager_entry(key, primitive, args, params)
        jaxpr, info = known.jaxpr(params), source_info()
        source = source_of(info)
        called_here = lambda program: program.source == source
        with self._lock:
            candidates = known.lenses.of(settings.lens)
            found = next(filter(called_here, candidates), None)
            first = candidates[0] if candidates else None
        here = jaxpr if first is None or first is found else _compat.called_from(jaxpr, info)
        if found is None:
            program = Program(here, None, primitive.name, settings, source, shards, twin=first)
            with self._lock:
                candidates.append(program)
                found = next(filter(called_here, candidates))
        found.lenders.add(settings)
        return here, found

    def _eager_entry(self, key: Hashable, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> _Eager:
        with _compat.set_current_trace(_compat.eval_trace):
            bind = lambda *xs: primitive.bind(*xs, **params)
            jaxpr = jax.make_jaxpr(bind)(*args)

        def forget(_: Any) -> None:
            with self._lock:
                self._eager.pop(key, None)

        inner = [item for value in params.values() for item in _jaxprs(value)]
        with self._lock:
            known = self._eager.setdefault(key, _Eager(_compat.with_params(jaxpr, dict.fromkeys(params))))
            known.held += [weakref.ref(one, forget) for one in inner]
            if len(self._eager) > EAGER_PROGRAMS:
                self._eager.popitem(last=False)
        return known


@dataclass
class _Eager:
    """A known eager primitive: its jaxpr without the parameters, of which none is kept alive, and its programs."""

    form: Any
    lenses: _ByLens = field(default_factory=lambda: _ByLens())
    held: list[weakref.ref[Any]] = field(default_factory=list)

    def jaxpr(self, params: dict[str, Any]) -> Any:
        """The jaxpr with parameters that are known to be the same as when it was made."""
        return _compat.with_params(self.form, params)


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
        return _Same(value)
    return value


def _aval_key(x: Any) -> Hashable:
    aval = jax.typeof(x)
    return (
        getattr(aval, "shape", None),
        getattr(aval, "dtype", None),
        getattr(aval, "weak_type", None),
    )


PROGRAMS = Programs()
