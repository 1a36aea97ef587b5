"""Programs of several devices: what is sharded stays so; in ``shard_map`` and ``pmap`` every shard is told apart.

Each test runs in a process of its own, in which the CPU is four devices.
"""

import subprocess
import sys
import textwrap

import pytest

SHARDED = """
    import jax, jax.numpy as jnp, numpy as np
    from functools import partial
    from jax import lax
    from jax.sharding import NamedSharding, PartitionSpec as P
    import jaxtap_core as tap

    form = {form!r}
    options = {{"certified": {{}}, "inline": {{"identity": "inline"}},
                "live": {{"identity": "inline", "on_step": lambda event: None}},
                "gate": {{"gate": "escape"}}}}[form]
    assert jax.device_count() == 4
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.{axis},))
    rows = NamedSharding(mesh, P("x"))
    x = jax.device_put(jnp.arange(8.0), rows)

    def scan(x, n=3):
        return lax.scan(lambda c, _: (c * 2 + 1, c.sum()), x, None, length=n)

    def check(f, *args, events=3):
        plain = f(*args)
        with tap.record(**options) as rec:
            result = f(*args)
        for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(result), strict=True):
            assert a.sharding == b.sharding, (a.sharding, b.sharding)
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        if form != "gate":
            assert len(rec.events) == events, len(rec.events)
        return rec

    def carried(c):
        c = np.asarray(c)
        return [c := c * 2 + 1 for _ in range(3)]
"""


def in_four_devices(form, script, axis="Auto"):
    program = textwrap.dedent(SHARDED).format(form=form, axis=axis) + textwrap.dedent(script) + '\nprint("fine")\n'
    env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, env=env)
    assert done.stdout == "fine\n", done.stderr[-3000:]


@pytest.mark.parametrize("form", ["certified", "inline", "live", "gate"])
def test_shardings_are_those_of_production(form):
    in_four_devices(
        form,
        """
        check(jax.jit(scan), x)
        check(jax.jit(scan, out_shardings=(rows, None)), jnp.arange(8.0))
        check(jax.jit(scan, in_shardings=rows), jnp.arange(8.0))
        check(jax.jit(lambda x: jax.jit(scan, out_shardings=(rows, None))(x)), jnp.arange(8.0))
        check(jax.jit(scan), jax.device_put(jnp.arange(8.0), jax.devices()[2]))
        rec = check(jax.jit(lambda x: scan(lax.with_sharding_constraint(x, rows))), jnp.arange(8.0))
        if form != "gate":
            got = [e.value["c"] for e in rec.events]
            assert [g.tolist() for g in got] == [c.tolist() for c in carried(np.arange(8.0, dtype=np.float32))]
        """,
    )


@pytest.mark.parametrize("form", ["certified", "inline"])
def test_loops_over_explicit_axes_are_observed(form):
    in_four_devices(form, "check(jax.jit(scan), x)", axis="Explicit")


@pytest.mark.parametrize("form", ["certified", "inline", "live"])
def test_every_shard_of_a_shard_map_is_observed(form):
    in_four_devices(
        form,
        """
        def of_shard(body):
            return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))

        # each shard has two elements, and a trajectory of its own
        rec = check(of_shard(lambda x: scan(x)[0]), x, events=12)
        assert sorted((e.device, e.step) for e in rec.events) == [(d, s) for d in range(4) for s in range(3)]
        for e in rec.events:
            own = np.arange(8.0, dtype=np.float32)[2 * e.device : 2 * e.device + 2]
            assert e.value["c"].tolist() == carried(own)[e.step].tolist()
        assert rec.df()["device"].tolist() == [0, 1, 2, 3] * 3

        # shards that exchange values at every step
        def talk(x):
            return lax.scan(lambda c, _: (c + lax.psum(c.sum(), "x"), None), x, None, length=2)[0]
        rec = check(of_shard(talk), x, events=8)
        first = np.arange(8.0) + 28
        second = first + first.sum()
        for e in rec.events:
            expected = (first, second)[e.step][2 * e.device : 2 * e.device + 2]
            assert e.value["c"].tolist() == expected.tolist()

        # each shard leaves its loop when it likes: 1, 3, 7 .. until the sum of two elements exceeds 50
        until = lambda c: lax.while_loop(lambda c: c.sum() < 50, lambda c: c * 2 + 1, c)
        trips = {}
        for d in range(4):
            c, trips[d] = np.arange(8.0)[2 * d : 2 * d + 2], 0
            while c.sum() < 50:
                c, trips[d] = c * 2 + 1, trips[d] + 1
        rec = check(of_shard(until), x, events=sum(trips.values()))
        assert {d: sum(e.device == d for e in rec.events) for d in range(4)} == trips
        """,
    )


