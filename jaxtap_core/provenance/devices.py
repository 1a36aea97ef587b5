"""Running programs where they stood: on one device, or on every shard of a mesh at once.

Inside of ``shard_map`` each shard has values of its own. An activation in there keeps all of them, stacked along a
first axis, and so the index of an element begins with its shard. A runner compiles programs over the values of an
activation and knows about that first axis; nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxtap_core.jaxpr.structure import ShardMap
from jaxtap_core.jaxpr.values import host_array
from jaxtap_core.provenance.flat import CannotReplay, FlatProgram, Node

COLLECTIVES = frozenset(
    {
        "all_gather",
        "all_gather_invariant",
        "all_to_all",
        "pmax",
        "pmin",
        "ppermute",
        "psum",
        "psum_invariant",
        "reduce_scatter",
    }
)


class OneProgram:
    """The runner of everything outside of ``shard_map``: values are as the program has them."""

    lead: tuple[int, ...] = ()

    def jit(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """``program`` compiled."""
        return jax.jit(program)

    def every(self, value: Any) -> Any:
        """A value that the program holds as a constant."""
        return value

    def anywhere(self, verdict: Any, flat: FlatProgram) -> Any:
        """Whether ``verdict``, inside a loop with the body ``flat``, is true for any shard."""
        return verdict


class Shards:
    """The runner inside of one ``shard_map`` equation."""

    def __init__(self, node: Node) -> None:
        mapped = ShardMap.of(node.eqn)
        self.mesh = mapped.mesh
        if not isinstance(self.mesh, Mesh):
            raise CannotReplay("the mesh of a shard_map is not known any more (it was set by set_mesh)")
        self.axes = tuple(self.mesh.axis_names)
        if mapped.partial:
            raise CannotReplay("a shard_map over some axes of its mesh only")
        self.in_specs, self.out_specs = mapped.in_specs, mapped.out_specs
        self.lead = (int(self.mesh.size),)

    def jit(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """``program``, of one shard's values, compiled to run on all of them."""

        def local(*args: Any) -> Any:
            results = program(*jax.tree.map(lambda x: x[0], args))
            return jax.tree.map(lambda x: jnp.asarray(x)[None], results)

        return jax.jit(self._mapped(local, P(self.axes), P(self.axes)))

    def _mapped(self, local: Callable[..., Any], ins: Any, outs: Any) -> Callable[..., Any]:
        return jax.shard_map(local, mesh=self.mesh, in_specs=ins, out_specs=outs, check_vma=False)

    def every(self, value: Any) -> Any:
        """A value that is the same on every shard."""
        stacked = jnp.broadcast_to(jnp.asarray(value), (*self.lead, *np.shape(value)))
        return jax.device_put(stacked, NamedSharding(self.mesh, P(self.axes)))

    def anywhere(self, verdict: Any, flat: FlatProgram) -> Any:
        """Whether ``verdict``, inside a loop with the body ``flat``, is true for any shard."""
        # Shards that talk to each other in a loop must leave it together; others may not be able to.
        return lax.pmax(verdict.astype(jnp.int32), self.axes) > 0 if talks(flat) else verdict

    # -- between the whole and the shards

    def split(self, operands: Sequence[Any]) -> list[Any]:
        """The operands of the equation, as every shard gets them."""
        local = lambda *args: [x[None] for x in args]
        return list(jax.jit(self._mapped(local, self.in_specs, P(self.axes)))(*operands))

    def inside(self, output: int, index: tuple[int, ...], local_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shard and element that became element ``index`` of an output of the equation."""
        numbers = self._numbers((*self.lead, *local_shape), P(self.axes))
        join = self._mapped(lambda x: x[0], P(self.axes), self.out_specs[output])
        number = host_array(jax.jit(join)(numbers))[index]
        return tuple(int(k) for k in np.unravel_index(int(number), (*self.lead, *local_shape)))

    def outside(self, operand: int, index: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """Element of an operand of the equation that a shard got as its element ``index``."""
        spec = self.in_specs[operand]
        numbers = self._numbers(shape, spec)
        split = self._mapped(lambda x: x[None], spec, P(self.axes))
        number = host_array(jax.jit(split)(numbers))[index]
        return tuple(int(k) for k in np.unravel_index(int(number), shape))

    def _numbers(self, shape: tuple[int, ...], spec: Any) -> Any:
        numbers = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
        return jax.device_put(numbers, NamedSharding(self.mesh, spec))


Runner = OneProgram | Shards


def talks(flat: FlatProgram) -> bool:
    """Whether the shards that run ``flat`` exchange values."""
    return any(node.primitive in COLLECTIVES or any(talks(inner) for inner in node.all_inner()) for node in flat.nodes)
