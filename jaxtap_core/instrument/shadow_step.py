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
from jaxtap_core.jaxpr.structure import kind_of


class Pass(NamedTuple):
    """One of two evaluations of a step: as it is, or its ``copy``; ``kept`` is what the copy takes from the first."""

    kept: collections.deque[list[Any]]
    copy: bool


CALLBACK = "pure_callback"  # evaluated again it would call the host again

# What the compiler hands to a library is no part of any kernel: it can be looked at where it is, and costs much.
LIBRARY = frozenset(
    {"cholesky", "eig", "eigh", "fft", "householder_product", "lu", "qr", "sort", "svd", "triangular_solve"}
)


def stays(eqn: Any) -> bool:
    """Whether an equation is not evaluated again in a copy of the step that it stands in."""
    if kind_of(eqn) == "call":
        return False
    name = eqn.primitive.name
    return kind_of(eqn) != "plain" or name in LIBRARY or name == CALLBACK or bool(eqn.effects)


def shielded(values: Sequence[Any]) -> list[Any]:
    """The same values, for the compiler unrelated to where they come from."""
    arrays = [i for i, x in enumerate(values) if not _compat.is_ref(jax.typeof(x))]
    if not arrays:
        return list(values)
    behind = list(values)
    for i, x in zip(arrays, lax.optimization_barrier(tuple(values[i] for i in arrays)), strict=True):
        behind[i] = x
    return behind
