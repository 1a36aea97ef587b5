"""Blocks inside blocks: the innermost records, and the gate of the outer one is not blind inside it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtap_core as tap


@pytest.fixture
def program():
    return jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: jnp.log(c), x))


def test_the_gate_of_the_outer_block_finds_what_happens_in_the_inner_one(program):
    with tap.record(gate="escape") as outer, tap.record(select="c") as inner:
        program(2.0)  # log 2 = .69, log .69 = -.37, log -.37 is not a number
    assert [event.step for event in inner.events] == [0, 1, 2]
    assert [(f.event.path, f.event.step) for f in outer.findings if f.event.kind == "carry"] == [("scan[0]", 2)]
    assert inner.findings == []
    assert len(outer.events) == 0


def test_a_gate_of_its_own_is_its_own(program):
    with tap.record(gate="escape") as outer, tap.record(gate="outputs") as inner:
        program(2.0)
    assert outer.findings == []
    assert len(inner.findings) == 1


def test_a_budget_holds_in_inner_blocks():
    with pytest.raises(tap.LoopBudgetExceeded), tap.record(max_trips=5), tap.record(select="c") as rec:
        jax.lax.while_loop(lambda c: c < 10, lambda c: c + 1, 0)
    assert len(rec.events) == 5


def test_where_nan_is_allowed_it_is_allowed_in_inner_blocks(program):
    with tap.record(gate="escape") as outer, tap.allow_nan(), tap.record(select="c"):
        program(2.0)
    assert outer.findings == []


def test_under_a_certificate_a_program_without_taps_is_compared_with_itself():
    count = iter(range(100))
    steady = jax.jit(lambda x: x + 1)
    noisy = jax.jit(
        lambda x: x + jax.pure_callback(lambda: np.float32(next(count)), jax.ShapeDtypeStruct((), jnp.float32))
    )
    with tap.record(identity="certified") as rec:
        steady(1.0)
    assert rec.certificate.identical
    with tap.record(identity="certified") as rec:
        noisy(1.0)
    assert not rec.certificate.identical
    assert "run twice" in str(rec.certificate)


def test_recordings_of_equal_runs_are_equal_and_a_step_more_is_not(program):
    def recorded(start):
        with tap.record(select="c") as rec:
            program(start)
        return rec

    assert recorded(20.0) == recorded(20.0)
    assert recorded(20.0) != recorded(21.0)
    with pytest.raises(TypeError, match=r"ask for its \.equal"):
        bool(recorded(20.0).diff(recorded(20.0)))
