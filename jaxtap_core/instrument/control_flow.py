"""Control flow for what seldom happens inside a hot loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax


def once_if(condition: Any, act: Callable[[Any], Any], state: Any) -> Any:
    """``act(state)`` where ``condition``, else ``state``: a loop of one trip at most.

    On CPUs a ``cond`` in the body of a hot loop costs several times what such a loop costs, and it may copy what it
    passes on; a loop works in place.
    """

    def trip(carry: Any) -> Any:
        return lax.full_like(carry[0], False), act(carry[1])  # alike in what varies between shards, too

    return lax.while_loop(lambda carry: carry[0], trip, (jnp.asarray(condition), state))[1]
