"""What people hit (the reports behind each test are named): NaN, Inf, and loops that do not end.

Each test is one report, told by the public gate on an unmodified program; primitive, step, lane, line and reason are
known from pencil or NumPy.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtap_core as tap


def findings(f, *args, **options):
    """What the gate finds while ``f(*args)`` runs; warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tap.record(**{"gate": "escape", **options}) as rec:
            jax.block_until_ready(f(*args))
    return rec.findings


def line_of(f, text: str) -> str:
    """``file.py:line (function)`` of the line of ``f`` that holds ``text``."""
    lines, first = inspect.getsourcelines(f)
    return f"{os.path.basename(__file__)}:{first + next(i for i, line in enumerate(lines) if text in line)} "


# -- NaN and Inf


def test_a_nan_in_a_scan_has_path_step_lane_primitive_line_and_operands():
    """#5696, #7634: "nan in scan", and nothing more."""

    def walk(level, drift):
        def body(level, t):
            root = jnp.sqrt(level - drift * t)
            return root, root

        return lax.scan(body, level, jnp.arange(6.0))

    # lane 1, by hand: sqrt(4) = 2, sqrt(2 - 1) = 1, and the root of 1 - 2 at step 2; lane 0 goes 2, 1.41, 1.19, ...;
    # lane 2 goes 3, sqrt(2.9) = 1.70, ...
    levels, drifts = jnp.array([4.0, 4.0, 9.0]), jnp.array([0.0, 1.0, 0.1])
    found = findings(jax.jit(jax.vmap(walk)), levels, drifts)[0]
    assert (found.event.path, found.event.step, found.event.total) == ("scan[0]", 2, 6)
    assert (found.count, found.size, found.first_index) == (1, 3, (1,))
    assert found.last_good == {"step": 1, "min": 1.0, "max": pytest.approx(np.sqrt(2.9))}
    origin = found.origin
    assert (origin.primitive, origin.path, origin.steps) == ("sqrt", "scan[0]/sqrt[0]", (2,))
    assert origin.source.startswith(line_of(walk, "jnp.sqrt"))
    assert origin.operands[0]["element"] == -1.0 and origin.operands[0]["index"] == (1,)
    assert origin.reason == "sqrt of a negative number (-1)"


def test_a_nan_of_the_backward_pass_has_its_reversed_step_and_the_forward_line():
    """diffrax#742, #475: "a lot like guess work"."""

    def loss(scale):
        def body(total, x):
            distance = jnp.sqrt(x * scale)
            return total + distance, None

        return lax.scan(body, 0.0, jnp.array([1.0, 4.0, 9.0, 0.0, 16.0, 25.0]))[0]

    # row 3 of 6 is the third iteration from the end: step 2; d sqrt(x s)/ds = x / (2 sqrt(x s)) = 0 / 0
    found = findings(jax.jit(jax.grad(loss)), 1.0)[0]
    assert (found.event.path, found.event.step, found.event.phase) == ("scan[1]", 2, "backward")
    origin = found.origin
    assert origin.path.startswith("scan[1]/") and origin.steps == (2,) and origin.phase == "backward"
    assert origin.source.startswith(line_of(loss, "jnp.sqrt"))
    assert origin.reason.startswith("0 * inf")
    assert "where" not in origin.advice


def test_a_where_whose_other_branch_makes_the_gradient_nan_gets_the_double_where_advice():
    """#347, #1052, #5798, #20601."""

    def safe_log(x):
        return jnp.sum(jnp.where(x > 0, jnp.log(x) * x, 0.0))

    assert np.isfinite(safe_log(jnp.array([2.0, 0.0])))
    found = findings(jax.jit(jax.grad(safe_log)), jnp.array([2.0, 0.0]))[0]
    assert (found.count, found.size, found.first_index) == (1, 2, (1,))
    assert found.origin.phase == "backward" and found.origin.source.startswith(line_of(safe_log, "jnp.log"))
    assert "the cotangent of a where branch that was not taken" in found.origin.reason
    assert "jnp.where(ok, f(jnp.where(ok, x, 1.0)), other)" in found.origin.advice


def test_a_masked_nan_raises_no_alarm_and_is_listed_at_level_born():
    """#5698."""
    f = jax.jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0))
    x = jnp.array([1.0, -2.0])
    assert findings(f, x) == []
    (found,) = findings(f, x, gate="born")
    assert found.masked and "masked by select" in str(found).splitlines()[0]
    assert found.event.path == "log[0]" and "log of a negative number (-2)" in found.origin.reason


