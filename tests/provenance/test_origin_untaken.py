"""NaNs of branches that were not taken get the double-where advice; those of taken branches do not.

What is true is known beforehand: a point at which the ``where`` takes the other side, and a gradient that guarding the
input of the branch (the double where) makes finite.
"""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import special

import jaxtap_core as tap
from jaxtap_core.provenance.locate import Target, explain_target

NOT_TAKEN = "branch that was not taken"


def origin_of(f, *args, index=0):
    """Where the NaN in a result of ``f`` was born."""
    jaxpr = jax.make_jaxpr(f)(*args)
    return explain_target(jaxpr, jax.tree.leaves(args), Target("result", "", (), index)).origin


def advised(origin) -> bool:
    """Whether the report says so and gives the advice; never one without the other."""
    told = NOT_TAKEN in origin.reason
    assert told == ("jnp.where(ok, f(jnp.where(ok, x, 1.0)), other)" in origin.advice)
    return told


# (function, a point where its gradient is NaN, a point where it is harmless, the primitive that makes the NaN)
KINDS = {
    "sqrt of a negative": (jnp.sqrt, -1.0, 1.0, "sqrt"),
    "sqrt at 0": (jnp.sqrt, 0.0, 1.0, "mul"),
    "log at 0": (jnp.log, 0.0, 1.0, "div"),
    "a root of a log": (lambda x: jnp.sqrt(jnp.log(x)), -1.0, 2.0, "log"),
    "a log inside more": (lambda x: jnp.exp(2 * jnp.log(x)), -1.0, 1.0, "log"),
    "1 / x": (lambda x: 1 / x, 0.0, 1.0, "mul"),
    "sin(x) / x": (lambda x: jnp.sin(x) / x, 0.0, 1.0, "mul"),
    "fractional power": (lambda x: x**1.5, -1.0, 1.0, "pow"),
    "rsqrt": (lax.rsqrt, -1.0, 1.0, "rsqrt"),
    "arccos": (jnp.arccos, 2.0, 0.5, "rsqrt"),
    "arcsin": (jnp.arcsin, -3.0, 0.5, "rsqrt"),
    "arccosh": (jnp.arccosh, 0.5, 2.0, "rsqrt"),
    "erf_inv": (special.erfinv, 2.0, 0.5, "erf_inv"),
    "lgamma at a pole": (lax.lgamma, -1.0, 2.0, "digamma"),
    "exp too big": (jnp.exp, 100.0, 1.0, "mul"),
    "norm of zeros": (lambda x: jnp.sqrt(jnp.sum(jnp.stack([x, x]) ** 2)), 0.0, 1.0, "mul"),
    "cholesky": (lambda x: jnp.linalg.cholesky(x * jnp.eye(2)).sum(), -1.0, 1.0, "cholesky"),
    "matrix product": (lambda x: jnp.sqrt(x) * jnp.ones((2, 2)) @ jnp.array([x, 1.0]) @ jnp.ones(2), -1.0, 1.0, "sqrt"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_branch_that_is_not_taken(kind):
    f, bad, good, primitive = KINDS[kind]
    plain = jax.jit(jax.grad(lambda x, ok: jnp.where(ok, f(x), 0.0)))
    guarded = jax.grad(lambda x, ok: jnp.where(ok, f(jnp.where(ok, x, good)), 0.0))
    assert np.isnan(plain(bad, False)) and guarded(bad, False) == 0  # the advice would help
    origin = origin_of(plain, jnp.float32(bad), False)
    assert advised(origin)
    assert origin.primitive == primitive


@pytest.mark.parametrize("kind", ["sqrt of a negative", "sqrt at 0", "log at 0", "arccos", "cholesky"])
def test_the_same_branch_when_it_is_taken(kind):
    f, bad, *_ = KINDS[kind]
    g = jax.jit(jax.grad(lambda x, ok: jnp.where(ok, f(x), 0.0)))
    if np.isnan(g(bad, True)):
        assert not advised(origin_of(g, jnp.float32(bad), True))
    # a cotangent that is 0 for another reason is not one of a branch that was not taken
    zeroed = jax.jit(jax.grad(lambda x, ok: 0.0 * jnp.where(ok, f(x), 0.0)))
    assert np.isnan(zeroed(bad, True))
    assert not advised(origin_of(zeroed, jnp.float32(bad), True))


def test_the_line_of_the_branch_is_named_with_its_operand():
    def loss(x):
        root = jnp.sqrt(x - 3.0)
        return jnp.sum(jnp.where(x > 3.0, root, x))

    origin = origin_of(jax.grad(loss), jnp.array([5.0, 1.0, 4.0]))
    lines, first = inspect.getsourcelines(loss)
    line = first + next(i for i, text in enumerate(lines) if "jnp.sqrt" in text)
    assert origin.source == f"test_origin_untaken.py:{line} (loss)"
    assert origin.operands[0]["element"] == -2.0 and origin.operands[0]["index"] == (1,)
    assert "sqrt of a negative number (-2), in a where branch that was not taken" in origin.reason


def test_of_two_lanes_the_one_that_is_taken_gets_no_advice():
    g = jax.grad(lambda x: jnp.sum(jnp.where(x > -2.0, jnp.sqrt(x), 0.0)))
    assert advised(origin_of(g, jnp.array([4.0, -3.0])))
    assert not advised(origin_of(g, jnp.array([4.0, -1.0])))


LOOPS = {
    "scan": lambda body, c, xs: lax.scan(lambda c, x: (body(c, x), None), c, xs)[0],
    "checkpointed": lambda body, c, xs: lax.scan(jax.checkpoint(lambda c, x: (body(c, x), None)), c, xs)[0],
    "fori": lambda body, c, xs: lax.fori_loop(0, len(xs), lambda i, c: body(c, xs[i]), c),
    "unrolled by hand": lambda body, c, xs: body(body(body(body(c, xs[0]), xs[1]), xs[2]), xs[3]),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("taken", [False, True])
def test_in_the_backward_pass_of_a_loop(loop, taken):
    def body(c, x):
        return jnp.where((x > 0) | taken, jnp.sqrt(x + c), c)

    g = jax.grad(lambda c, xs: LOOPS[loop](body, c, xs))
    xs = jnp.array([1.0, 2.0, -30.0, 3.0])
    assert np.isnan(g(1.0, xs))
    origin = origin_of(g, jnp.float32(1.0), xs)
    assert origin.primitive == "sqrt" and advised(origin) is not taken
    if loop != "unrolled by hand":
        # forward, or (recomputed) in the reversed loop, of which row 2 of 4 is iteration 1
        assert origin.steps == ((1,) if origin.phase == "recompute" else (2,))


@pytest.mark.parametrize("taken", [False, True])
def test_a_where_round_a_loop(taken):
    def f(x):
        y = lax.scan(lambda c, _: (jnp.sqrt(c) - 1.0, None), x, None, length=4)[0]
        return jnp.where((x > 1e6) | taken, y, 0.0)

    origin = origin_of(jax.grad(f), jnp.float32(2.0))  # 2, 0.41, -0.36: its root is taken at step 2
    assert origin.primitive == "sqrt" and origin.steps == (2,)
    assert advised(origin) is not taken


def test_a_rule_of_ones_own_that_makes_the_nan_in_the_backward_pass():
    @jax.custom_vjp
    def f(x):
        return jnp.abs(x)

    f.defvjp(lambda x: (jnp.abs(x), x), lambda x, ct: (ct * jnp.sqrt(x),))
    g = jax.grad(lambda x: jnp.where(x > 0, f(x), 0.0))
    origin = origin_of(g, jnp.float32(-4.0))
    assert origin.primitive == "sqrt" and origin.phase == "backward" and advised(origin)
    assert not advised(origin_of(jax.grad(lambda x: jnp.where(x < 0, f(x), 0.0)), jnp.float32(-4.0)))


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        (jax.nn.relu, "a branch that was not taken (of a where, a relu or the like)"),
        (lambda y: lax.clamp(0.0, y, 1.0), "a clamp that was at its bound"),
        (lambda y: jnp.select([y > 0], [y], 0.0), "a where branch that was not taken"),
    ],
)
def test_what_is_no_where_is_not_called_one(keep, words):
    g = jax.grad(lambda x: keep(jnp.sqrt(x) - 1.0))  # at 0: the cotangent 0 times 0.5 / sqrt(0)
    origin = origin_of(g, jnp.float32(0))
    assert (origin.primitive == "mul" and f"the cotangent of {words}" in origin.reason) or words in origin.reason


# -- forward, at level ``born``


def born(f, *args):
    """The findings of level ``born``."""
    with tap.record(gate="born") as rec:
        f(*args)
    return rec.findings


def test_what_a_select_drops_is_told_as_such_at_level_born():
    (finding,) = born(jax.jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0)), jnp.array([1.0, -2.0]))
    assert finding.masked and advised(finding.origin)
    assert "log of a negative number (-2), in a where branch that was not taken" in finding.origin.reason


