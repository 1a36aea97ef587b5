"""What one lens is asked to do: the keyword arguments that every entry form shares, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from jaxtap_core.errors import did_you_mean
from jaxtap_core.records.events import TapEvent
from jaxtap_core.request.equality import key_of
from jaxtap_core.request.lens import LENSES, Lens
from jaxtap_core.request.levels import GateLevel
from jaxtap_core.request.reducers import check_reducer
from jaxtap_core.request.sink import Sink
from jaxtap_core.request.taps import Tap
from jaxtap_core.request.where import Where

IDENTITIES = ("auto", "certified", "inline")
DEFAULT_BUFFER_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Settings:
    """The keyword arguments of ``tap.record`` and ``tap.verbose``.

    Attributes:
        select: name of a carry leaf (or any unambiguous suffix), several names, a dict that renames, or a reducer
            ``f(leaves)`` / ``f(leaves, *, path)`` that runs on the device. Default: all leaves.
        on_step: host function called with every carry event as it arrives.
        select_ys, on_ys: the same for the per-step outputs of ``scan``. Outputs are observed when either is given.
        taps: primitive taps, see ``tap.on``, ``tap.watch_nan``, ``tap.print``.
        alert, alert_ys: host predicates on carry and output events; a string is the message.
        alert_once, alert_ys_once: at most one alert per path and recording.
        sample_every: emit only steps with ``step % sample_every == 0``, decided on the device.
        where: which loops emit carry and output events: a function ``f(path)`` or ``f(path, *, program, source)``, a
            pattern of addresses (``"scan[0]/*"``), or a place in the user's code (``"model.py:31"``).
        max_depth: how many loops deep carry and output events are emitted.
        ops: names of the loops to observe, e.g. ``("scan",)``; default both kinds.
        gate: NaN gate level or primitive names, ``None`` for no gate; ``inf``: count Inf too.
        fail_fast: stop at the first alert or finding and raise ``tap.TapAlert``.
        max_trips: trip budget of every ``while``.
        identity: ``"certified"``: production runs too, and its results are the user's; ``"inline"``: the observed run
            is the only one; ``"auto"``: certified where values inside a step are looked at or recorded and strict
            numerics do not hold, else inline.
        sinks: where events go besides memory, as they arrive.
        carry: whether carry events are emitted at all; off for a block that only gates or taps primitives.
        buffer_bytes: how much of the device one stream may take before it is flushed to the host.
        production_bits: with ``identity="auto"``, whether production's results are the user's whatever is asked: for a
            test that itself compares bits.
        keep_donated: keep copies of donated inputs, so that the origin of a NaN can be replayed.
    """

    select: Any = None
    on_step: Callable[[TapEvent], None] | None = None
    select_ys: Any = None
    on_ys: Callable[[TapEvent], None] | None = None
    taps: tuple[Tap, ...] = ()
    alert: Callable[[TapEvent], Any] | None = None
    alert_ys: Callable[[TapEvent], Any] | None = None
    alert_once: bool = False
    alert_ys_once: bool = False
    sample_every: int = 1
    where: Callable[..., bool] | str | None = None
    max_depth: int | None = None
    ops: tuple[str, ...] = ("scan", "while")
    gate: Any = None
    inf: bool = False
    fail_fast: bool = False
    max_trips: int | None = None
    identity: str = "auto"
    sinks: tuple[Sink, ...] = ()
    carry: bool | None = None
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    keep_donated: bool = False
    production_bits: bool = False
    level: GateLevel | None = field(init=False, default=None)
    filter: Where | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)
        put("taps", _taps(self.taps))
        put("sinks", _sinks(self.sinks))
        put("ops", _ops(self.ops))
        for name in ("on_step", "on_ys", "alert", "alert_ys"):
            if (function := getattr(self, name)) is not None and not callable(function):
                raise TypeError(f"{name} must be a function, not {function!r}")
        for name in ("alert_once", "alert_ys_once", "inf", "fail_fast", "keep_donated", "production_bits"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if self.carry is not None and not isinstance(self.carry, bool):
            raise TypeError(f"carry must be True or False, or None for as it comes, not {self.carry!r}")
        for name, least in (("sample_every", 1), ("buffer_bytes", 1), ("max_trips", 1), ("max_depth", 1)):
            value = getattr(self, name)
            optional = name in ("max_trips", "max_depth")
            if value is None and optional:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}")
        _check_selection("select", self.select)
        _check_selection("select_ys", self.select_ys)
        if self.identity not in IDENTITIES:
            hint = did_you_mean(str(self.identity), IDENTITIES, " ({})")
            raise ValueError(f"identity must be one of {', '.join(map(repr, IDENTITIES))}, not {self.identity!r}{hint}")
        put("level", GateLevel.parse(self.gate) if self.gate is not None else None)
        put("filter", Where(self.where) if self.where is not None else None)

    @classmethod
    def of(cls, where: str, arguments: Mapping[str, Any]) -> Settings:
        """Check ``arguments`` given to ``where`` (the name of the public function, for messages)."""
        known = [f.name for f in fields(cls) if f.init]
        for name in arguments:
            if name not in known:
                hint = did_you_mean(name, known)
                raise TypeError(f"{where}() has no argument {name!r}{hint} (it takes: {', '.join(known)})")
        return cls(**arguments)

    @property
    def emits_carry(self) -> bool:
        """Whether carry events are wanted: yes, unless the lens was set up for something else alone."""
        if self.carry is not None:
            return self.carry
        if self.select is not None or self.on_step is not None or self.alert is not None:
            return True
        others = self.taps or self.gate is not None or self.max_trips is not None or self.emits_outputs
        return not others

    @property
    def emits_outputs(self) -> bool:
        """Whether per-step outputs are wanted."""
        return self.select_ys is not None or self.on_ys is not None or self.alert_ys is not None

    @property
    def live_carry(self) -> bool:
        """Whether somebody on the host waits for carry events."""
        return self.on_step is not None or self.alert is not None or bool(self.sinks)

    @property
    def live_outputs(self) -> bool:
        """Whether somebody on the host waits for output events."""
        return self.on_ys is not None or self.alert_ys is not None or bool(self.sinks)

    def live_tap(self, tap: Tap) -> bool:
        """Whether somebody on the host waits for what a tap brings."""
        return tap.live or bool(self.sinks)

    @cached_property
    def lens(self) -> Lens:
        """What stands for all lenses that do the same on the device, as far as their functions can be known now.

        Host functions, predicates and sinks do not count, but whether somebody listens does.
        """
        plain = (
            tuple((*tap.does, self.live_tap(tap)) for tap in self.taps),
            (self.emits_carry, self.emits_outputs, self.live_carry, self.live_outputs),
            (self.sample_every, self.max_depth, self.ops, self.level, self.inf, self.fail_fast, self.max_trips),
            self.buffer_bytes,
        )
        given = self._given
        return LENSES.of(key_of(*given) if any(one is not None for one in given) else (), plain)

    def entered(self) -> Settings:
        """These settings as they are now: what their functions read may have changed since they were last entered."""
        if "lens" not in vars(self) or not any(map(callable, self._given)):
            return self
        now = object.__new__(type(self))
        vars(now).update((name, value) for name, value in vars(self).items() if name != "lens")
        return now

    @property
    def _given(self) -> tuple[Any, ...]:
        """What may be a function of the user's that is called when a program is planned or traced."""
        return (self.select, self.select_ys, self.where, *(tap.select for tap in self.taps))


