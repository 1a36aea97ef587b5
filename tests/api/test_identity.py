"""`check_identity`: what it hands to the program, and what it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtap_core as tap


def test_a_program_may_donate_its_arguments():
    x = jnp.ones(5)
    assert tap.check_identity(jax.jit(lambda s: s * 2, donate_argnums=0), x).outcome == "identical"
    assert not x.is_deleted()
    state = {"w": jnp.ones(3), "key": jax.random.key(1)}
    step = jax.jit(lambda s: {"w": s["w"] + jax.random.uniform(s["key"]), "key": s["key"]}, donate_argnums=0)
    assert tap.check_identity(step, state).outcome == "identical"
    assert not state["w"].is_deleted() and not state["key"].is_deleted()


def test_every_run_starts_from_the_same_array():
    def scaled(x):
        x *= 2
        return jnp.sum(x)

    x = np.ones(3)
    assert tap.check_identity(scaled, x).outcome == "identical"
    assert x.tolist() == [1, 1, 1]


def test_copies_are_of_the_type_of_the_original():
    given = [jnp.asarray(1.0), jnp.ones(3, jnp.bfloat16), jax.random.key(0), np.float64([1]), 2.0, None]
    seen = []

    def program(*args):
        seen.append([(type(x), getattr(x, "dtype", 0), getattr(x, "weak_type", 0)) for x in args])
        seen[-1].append([(x.sharding, x.committed) for x in args if isinstance(x, jax.Array)])
        return jnp.float32(0)

    program(*given)
    tap.check_identity(program, *given)
    assert len(seen) == 4 and all(one == seen[0] for one in seen)


def test_the_copies_are_not_observed():
    with tap.record(taps=[tap.on("copy")]) as outer:
        check = tap.check_identity(jax.jit(jnp.sin), jnp.ones(3), taps=[tap.on("copy")])
    assert not check.recording.events and not outer.events


def test_an_argument_of_the_function_is_no_option():
    with pytest.raises(
        TypeError, match=r"^tap.check_identity\(\): 'k' is no option of the lens; .* by position"
    ) as told:
        tap.check_identity(lambda x, *, k: x * k, 2.0, k=3)
    assert "functools.partial(f, k=...)" in str(told.value)
    with pytest.raises(TypeError, match=r"'selct' is no option of the lens \(did you mean 'select'\?\)"):
        tap.check_identity(jnp.sin, 2.0, selct="x")
