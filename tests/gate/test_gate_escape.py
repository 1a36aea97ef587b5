"""The gate at level ``escape``: transitions of carries, outputs and results, once a loop entry, lane by lane."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap_core as tap


def found(f, *args, gate="escape", **options):
    """(path, step vector, leaf) of every finding, sorted."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tap.record(gate=gate, **options) as rec:
            f(*args)
    for finding in rec.findings:
        assert finding.event.step == (finding.event.steps[-1] if finding.event.steps else -1)
    assert len(rec.events) == 0
    return sorted((f.event.path, f.event.steps, f.leaf) for f in rec.findings)


def without_results(findings):
    """Those of loops; the results of a program are judged besides."""
    return [f for f in findings if f[0]]


def sqrt_down(c, _):
    """1 less, through a square root: NaN as soon as what is below 1 has had its turn."""
    return jnp.sqrt(c) ** 2 - 1, None


def first_nan(x):
    """The step at which ``sqrt_down`` from ``x`` gives its first NaN."""
    step = 0
    while x >= 0:
        x, step = x - 1, step + 1
    return step


LOOPS = {
    "scan": lambda x: lax.scan(sqrt_down, x, None, length=9)[0],
    "reverse": lambda x: lax.scan(sqrt_down, x, jnp.arange(9.0), reverse=True)[0],
    "unrolled": lambda x: lax.scan(sqrt_down, x, None, length=9, unroll=4)[0],
    "fori": lambda x: lax.fori_loop(0, 9, lambda i, c: sqrt_down(c, i)[0], x),
    "while": lambda x: lax.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 1, sqrt_down(s[1], 0)[0]), (0, x))[1],
    "checkpointed": lambda x: lax.scan(jax.checkpoint(sqrt_down), x, None, length=9)[0],
}
LEAF = {"while": "s[1]"}


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("x", [0.5, 3.5])
def test_the_step_at_which_a_carry_turns_nan(kind, x):
    loops = without_results(found(jax.jit(LOOPS[kind]), x))
    path = "while[0]" if kind == "while" else "scan[0]"
    assert loops == [(path, (first_nan(x),), LEAF.get(kind, "c"))]


@pytest.mark.parametrize("kind", LOOPS)
def test_clean_programs_and_nans_that_came_in_find_nothing(kind):
    f = jax.jit(LOOPS[kind])
    assert found(f, 100.0) == []
    assert found(f, np.float32(np.nan)) == []


def test_eager_loops_are_gated_as_well():
    assert without_results(found(LOOPS["scan"], 2.5)) == [("scan[0]", (first_nan(2.5),), "c")]


def test_each_leaf_that_turns_is_found_once_and_the_others_not():
    def body(c, _):
        return {"a": sqrt_down(c["a"], 0)[0], "b": c["b"] + 1, "old": c["old"] * 2, "z": sqrt_down(c["z"], 0)[0]}, None

    f = jax.jit(lambda c: lax.scan(body, c, None, length=9)[0])
    start = {"a": np.float32(2.5), "b": 0.0, "old": np.float32(np.nan), "z": np.float32(0.5)}
    assert without_results(found(f, start)) == [
        ("scan[0]", (first_nan(0.5),), "c.z"),
        ("scan[0]", (first_nan(2.5),), "c.a"),
    ]


def test_an_inner_loop_is_judged_at_level_carry_alone_and_its_entries_are_one_finding():
    f = jax.jit(lambda xs: lax.map(LOOPS["scan"], xs))
    xs = jnp.array([2.5, 100.0, 0.5])
    outer = ("scan[0]", (0,), "out")  # the first step whose output is bad
    assert without_results(found(f, xs)) == [outer]
    # the first and the third entry go bad; the first tells
    assert without_results(found(f, xs, gate="carry")) == [outer, ("scan[0]/scan[0]", (0, first_nan(2.5)), "c")]
    with tap.record(gate="carry") as rec:
        f(xs)
    (inner,) = [finding for finding in rec.findings if finding.event.path == "scan[0]/scan[0]"]
    assert inner.entries == 2 and "and in 1 later entries of that loop" in str(inner).splitlines()[0]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_first_step_whose_output_is_bad_in_order_of_execution(reverse):
    xs = np.array([4.0, -1.0, 9.0, -2.0, 1.0], np.float32)
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (c + 1, {"root": jnp.sqrt(x), "x": x}), 0.0, xs, reverse=reverse))
    executed = xs[::-1] if reverse else xs
    first = int(np.argmax(executed < 0))
    assert without_results(found(f, xs)) == [("scan[0]", (first,), "out.root")]


