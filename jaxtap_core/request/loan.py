"""Functions on loan: how a program that serves all equal lenses calls their functions without keeping them alive.

A compiled program outlives the lens that it was compiled for, since an equal one may come. What the functions of that
lens captured must not live so long: the program borrows them, whenever it is planned or traced, from a lens that is on.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jaxtap_core.records.events import TapEvent
from jaxtap_core.request.settings import Settings
from jaxtap_core.request.taps import Tap


class Lenders:
    """The settings of equal lenses: whichever of them lives lends its functions."""

    def __init__(self) -> None:
        self._settings: list[weakref.ref[Settings]] = []

    def add(self, settings: Settings) -> None:
        """One more lender, as long as it lives."""
        if all(one() is not settings for one in self._settings):
            self._settings = [one for one in self._settings if one() is not None] + [weakref.ref(settings)]

    @property
    def any(self) -> Settings:
        """One that lives; whoever runs the program has such a one in hand."""
        return next(one for ref in reversed(self._settings) if (one := ref()) is not None)

    def loan(self) -> Settings:
        """What the lenders ask of the device, with their functions on loan; nobody on the host is told of."""
        lender = self.any
        changed: dict[str, Any] = {"carry": lender.emits_carry, "sinks": (_Nowhere(),) if lender.sinks else ()}
        for name in ("select", "select_ys", "where"):
            if callable(function := getattr(lender, name)):
                changed[name] = _Borrowed(self, operator.attrgetter(name), function)
        for name in ("on_step", "on_ys", "alert", "alert_ys"):
            if getattr(lender, name) is not None:
                changed[name] = _nobody
        return replace(lender, taps=tuple(map(self._tap, lender.taps, itertools.count())), **changed)

    def _tap(self, tap: Tap, number: int) -> Tap:
        changed: dict[str, Any] = {name: _nobody for name in ("alert", "on_value") if getattr(tap, name) is not None}
        if tap.select is not None:
            changed["select"] = _Borrowed(self, lambda settings: settings.taps[number].select, tap.select)
        return replace(tap, **changed)


class _Borrowed:
    """A function of a lens, asked for when it is called."""

    def __init__(self, lenders: Lenders, find: Callable[[Settings], Any], function: Callable[..., Any]) -> None:
        self._lenders = lenders
        self._find = find
        self.__qualname__ = getattr(function, "__qualname__", repr(type(function)))
        self.__signature__ = _names_of_parameters(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._find(self._lenders.any)(*args, **kwargs)


def _names_of_parameters(function: Callable[..., Any]) -> inspect.Signature:
    """The signature without defaults and annotations, which may be what was captured."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # one that Python cannot look into
        return inspect.Signature([inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY)])
    default = lambda one: one.empty if one.default is one.empty else None
    bare = [one.replace(annotation=one.empty, default=default(one)) for one in parameters]
    return inspect.Signature(bare)


def _nobody(_: Any) -> None:
    """Stands for somebody on the host who listens."""


class _Nowhere:
    """Stands for the sinks of a lens."""

    def write(self, event: TapEvent) -> None:
        pass

    def close(self) -> None:
        pass
