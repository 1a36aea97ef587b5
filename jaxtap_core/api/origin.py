"""Where does my NaN come from? The question asked of a function outside of any test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax

from jaxtap_core.api.record import record
from jaxtap_core.records.events import Finding, Origin


def find_origin(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Finding | Origin:
    """Run ``f(*args, **kwargs)`` and say where the first NaN (or else Inf) in it was born.

    Looked at are the carries and outputs of all loops, and the results of every program that ``f``
    runs. It is run again where the first run was without NaN, or where it is not jitted: a NaN may
    be there only with, or only without, ``jax.jit``.

    Returns:
        The finding; ``str()`` of it is the report. Where there is none, an `Origin` whose
        ``reason`` says so.

    Example:
        >>> import jax.numpy as jnp
        >>> print(find_origin(jax.jit(lambda x: jnp.log(x)), -1.0).origin.reason)
        log of a negative number (-1)
    """
    finding = _gated(f, args, kwargs)
    if not isinstance(f, jax.stages.Wrapped):
        # what forbids jit (values read in Python, arguments that are no arrays) is no error here
        with suppress(Exception):
            finding = _noted(finding, _gated(jax.jit(f), args, kwargs))
    if finding is None:
        reason = "no NaN or Inf came up in any loop or result, beyond what the inputs and constants hold"
        return Origin("", "", (), None, "", "forward", (), reason)
    return finding


def _gated(f: Callable[..., Any], args: Any, kwargs: Any) -> Finding | None:
    for inf in (False, True):
        with record(gate="carry", inf=inf) as recording:
            f(*args, **kwargs)
        if recording.findings:
            return recording.findings[0]
    return None


def _noted(plain: Finding | None, jitted: Finding | None) -> Finding | None:
    """The finding to report of a run without and one with jit; if only one has it, that is said."""
    finding = jitted or plain
    if finding is None or finding.origin is None or (plain and jitted):
        return finding
    only = "only without jit" if plain else "only with jit"
    origin = replace(finding.origin, reason=f"{finding.origin.reason}; it is there {only}")
    return replace(finding, origin=origin)
