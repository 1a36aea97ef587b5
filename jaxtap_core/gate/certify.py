"""Certificates: the replica's results against production's, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxtap_core import _compat
from jaxtap_core.compare.bits import compare_bits
from jaxtap_core.gate.executed import Executed
from jaxtap_core.instrument.selection import storable
from jaxtap_core.jaxpr.leaves import tidy
from jaxtap_core.records.events import ProgramVerdict


def certify(executed: Executed) -> ProgramVerdict:
    """How the results that the lens saw compare with those that the user got."""
    if executed.observed is None:
        return ProgramVerdict(executed.name, executed.call, "uncertified", executed.reason)
    try:
        report = compare_bits(_on_host(executed.outs), _on_host(executed.observed))
    except (ValueError, RuntimeError) as error:
        reason = f"the results could not be compared: {str(error).splitlines()[0]}"
        return ProgramVerdict(executed.name, executed.call, "uncertified", reason)
    if report.identical:
        return ProgramVerdict(executed.name, executed.call, "identical")
    return _difference(executed, report)


def _on_host(values: Sequence[Any]) -> list[np.ndarray]:
    """Plain arrays: weak types are a matter of tracing, they have no bits."""
    return [np.asarray(storable(x)) for x in values]


def _difference(executed: Executed, report: Any) -> ProgramVerdict:
    worst = next(leaf for leaf in report.leaves)
    number = _leaf_number(worst.path)
    first = worst.first
    return ProgramVerdict(
        executed.name,
        executed.call,
        "different",
        "the telemetry is that of a differently rounded run"
        if executed.plan is not None
        else "run twice as it is, the program gives other bits",
        leaf=leaf_name(executed.jaxpr(), number),
        index=tuple(first.index),
        expected=first.expected_hex,
        got=first.got_hex,
        ulp=first.ulp,
    )


def _leaf_number(path: str) -> int:
    digits = "".join(c for c in path if c.isdigit())
    return int(digits) if digits else 0


def leaf_name(jaxpr: Any, number: int) -> str:
    """Name of one output of a program, as the user's function returned it."""
    paths: Sequence[str] = _compat.result_paths(jaxpr)
    return tidy(paths[number]) or f"result[{number}]"