def _taps(taps: Any) -> tuple[Tap, ...]:
    if isinstance(taps, Tap):
        return (taps,)
    if isinstance(taps, str) or not isinstance(taps, Sequence):
        raise TypeError(
            f"taps must be a tuple of taps such as tap.on('cholesky') or tap.watch_nan('log'), not {taps!r}"
        )
    for one in taps:
        if not isinstance(one, Tap):
            raise TypeError(
                f"taps holds {one!r}, which is no tap: make one with tap.on(...), tap.watch_nan(...), tap.print(...)"
            )
    return tuple(taps)


def _sinks(sinks: Any) -> tuple[Sink, ...]:
    if isinstance(sinks, Sink):
        return (sinks,)
    if isinstance(sinks, str) or not isinstance(sinks, Iterable):
        raise TypeError(f"sinks must be a tuple of sinks such as tap.JSONLSink(path), not {sinks!r}")
    sinks = tuple(sinks)
    for sink in sinks:
        if not isinstance(sink, Sink):
            raise TypeError(f"{sink!r} is no sink: it needs write(event) and close(), like tap.JSONLSink(path)")
    return sinks


def _ops(ops: Any) -> tuple[str, ...]:
    names = (ops,) if isinstance(ops, str) else tuple(ops) if isinstance(ops, Iterable) else ()
    if not names or any(name not in ("scan", "while") for name in names):
        raise ValueError(f"ops names the kinds of loop to observe, 'scan' and 'while' or one of them, not {ops!r}")
    return names


def _check_selection(name: str, selection: Any) -> None:
    if selection is None or isinstance(selection, str):
        return
    if callable(selection):
        check_reducer(name, selection, "leaves")
        return
    items = list(selection.values()) if isinstance(selection, Mapping) else selection
    if not isinstance(items, list | tuple) or not items or not all(isinstance(i, str) for i in items):
        raise TypeError(
            f"{name} must be the name of a leaf, several names, a dict new name -> leaf, or a function of the "
            f"leaves, not {selection!r}"
        )
