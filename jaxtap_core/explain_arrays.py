"""Reasons of births in sums, products, matrices, indices, and on the host (see `explain`)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxtap_core.birth import RULES, Birth, Why, overflow, show, unselected, with_cause

# -- sums and products of many


def _total(birth: Birth) -> Why | None:
    part = birth.part(0)
    if birth.primitive.startswith("scatter"):
        part = np.concatenate([part.ravel(), birth.part(2).ravel()])
    if np.isposinf(part.real).any() and np.isneginf(part.real).any():
        return Why(with_cause(birth, f"inf - inf in a sum of {part.size} numbers"))
    if birth.bad == "inf" and np.isfinite(part).all():
        return overflow(birth, f"a sum of {part.size} numbers up to {show(np.abs(part).max(initial=0))}")
    return None


for _name in ("reduce_sum", "cumsum", "psum", "psum_invariant", "reduce_window_sum", "scatter-add", "cumlogsumexp"):
    RULES[_name] = _total


def _product_of_many(birth: Birth) -> Why | None:
    part = birth.part(0)
    if np.isinf(part).any() and (part == 0).any():
        return Why(with_cause(birth, f"0 * inf in a product of {part.size} numbers"))
    return overflow(birth, f"a product of {part.size} numbers") if birth.bad == "inf" else None


for _name in ("reduce_prod", "cumprod"):
    RULES[_name] = _product_of_many


def _extreme(birth: Birth) -> Why | None:
    return Why(f"{birth.primitive} of nothing", "guard the empty case") if birth.part(0).size == 0 else None


for _name in ("reduce_max", "reduce_min"):
    RULES[_name] = _extreme


def _contraction(birth: Birth) -> Why | None:
    a, b = birth.part(0), birth.part(1)
    infinite = np.isinf(a).any() or np.isinf(b).any()
    if birth.bad == "nan" and infinite:
        zero = (a == 0).any() or (b == 0).any()
        text = "0 * inf, or inf - inf, in a sum of products" if zero else "inf - inf in a sum of products"
        return unselected(birth, text) if birth.unselected else Why(with_cause(birth, text))
    if not infinite:
        most = show(np.abs(a).max(initial=0)), show(np.abs(b).max(initial=0))
        return overflow(birth, f"a sum of products of numbers up to {most[0]} and {most[1]}")
    return None


for _name in ("dot_general", "conv_general_dilated", "ragged_dot_general"):
    RULES[_name] = _contraction


def _transform(birth: Birth) -> Why | None:
    part = birth.part(0)
    if not np.isfinite(part).all():
        return Why(with_cause(birth, "the transform of an infinity"))
    return overflow(birth, f"a sum of numbers up to {show(np.abs(part).max(initial=0))}")


RULES["fft"] = _transform


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
    if np.abs(matrix - matrix.conj().T).max(initial=0) > 1e3 * float(jnp.finfo(dtype).eps) * scale:
        return Why(f"{reason}, nor symmetric", "symmetrise it: (A + A.T) / 2")
    if least > 0:
        greatest = np.linalg.eigvalsh(symmetric)[-1]
        spread = f"eigenvalues {show(least)} to {show(greatest)}"
        reason = f"the matrix is too near singular for {dtype} ({spread})"
    return Why(reason, "add a small multiple of the identity, or compute in float64")


RULES["cholesky"] = _cholesky


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
    least = np.abs(np.diagonal(matrix)).min(initial=np.inf)
    return Why(f"overflow: the triangular matrix is nearly singular (least diagonal element {show(least)})")


RULES["triangular_solve"] = _triangular


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
    "tridiagonal_solve",
):
    RULES[_name] = _factorization


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


RULES["gather"] = _gather


# -- what comes from the host


def _foreign(birth: Birth) -> Why | None:
    word = "NaN" if birth.bad == "nan" else "an infinity"
    return Why(f"the function behind {birth.primitive} returned {word}")


for _name in ("pure_callback", "io_callback", "ffi_call", "call_exported"):
    RULES[_name] = _foreign


def _bits(birth: Birth) -> Why | None:
    return Why("the bits, read as a float, are not a finite number")


RULES["bitcast_convert_type"] = _bits
