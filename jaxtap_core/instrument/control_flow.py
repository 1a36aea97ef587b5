"""Control flow for what seldom happens inside a hot loop, and values to start with that have a given sharding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
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


def once_if(condition: Any, act: Callable[[Any], Any], state: Any) -> Any:
    """``act(state)`` where ``condition``, else ``state``: a loop of one trip at most.

    On CPUs a ``cond`` in the body of a hot loop costs several times what such a loop costs, and it may copy what it
    passes on; a loop works in place.
    """

    def trip(carry: Any) -> Any:
        return lax.full_like(carry[0], False), act(carry[1])  # alike in what varies between shards, too

    return lax.while_loop(lambda carry: carry[0], trip, (jnp.asarray(condition), state))[1]
