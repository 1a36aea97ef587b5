"""Looking at values on the host: whether an array holds a NaN, or an infinity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxtap_core import _compat
from jaxtap_core.gate.executed import Donated
from jaxtap_core.jaxpr.values import can_hold_nan
from jaxtap_core.records.kinds import Bad


def bad_on_host(x: Any, bad: Bad) -> bool:
    """Whether an array holds a NaN (or, asked so, an Inf). Arrays that were deleted hold nothing.

    Raises:
        jax.errors.JaxRuntimeError: the program that made it raised.
    """
    if isinstance(x, Donated):
        return bool(x.nan if bad == "nan" else x.inf)
    # a program may hold constants that only its own tracing knew
    if not can_hold_nan(x) or _compat.is_tracer(x):
        return False
    try:
        array = np.asarray(x)
    except jax.errors.JaxRuntimeError:
        raise  # the program that made it failed
    except RuntimeError:
        return False
    if array.dtype.kind == "c":
        array = array.reshape(-1).view(array.real.dtype)
    if bad == "nan" and array.dtype.kind == "f" and array.dtype.itemsize >= 4:
        # one pass without a temporary: a maximum is NaN as soon as one element is
        greatest = np.maximum.reduce(array, axis=None)
        return bool(greatest != greatest)
    return bool((np.isnan(array) if bad == "nan" else np.isinf(array)).any())


def bad_results(values: Sequence[Any], *, inf: bool) -> dict[Bad, list[int]]:
    """Which values hold what the gate looks for; without those kinds of which there is none."""
    kinds: tuple[Bad, ...] = ("nan", "inf") if inf else ("nan",)
    found = {bad: [i for i, x in enumerate(values) if bad_on_host(x, bad)] for bad in kinds}
    return {bad: indices for bad, indices in found.items() if indices}


def sound(values: Sequence[Any], *, inf: bool) -> bool:
    """Whether no value holds what the gate looks for."""
    return not any(bad_on_host(x, "nan") or (inf and bad_on_host(x, "inf")) for x in values)