@pytest.mark.parametrize("form", ["certified", "inline", "live"])
def test_maps_over_devices_in_loops_branches_gradients_and_pmap_are_observed(form):
    in_four_devices(
        form,
        """
        def inner(x):
            return lax.scan(lambda c, _: (c * 2 + lax.psum(c.sum(), "x"), None), x, None, length=3)[0]
        mapped = jax.shard_map(inner, mesh=mesh, in_specs=P("x"), out_specs=P("x"))

        looped = jax.jit(lambda x: lax.scan(lambda c, _: (mapped(c) * 0.1, None), x, None, length=2)[0])
        rec = check(looped, x, events=2 * 3 * 4 + 2)
        shards = [e for e in rec.events if e.device is not None]
        assert {e.path for e in shards} == {"scan[0]/scan[0]"}
        expected = {(o, i, d) for o in range(2) for i in range(3) for d in range(4)}
        assert {(*e.steps, e.device) for e in shards} == expected

        branched = jax.jit(lambda x: lax.cond(x.sum() > 0, mapped, lambda x: x, x))
        rec = check(branched, x, events=12)
        assert {e.path for e in rec.events} == {"cond[0]/b1/scan[0]"}

        rec = check(jax.jit(jax.grad(lambda x: mapped(x).sum())), x, events=24)
        assert {(e.phase, e.device) for e in rec.events} == {(p, d) for p in ("forward", "backward") for d in range(4)}

        rec = check(jax.pmap(lambda c: scan(c)[0]), jnp.arange(8.0).reshape(4, 2), events=12)
        for e in rec.events:
            own = np.arange(8.0, dtype=np.float32)[2 * e.device : 2 * e.device + 2]
            assert e.value["c"].tolist() == carried(own)[e.step].tolist()

        grid = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        spec = P(("a", "b"))
        two = jax.jit(jax.shard_map(lambda x: scan(x)[0], mesh=grid, in_specs=spec, out_specs=spec))
        rec = check(two, jnp.arange(8.0), events=12)
        assert {e.device for e in rec.events} == {0, 1, 2, 3}
        """,
    )


def test_more_events_than_a_buffer_holds_come_from_every_shard():
    in_four_devices(
        "certified",
        """
        long = lambda x: lax.while_loop(lambda s: s[0] < 2000, lambda s: (s[0] + 1, s[1] * 0.5 + 1), (0, x))[1]
        f = jax.jit(jax.shard_map(long, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
        options["select"] = lambda leaves: leaves[0]
        for _ in range(2):  # the second time it is known that buffers must be flushed
            rec = check(f, x, events=8000)
            assert [e.value.item() for e in rec.events if e.device == 2] == list(range(1, 2001))
        """,
    )


def test_a_nan_in_one_shard_is_found_there():
    in_four_devices(
        "gate",
        """
        def model(x):
            return lax.scan(lambda c, _: (jnp.log(c - 1), c.sum()), x, None, length=3)
        f = jax.jit(jax.shard_map(lambda x: model(x)[0], mesh=mesh, in_specs=P("x"), out_specs=P("x")))
        good = jnp.exp(jnp.exp(jnp.exp(jnp.full(8, 0.5)) + 1) + 1) + 1
        assert not check(f, good).findings
        rec = check(f, good.at[5].set(jnp.exp(0.5) + 1))  # its logarithm is 0.5, from which 1 is taken
        finding = rec.findings[0]
        assert (finding.event.device, finding.event.step, finding.leaf) == (2, 1, "c"), finding
        assert finding.origin.primitive == "log" and finding.origin.steps == (1,), finding
        assert "log of a negative number (-0.5)" in finding.origin.reason
        assert "device 2" in str(finding).splitlines()[0]

        with tap.record(gate="born") as rec:
            f(good.at[5].set(jnp.exp(0.5) + 1))
        born = rec.findings[0]
        assert (born.event.path, born.event.device, born.event.step) == ("scan[0]/log[0]", 2, 1), born

        try:  # every shard goes on to the end, and nobody waits for ever
            with tap.record(gate="escape", fail_fast=True):
                f(good.at[5].set(jnp.exp(0.5) + 1))
        except tap.TapAlert as alert:
            assert alert.finding.event.device == 2
        else:
            raise AssertionError("no alert")
        """,
    )


@pytest.mark.parametrize("form", ["certified", "gate"])
def test_a_shard_map_outside_of_jit_or_over_some_axes_is_seen_shard_by_shard(form):
    in_four_devices(
        form,
        """
        mapped = jax.shard_map(lambda x: scan(x)[0], mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        rec = check(mapped, x, events=12)  # outside of jit
        for e in rec.events:
            own = np.arange(8.0, dtype=np.float32)[2 * e.device : 2 * e.device + 2]
            assert e.value["c"].tolist() == carried(own)[e.step].tolist()
        grid = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        partial = jax.shard_map(lambda x: scan(x)[0], mesh=grid, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
        rec = check(jax.jit(partial), jnp.arange(8.0), events=6)  # two shards, each on the two devices of "b"
        for e in rec.events:
            own = np.arange(8.0, dtype=np.float32).reshape(2, 4)[e.device]
            assert e.value["c"].tolist() == carried(own)[e.step].tolist()
        with tap.record(gate="escape") as rec:
            jax.shard_map(lambda x: jnp.log(x - 1), mesh=mesh, in_specs=P("x"), out_specs=P("x"))(jnp.arange(8.0))
        assert rec.findings[0].origin.primitive == "log", rec.findings
        """,
    )