def test_nan_sentinels_by_design_raise_no_alarm():
    """probdiffeq#124: only transitions count."""

    def solve(xs):
        history = jnp.full((4,), jnp.nan)  # not yet computed

        def body(carry, t):
            history, x = carry
            return (history.at[t].set(x), x * 0.5), jnp.where(t % 2 == 0, x, jnp.nan)

        return lax.scan(body, (history, xs), jnp.arange(2))

    assert findings(jax.jit(solve), 1.0) == []
    missing = jnp.array([1.0, jnp.nan, 2.0])  # among the data
    assert findings(jax.jit(lambda x: lax.scan(lambda c, v: (jnp.nansum(v) + c, v), 0.0, x)), missing) == []


@pytest.mark.parametrize("level", ["escape", "outputs", "born"])
def test_attention_masks_of_minus_infinity_raise_no_alarm(level):
    """#37422: Inf is apart from NaN."""

    def attention(q, k, v):
        scores = q @ k.T + jnp.where(jnp.tril(jnp.ones((3, 3))) > 0, 0.0, -jnp.inf)
        return jax.nn.softmax(scores) @ v

    q = jnp.eye(3)
    assert findings(jax.jit(attention), q, q, q, gate=level) == []
    assert findings(jax.jit(lambda x: jnp.log(x)), jnp.zeros(2), gate=level) == []
    assert [f.kind for f in findings(jax.jit(lambda x: jnp.log(x)), jnp.zeros(2), gate=level, inf=True)] == ["inf"]


class Moody:
    """A host function that gives NaN at its first call alone."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return np.float32(np.nan if self.calls == 1 else 1.0)


def test_the_evidence_comes_from_the_program_that_failed_though_a_second_run_is_clean():
    """#6482, #24955, #25299: another program is run instead, and nothing found."""
    moody = Moody()

    def step(x):
        return x + jax.pure_callback(moody, jax.ShapeDtypeStruct((), jnp.float32), x)

    found = findings(jax.jit(step), 1.0)[0]
    assert (found.kind, found.event.program, found.leaf) == ("nan", "step", "result")
    assert moody.calls >= 2 and not found.origin.reproduced and not found.origin.primitive
    assert "a second run of the same program did not give it again" in found.origin.reason


def test_a_loop_whose_replay_disagrees_is_said_to_depend_on_fusion():
    """The same, of a carry: its step is known from the failing run."""
    moody = Moody()

    def program(x):
        body = lambda c, _: (c + jax.pure_callback(moody, jax.ShapeDtypeStruct((), jnp.float32), c), None)
        return lax.scan(body, x, None, length=4)[0]

    found = findings(jax.jit(program), jnp.float32(0))[0]
    assert (found.event.path, found.event.step, found.leaf) == ("scan[0]", 0, "c")
    assert not found.origin.reproduced and "depends on how XLA fuses" in found.origin.reason


@pytest.mark.parametrize("where", ["with", "without"])
def test_a_nan_that_is_there_only_with_or_only_without_jit_is_said_to_be(where):
    """#3443."""

    def program(x):
        traced = isinstance(x, jax.core.Tracer)
        return jnp.log(x) if traced == (where == "with") else jnp.log(jnp.abs(x))

    found = tap.find_origin(program, jnp.float32(-2.0))
    assert found.origin.reason == f"log of a negative number (-2); it is there only {where} jit"
    both = tap.find_origin(lambda x: jnp.log(x), jnp.float32(-2.0))
    assert "only" not in both.origin.reason


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
import jaxtap_core as tap

x = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0, -6.0, 7.0, 8.0])  # element 5 belongs to shard 2 of 4

def root(x):
    return jnp.sqrt(x)

mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
with tap.record(gate="escape") as rec:
    jax.jit(jax.shard_map(root, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(x).block_until_ready()
    jax.pmap(root)(x.reshape(4, 2)).block_until_ready()
for found, index in zip(rec.findings[:2], [(5,), (2, 1)], strict=True):
    assert found.first_index == index, found
    assert found.origin.primitive == "sqrt" and "(root)" in found.origin.source
    assert found.origin.reason == "sqrt of a negative number (-6); on shard 2 of 4", found.origin
"""


def test_a_nan_under_shard_map_or_pmap_names_the_shard():
    """#2611, #26796: no location at all."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHARDED)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_donation_is_untouched_in_the_block_and_after_it():
    """#12514: a debugging flag switched it off, for good."""
    step = jax.jit(lambda x: jnp.sqrt(x - 3.0), donate_argnums=0)

    def run():
        x = jnp.full(4, 4.0)
        step(x).block_until_ready()
        return x.is_deleted()

    before = run()
    with tap.record(gate="escape") as rec:
        inside = run()
        step(jnp.zeros(4)).block_until_ready()
    assert (before, inside, run()) == (True, True, True)
    assert rec.findings[0].origin.reason == "inputs were donated"


def test_a_while_under_vmap_is_judged_lane_by_lane():
    """#11905: checks are refused there."""

    def settle(x, limit):
        return lax.while_loop(lambda s: s[0] < limit, lambda s: (s[0] + 1, jnp.log(s[1])), (0, x))[1]

    # lane 0 stops before its log of -0.37; lane 2 takes it at step 2: 2 -> 0.69 -> -0.37
    x = np.array([2.0, 1e9, 2.0], np.float32)
    assert np.log(np.log(2.0)) < 0 < np.log(np.log(np.log(1e9)))
    found = findings(jax.jit(jax.vmap(settle)), jnp.asarray(x), jnp.array([2, 3, 5]))[0]
    assert (found.event.path, found.event.step, found.event.lane) == ("while[0]", 2, (2,))
    assert (found.origin.primitive, found.origin.lane, found.origin.steps) == ("log", (2,), (2,))
    assert found.origin.operands[0]["element"] == pytest.approx(np.log(np.log(2.0)), abs=1e-6)


def test_a_subnormal_flushed_to_zero_is_named_as_the_cause():
    """#37762, #26658: log(1e-40) is -inf here, and -92.1 in NumPy."""
    assert np.isfinite(np.log(np.float32(1e-40)))
    found = findings(jax.jit(lambda x: jnp.log(x)), np.float32(1e-40), inf=True)[0]
    assert found.kind == "inf" and found.origin.primitive == "log"
    assert "a subnormal float32 number, which XLA flushes to zero (NumPy does not)" in found.origin.reason
    # and where it only later gives a NaN: 0 * inf
    found = findings(jax.jit(lambda x: jnp.log(x) * (x - x)), np.float32(1e-40))[0]
    assert found.origin.reason.startswith("0 * inf; the inf is made by log") and "subnormal" in found.origin.reason


# -- loops that do not end, or end without an answer


def test_the_branch_that_vmap_never_takes_and_never_leaves_is_stopped_and_named():
    """#2947: vmap makes a select of the cond, and the loop in the other branch runs for ever."""

    def one(x):
        def climb(x):
            return lax.while_loop(lambda c: c < 10, lambda c: c + x, x)

        return lax.cond(x > 0, climb, lambda x: x, x)

    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=40):
        jax.jit(jax.vmap(one))(jnp.array([1.0, -1.0, 2.0]))
    error = caught.value
    assert (error.path, error.lane, error.trips, error.verdict) == ("while[0]", (1,), 40, "too long")
    assert error.carry["c"] == -41.0  # of that lane: -1 after 40 steps of -1; the others have ended
    assert str(error).startswith("while[0] of lane [1] did not end within 40 trips, at test_cases.py:")


def test_a_predicate_that_a_nan_keeps_constant_is_told_with_the_origin_of_the_nan():
    """numpyro#249."""

    def search(x):
        def body(c):
            return jnp.sqrt(c) - 1.0

        return lax.while_loop(lambda c: ~(c < -5), body, x)

    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=30):
        jax.jit(search)(9.0)
    error = caught.value  # 9 -> 2 -> 0.41 -> -0.36, and its root is taken at step 3
    assert (error.path, error.verdict, np.isnan(float(error.carry["c"]))) == ("while[0]", "nan", True)
    assert (error.finding.event.step, error.finding.origin.primitive) == (3, "sqrt")
    assert error.finding.origin.source.startswith(line_of(search, "jnp.sqrt"))
    assert "sqrt of a negative number (-0.356" in str(error)


def test_a_tolerance_below_the_precision_is_told_by_the_step_at_which_nothing_changed_any_more():
    """mujoco_warp#1162: it runs to its cap."""

    def newton_root(x):  # of 2: in float32 the steps come to rest, an ulp or so from the root
        return lax.while_loop(lambda c: jnp.abs(c * c - 2.0) > 1e-12, lambda c: c - (c * c - 2.0) / (2.0 * c), x)

    value, step = np.float32(3.0), 0
    while True:
        new = np.float32(value - np.float32(value * value - np.float32(2)) / np.float32(np.float32(2) * value))
        if new == value:
            break
        value, step = new, step + 1
    with pytest.raises(tap.LoopBudgetExceeded) as caught, tap.record(max_trips=50):
        jax.jit(newton_root)(3.0)
    error = caught.value
    assert error.verdict == "unchanged" and abs(error.since - step) <= 1  # one more or less, as it is rounded
    assert float(error.carry["c"]) == pytest.approx(np.sqrt(2), rel=1e-6)
    assert f"the carry had stopped changing at step {error.since}" in str(error)
