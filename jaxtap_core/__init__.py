"""The lens: observe values inside unmodified JAX programs.

    import jaxtap_core as tap

    with tap.record(select="step_size") as rec:
        result = train(params, data)      # unmodified, jitted or not, compiled before or not
    rec.df()
"""

from jaxtap_core.aside import JaxtapWarning, LensError
from jaxtap_core.events import (
    Alert,
    Certificate,
    Finding,
    Origin,
    ProgramVerdict,
    TapEvent,
)
from jaxtap_core.lens import allow_nan, primitives, record, unobserved, verbose
from jaxtap_core.recording import Recording
from jaxtap_core.taps import Tap, on, print, watch_nan

__all__ = [
    "Alert",
    "Certificate",
    "Finding",
    "JaxtapWarning",
    "LensError",
    "Origin",
    "ProgramVerdict",
    "Recording",
    "Tap",
    "TapEvent",
    "allow_nan",
    "on",
    "primitives",
    "print",
    "record",
    "unobserved",
    "verbose",
    "watch_nan",
]
