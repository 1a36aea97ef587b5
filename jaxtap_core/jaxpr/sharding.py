"""Shardings that are part of a value's type (``AxisType.Explicit``), and values to start with that have one."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def explicit_sharding(aval: Any) -> Any:
    """The sharding over ``AxisType.Explicit`` axes that is part of a value's type, or ``None``."""
    sharding = getattr(aval, "sharding", None)
    explicit = sharding is not None and jax.sharding.AxisType.Explicit in sharding.mesh.axis_types
    return sharding if explicit else None


def sharded_like(x: Any, sharding: Any, lead: int = 0) -> Any:
    """``x`` with an explicit ``sharding`` (``None``: as it is), which does not count its ``lead`` first axes."""
    if sharding is None:
        return x
    return jax.sharding.reshard(x, NamedSharding(sharding.mesh, P(*[None] * lead, *sharding.spec)))


class Shards(NamedTuple):
    """The shards of the ``shard_map`` in which code stands: over which axes, how many, and whether each is itself
    spread over further devices."""

    axes: tuple[str, ...]
    number: int
    spread: bool


def shards_here() -> Shards | None:
    """The shards of the ``shard_map`` whose inside is being made, or run, right now; ``None`` outside of one."""
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(mesh.manual_axes)
    if not axes:
        return None
    return Shards(axes, math.prod(mesh.shape[axis] for axis in axes), len(axes) < len(mesh.axis_names))
