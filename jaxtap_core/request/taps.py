"""What to observe of primitives: immutable specifications, made by `on`, `watch_nan` and `print`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any, Literal

import jax

from jaxtap_core import _compat
from jaxtap_core.errors import did_you_mean
from jaxtap_core.records.events import TapEvent
from jaxtap_core.request.equality import Same, function_key


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Tap:
    """A tap on the outputs of every primitive of some names. Hashable, immutable, a pytree without leaves.

    Two taps are equal when they are the same in every respect; host functions count by identity.
    """

    primitives: frozenset[str] | Literal["*"]
    mode: Literal["value", "nan", "print"] = "value"
    select: Callable[..., Any] | None = None
    alert: Callable[[Any], Any] | None = None
    label: str = ""
    output: int | None = None
    once: bool = False
    on_value: Callable[[TapEvent], None] | None = None
    inf: bool = False

    def fits(self, name: str) -> bool:
        """Whether primitives called ``name`` are tapped."""
        return self.primitives == "*" or name in self.primitives

    @property
    def live(self) -> bool:
        """Whether somebody on the host waits for the values while the program runs."""
        return self.mode != "value" or self.alert is not None or self.on_value is not None

    @property
    def device_key(self) -> Hashable:
        """What the tap does on the device; host functions do not count."""
        return (self.primitives, self.mode, function_key(self.select), self.output, self.inf, self.live)

    def _key(self) -> Hashable:
        return (self.device_key, self.label, self.once, Same(self.alert), Same(self.on_value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tap) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@functools.cache
def _check_name(name: str) -> None:
    known = _compat.known_primitives()
    if name not in known:
        hint = did_you_mean(name, sorted(known), most=3)
        raise ValueError(
            f"no JAX primitive is called {name!r}{hint} (tap.primitives(f, *args) lists those of a program)"
        )


def _names(prim: str | Collection[str]) -> frozenset[str] | Literal["*"]:
    if prim == "*":
        return "*"
    names = (prim,) if isinstance(prim, str) else tuple(prim) if isinstance(prim, Collection) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"a tap needs the name of a primitive, several names, or '*', not {prim!r}")
    for name in names:
        _check_name(name)
    return frozenset(names)


def _check_callable(what: str, function: Any) -> None:
    if function is not None and not callable(function):
        raise TypeError(f"{what} must be a function, not {function!r}")


def on(
    prim: str | Collection[str],
    *,
    select: Callable[..., Any] | None = None,
    alert: Callable[[Any], Any] | None = None,
    label: str | None = None,
    output: int | None = None,
    once: bool = False,
    on_value: Callable[[TapEvent], None] | None = None,
) -> Tap:
    """Observe the outputs of every primitive called ``prim``, in and out of loops.

    Args:
        prim: name of a primitive, several names, or ``"*"``.
        select: reducer ``f(outs)`` that runs on the device; any pytree out. Default: the outputs as they are.
        alert: host predicate on the selected value; a string is the message, another true value means ``"alert"``.
        label: name of the stream in a recording.
        output: index of the one output to look at, in the primitive's own order.
        once: at most one alert per address and recording.
        on_value: host function called with every event as it arrives.

    Returns:
        A `Tap`, for ``tap.record(taps=(...))``.

    Raises:
        ValueError: no primitive bears that name (the nearest are suggested).
        TypeError: an argument is not what it should be.
    """
    _check_callable("select", select)
    _check_callable("alert", alert)
    _check_callable("on_value", on_value)
    if output is not None and (not isinstance(output, int) or output < 0):
        raise TypeError(f"output must be the index of an output, 0 or more, not {output!r}")
    return Tap(_names(prim), "value", select, alert, label or "", output, once, on_value)


def watch_nan(
    prim: str | Collection[str] = "*",
    *,
    inf: bool = True,
    output: int | None = None,
    once: bool = False,
) -> Tap:
    """Alert when a primitive called ``prim`` puts out a NaN (or an Inf).

    The check runs on the device; the host hears of it only when it fires.

    Args:
        prim: name of a primitive, several names, or ``"*"``.
        inf: whether Inf counts too.
        output: index of the one output to look at.
        once: at most one alert per address and recording.
    """
    return Tap(_names(prim), "nan", output=output, once=once, inf=inf)


def print(prim: str | Collection[str], *, output: int | None = None, label: str | None = None) -> Tap:
    """Print one line per value of every primitive called ``prim`` to stderr, arrays shortened."""
    return Tap(_names(prim), "print", output=output, label=label or "")
