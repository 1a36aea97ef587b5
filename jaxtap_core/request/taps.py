"""What to observe of primitives: immutable specifications, made by `on`, `watch_nan` and `print`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from types import MethodType
from typing import Any, Literal

import jax

from jaxtap_core import _compat
from jaxtap_core.errors import did_you_mean
from jaxtap_core.records.events import TapEvent
from jaxtap_core.request.equality import key_of
from jaxtap_core.request.reducers import check_reducer


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Tap:
    """A tap on the outputs of every primitive of some names. Hashable, immutable, a pytree without leaves.

    Two taps are equal when they are the same in every respect: their reducers do the same, by what they read at the
    moment, and their host functions are the same ones.
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
    def does(self) -> tuple[Any, ...]:
        """What the tap does on the device besides its reducer; host functions and names do not count."""
        return (self.primitives, self.mode, self.output, self.inf)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tap)
            and self._plain == other._plain
            and _same(self.alert, other.alert)
            and _same(self.on_value, other.on_value)
            and key_of(self.select) == key_of(other.select)
        )

    def __hash__(self) -> int:
        return hash(self._plain)  # without what may change while it lies in a table

    @property
    def _plain(self) -> Hashable:
        return (*self.does, self.live, self.label, self.once)


def _same(one: Any, other: Any) -> bool:
    """Whether two host functions are the same; a method is made anew whenever it is asked for."""
    if isinstance(one, MethodType) and isinstance(other, MethodType):
        return one.__func__ is other.__func__ and one.__self__ is other.__self__
    return one is other


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


def _checked(
    prim: str | Collection[str],
    mode: Literal["value", "nan", "print"],
    *,
    select: Callable[..., Any] | None = None,
    alert: Callable[[Any], Any] | None = None,
    label: str | None,
    output: int | None,
    once: bool,
    on_value: Callable[[TapEvent], None] | None = None,
    inf: bool = False,
) -> Tap:
    """A tap whose arguments have been found to be what they should."""
    for what, function in (("select", select), ("alert", alert), ("on_value", on_value)):
        if function is not None and not callable(function):
            raise TypeError(f"{what} must be a function, not {function!r}")
    if select is not None:
        check_reducer("select of a tap", select, "outs" if output is None else "out")
    if label is not None and not isinstance(label, str):
        raise TypeError(f"label must be a string, not {label!r}")
    if output is not None and (isinstance(output, bool) or not isinstance(output, int) or output < 0):
        raise TypeError(f"output must be the index of an output, 0 or more, not {output!r}")
    for what, flag in (("once", once), ("inf", inf)):
        if not isinstance(flag, bool):
            raise TypeError(f"{what} must be True or False, not {flag!r}")
    return Tap(_names(prim), mode, select, alert, label or "", output, once, on_value, inf)


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
        select: reducer ``f(outs)`` or ``f(outs, *, path)`` that runs on the device, on the list of outputs; with
            ``output=`` on that one output itself. Any pytree out. Default: the outputs as they are.
        alert: host predicate on the selected value; a string is the message, another true value means ``"alert"``.
        label: name of the stream in a recording.
        output: index of the one output to look at, in the primitive's own order.
        once: at most one alert per address and recording.
        on_value: host function called with every event as it arrives.

    Returns:
        A `Tap`, for ``tap.record(taps=(...))``. A primitive that is met and has no such ``output`` is an error there;
        a tap that meets no primitive is a warning at the end of the block.

    Raises:
        ValueError: no primitive bears that name (the nearest are suggested).
        TypeError: an argument is not what it should be.
    """
    return _checked(prim, "value", select=select, alert=alert, label=label, output=output, once=once, on_value=on_value)


def watch_nan(
    prim: str | Collection[str] = "*",
    *,
    inf: bool = True,
    output: int | None = None,
    once: bool = False,
    label: str | None = None,
) -> Tap:
    """Alert when a primitive called ``prim`` puts out a NaN (or an Inf).

    The check runs on the device; the host hears of it only when it fires.

    Args:
        prim: name of a primitive, several names, or ``"*"``.
        inf: whether Inf counts too.
        output: index of the one output to look at.
        once: at most one alert per address and recording.
        label: name of the stream in a recording; alerts begin with it.
    """
    return _checked(prim, "nan", label=label, output=output, once=once, inf=inf)


def print(
    prim: str | Collection[str],
    *,
    select: Callable[..., Any] | None = None,
    output: int | None = None,
    once: bool = False,
    label: str | None = None,
) -> Tap:
    """Print one line per value of every primitive called ``prim`` to stderr, arrays shortened.

    Args:
        prim: name of a primitive, several names, or ``"*"``.
        select: what is printed of the outputs, as for `on`.
        output: index of the one output to look at.
        once: at most one line per address and recording.
        label: name of the stream in a recording; lines begin with it.
    """
    return _checked(prim, "print", select=select, label=label, output=output, once=once)