def test_what_becomes_of_it_before_the_select_does_not_matter():
    (finding,) = born(jax.jit(lambda x: jnp.where(x > 0, 2 * jnp.sqrt(jnp.log(x)) + x, 0.0)), jnp.array([2.0, -2.0]))
    assert finding.origin.primitive == "log" and advised(finding.origin)


def test_a_cond_that_vmap_turned_into_a_select():
    f = jax.vmap(lambda x: lax.cond(x > 0, jnp.log, lambda x: 0 * x, x))
    (finding,) = born(jax.jit(f), jnp.array([1.0, -2.0]))
    assert advised(finding.origin)
    assert "in a cond branch that was not taken (vmap made it a select)" in finding.origin.reason


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.where(x < 0, jnp.log(x), 0.0),  # taken
        lambda x: (lambda y: (jnp.where(x > 0, y, 0.0), y + 1))(jnp.log(x)),  # dropped here, kept there
        lambda x: jnp.log(x),
    ],
)
def test_what_is_not_dropped_gets_no_advice_at_level_born(f):
    findings = born(jax.jit(f), jnp.array([1.0, -2.0]))
    assert findings and not any(advised(finding.origin) for finding in findings if finding.origin is not None)


def test_what_the_forward_pass_keeps_for_the_backward_pass_is_told_too():
    g = jax.jit(jax.grad(lambda x: jnp.sum(jnp.where(x > 0, jnp.sqrt(x), 0.0))))
    finding = born(g, jnp.array([1.0, -2.0]))[0]
    assert finding.origin.primitive == "sqrt" and advised(finding.origin)
