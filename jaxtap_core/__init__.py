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

if TYPE_CHECKING:
    from jaxtap_core.aside import JaxtapWarning, LensError
    from jaxtap_core.bit_report import BitReport
    from jaxtap_core.bits import assert_bitwise_equal, compare_bits
    from jaxtap_core.events import Alert, Certificate, Finding, Origin, ProgramVerdict, TapEvent
    from jaxtap_core.find import find_origin
    from jaxtap_core.identity import IdentityCheck, check_identity
    from jaxtap_core.jsonl import read_jsonl
    from jaxtap_core.lens import allow_nan, primitives, record, unobserved, verbose
    from jaxtap_core.recording import Recording
    from jaxtap_core.sinks import JSONLSink
    from jaxtap_core.stop import LoopBudgetExceeded, TapAlert
    from jaxtap_core.taps import Tap, on, print, watch_nan

# Where each public name lives. They are fetched when they are first asked for: the numerics profile must be chosen
# before anything imports JAX.
_HOME = {
    "Alert": "jaxtap_core.events",
    "BitReport": "jaxtap_core.bit_report",
    "Certificate": "jaxtap_core.events",
    "Finding": "jaxtap_core.events",
    "IdentityCheck": "jaxtap_core.identity",
    "JSONLSink": "jaxtap_core.sinks",
    "JaxtapWarning": "jaxtap_core.aside",
    "LensError": "jaxtap_core.aside",
    "LoopBudgetExceeded": "jaxtap_core.stop",
    "Origin": "jaxtap_core.events",
    "ProgramVerdict": "jaxtap_core.events",
    "Recording": "jaxtap_core.recording",
    "Tap": "jaxtap_core.taps",
    "TapAlert": "jaxtap_core.stop",
    "TapEvent": "jaxtap_core.events",
    "allow_nan": "jaxtap_core.lens",
    "assert_bitwise_equal": "jaxtap_core.bits",
    "check_identity": "jaxtap_core.identity",
    "compare_bits": "jaxtap_core.bits",
    "find_origin": "jaxtap_core.find",
    "on": "jaxtap_core.taps",
    "primitives": "jaxtap_core.lens",
    "print": "jaxtap_core.taps",
    "read_jsonl": "jaxtap_core.jsonl",
    "record": "jaxtap_core.lens",
    "unobserved": "jaxtap_core.lens",
    "verbose": "jaxtap_core.lens",
    "watch_nan": "jaxtap_core.taps",
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
