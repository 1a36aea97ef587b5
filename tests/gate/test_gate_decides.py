"""What the gate does not hold against a program: what it was given, what selects drop, what production never computes.

Each case stands with its twin, in which the same NaN counts.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap_core as tap

NAN = np.float32(np.nan)


def gated(f, *args, gate="escape", **options):
    with tap.record(gate=gate, **options) as rec:
        f(*args)
    return rec.findings


def born(findings):
    """The primitives that made what is held against a program."""
    return sorted(f.origin.primitive for f in findings if not f.masked and f.origin is not None)


# -- excuses follow the data: (program, inputs, the primitives to blame)

GIVEN = {
    "a literal beside it": (lambda w, d: (jnp.log(w - 1), jnp.where(d, 1.0, jnp.nan)), (0.5, False), ["log"]),
    "a literal that is the result": (lambda x, d: jnp.where(d, x, jnp.nan), (1.0, False), []),
    "an input beside it": (lambda w, b: (jnp.log(w - 1), jnp.fmin(b, w)), (0.5, NAN), ["log"]),
    "an input that is the result": (lambda w, b: (w + 1, b * 2), (0.5, NAN), []),
    "an input in another element": (lambda x: jnp.log(x), (np.array([NAN, -1.0], np.float32),), ["log"]),
    "an input moved about": (lambda x: jnp.flip(x.reshape(2, 2).T)[0], (np.array([1, 2, 3, NAN], np.float32),), []),
    "an input summed with what is born": (lambda x: jnp.log(x).sum(), (np.array([NAN, -1.0], np.float32),), ["log"]),
    "a mean of nothing but NaN": (lambda x: jnp.nanmean(x), (np.full(3, NAN),), []),
    "a mean that ignores NaN, of none": (
        lambda x: jnp.log(jnp.nanmean(x)),
        (np.array([-1, NAN], np.float32),),
        ["log"],
    ),
    "a constant of the library": (lambda x: jnp.var(x, ddof=1), (np.ones(1, np.float32),), ["div"]),
    "zero times a NaN that was selected away": (
        jax.grad(lambda w, x: jnp.where(jnp.isnan(x), 0.0, w * x).sum()),
        (1.0, np.array([1, NAN], np.float32)),
        ["mul"],
    ),
    "a dot with a given row": (
        lambda a, b: a @ b,
        (np.array([[1, NAN], [1, 2]], np.float32), np.ones(2, np.float32)),
        [],
    ),
    "an output of a scan by its input": (
        lambda xs: lax.scan(lambda c, x: (c + 1, x * 2), 0.0, xs)[1],
        (np.array([1, NAN], np.float32),),
        [],
    ),
    "an output of a scan, another by its input": (
        lambda xs: lax.scan(lambda c, x: (c + 1, (x * 2, jnp.log(c - 1))), 0.0, xs),
        (np.array([1, NAN], np.float32),),
        ["log"],
    ),
    "a branch that fills": (
        lambda x, p: lax.cond(p, functools.partial(jnp.full_like, fill_value=jnp.nan), lambda y: y, x),
        (1.0, True),
        [],
    ),
    "a branch that fills a tree": (
        lambda x, p: lax.cond(p, functools.partial(jax.tree.map, lambda y: jnp.full_like(y, jnp.nan)), lambda y: y, x),
        (1.0, True),
        [],
    ),
    "a branch that computes": (lambda x, p: lax.cond(p, jnp.log, lambda y: y, x), (-1.0, True), ["log"]),
}


@pytest.mark.parametrize("case", GIVEN)
def test_what_a_program_was_given_excuses_what_it_reaches_and_nothing_else(case):
    f, args, blamed = GIVEN[case]
    found = gated(jax.jit(f), *args)
    if case == "a constant of the library":
        assert len(found) == 1  # whichever equation of the library is named
    else:
        assert born(found) == blamed


# -- what every use after the loop selects away

XS = np.array([1.0, -1.0, 4.0], np.float32)
ROOTS = lambda xs: lax.map(jnp.sqrt, xs)
DROPPED = {
    "where": lambda xs: jnp.where(xs > 0, ROOTS(xs), 0.0),
    "nan_to_num": lambda xs: jnp.nan_to_num(ROOTS(xs)),
    "nanmax": lambda xs: jnp.nanmax(ROOTS(xs)),
    "nansum": lambda xs: jnp.nansum(ROOTS(xs)),
    "a gather of sound elements": lambda xs: ROOTS(xs)[jnp.array([0, 2])],
    "a slice of sound elements": lambda xs: ROOTS(xs)[2:],
    "a comparison": lambda xs: xs + (ROOTS(xs) > 1),
    "a last carry that is not used": lambda xs: lax.scan(lambda c, x: (jnp.sqrt(x) + 0 * c, x), 0.0, xs)[1],
    "a where in a branch": lambda xs: lax.cond(xs[0] > 0, lambda y: jnp.where(xs > 0, y, 0.0), lambda y: y, ROOTS(xs)),
    "a later loop": lambda xs: lax.scan(lambda c, x: (c + jnp.where(x > 0, x, 0.0), None), 0.0, ROOTS(xs))[0],
}
KEPT = {
    "added": lambda xs: ROOTS(xs) + 1,
    "where of another element": lambda xs: (y := ROOTS(xs), jnp.where(xs > 2, y, y * 2))[1],
    "a gather of the bad element": lambda xs: ROOTS(xs)[jnp.array([0, 1])],
    "a carry that heals": lambda xs: lax.scan(lambda c, x: (jnp.sqrt(x), None), 1.0, xs)[0],
    "a later loop that carries it": lambda xs: lax.scan(lambda c, x: (c + x, None), 0.0, ROOTS(xs))[0],
}


@pytest.mark.parametrize("case", DROPPED)
def test_a_nan_that_every_use_after_the_loop_drops_is_masked(case):
    found = gated(jax.jit(DROPPED[case]), XS)
    assert [f for f in found if not f.masked] == []


@pytest.mark.parametrize("case", KEPT)
def test_a_nan_that_is_kept_counts(case):
    found = gated(jax.jit(KEPT[case]), XS)
    assert found and not found[0].masked and found[0].event.path == "scan[0]" and found[0].event.step == 1


def test_a_loop_that_tells_of_a_nan_leaves_nothing_to_say_of_the_result():
    found = gated(jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.log(c), x) * 2), 1.0)
    assert [f.event.path for f in found] == ["scan[0]"]
    two = gated(jax.jit(lambda x: (lax.fori_loop(0, 3, lambda i, c: jnp.log(c), x), jnp.sqrt(x - 2))), 1.0)
    assert [f.event.path for f in two] == ["scan[0]", ""]


# -- what production never computes


@pytest.mark.parametrize("gate", ["escape", "carry", "born"])
@pytest.mark.parametrize("used", [False, True])
def test_dead_code_is_not_judged(gate, used):
    def f(x):
        log = jnp.log(x - 1)
        a, b, _ = lax.fori_loop(0, 3, lambda i, s: (s[0] + 1, jnp.log(s[1]), s[2] * 2), (x, x - 1, x))
        return (a, b, log) if used else a

    assert bool(gated(jax.jit(f), 0.5, gate=gate)) == used


def test_a_state_that_is_dead_after_the_loop_counts_at_level_carry_alone():
    # the last loss steers the next step, and nobody looks at it after the last one
    body = lambda s, x: ((jnp.where(s[1] > 0, x, s[0]), jnp.log(x)), None)
    f = jax.jit(lambda xs: lax.scan(body, (0.0, 1.0), xs)[0][0])
    assert gated(f, XS) == []
    assert [(x.event.path, x.event.step) for x in gated(f, XS, gate="carry")] == [("scan[0]", 1)]


def test_trial_states_of_an_inner_loop_count_at_level_carry_alone():
    def step(c, x):
        trial = lax.fori_loop(0, 2, lambda i, t: jnp.log(t), x)
        return jnp.where(jnp.isnan(trial), c, trial), None

    f = jax.jit(lambda xs: lax.scan(step, 1.0, xs)[0])
    assert gated(f, XS) == []
    (inner,) = gated(f, XS, gate="carry")
    # log log 1 = -inf, then log of -1 is NaN at once, log log 4 is sound
    assert (inner.event.path, inner.event.steps, inner.entries) == ("scan[0]/scan[0]", (1, 0), 1)


# -- order


def test_what_fails_comes_before_what_does_not_then_by_time():
    def f(xs):
        masked = jnp.where(xs > 0, ROOTS(xs), 0.0)  # bad at step 1, dropped
        late = lax.scan(lambda c, x: (jnp.where(c > 2, jnp.sqrt(-c), c + 1), None), 0.0, xs)[0]
        early = lax.scan(lambda c, x: (jnp.sqrt(x), None), 1.0, xs)[0]
        return masked, late, early

    found = gated(jax.jit(f), np.array([1, -1, 4, 1], np.float32))
    assert [(x.event.path, x.event.step, x.masked) for x in found] == [
        ("scan[1]", 3, False),
        ("scan[2]", 1, False),
        ("scan[0]", 1, True),
    ]
    assert found[0].origin is not None
