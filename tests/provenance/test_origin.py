"""Where a NaN was born: step, primitive, lane, line and reason are known from pencil or NumPy."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxtap_core.api.origin import find_origin
from jaxtap_core.provenance.locate import Explanation, Target, explain_target


def explained(f, *args, kind="result", path="", steps=(), index=0, bad="nan", lane=None) -> Explanation:
    """The explanation of a target of the traced ``f``."""
    return explain_target(jax.make_jaxpr(f)(*args), jax.tree.leaves(args), Target(kind, path, steps, index, bad, lane))


def line_of(f, text: str) -> str:
    """``file.py:line`` of the line of ``f`` that holds ``text``."""
    lines, first = inspect.getsourcelines(f)
    return f"test_origin.py:{first + next(i for i, line in enumerate(lines) if text in line)} "


def numpy_walk(x: float) -> int:
    """The first step at which 0.1 taken from ``x`` again and again, in float32, is negative."""
    value, step = np.float32(x), 0
    while (value := np.float32(value - np.float32(0.1))) >= 0:
        step += 1
    return step


# -- loops


def scanned(x):
    def body(c, _):
        c = c - 0.1
        return c, jnp.log(c)

    return lax.scan(body, x, None, length=20)


def test_a_nan_in_a_scan_has_its_step_primitive_line_and_operand():
    step = numpy_walk(0.75)
    found = explained(scanned, jnp.float32(0.75), kind="output", path="scan[0]", steps=(None,))
    origin = found.origin
    assert (origin.primitive, origin.path, origin.steps) == ("log", "scan[0]/log[0]", (step,))
    assert origin.source.startswith(line_of(scanned, "jnp.log(c)")) and "(body)" in origin.source
    assert "log of a negative number" in origin.reason and origin.reproduced
    assert origin.operands[0]["element"] == pytest.approx(0.75 - 0.1 * (step + 1), abs=1e-6)
    assert found.step == step
    assert found.last_good["step"] == step - 1
    assert found.last_good["min"] == pytest.approx(np.log(0.75 - 0.1 * step), abs=1e-5)


def test_a_result_stacked_by_a_scan_leads_to_the_first_bad_step():
    found = explained(scanned, jnp.float32(0.75), index=1)
    step = numpy_walk(0.75)
    assert found.origin.steps == (step,)
    assert (found.count, found.size, found.first_index) == (20 - step, 20, (step,))


def nested(x):
    def inner(state):
        i, v = state
        return i + 1, jnp.sqrt(v) - 0.3

    def body(c, t):
        _, v = lax.while_loop(lambda state: state[0] < 3, inner, (0, c))
        return v + 0.1 * t, v

    return lax.scan(body, x, -jnp.arange(20.0) / 10)


def numpy_nested(x: float) -> tuple[int, int]:
    """Outer and inner step at which the root of a negative number is taken."""
    for outer in range(20):
        for inner in range(3):
            if x < 0:
                return outer, inner
            x = np.sqrt(x) - 0.3
        x = x - 0.01 * outer
    raise AssertionError


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"kind": "carry", "path": "scan[0]", "steps": (4,)},
        {"kind": "carry", "path": "scan[0]/while[0]", "steps": (4, 0), "index": 1},
    ],
)
def test_a_while_in_a_scan_is_followed_to_the_step_of_both(target):
    origin = explained(nested, jnp.float32(3.0), **target).origin
    assert (origin.primitive, origin.path) == ("sqrt", "scan[0]/while[0]/sqrt[0]")
    assert origin.steps == numpy_nested(3.0) == (4, 0)
    assert origin.source.startswith(line_of(nested, "jnp.sqrt(v)"))


def test_a_reverse_scan_counts_iterations_not_rows():
    xs = np.array([1.0, 0.0, 2.0, 3.0], np.float32)

    def program(x):
        return lax.scan(lambda c, t: (c, c / t), x, xs, reverse=True)

    found = explained(program, jnp.float32(0.0), index=1)
    assert found.first_index == (1,)
    assert found.origin.steps == (len(xs) - 1 - 1,)
    assert found.origin.reason == "0/0"
    again = explained(program, jnp.float32(0.0), kind="output", path="scan[0]", steps=(None,))
    assert again.step == 2 and again.last_good == {"step": 1, "min": 0.0, "max": 0.0}


def test_a_nan_handed_from_leaf_to_leaf_is_followed_to_the_step_that_made_it():
    def program(x):
        def body(carry, t):
            a, b, c = carry
            return (b, c, jnp.sqrt(4.5 - t)), a  # a NaN made at step 5 reaches ``a`` at step 7

        return lax.scan(body, (x, x, x), jnp.arange(10.0))

    origin = explained(program, jnp.float32(1.0), kind="carry", path="scan[0]", steps=(7,)).origin
    assert (origin.primitive, origin.steps) == ("sqrt", (5,))


def test_a_nan_that_moves_through_an_array_is_followed_element_by_element():
    def program(x):
        def body(c, t):
            c = jnp.roll(c, 1)
            return c.at[0].set(jnp.where(t == 3, jnp.log(-t), t)), c[-1]

        return lax.scan(body, x, jnp.arange(12.0))

    found = explained(program, jnp.zeros(8), index=1)
    assert found.first_index == (10,)  # element 0 at step 3 is element 7, the last, at step 10
    assert found.origin.steps == (3,) and found.origin.primitive == "log"


def test_a_leaf_that_recovered_is_blamed_for_its_last_relapse():
    def program(x):
        def body(c, t):
            bad = (t == 2) | (t == 6)
            return jnp.where(bad, jnp.sqrt(-t), t), c

        return lax.scan(body, x, jnp.arange(10.0))

    origin = explained(lambda x: program(x)[1][7], jnp.float32(0)).origin
    assert origin.primitive == "sqrt" and origin.steps == (6,)


def test_a_nan_from_before_the_loop_is_not_blamed_on_it():
    def program(x):
        y = jnp.sqrt(x)
        return lax.scan(lambda c, t: (c + t, c), y, jnp.arange(3.0))

    origin = explained(program, jnp.float32(-1.0)).origin
    assert (origin.primitive, origin.path, origin.steps) == ("sqrt", "sqrt[0]", ())


# -- lanes


def lanes(x):
    def one(x, n):
        body = lambda s: (s[0] + 1, jnp.sqrt(s[1] - 1.0), s[2])
        return lax.while_loop(lambda s: s[0] < s[2], body, (0, x, n))[1]

    return jax.vmap(one)(x, jnp.array([3, 1, 3, 3]))


def test_a_while_under_vmap_names_the_lane_and_forgets_the_finished_ones():
    # lane 1 has finished after one step, at 0; the batched body goes on taking roots of -1 there
    x = jnp.array([900.0, 1.0, 1e4, 3.0])
    origin = explained(lanes, x).origin
    assert (origin.primitive, origin.path) == ("sqrt", "while[0]/sqrt[0]")
    assert (origin.lane, origin.steps) == (
        (3,),
        (2,),
    )  # 3 -> sqrt 2 -> sqrt 0.414.. -> root of -0.356
    assert origin.operands[0]["element"] == pytest.approx(np.sqrt(np.sqrt(2) - 1) - 1, abs=1e-6)
    met = explained(lanes, x, kind="carry", path="while[0]", steps=(2,), index=1, lane=(3,))
    assert met.origin.lane == (3,) and (met.count, met.size) == (1, 4)


def test_a_nan_of_one_lane_is_not_blamed_on_another():
    def program(x):
        y = jnp.log(x)  # bad in lane 0, where it is not used
        z = jnp.where(x < 0, 0.0, y)
        return jnp.sqrt(z - 1.0)  # bad in lane 1

    origin = explained(program, jnp.array([-1.0, 2.0, 9.0])[1:]).origin
    assert origin.primitive == "sqrt"
    both = jax.make_jaxpr(program)(jnp.array([-5.0, 2.0, 9.0]))
    origin = explain_target(both, [jnp.array([-5.0, 2.0, 9.0])], Target("result", "", (), 0)).origin
    assert origin.primitive == "sqrt" and origin.operands[0]["element"] == -1.0


# -- branches, calls, custom rules


def test_the_branch_that_was_taken_is_entered():
    def program(x, k):
        return lax.switch(k, [lambda x: x, lambda x: jnp.log(x), lambda x: 2 * x], x)

    origin = explained(program, jnp.float32(-3), jnp.int32(1)).origin
    assert (origin.primitive, origin.path) == ("log", "cond[0]/b1/log[0]")


def test_custom_rules_checkpoint_and_jit_are_looked_through():
    def program(x):
        inner = jax.jit(lambda x: jnp.arccos(x))
        return jnp.logaddexp(jax.checkpoint(inner)(x), 0.0)

    origin = explained(program, jnp.float32(1.5)).origin
    assert origin.primitive == "acos"
    assert "outside [-1, 1] (1.5)" in origin.reason
    assert origin.source.startswith(line_of(program, "arccos"))


def test_a_nan_born_inside_a_custom_rule_is_found_there():
    # logaddexp(inf, -inf): its body subtracts the two
    origin = explained(lambda x: jnp.logaddexp(x, x), jnp.float32(np.inf), bad="inf").origin
    assert "argument 'x'" in origin.reason


def test_a_nan_in_complex_numbers():
    def program(x):
        z = x * (1 + 2j)
        return z / z

    origin = explained(program, jnp.float32(0)).origin
    assert origin.primitive == "div" and origin.reason.startswith("0/0")


def test_a_nan_that_was_given_is_said_to_be_given():
    origin = explained(lambda x, y: x + 2 * y, jnp.ones(3), jnp.array([1.0, jnp.nan, 2.0])).origin
    assert origin.primitive == ""
    assert "argument 'y'[1] is NaN" in origin.reason


def test_a_constant_nan_is_named_as_such():
    origin = explained(lambda x: jnp.where(x > 0, x, jnp.nan), jnp.array([1.0, -1.0])).origin
    assert origin.primitive == "select_n" and "constant" in origin.reason


def test_a_tap_on_a_primitive_inside_a_loop():
    found = explained(
        scanned,
        jnp.float32(0.75),
        kind="primitive",
        path="scan[0]/log[0]",
        steps=(numpy_walk(0.75),),
    )
    assert found.origin.path == "scan[0]/log[0]" and found.origin.steps == (numpy_walk(0.75),)


def test_a_nan_in_a_predicate():
    def program(x):
        return lax.while_loop(lambda s: jnp.sqrt(s) < 5.0, lambda s: s - 1.0, x)

    target = {"kind": "primitive", "path": "while[0]/pred/sqrt[0]", "steps": (3,)}
    origin = explained(program, jnp.float32(2.5), **target).origin
    assert origin.path == "while[0]/pred/sqrt[0]" and origin.operands[0]["element"] == -0.5


# -- backward


def unsafe(x):
    return jnp.sum(jnp.where(x > 0, jnp.sqrt(x), 0.0))


def test_a_where_gradient_gets_the_double_where_advice_and_the_forward_line():
    found = explained(jax.grad(unsafe), jnp.array([1.0, 0.0, 2.0]))
    origin = found.origin
    assert found.first_index == (1,) and origin.phase == "backward"
    assert origin.reason.startswith("0 * inf in the backward pass")
    assert "where branch that was not taken" in origin.reason
    assert "division of 0.5 by 0" in origin.reason
    assert "jnp.where(ok, x, 1.0)" in origin.advice
    assert origin.source.startswith(line_of(unsafe, "jnp.sqrt"))


def guarded_scan(w):
    def body(c, x):
        c = jnp.where(x > 0, jnp.sqrt(x * w) * c, c)
        return c, None

    return lax.scan(body, 1.0, jnp.array([1.0, 2.0, 0.0, 3.0]))[0]


def test_a_where_gradient_in_a_scan_has_its_reversed_step():
    origin = explained(jax.grad(guarded_scan), jnp.float32(1.0)).origin
    assert origin.phase == "backward" and origin.steps == (1,)  # row 2 of 4, seen from the end
    assert origin.path.startswith("scan[1]/")
    assert "where branch that was not taken" in origin.reason
    assert origin.source.startswith(line_of(guarded_scan, "jnp.sqrt"))


def test_a_gradient_that_is_infinite_itself_gets_no_where_advice():
    origin = explained(jax.grad(lambda x: jnp.sqrt(jnp.sum(x * x))), jnp.zeros(3)).origin
    assert origin.phase == "backward" and "0 * inf" in origin.reason
    assert "where" not in origin.reason


# -- not reproduced


def test_donated_inputs_are_said_to_be_gone():
    x = jnp.float32(-1.0)
    jaxpr = jax.make_jaxpr(jnp.log)(x)
    x.delete()
    origin = explain_target(jaxpr, [x], Target("result", "", (), 0)).origin
    assert not origin.reproduced and origin.reason == "inputs were donated"
    assert "jaxtap_keep_donated" in origin.advice


def test_a_nan_that_does_not_come_again_is_not_explained_away():
    found = explained(scanned, jnp.float32(100.0), kind="carry", path="scan[0]", steps=(3,))
    assert not found.origin.reproduced and "depends on how XLA fuses" in found.origin.reason


def test_what_is_there_only_without_jit_is_said_to_be():
    # inf - inf, unless the first product is fused into the difference; too big, unless the
    # constants are multiplied first. Which of them XLA does depends on its release.
    fused = lambda x: x * (x + 1) - (2 * x) * (3 * x)
    folded = lambda x: x * 1e30 * 1e-30
    differing = 0
    for program, x, bad in ((fused, 1e30, "nan"), (folded, 1e20, "inf")):
        x, test = jnp.float32(x), {"nan": np.isnan, "inf": np.isinf}[bad]
        if test(program(x)) and not test(jax.jit(program)(x)):
            differing += 1
            origin = explained(program, x, bad=bad).origin
            assert not origin.reproduced and "without jit, it is there" in origin.reason
    if not differing:
        pytest.skip("here jit gives what Python gives")


def test_debug_callbacks_are_not_repeated():
    seen = []

    def program(x):
        def body(c, t):
            jax.debug.callback(lambda v: seen.append(float(v)), c)
            return jnp.sqrt(c - 1), c

        return lax.scan(body, x, None, length=4)

    origin = explained(program, jnp.float32(2.5)).origin
    assert origin.primitive == "sqrt" and origin.steps == (2,)
    jax.effects_barrier()
    assert seen == []


def test_mutable_references_inside_a_program():
    def program(x):
        ref = jax.new_ref(x)
        ref[...] = jnp.log(ref[...])
        return ref[...] + 1

    found = explained(program, jnp.float32(-1.0))
    assert (found.origin.primitive, found.origin.path) == ("log", "log[0]")


def test_mutable_references_inside_a_scan():
    def program(x):
        seen = jax.new_ref(x)

        def body(c, t):
            seen[...] += 1
            own = jax.new_ref(c)
            own[...] = jnp.log(own[...] - t)
            return own[...], c

        return lax.scan(body, x, jnp.arange(3.0)), jax.freeze(seen)

    target = {"kind": "carry", "path": "scan[0]", "steps": (1,)}
    found = explained(program, jnp.float32(1.0), **target)  # log(1 - 0) = 0, then log(0 - 1)
    assert (found.origin.primitive, found.origin.steps) == ("log", (1,))
    assert found.last_good == {"step": 0, "min": 0.0, "max": 0.0}


# -- the public way in


def test_find_origin_tells_of_a_jitted_program():
    finding = find_origin(jax.jit(nested), jnp.float32(3.0))
    assert finding.origin.primitive == "sqrt" and finding.origin.steps == (4, 0)
    assert "born: sqrt" in str(finding)


def test_find_origin_of_a_sound_program_says_so():
    assert str(find_origin(jax.jit(jnp.sin), jnp.float32(1.0))).startswith("no NaN or Inf came up")