def test_outputs_of_a_program_that_holds_nan_by_design_do_not_count():
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (c, jnp.where(x > 0, x, jnp.nan)), 0.0, xs))
    assert found(f, jnp.array([1.0, -1.0])) == []


def test_a_masked_nan_inside_a_body_does_not_escape():
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (c + jnp.where(x > 0, jnp.sqrt(x), 0.0), None), 0.0, xs)[0])
    assert found(f, jnp.array([4.0, -1.0, 1.0])) == []


def test_a_carry_that_recovers_is_found_all_the_same():
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (jnp.sqrt(x), None), 1.0, xs)[0])
    assert without_results(found(f, jnp.array([4.0, -1.0, 1.0]))) == [("scan[0]", (1,), "c")]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_other_dtypes(dtype):
    f = jax.jit(lambda x: lax.scan(lambda c, x: (c * x, None), jnp.ones((2,), dtype), x)[0])
    xs = np.array([1, 1, np.nan, 1])
    # an input that holds a NaN, but a carry that held none: a transition
    assert without_results(found(f, jnp.asarray(xs, dtype))) == [("scan[0]", (2,), "c")]


def test_inf_counts_only_when_asked():
    f = jax.jit(lambda x: lax.scan(lambda c, _: (c * 1e20, None), x, None, length=4)[0])
    with np.errstate(over="ignore"):
        first = next(i for i in range(4) if np.isinf(np.float32(10.0 ** (20 * (i + 1)))))
    assert found(f, 1.0) == []
    assert without_results(found(f, 1.0, inf=True)) == [("scan[0]", (first,), "c")]
    assert found(f, np.float32(np.inf), inf=True) == []


def per_lane(x, n):
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, sqrt_down(s[1], 0)[0]), (0, x))[1]


@pytest.mark.parametrize(
    ("xs", "ns"),
    [
        ([2.5, 0.5, 100.0], [9, 9, 9]),
        ([2.5, 0.5, 100.0], [2, 9, 9]),  # lane 0 stops before it turns
        ([2.5, 0.5, 100.0], [2, 0, 9]),  # lane 1 never runs
    ],
)
def test_lanes_that_have_finished_do_not_count(xs, ns):
    turned = [first_nan(x) for x, n in zip(xs, ns, strict=True) if first_nan(x) < n]
    expected = [("while[0]", (min(turned),), "s[1]")] if turned else []
    findings = without_results(found(jax.jit(jax.vmap(per_lane)), jnp.array(xs), jnp.array(ns)))
    assert findings == expected


def test_the_lane_of_a_finding():
    with tap.record(gate="escape") as rec:
        jax.jit(jax.vmap(per_lane))(jnp.array([100.0, 2.5, 0.5]), jnp.array([9, 9, 9]))
    (finding,) = [f for f in rec.findings if f.event.path]
    assert finding.event.lane == (2,)


def test_loops_in_the_branch_that_is_taken():
    f = jax.jit(lambda p, x: lax.cond(p, LOOPS["scan"], lambda x: x, x))
    assert without_results(found(f, True, 2.5)) == [("cond[0]/b1/scan[0]", (first_nan(2.5),), "c")]
    assert found(f, False, 2.5) == []


