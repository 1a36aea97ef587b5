"""``bitwise=True``, ``--jaxtap-identity`` and ``assert_bitwise``: a bit that observing changes fails the test."""

from __future__ import annotations

import pytest
from inner import lay, outcomes, run

TESTS = """
import itertools
import numpy as np
import pytest

# To JAX it is pure, yet no two runs agree: the observed run and production differ on every machine.
count = itertools.count()

@jax.jit
def noisy(x):
    noise = jax.pure_callback(lambda: np.float32(next(count)), jax.ShapeDtypeStruct((), np.float32))
    return descend(x) + noise

@pytest.mark.tap(bitwise=True)
def test_different():
    noisy(1e6)

@pytest.mark.tap(allow_nan=True)
def test_recorder_differs(tap_recorder):
    with tap_recorder(select="level") as rec:
        noisy(1e6)
    assert not rec.certificate.identical

@pytest.mark.tap(bitwise=True)
def test_carries():
    descend(1e6)

@pytest.mark.tap(bitwise=True)
def test_side_effect():
    jax.jit(lambda x: jax.experimental.io_callback(np.sin, x, x))(jnp.float32(1.0))
    descend_with_effect(jnp.float32(1.0))

@jax.jit
def descend_with_effect(x):
    def step(c, _):
        jax.experimental.io_callback(lambda c: None, None, c)
        return c / 2, None
    return jax.lax.scan(step, x, None, length=3)[0]

def test_recorder(tap_recorder):
    with tap_recorder(select="level") as rec:
        descend(1e6)
    assert rec.certificate is not None and rec.certificate.identical

def test_own_choice(tap_recorder):
    with tap_recorder(select="level", identity="inline") as rec:
        descend(1e6)
    assert rec.certificate is None

def test_assert(assert_bitwise):
    assert_bitwise(descend, 1e6)
    assert_bitwise(lambda x: jnp.sum(jnp.sin(x)), jnp.arange(3.0), grad=True)

def test_assert_donated(assert_bitwise):
    assert_bitwise(jax.jit(lambda s: s * 2, donate_argnums=0), jnp.ones(5))

def test_assert_names_itself(assert_bitwise):
    with pytest.raises(TypeError, match=r"^assert_bitwise\\(\\): 'k' is no option of the lens"):
        assert_bitwise(lambda x, *, k: x * k, 2.0, k=3)

def test_assert_fails(assert_bitwise):
    calls = []
    def other_every_time(x):
        calls.append(1)
        return x * len(calls)
    assert_bitwise(other_every_time, jnp.float32(1.0))
"""


@pytest.mark.parametrize("options", [(), ("--jaxtap-nan",)], ids=["plain", "gated"])
def test_bits(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    lay(pytester, TESTS)
    result = run(pytester, "-v", "--jaxtap-identity", "-W", "ignore", *options)
    found = outcomes(result)
    assert found == {
        "test_different": "failed",
        "test_recorder_differs": "failed",
        "test_carries": "passed",
        "test_side_effect": "failed",
        "test_recorder": "passed",
        "test_own_choice": "passed",
        "test_assert": "passed",
        "test_assert_donated": "passed",
        "test_assert_names_itself": "passed",
        "test_assert_fails": "failed",
    }
    result.stdout.fnmatch_lines(
        ["*_ test_different _*", "jaxtap: observing changed a result: noisy (call 0): different in *"]
    )
    result.stdout.fnmatch_lines(["jaxtap: a result could not be certified: descend_with_effect *side effects*"])
    result.stdout.fnmatch_lines(["jaxtap: unreproducible: *"])


def test_without_taps_each_program_is_compared_with_itself(pytester: pytest.Pytester) -> None:
    lay(pytester, TESTS + "\ndef test_noisy():\n    noisy(1e6)\n")
    run(pytester, "--jaxtap-identity", "-k", "test_noisy").assert_outcomes(failed=1)
