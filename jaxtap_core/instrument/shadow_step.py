"""Copies of steps: values inside a step are looked at in a copy of it, so that the step is fused as in production.

Whatever is looked at becomes a result of its kernel, and so it changes what is fused, and rounded, with what. Behind a
barrier the same equations are evaluated again on the same values; what of them nobody looks at the compiler drops.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax import lax

from jaxtap_core import _compat
from jaxtap_core.jaxpr.structure import BRANCHES, LOOPS, SHARDED, call_of


class Pass(NamedTuple):
    """One of two evaluations of a step: as it is, or its ``copy``; ``kept`` is what the copy takes from the first."""

    kept: collections.deque[list[Any]]
    copy: bool


# What the compiler hands to a library is no part of any kernel: it can be looked at where it is, and costs much.
LIBRARY = frozenset(
    {"cholesky", "eig", "eigh", "fft", "householder_product", "lu", "qr", "sort", "svd", "triangular_solve"}
)
CALLBACK = "pure_callback"  # a copy would call the host again


def stays(eqn: Any) -> bool:
    """Whether an equation is not evaluated again in a copy of the step that it stands in."""
    name = eqn.primitive.name
    if name in (*LOOPS, BRANCHES, SHARDED, CALLBACK) or name in LIBRARY:
        return True
    return bool(eqn.effects) and call_of(eqn) is None


def shielded(values: Sequence[Any]) -> list[Any]:
    """The same values, for the compiler unrelated to where they come from."""
    arrays = [i for i, x in enumerate(values) if not _compat.is_ref(jax.typeof(x))]
    if not arrays:
        return list(values)
    behind = list(values)
    for i, x in zip(arrays, lax.optimization_barrier(tuple(values[i] for i in arrays)), strict=True):
        behind[i] = x
    return behind
