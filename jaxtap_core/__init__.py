"""The lens: observe values inside unmodified JAX programs.

    import jaxtap_core as tap

    with tap.record(select="step_size") as rec:
        result = train(params, data)      # unmodified, jitted or not, compiled before or not
    rec.df()
"""

from jaxtap_core.aside import JaxtapWarning, LensError
from jaxtap_core.bit_report import BitReport
from jaxtap_core.bits import assert_bitwise_equal, compare_bits
from jaxtap_core.events import (
    Alert,
    Certificate,
    Finding,
    Origin,
    ProgramVerdict,
    TapEvent,
)
from jaxtap_core.identity import IdentityCheck, check_identity
from jaxtap_core.jsonl import read_jsonl
from jaxtap_core.lens import allow_nan, primitives, record, unobserved, verbose
from jaxtap_core.numerics import numerics
from jaxtap_core.origin import find_origin
from jaxtap_core.recording import Recording
from jaxtap_core.sinks import JSONLSink
from jaxtap_core.stop import LoopBudgetExceeded, TapAlert
from jaxtap_core.taps import Tap, on, print, watch_nan

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
