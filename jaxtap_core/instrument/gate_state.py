"""Verdicts of the gate as they travel from the device: what was found bad, and at which steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxtap_core.instrument.plan import GATE_ROWS, Check
from jaxtap_core.jaxpr.sharding import sharded_like

BORN, MASKED = 1, 2  # verdicts on a primitive: it made something bad; and a select dropped it at once


class Verdicts(NamedTuple):
    """What the gate found at one place: ``count`` entries; a row holds step vector, then a verdict a leaf (and lane).

    For a loop the verdict is the step at which the leaf first held a NaN, or a negative number; for a primitive it is
    0, `BORN` or `MASKED`.
    """

    count: Any
    rows: Any


def no_verdicts(check: Check) -> Verdicts:
    lanes = 1
    for size in check.lanes if check.kind != "primitive" else ():
        lanes *= size
    depth = check.depth if check.kind == "primitive" else check.depth - 1
    width = depth + lanes * len(check.looks)
    empty = Verdicts(jnp.int32(0), jnp.zeros((1 if check.once else GATE_ROWS, width), jnp.int32))
    if check.mesh is None:
        return empty
    return jax.tree.map(lambda x: sharded_like(x, NamedSharding(check.mesh, P(*[None] * x.ndim))), empty)
