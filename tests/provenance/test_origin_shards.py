"""Origins inside shard_map and pmap: the shard is named. Four CPU devices, so each in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

PRELUDE = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jaxtap_core.provenance.locate import Target, explain_target

def explained(f, *args, kind="result", path="", steps=(), index=0):
    target = Target(kind, path, steps, index)
    return explain_target(jax.make_jaxpr(f)(*args), jax.tree.leaves(args), target)

mesh = jax.make_mesh((2, 2), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
"""


def run(program: str) -> None:
    """Run ``program`` on four devices; its assertions are the test."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_scan_whose_shards_talk_to_each_other():
    run(
        """
        def program(x, w):
            def inner(x, w):
                def body(c, t):
                    total = lax.psum(c.sum(), ("i", "j"))
                    return c - t * w + 0 * jnp.sqrt(c), total
                return lax.scan(body, x, jnp.arange(3.0))
            specs = P(("i", "j")), P()
            return jax.shard_map(inner, mesh=mesh, in_specs=specs, out_specs=specs)(x, w)

        # element 5 belongs to shard 2: 0.5, then 0.5 after step 0, -0.25 after step 1, root at step 2
        x = jnp.arange(8.0) + 5
        x = x.at[5].set(0.5)
        found = explained(program, x, jnp.float32(0.75))
        assert found.first_index == (5,)
        origin = found.origin
        assert (origin.primitive, origin.path, origin.steps) == ("sqrt", "scan[0]/sqrt[0]", (2,))
        assert "sqrt of a negative number (-0.25)" in origin.reason
        assert "shard 2 of 4" in origin.reason

        found = explained(program, x, jnp.float32(0.75), kind="carry", path="scan[0]", steps=(2,))
        assert found.origin.steps == (2,) and "shard 2 of 4" in found.origin.reason
        """
    )


def test_whiles_that_take_another_number_of_steps_on_every_shard():
    run(
        """
        def program(x):
            def inner(x):
                body = lambda s: (s[0] + 1, s[1] - 1 + 0 * jnp.sqrt(s[1]))
                return lax.while_loop(lambda s: (s[0] < 6) & (s[1].min() > -3), body, (0, x))[1]
            return jax.shard_map(inner, mesh=mesh, in_specs=P("i", "j"), out_specs=P("i", "j"))(x)

        x = np.full((4, 4), 50.0, np.float32)
        x[1, 2] = 2.5  # 1.5, 0.5, -0.5, and its root at step 3
        found = explained(program, jnp.asarray(x))
        assert found.first_index == (1, 2)
        assert (found.origin.primitive, found.origin.steps) == ("sqrt", (3,))
        assert "shard 1 of 4" in found.origin.reason
        """
    )


def test_pmap_and_sharded_jit():
    run(
        """
        x = jnp.array([[1.0, 2.0], [1.0, -1.0], [2.0, 2.0], [2.0, 2.0]])
        found = explained(jax.pmap(lambda x: jnp.log(x) / lax.psum(x, "k"), axis_name="k"), x)
        assert found.origin.primitive == "log" and found.first_index == (1, 1)
        assert "shard 1 of 4" in found.origin.reason

        sharded = jax.device_put(jnp.arange(8.0) - 0.5, NamedSharding(mesh, P("i")))
        found = explained(lambda x: lax.scan(lambda c, t: (jnp.sqrt(c) - t, t), x, jnp.arange(3.0)), sharded)
        assert (found.origin.primitive, found.origin.steps, found.first_index) == ("sqrt", (0,), (0,))
        """
    )
