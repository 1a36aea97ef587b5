"""The gate and donation: donated as in production, judged all the same, and asynchronous dispatch goes on."""

import jax
import jax.numpy as jnp
import pytest

import jaxtap_core as tap


@pytest.fixture
def step():
    return jax.jit(lambda p, t: (jnp.sqrt(p - t), p.sum()), donate_argnums=0)


def loop(step, calls=6):
    p, given = jnp.ones(4), []
    for i in range(calls):
        given.append(p)
        p, _ = step(p, jnp.float32(0.3 * i))
    return p, given


def test_donation_is_as_in_production(step):
    _, before = loop(step)
    with tap.record(gate="escape"):
        _, inside = loop(step)
    assert [x.is_deleted() for x in inside] == [x.is_deleted() for x in before] == [True] * 6


def test_the_call_at_which_a_nan_appears_is_the_only_finding(step):
    # sqrt(1), sqrt(.7) = .837, sqrt(.237) = .487, sqrt(-.413): call 3
    with tap.record(gate="escape") as rec:
        loop(step)
    assert [(f.event.program, f.event.call, f.leaf) for f in rec.findings] == [("<lambda>", 3, "result[0]")]
    assert rec.findings[0].origin.reason == "inputs were donated"
    assert "jaxtap_keep_donated" in str(rec.findings[0])


def test_kept_inputs_can_be_replayed(step):
    with tap.record(gate="escape", keep_donated=True) as rec:
        _, given = loop(step)
    assert rec.findings[0].origin.primitive == "sqrt"
    assert all(x.is_deleted() for x in given)


def test_recordings_of_donating_programs_are_certified(step):
    with tap.record(taps=tap.on("sqrt")) as rec:
        loop(step, 3)
    assert rec.certificate.identical
    assert len(rec.certificate.programs) == 3


def test_kept_copies_are_made_of_integers_too():
    def step(state, x):
        return {"mean": state["mean"] + 1.0, "count": state["count"] + 1}, jnp.log(x - state["mean"])

    step = jax.jit(step, donate_argnums=0)
    with tap.record(gate="escape", keep_donated=True) as rec:
        step({"mean": jnp.zeros(()), "count": jnp.int32(0)}, jnp.float32(-1))
    assert rec.findings[0].origin.reason == "log of a negative number (-1)"
