"""The lens: observe values inside unmodified JAX programs.

import jaxtap_core as tap

with tap.record(select="step_size") as rec:
    result = train(params, data)      # unmodified, jitted or not, compiled before or not
rec.df()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# not fetched later like the rest: the module of that name would take its place
from jaxtap_core.numerics import numerics

__version__ = "0.1.0"

if TYPE_CHECKING:
    from jaxtap_core.api.identity import IdentityCheck, check_identity
    from jaxtap_core.api.origin import find_origin
    from jaxtap_core.api.record import allow_nan, off, primitives, record, unobserved, verbose
    from jaxtap_core.compare.bit_report import BitReport
    from jaxtap_core.compare.bits import assert_bitwise_equal, compare_bits
    from jaxtap_core.errors import JaxtapWarning, LensError
    from jaxtap_core.recording.recording import Recording
    from jaxtap_core.recording.sinks import JSONLSink
    from jaxtap_core.recording.stored import read_jsonl
    from jaxtap_core.records.events import Alert, Certificate, Finding, Origin, ProgramVerdict, TapEvent
    from jaxtap_core.request.taps import Tap, on, print, watch_nan
    from jaxtap_core.runtime.stop import LoopBudgetExceeded, TapAlert

# Where each public name lives. They are fetched when they are first asked for: the numerics profile must be chosen
# before anything imports JAX.
_HOME = {
    "Alert": "jaxtap_core.records.events",
    "BitReport": "jaxtap_core.compare.bit_report",
    "Certificate": "jaxtap_core.records.events",
    "Finding": "jaxtap_core.records.events",
    "IdentityCheck": "jaxtap_core.api.identity",
    "JSONLSink": "jaxtap_core.recording.sinks",
    "JaxtapWarning": "jaxtap_core.errors",
    "LensError": "jaxtap_core.errors",
    "LoopBudgetExceeded": "jaxtap_core.runtime.stop",
    "Origin": "jaxtap_core.records.events",
    "ProgramVerdict": "jaxtap_core.records.events",
    "Recording": "jaxtap_core.recording.recording",
    "Tap": "jaxtap_core.request.taps",
    "TapAlert": "jaxtap_core.runtime.stop",
    "TapEvent": "jaxtap_core.records.events",
    "allow_nan": "jaxtap_core.api.record",
    "assert_bitwise_equal": "jaxtap_core.compare.bits",
    "check_identity": "jaxtap_core.api.identity",
    "compare_bits": "jaxtap_core.compare.bits",
    "find_origin": "jaxtap_core.api.origin",
    "off": "jaxtap_core.api.record",
    "on": "jaxtap_core.request.taps",
    "primitives": "jaxtap_core.api.record",
    "print": "jaxtap_core.request.taps",
    "read_jsonl": "jaxtap_core.recording.stored",
    "record": "jaxtap_core.api.record",
    "unobserved": "jaxtap_core.api.record",
    "verbose": "jaxtap_core.api.record",
    "watch_nan": "jaxtap_core.request.taps",
}

__all__ = [
    "Alert",
    "BitReport",
    "Certificate",
    "Finding",
    "IdentityCheck",
    "JSONLSink",
    "JaxtapWarning",
    "LensError",
    "LoopBudgetExceeded",
    "Origin",
    "ProgramVerdict",
    "Recording",
    "Tap",
    "TapAlert",
    "TapEvent",
    "allow_nan",
    "assert_bitwise_equal",
    "check_identity",
    "compare_bits",
    "find_origin",
    "numerics",
    "off",
    "on",
    "primitives",
    "print",
    "read_jsonl",
    "record",
    "unobserved",
    "verbose",
    "watch_nan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jaxtap_core' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
