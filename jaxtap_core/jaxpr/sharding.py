"""Shardings that are part of a value's type (``AxisType.Explicit``), and values to start with that have one."""

from __future__ import annotations

from typing import Any

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
