"""Cheap tests for NaN and Inf that run on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxtap_core.jaxpr.values import can_hold_nan


def _parts(x: Any) -> list[Any]:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return [lax.real(x), lax.imag(x)]
    # float8 and its kin have no reductions everywhere; float32 holds them all
    return [x.astype(jnp.float32)] if x.dtype.itemsize == 1 else [x]


def has_bad(x: Any, *, nan: bool = True, inf: bool = False, keep: int = 0) -> Any:
    """Whether ``x`` holds a NaN (or an Inf); the first ``keep`` axes stay, one verdict for each of their indices.

    One reduction by maximum, which NaN survives: cheaper than testing every element for NaN. For Inf the maximum of
    the magnitudes is looked at.
    """
    x = jnp.asarray(x)  # it may be a literal
    axes = tuple(range(keep, x.ndim))
    verdict = None
    for part in _parts(x):
        # lax throughout: thousands of such tests may be traced, and jnp costs several times as much to trace
        part = lax.abs(part) if inf else part
        top = lax.reduce_max(part, axes) if axes else part
        if inf:
            finite = lax.is_finite(top)
            bad = lax.bitwise_not(finite if nan else lax.bitwise_or(finite, lax.ne(top, top)))
        else:
            bad = lax.ne(top, top)
        verdict = bad if verdict is None else verdict | bad
    return verdict


def any_bad(arrays: Sequence[Any], *, nan: bool = True, inf: bool = False) -> Any:
    """Whether any of ``arrays`` of inexact dtype holds a NaN (or an Inf); a boolean scalar."""
    verdict = jnp.zeros((), bool)
    for x in arrays:
        if can_hold_nan(x):
            verdict = verdict | has_bad(x, nan=nan, inf=inf)
    return verdict