def test_results_of_programs_without_loops_and_of_eager_primitives():
    assert [f[:2] for f in found(jax.jit(lambda x: {"y": jnp.log(x)}), -1.0)] == [("", ())]
    assert [f[:2] for f in found(lambda x: lax.log(x), jnp.float32(-1))] == [("", ())]
    assert found(jax.jit(lambda x: jnp.log(x)), np.float32(np.nan)) == []
    assert found(jax.jit(lambda x: jnp.log(x)), 0.0) == []


def test_the_backward_pass_is_gated():
    # d sqrt(x) / dx at 0 is inf; times 0 it is NaN
    f = jax.grad(lambda x: lax.scan(lambda c, _: (c + jnp.sqrt(x) * 0.0, None), 1.0, None, length=3)[0])
    findings = found(jax.jit(f), 0.0)
    assert any("scan" in path for path, _, _ in findings) or [path for path, _, _ in findings] == [""]


def test_allowed_nans_are_not_found():
    f = jax.jit(LOOPS["scan"])
    with tap.record(gate="escape") as rec:
        f(100.0)
        with tap.allow_nan():
            f(2.5)
        f(100.0)
    assert rec.findings == []


def test_findings_name_program_and_call_in_the_order_they_ran():
    f = jax.jit(LOOPS["scan"])
    with tap.record(gate="escape") as rec:
        f(100.0), f(2.5), f(0.5)
    loops = [(x.event.program, x.event.call, x.event.steps) for x in rec.findings if x.event.path]
    assert loops == [("<lambda>", 1, (first_nan(2.5),)), ("<lambda>", 2, (first_nan(0.5),))]


@pytest.mark.parametrize(
    "library",
    [
        jnp.std,
        jnp.var,
        jnp.median,
        lambda x: jnp.quantile(x, 0.3),
        lambda x: jnp.interp(0.5, x, x),
        lambda x: jax.scipy.stats.beta.logpdf(0.5, x, x),
        lambda x: jax.scipy.special.gammainc(2.0, x),
        jax.jit(jax.grad(lambda x: jnp.var(x))),
    ],
)
@pytest.mark.parametrize("level", ["escape", "outputs"])
def test_a_nan_literal_of_the_library_does_not_make_the_gate_blind(library, level):
    program = jax.jit(lambda x: (jnp.log(x - 2), library(x)))
    good, bad = jnp.array([2.5, 4.0, 7.0]), jnp.array([1.5, 4.0, 7.0])
    with tap.record(gate=level) as rec:
        program(good)
    assert not rec.findings
    with tap.record(gate=level) as rec:
        program(bad)
    assert rec.findings[0].origin.primitive == "log"


@pytest.mark.parametrize(
    "sentinel",
    [
        lambda x: jnp.where(x > 3, x, jnp.nan),
        lambda x: x + jnp.full(3, jnp.nan),
        lambda x: x.at[0].set(jnp.nan),
        lambda x: jnp.maximum(x, jnp.nan),
        lambda x: lax.select(x > 3, x, jnp.full(3, jnp.nan)),
        lambda x: lax.cond(x[0] > 0, lambda x: x * jnp.nan, lambda x: x, x),
        jax.jit(lambda x: jnp.array([jnp.nan, 1, 2]) * x),
    ],
)
def test_a_nan_literal_of_the_users_is_one_by_design(sentinel):
    program = jax.jit(lambda x: sentinel(x) * jnp.var(x))
    with tap.record(gate="escape") as rec:
        assert np.isnan(program(jnp.array([2.5, 4.0, 7.0]))).any()
    assert not rec.findings


def test_eager_programs_of_python_numbers_are_judged():
    """Since jax 0.12 a Python number that enters an eager primitive has a dtype, and no size."""
    with tap.record(gate="escape") as rec:
        root = lax.custom_root(lambda x: x * x - 2.0, 1.0, lambda f, x: x + 0.5, lambda g, y: y / g(1.0))
        lax.scan(lambda c, _: (jnp.sqrt(c) - 1, None), 1.0, length=4)
    assert root == 1.5
    assert [(f.event.path, f.event.step) for f in rec.findings if f.event.path] == [("scan[0]", 2)]
