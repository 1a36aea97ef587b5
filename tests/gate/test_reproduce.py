"""The script of a finding: programs of several devices, and folders that cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from jaxtap_core.gate.reproduce import save
from jaxtap_core.records.events import Finding, TapEvent

FOUR = "--xla_force_host_platform_device_count=4"

FOUND = Finding(TapEvent("", -1, None, (), None, "output", "model", 0), "result", "nan")

SHARDED = """
    import sys
    import jax, jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
    import jaxtap_core as tap

    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.{axis},) * 2)
    rows = P(("a", "b"))
    step = lambda x, key: jnp.log(x) + 0 * jax.random.uniform(key)
    step = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(rows, P()), out_specs=rows))
    x = jax.device_put(jnp.arange(8.0) - 0.5, NamedSharding(mesh, rows))
    key = jax.device_put(jax.random.key(0), NamedSharding(mesh, P()))
    with tap.record(gate="escape") as rec:
        step(x, key)
    print(rec.findings[0].save(sys.argv[1]))
"""


def python(*arguments, flags=""):
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=200, env=env)


@pytest.mark.parametrize("axis", ["Auto", "Explicit"])
def test_a_program_of_several_devices_runs_on_as_many(tmp_path, axis):
    program = tmp_path / "program.py"
    program.write_text("\n".join(line[4:] for line in SHARDED.format(axis=axis).splitlines()))
    saved = python(program, str(tmp_path / "found"), flags=FOUR)
    assert saved.returncode == 0, saved.stderr
    about = json.loads((tmp_path / "found" / "finding.json").read_text())
    assert about["problem"] is None and about["devices"] == 4
    script = saved.stdout.strip()
    run = python("-I", script, flags=FOUR)
    assert "result 0: 1 of 8 elements are NaN, the first at [0]" in run.stdout, run.stderr
    alone = python("-I", script)
    assert alone.returncode == 1 and "Traceback" not in alone.stderr
    assert "runs on 4 devices, and here is 1. " in alone.stderr and f"XLA_FLAGS={FOUR}" in alone.stderr


@pytest.mark.parametrize("inside", ["", "folder"])
def test_a_file_in_the_way_is_told(tmp_path, inside):
    file = tmp_path / "existing_file"
    file.write_text("mine")
    value = jnp.float32(-1)
    with pytest.raises(NotADirectoryError, match=r"existing_file.* needs a folder"):
        save(FOUND, jax.make_jaxpr(jnp.log)(value), [value], str(file / inside if inside else file))
    assert file.read_text() == "mine"
