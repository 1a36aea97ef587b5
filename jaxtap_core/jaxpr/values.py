"""What a value can hold, asked of arrays and of their types (avals) alike; and its data on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_inexact(x: Any) -> bool:
    """Whether the elements of ``x`` are floating-point or complex numbers."""
    # asked of every result of every program: NumPy's own types answer without a search among JAX's
    kind = getattr(getattr(x, "dtype", None), "kind", "")
    return kind in ("f", "c") or (kind == "V" and bool(jnp.issubdtype(x.dtype, jnp.inexact)))


def can_hold_nan(x: Any) -> bool:
    """Whether ``x`` has an element that can be NaN."""
    # a Python number that JAX knows the type of has a dtype and no size
    return is_inexact(x) and getattr(x, "size", 1) > 0


def host_array(x: Any) -> np.ndarray:
    """``x`` as a NumPy array; of typed PRNG keys their data."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended):
        x = jax.random.key_data(x)
    return np.asarray(x)
