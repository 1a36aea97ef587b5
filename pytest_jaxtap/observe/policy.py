"""PYTEST_DONT_REWRITE

What is asked of the lens for one test: the marker goes before the command line, that
before the ini file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_jaxtap.markers import Mark, mark_of
from pytest_jaxtap.options import LEVELS, Options

# fixtures of a test that compares bits; the last is that of other snapshot plugins
COMPARING = frozenset({"tap_snapshot", "assert_bitwise", "snapshot"})


@dataclass(frozen=True)
class Demand:
    """What the lens must do while the body of a test runs, and what makes the test fail.

    Attributes:
        gate, inf: level of the NaN gate, ``None`` for no gate; whether Inf counts.
        certify: whether results are compared with production's; a difference fails the test.
        bitwise: whether a result that cannot be certified fails it too.
        max_trips: trip budget of every ``while``.
        expect: pattern that an alert or a finding must match for the test to pass.
        keep_donated: whether donated inputs are copied for the replay.
        record: arguments of the marker for the recording of the whole body.
        records: whether the marker asks for such a recording.
        compares_bits: whether the test says before it runs that it compares bits: then it gets production's.
    """

    gate: Any = None
    inf: bool = False
    certify: bool = False
    bitwise: bool = False
    max_trips: int | None = None
    expect: re.Pattern[str] | None = None
    keep_donated: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    records: bool = False
    compares_bits: bool = False

    @property
    def idle(self) -> bool:
        """Whether the body runs as if the plugin were not there."""
        watches = self.gate is not None or self.certify or self.max_trips is not None
        return not (watches or self.records or self.expect)

    @property
    def names_primitives(self) -> bool:
        """Whether the gate watches primitives by their names."""
        return self.gate is not None and not (isinstance(self.gate, str) and self.gate in LEVELS)

    @property
    def disturbs(self) -> bool:
        """Whether the last bits of what the test computes may be another's than production's."""
        gated = self.gate is not None and self.gate != "outputs"
        return gated and not (self.compares_bits or self.certify)

    def body_options(self) -> dict[str, Any]:
        """Arguments of ``tap.record`` for the whole body of the test."""
        options = dict(self.record)
        if not self.records:
            options["carry"] = False
        return self._added(options)

    def recorder_options(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of ``tap.record`` for a block in the body: its own, and those of the test.

        The innermost block receives, so the gate of the test goes on only if the block carries it.
        """
        return self._added(dict(own))

    def _added(self, options: dict[str, Any]) -> dict[str, Any]:
        """``options`` and what the test asks besides; the events that are emitted stay the same."""
        from jaxtap_core.request.settings import Settings

        asked: dict[str, Any] = {}
        if self.gate is not None and options.get("gate") is None:
            asked |= {"gate": self.gate, "inf": self.inf or options.get("inf", False)}
        if self.certify and "identity" not in options:
            asked["identity"] = "certified"
        if self.max_trips is not None and options.get("max_trips") is None:
            asked["max_trips"] = self.max_trips
        if asked and self.compares_bits and "identity" not in options and "identity" not in asked:
            asked["production_bits"] = True
        if self.keep_donated and "keep_donated" not in options:
            asked["keep_donated"] = True
        if asked and "carry" not in options:
            asked["carry"] = Settings.of("tap.record", options).emits_carry
        return options | asked


def demand_of(item: pytest.Item, options: Options) -> Demand:
    """What is asked of the lens for ``item``.

    Raises:
        TypeError, ValueError: the marker makes no sense (it may have been added after collection).
    """
    mark = mark_of(item)
    asked = mark or Mark()
    record = dict(asked.record)
    gate, inf = _gate(asked, record, options.gate_of(item.nodeid)), options.inf
    if (own := record.pop("inf", asked.watch_inf)) is not None:
        inf = own
    record.pop("gate", None)
    max_trips = record.pop("max_trips", None)
    return Demand(
        gate=gate,
        inf=inf,
        certify=options.identity or asked.bitwise,
        bitwise=asked.bitwise,
        max_trips=options.max_trips if max_trips is None else max_trips,
        expect=asked.expect_alert,
        keep_donated=options.keep_donated,
        record=record,
        records=bool(record) or asked.bitwise or (mark is not None and asked.bare),
        compares_bits=asked.bitwise or not COMPARING.isdisjoint(getattr(item, "fixturenames", ())),
    )


def _gate(mark: Mark, record: Mapping[str, Any], session: str | None) -> Any:
    """The gate level for a test whose session has the level ``session``."""
    if mark.allow_nan or mark.watch_nan is False:
        return None
    said = record.get("gate") if mark.watch_nan is None else mark.watch_nan
    if said is not None:
        return "escape" if said is True else said
    if session is not None:
        return session
    # Inf, or an alert that nobody else could raise, needs a gate.
    listens = any(record.get(name) for name in ("alert", "alert_ys", "taps"))
    if mark.watch_inf or (mark.expect_alert is not None and not listens):
        return "escape"
    return None
