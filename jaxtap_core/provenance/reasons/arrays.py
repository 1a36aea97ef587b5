"""Reasons of births in sums, products, matrices, indices, and on the host."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxtap_core.provenance.reasons.base import REASONS, Birth, Why, overflow, show, untaken, wider, with_cause


def _scale(birth: Birth) -> str:
    return "scale the numbers" + (", or compute in a wider type" if wider(birth.dtype) else "")


# -- sums and products of many


def _total(birth: Birth) -> Why | None:
    part = birth.part(0).ravel()
    if birth.primitive in ("scatter-add", "scatter-sub"):
        part = np.concatenate([part, birth.part(2).ravel() * (-1 if birth.primitive == "scatter-sub" else 1)])
    if np.isposinf(part.real).any() and np.isneginf(part.real).any():
        return Why(with_cause(birth, f"inf - inf in a sum of {part.size} numbers"))
    if not np.isfinite(part).all():
        return None
    what = f"a sum of {part.size} numbers up to {show(np.abs(part).max(initial=0))}"
    if birth.bad == "nan":
        return Why(f"inf - inf in {what}: parts of it overflow to both sides", _scale(birth))
    return overflow(birth, what, part.sum())


_SHARED_NAMES = """
psum psum_start psum_done psum_invariant psum_invariant_start reduce_scatter reduce_scatter_start reduce_scatter_done
unreduced_psum unreduced_psum_start unreduced_reduce_scatter unreduced_reduce_scatter_start
"""
_SUMS = ("cumsum", "reduce_sum", "reduce_window_sum", "scatter-add", "scatter-sub")
_POOLED = ("select_and_gather_add", "select_and_scatter_add")

for _name in (*_SUMS, *_POOLED, *_SHARED_NAMES.split()):
    REASONS[_name] = _total


def _product_of_many(birth: Birth) -> Why | None:
    part = birth.part(0).ravel()
    if birth.primitive == "scatter-mul":
        part = np.concatenate([part, birth.part(2).ravel()])
    what = f"a product of {part.size} numbers"
    if np.isinf(part).any():
        return Why(with_cause(birth, f"0 * inf in {what}")) if (part == 0).any() else None
    if birth.bad == "nan":
        return Why(f"0 * inf in {what}: a part of it overflows, and the rest holds or makes a 0", _scale(birth))
    with np.errstate(all="ignore"):
        return overflow(birth, what, part.prod())


for _name in ("reduce_prod", "cumprod", "scatter-mul"):
    REASONS[_name] = _product_of_many


def _fold(birth: Birth) -> Why | None:
    count = birth.part(birth.output).size
    what = f"the function by which {birth.primitive} folds {count} numbers made {birth.made} of them"
    return Why(with_cause(birth, what))


for _name in ("reduce", "reduce_window"):
    REASONS[_name] = _fold


def _extreme(birth: Birth) -> Why | None:
    return Why(f"{birth.primitive} of nothing", "guard the empty case") if birth.part(0).size == 0 else None


for _name in ("reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min"):
    REASONS[_name] = _extreme


def _contraction(birth: Birth) -> Why | None:
    a, b = birth.part(0), birth.part(1)
    if np.isinf(a).any() or np.isinf(b).any():
        with np.errstate(all="ignore"):
            terms = a * b if a.shape == b.shape and a.ndim == 1 else None
        if terms is None:
            zero = (a == 0).any() or (b == 0).any()
            text = "0 * inf, or inf - inf, in a sum of products" if zero else "inf - inf in a sum of products"
        else:
            text = f"{'0 * inf' if np.isnan(terms).any() else 'inf - inf'} in a sum of products"
        return untaken(birth, text) if birth.untaken else Why(with_cause(birth, text))
    most = show(np.abs(a).max(initial=0)), show(np.abs(b).max(initial=0))
    what = f"a sum of products of numbers up to {most[0]} and {most[1]}"
    if birth.bad == "nan":
        return Why(f"inf - inf in {what}: parts of it overflow to both sides", _scale(birth))
    return overflow(birth, what, (a * b).sum() if a.shape == b.shape and a.ndim == 1 else None)


for _name in (
    "conv_general_dilated",
    "dot_general",
    "ragged_dot_general",
    "scaled_dot",
    "scaled_matmul",
    "scaled_matmul_wrapper",
    "symmetric_product",
):
    REASONS[_name] = _contraction


def _transform(birth: Birth) -> Why | None:
    part = birth.part(0)
    if not np.isfinite(part).all():
        return Why(with_cause(birth, "the transform of an infinity"))
    return overflow(birth, f"a sum of numbers up to {show(np.abs(part).max(initial=0))}")


REASONS["fft"] = _transform


# -- matrices


def _cholesky(birth: Birth) -> Why | None:
    matrix = _matrix(birth, 0)
    if not np.isfinite(matrix).all():
        return Why(with_cause(birth, "the matrix holds an infinity"))
    dtype = birth.operands[0].dtype
    lower = np.tril(matrix)
    symmetric = lower + np.tril(matrix, -1).conj().T  # only the lower triangle is read
    least = np.linalg.eigvalsh(symmetric)[0]
    reason = f"the matrix is not positive definite (smallest eigenvalue {show(least)}, {dtype})"
    scale = np.abs(matrix).max(initial=0)
    if least <= 0 and np.abs(matrix - matrix.conj().T).max(initial=0) > 1e3 * float(jnp.finfo(dtype).eps) * scale:
        return Why(f"{reason}, nor symmetric", "symmetrise it: (A + A.T) / 2")
    if least > 0:
        greatest = np.linalg.eigvalsh(symmetric)[-1]
        spread = f"eigenvalues {show(least)} to {show(greatest)}"
        reason = f"the matrix is too near singular for {dtype} ({spread})"
    wide = wider(str(dtype))
    return Why(reason, "add a small multiple of the identity" + (f", or compute in {wide}" if wide else ""))


REASONS["cholesky"] = _cholesky


def _matrix(birth: Birth, operand: int) -> np.ndarray:
    """The matrix of a batch that counts."""
    part = birth.part(operand)
    while part.ndim > 2:
        part = part[0]
    return part


def _triangular(birth: Birth) -> Why | None:
    matrix = _matrix(birth, 0)
    if not birth.params.get("unit_diagonal"):
        zeros = np.flatnonzero(np.diagonal(matrix) == 0)
        if zeros.size:
            k = int(zeros[0])
            return Why(
                with_cause(birth, f"the triangular matrix is singular: 0 on its diagonal at [{k}, {k}]"),
                "the system has no unique solution; regularise the matrix",
            )
    if not (np.isfinite(matrix).all() and np.isfinite(birth.part(1)).all()):
        return Why(with_cause(birth, "the system holds an infinity"))
    least, most = np.abs(np.diagonal(matrix)).min(initial=np.inf), np.abs(birth.part(1)).max(initial=0)
    return Why(
        f"overflow: the solution for right sides up to {show(most)} and a triangular matrix with a least diagonal "
        f"element of {show(least)} is beyond the largest {birth.dtype}"
    )


REASONS["triangular_solve"] = _triangular


def _tridiagonal(birth: Birth) -> Why | None:
    lower, middle, upper, right = (birth.part(i) for i in range(4))
    if not all(np.isfinite(part).all() for part in (lower, middle, upper, right)):
        return Why(with_cause(birth, "the system holds an infinity"))
    matrix = np.diag(middle) + np.diag(lower[1:], -1) + np.diag(upper[:-1], 1)
    values = np.linalg.svd(matrix, compute_uv=False)
    return Why(
        f"the tridiagonal matrix is singular, or nearly so (singular values {show(values[-1])} to {show(values[0])})",
        "the system has no unique solution; regularise the matrix",
    )


REASONS["tridiagonal_solve"] = _tridiagonal


def _factorization(birth: Birth) -> Why | None:
    matrix = _matrix(birth, 0)
    if not np.isfinite(matrix).all():
        return Why(with_cause(birth, f"{birth.primitive} of a matrix that holds an infinity"))
    values = np.linalg.svd(matrix, compute_uv=False) if matrix.ndim == 2 else np.empty(0)
    if values.size:
        spread = f"singular values {show(values[-1])} to {show(values[0])}"
        return Why(f"{birth.primitive} did not succeed on a finite matrix ({spread})")
    return None


for _name in (
    "lu",
    "qr",
    "geqrf",
    "householder_product",
    "svd",
    "eigh",
    "eig",
    "schur",
    "cholesky_update",
    "geqp3",
    "hessenberg",
    "ormqr",
    "tridiagonal",
):
    REASONS[_name] = _factorization


# -- reading from outside of an array


def _gather(birth: Birth) -> Why | None:
    if birth.boxes and birth.bad == "inf":
        return None
    size, indices = list(birth.operands[0].shape), birth.operands[1]
    low, high = (int(indices.min()), int(indices.max())) if indices.size else (0, 0)
    return Why(
        f"reading outside of the array: shape {size}, indices {low} to {high}, "
        "and elements out of bounds are filled with NaN",
        'correct the index, or say what is meant: .at[i].get(mode="clip")',
    )


REASONS["gather"] = _gather


# -- what comes from the host


def _foreign(birth: Birth) -> Why | None:
    return Why(with_cause(birth, f"the function behind {birth.primitive} returned {birth.made}"))


_FOREIGN_NAMES = """
pure_callback io_callback ffi_call call_exported cudnn_fusion custom_partitioning pallas_call
dot_product_attention_fwd dot_product_attention_fwd_wrapper dot_product_attention_bwd dot_product_attention_bwd_wrapper
dot_product_attention_fp8_fwd dot_product_attention_fp8_fwd_wrapper dot_product_attention_fp8_bwd
dot_product_attention_fp8_bwd_wrapper
"""

for _name in _FOREIGN_NAMES.split():
    REASONS[_name] = _foreign


def _uninitialized(birth: Birth) -> Why | None:
    return Why("the array was never written to: what it holds is what was in memory", "write to it, or use zeros")


for _name in ("empty", "empty2"):
    REASONS[_name] = _uninitialized


def _random(birth: Birth) -> Why | None:
    low, high = birth.element(0), birth.element(1)
    return Why(with_cause(birth, f"random numbers between {show(low)} and {show(high)}"))


REASONS["rng_uniform"] = _random


def _bits(birth: Birth) -> Why | None:
    return Why("the bits, read as a float, are not a finite number")


REASONS["bitcast_convert_type"] = _bits
