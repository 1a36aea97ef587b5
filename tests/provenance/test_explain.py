"""The reason of each kind of birth, where pencil and paper (or NumPy in float64) give it."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import special

from jaxtap_core.provenance.locate import Target, explain_target
from jaxtap_core.provenance.reasons.base import REASONS
from jaxtap_core.records.events import Origin

INF = jnp.inf


def origin_of(f, *args, bad="nan", index=0) -> Origin:
    """Where the bad result of ``f`` was born."""
    jaxpr = jax.make_jaxpr(f)(*args)
    return explain_target(jaxpr, jax.tree.leaves(args), Target("result", "", (), index, bad)).origin


f32 = jnp.float32
kept = lax.optimization_barrier  # else XLA makes exp(x) of 1 / exp(-x), and no infinity comes up

# (program, its inputs, which is bad, the primitive, words of the reason)
CASES = {
    "log of a negative": (jnp.log, (f32(-0.3),), "nan", "log", "log of a negative number (-0.3)"),
    "log of 0": (jnp.log, (f32(0),), "inf", "log", "log of 0"),
    "log of a subnormal": (jnp.log, (f32(1e-40),), "inf", "log", "subnormal float32"),
    "log1p": (jnp.log1p, (f32(-1.5),), "nan", "log1p", "outside [-1, inf] (-1.5)"),
    "log1p at its pole": (jnp.log1p, (f32(-1),), "inf", "log1p", "log1p of -1"),
    "sqrt": (jnp.sqrt, (f32(-2),), "nan", "sqrt", "sqrt of a negative number (-2)"),
    "rsqrt": (lax.rsqrt, (f32(-2),), "nan", "rsqrt", "rsqrt of a negative number (-2)"),
    "rsqrt of 0": (lax.rsqrt, (f32(0),), "inf", "rsqrt", "rsqrt of 0"),
    "acos": (jnp.arccos, (f32(1.25),), "nan", "acos", "outside [-1, 1] (1.25)"),
    "atanh at its pole": (jnp.arctanh, (f32(1),), "inf", "atanh", "atanh of 1"),
    "acosh": (jnp.arccosh, (f32(0.5),), "nan", "acosh", "outside [1, inf] (0.5)"),
    "erf_inv": (special.erfinv, (f32(2),), "nan", "erf_inv", "outside [-1, 1] (2)"),
    "digamma": (lax.digamma, (f32(-2),), "nan", "digamma", "pole at -2"),
    "lgamma": (lax.lgamma, (f32(-3),), "inf", "lgamma", "pole at -3"),
    "exp": (
        jnp.exp,
        (f32(89),),
        "inf",
        "exp",
        "exp(89) is beyond the largest float32 (3.40282e+38)",
    ),
    "exp in float16": (jnp.exp, (jnp.float16(12),), "inf", "exp", "float16 (65504)"),
    "sin of inf": (
        lambda x: jnp.sin(1 / x),
        (f32(0),),
        "nan",
        "sin",
        "sin of an infinity; the inf is made by div",
    ),
    "0/0": (lambda x: x / x, (f32(0),), "nan", "div", "0/0"),
    "x/0": (lambda x: 3 / x, (f32(0),), "inf", "div", "division of 3 by 0"),
    "inf/inf": (
        lambda x: kept(jnp.exp(x)) / kept(jnp.exp(2 * x)),
        (f32(100),),
        "nan",
        "div",
        "inf/inf; the inf is made by exp",
    ),
    "mean of nothing": (lambda x: jnp.mean(x[:0]), (jnp.ones(3),), "nan", "div", "0/0"),
    "inf - inf": (
        lambda x: 1 / x - 2 / x,  # not of exp: a fused multiply-add never makes the infinity
        (f32(0),),
        "nan",
        "sub",
        "inf - inf; the inf is made by div",
    ),
    "0 * inf": (lambda x: x * (1 / x), (f32(0),), "nan", "mul", "0 * inf; the inf is made by div"),
    "product too big": (lambda x: x * x, (f32(1e30),), "inf", "mul", "1e+30 * 1e+30 is beyond"),
    "sum too big": (lambda x: x + x, (f32(3e38),), "inf", "add", "3e+38 + 3e+38 is beyond"),
    "remainder by 0": (lambda x: lax.rem(x, x - x), (f32(3),), "nan", "rem", "remainder of 3 by 0"),
    "root by pow": (lambda x: x**0.5, (f32(-4),), "nan", "pow", "fractional power (-4 ** 0.5)"),
    "0 ** -2": (lambda x: lax.integer_pow(x, -2), (f32(0),), "inf", "integer_pow", "0 ** -2"),
    "x ** 9": (lambda x: x**9, (f32(1e5),), "inf", "integer_pow", "100000 ** 9 is beyond"),
    "float32 to float16": (
        lambda x: x.astype(jnp.float16),
        (f32(7e4),),
        "inf",
        "convert_element_type",
        "70000 (float32) is beyond the largest float16 (65504)",
    ),
    "sum of opposite infinities": (
        lambda x: jnp.sum(1 / x),
        (jnp.array([0.0, 1.0, -0.0]),),
        "nan",
        "reduce_sum",
        "inf - inf in a sum of 3 numbers",
    ),
    "sum of many": (
        jnp.sum,
        (jnp.full(4, 1e38),),
        "inf",
        "reduce_sum",
        "a sum of 4 numbers up to 1e+38",
    ),
    "product of many": (
        jnp.prod,
        (jnp.full(3, 1e20),),
        "inf",
        "reduce_prod",
        "a product of 3 numbers",
    ),
    "cumulative sum": (jnp.cumsum, (jnp.full(4, 1e38),), "inf", "cumsum", "a sum of 4 numbers"),
    "matmul too big": (
        lambda a, b: a @ b,
        (jnp.full((2, 3), 1e30), jnp.full((3, 2), 1e9)),
        "inf",
        "dot_general",
        "numbers up to 1e+30 and 1e+09",
    ),
    "0 * inf in a matmul": (
        lambda a, b: a @ (1 / b),
        (jnp.array([[0.0, 1.0]]), jnp.array([[0.0], [1.0]])),
        "nan",
        "dot_general",
        "0 * inf in a sum of products",
    ),
    "singular triangle": (
        lambda a: lax.linalg.triangular_solve(a, jnp.ones((2, 1)), left_side=True, lower=True),
        (jnp.array([[1.0, 0.0], [2.0, 0.0]]),),
        "inf",
        "triangular_solve",
        "0 on its diagonal at [1, 1]",
    ),
    "singular system": (
        jnp.linalg.solve,
        (jnp.array([[1.0, 2.0], [2.0, 4.0]]), jnp.ones(2)),
        "inf",
        "triangular_solve",
        "0 on its diagonal at [1, 1]",
    ),
    "reading outside": (
        lambda x, i: jnp.take(x, i),
        (jnp.arange(3.0), jnp.array([1, 7])),
        "nan",
        "gather",
        "shape [3], indices 1 to 7",
    ),
    "maximum of nothing": (
        lambda x: jnp.max(x, initial=-INF, where=x > 5),
        (jnp.ones(3),),
        "inf",
        "max",
        "constant",
    ),
    "a fourier transform": (
        lambda x: jnp.fft.fft(1 / x),
        (jnp.zeros(4),),
        "nan",
        "fft",
        "transform of an infinity",
    ),
    "complex": (jnp.log, (jnp.complex64(0),), "inf", "log", "log of 0"),
    "logits": (
        lambda x: jax.nn.softmax(jnp.where(x > 5, x, -INF)),
        (jnp.arange(3.0),),
        "nan",
        "sub",
        "inf - inf; the inf is a constant of the program",
    ),
    "underflow first": (
        lambda x: 1.0 / kept(jnp.exp(x)),
        (f32(-200),),
        "inf",
        "div",
        "division of 1 by 0; the 0 is an underflow in exp",
    ),
    "difference first": (
        lambda x, y: 1.0 / (x - y),
        (f32(2), f32(2)),
        "inf",
        "div",
        "the 0 is the difference of equal numbers (2, 2)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_reason(case):
    f, args, bad, primitive, words = CASES[case]
    origin = origin_of(f, *args, bad=bad)
    assert origin.primitive == primitive
    assert words in origin.reason
    assert origin.reproduced


def test_a_matrix_that_is_not_positive_definite():
    matrix = np.array([[2.0, -3.0, 0.5], [-3.0, 2.0, 0.0], [0.5, 0.0, 1.0]], np.float32)
    origin = origin_of(jnp.linalg.cholesky, jnp.asarray(matrix))
    least = np.linalg.eigvalsh(matrix.astype(np.float64))[0]
    assert origin.primitive == "cholesky"
    assert f"not positive definite (smallest eigenvalue {least:.6g}, float32)" in origin.reason


def test_the_matrix_of_a_batch_that_fails_is_the_one_described():
    good, bad = np.eye(2, dtype=np.float32), np.diag(np.array([1.0, -0.25], np.float32))
    origin = origin_of(jnp.linalg.cholesky, jnp.stack([good, bad, good]))
    assert "smallest eigenvalue -0.25" in origin.reason


def test_facts_about_the_operands():
    x = jnp.array([4.0, -1.0, 9.0, jnp.inf], jnp.bfloat16)
    origin = origin_of(jnp.sqrt, x)
    assert origin.operands == (
        {
            "shape": (4,),
            "dtype": "bfloat16",
            "min": -1.0,
            "max": 9.0,
            "nonfinite": 1,
            "element": -1.0,
            "index": (1,),
        },
    )


def test_what_no_rule_knows_is_stated_as_facts():
    origin = origin_of(lambda x: x ** jnp.complex64(-1), jnp.complex64(0))
    assert origin.reason.startswith("pow made NaN out of finite operands (complex64[] = 0+0j, complex64[] = -1+0j)")


# -- the registry

# Primitives that move, compare, round or bound numbers, or are defined and bounded on the whole line: whatever is not
# finite came in with an operand. Integers, keys, references and tokens cannot be NaN.
HARMLESS = """
accum_grad_in_ref addupdate after_all and approx_top_k argmax argmin asinh atan axis_index bessel_i0e bessel_i1e
broadcast_in_dim broadcast_to box_get box_set cbrt ceil check clamp clz complex concatenate conj copy copy_p
create_linear create_token cummax cummin cumlogsumexp custom_lin dce_sink debug_callback debug_print device_put
dim_as_value dimension_size dynamic_slice dynamic_update_slice empty_ref eq eq_to erf erfc floor free_ref freeze
from_edtype ge get gt imag inspect_sharding iota iota_2x32_shape is_finite layout_constraint le le_to log_extend
log_read logistic lt lt_to lu_pivots_to_permutation max min mulhi name ne neg new_box new_log new_ref nextafter not
optimization_barrier or pad philox2x32 philox4x32 pin platform_index pmax pmin population_count precv preduced psend
random_bits random_clone random_fold_in random_gamma random_seed random_split random_unwrap random_wrap real
reduce_and reduce_or reduce_xor reduced_vary_cast reduced_vary_cast_p relayout reshape reshard rev rng_bit_generator
round scatter scatter-max scatter-min select_and_scatter select_n shape_assertion sharding_constraint shift_left
shift_right_arithmetic shift_right_logical sign slice sort split squeeze stack stop_gradient swap tanh threefry2x32
threefry4x32 tie tile to_edtype top_k transpose unpin unreachable unreduced_pmax unreduced_pmin unstack
vary_unreduced_cast vary_unreduced_cast_p with_memory_space_constraint xor pvary
pbroadcast pbroadcast_done pbroadcast_dynamic pbroadcast_start ppermute ppermute_done ppermute_start
all_gather all_gather_done all_gather_invariant all_gather_reduced all_gather_reduced_start all_gather_start
all_to_all all_to_all_done all_to_all_start ragged_all_to_all
"""

# Programs in a program: their equations are looked at, one by one.
INSIDE = """
call call_hi_primitive call_hi_primitive_linearized closed_call composite cond core_map custom_jvp_call
custom_linear_solve custom_vjp_call custom_vmap_call eval_jaxpr jit linear_call remat2 remat_opt run_state scan
shard_map stage while core_call pjit checkpoint custom_vjp_call_jaxpr xla_pmap
"""


def test_every_primitive_that_can_make_a_nan_has_its_rule():
    # in a process of its own: other tests and libraries bring primitives of theirs
    list_them = "import jax, jax.numpy, jax.scipy; from jaxtap_core import _compat; print(*_compat.known_primitives())"
    done = subprocess.run([sys.executable, "-c", list_them], capture_output=True, text=True, check=True)
    left = set(done.stdout.split()) - REASONS.keys() - set(HARMLESS.split()) - set(INSIDE.split())
    assert sorted(left) == [], "neither a rule nor known to be harmless"
