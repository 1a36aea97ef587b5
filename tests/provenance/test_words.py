"""What an explanation says to people: exact at an edge, true of the type, of the cause and not of JAX's inside."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtap_core as tap
from jaxtap_core.provenance.locate import Target, explain_target
from jaxtap_core.provenance.reasons.base import show


def result_of(f, *args, bad="nan"):
    """The origin of the first bad element of the result of ``f``."""
    jaxpr = jax.make_jaxpr(f)(*args)
    return explain_target(jaxpr, jax.tree.leaves(args), Target("result", "", (), 0, bad)).origin


# -- numbers


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("edge", [1.0, -1.0])
def test_the_number_next_to_an_edge_is_told_apart_from_it(dtype, edge):
    outside = jnp.nextafter(jnp.asarray(edge, dtype), jnp.asarray(edge * 2, dtype)) if dtype is not np.float64 else None
    number = float(np.nextafter(edge, 2 * edge)) if outside is None else float(outside)
    assert number != edge
    assert float(show(number, -1, 1)) != edge
    assert show(edge, -1, 1) == f"{edge:g}"


@pytest.mark.parametrize("f", [jnp.arccos, jnp.arcsin, jnp.arctanh, jax.scipy.special.erfinv])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_an_operand_just_outside_of_the_unit_interval(f, dtype):
    outside = jnp.nextafter(jnp.ones((), dtype), jnp.full((), 2, dtype))
    reason = result_of(f, outside).reason
    told = float(reason[reason.rindex("(") + 1 : -1])
    assert told > 1
    assert np.asarray(told).astype(dtype) == np.asarray(outside)


# -- typed keys, and draws


@pytest.mark.parametrize("key", [jax.random.key, jax.random.PRNGKey])
@pytest.mark.parametrize("draw", [jax.random.gamma, lambda k, a: jax.random.beta(k, a, 1.0)])
def test_a_draw_whose_shape_is_negative_tells_it(key, draw):
    origin = result_of(lambda a: draw(key(0), a), jnp.float32([2.0, -1.5]))
    assert origin.reproduced
    assert "-1.5" in origin.reason


def test_the_facts_of_a_typed_key_void_nothing():
    origin = result_of(lambda k, x: jnp.sqrt(x) + jax.random.normal(k), jax.random.key(0), -1.0)
    assert origin.primitive == "sqrt"


# -- constants that are 0 in their type

LOST = {
    "added": lambda v: v / (jnp.sqrt(v) + 1e-8),
    "added, in an array": lambda v: (jnp.full(3, v) / (jnp.full(3, v) + 1e-8))[0],
    "the least": lambda v: v / jnp.maximum(v, 1e-8),
    "behind an infinity": lambda v: v * jnp.log(v + 1e-8),
}


@pytest.mark.parametrize("how", LOST)
def test_an_epsilon_that_is_zero_in_float16_is_named(how):
    reason = result_of(LOST[how], jnp.float16(0)).reason
    assert "is 0 in float16" in reason
    assert "6e-08" in reason  # 2**-24


@pytest.mark.parametrize("how", LOST)
def test_one_that_is_a_number_is_not(how):
    f = LOST[how]
    assert np.isfinite(f(jnp.float32(0)))
    assert "is 0 in" not in result_of(lambda v: f(v) + v / v, jnp.float32(0)).reason


def test_a_relu_is_no_lost_constant():
    assert "is 0 in" not in result_of(lambda v: v / jax.nn.relu(v), jnp.float16(0)).reason


# -- NaN that the library puts in

ON_PURPOSE = {
    "std": (lambda x: jnp.std(x, ddof=1), jnp.ones(1), ("std", "ddof", "0 > 0")),
    "var": (lambda x: jnp.var(x, ddof=3, axis=1), jnp.ones((2, 2)), ("var", "ddof", "-1 > 0")),
    "expm": (jax.scipy.linalg.expm, jnp.full((2, 2), 1e10), ("expm", "> 16", "max_squarings")),
    "binomial": (lambda n: jax.random.binomial(jax.random.key(0), n, 0.5), jnp.float32(-3), ("binomial", "-3 < 0")),
}


@pytest.mark.parametrize("name", ON_PURPOSE)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, lambda f: jax.jit(lambda x: f(x) + 1)])
def test_the_condition_is_told_by_which_a_function_of_jax_chose_nan(name, wrap):
    f, x, words = ON_PURPOSE[name]
    reason = result_of(wrap(f), x).reason
    assert "constant" not in reason
    for word in words:
        assert word in reason


def test_a_nan_of_the_user_stays_a_constant():
    assert "holds it as a constant" in result_of(lambda d: jnp.where(d > 0, d, jnp.nan), -1.0).reason


# -- derivatives


@pytest.mark.parametrize(
    ("f", "word"),
    [
        (lambda a: jnp.linalg.svd(a)[0].sum(), "two singular values are equal"),
        (lambda a: jnp.linalg.svd(a, full_matrices=False)[2].sum(), "two singular values are equal"),
        (lambda a: jnp.linalg.eigh(a)[1].sum(), "two eigenvalues are equal"),
    ],
)
def test_the_gradient_of_vectors_that_belong_to_equal_values(f, word):
    assert word in result_of(jax.grad(f), jnp.eye(3)).reason


def test_a_line_of_a_backward_rule_is_said_to_be_the_call():
    @jax.custom_vjp
    def f(x):
        return x

    f.defvjp(lambda x: (x, x), lambda x, ct: (ct * jnp.log(x - 1),))
    inside = result_of(jax.grad(lambda x: f(x) * 2), 0.5)
    assert "in the backward rule of the custom_vjp called there" in inside.reason
    assert "custom_vjp" not in result_of(jax.grad(lambda x: jnp.sqrt(f(x) - 1)), 0.5).reason


def test_a_gradient_without_jit_gets_the_advice_for_a_branch_that_was_not_taken():
    with tap.record(gate="escape") as rec:
        jax.grad(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0))(0.0)
    (finding,) = rec.findings
    assert "where branch" in finding.origin.reason
    assert "jnp.where(ok" in finding.origin.advice


# -- advice


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nobody_is_sent_to_float64_who_is_there(dtype):
    with jax.enable_x64(True):
        advice = result_of(jnp.linalg.cholesky, np.array([[1, 2], [2, 1]], dtype)).advice
    assert ("float64" in advice) == (dtype == np.float32)
