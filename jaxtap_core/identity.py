"""Whether observing changes a bit: production against itself first, then production against the observed run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax

from jaxtap_core.bit_report import BitReport
from jaxtap_core.bits import compare_bits
from jaxtap_core.events import plain
from jaxtap_core.lens import record, unobserved
from jaxtap_core.recording import Recording

Outcome = Literal["identical", "different", "unreproducible"]


@dataclass(frozen=True, slots=True, eq=False)
class IdentityCheck:
    """What `check_identity` found.

    Attributes:
        outcome: ``"identical"``, ``"different"`` (observing changed a bit) or ``"unreproducible"`` (the program does
            not even reproduce its own bits, so nothing can be said of observing).
        report: the comparison behind the outcome.
        recording: what was observed.
    """

    outcome: Outcome
    report: BitReport
    recording: Recording

    def __str__(self) -> str:
        said = {
            "identical": "identical: observing changed no bit",
            "different": "different: observing changed the result",
            "unreproducible": "unreproducible: production itself gives other bits from run to run",
        }[self.outcome]
        return said if self.outcome == "identical" else f"{said}\n{self.report}"

    def to_dict(self) -> dict[str, Any]:
        """The same content in plain Python types, without the recording."""
        return {"outcome": self.outcome, "report": plain(self.report)}


def check_identity(f: Callable[..., Any], /, *args: Any, grad: bool = False, **lens_options: Any) -> IdentityCheck:
    """Run ``f(*args)`` twice as it is, then once observed, and compare the results bit by bit.

    Args:
        f: the program; it must not donate its arguments.
        args: its arguments.
        grad: compare values and gradients; ``f`` then gives a float scalar and is differentiated with respect to its
            arguments of floating dtype.
        lens_options: as for ``tap.record``. The observed run is inline unless ``identity=`` says otherwise: a
            certified one gives production's bits by construction.

    Returns:
        An `IdentityCheck`.

    Raises:
        ValueError: with ``grad``, no argument can be differentiated.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxtap_core as tap
        >>> tap.check_identity(jax.jit(lambda x: jax.lax.fori_loop(0, 9, lambda i, c: jnp.sin(c), x)), 1.0).outcome
        'identical'
    """
    run = _with_gradients(f, args) if grad else f
    options = {"identity": "inline", **lens_options}
    with unobserved():
        first, second = _run(run, args), _run(run, args)
    itself = compare_bits(first, second)
    with record(**options) as recording:
        observed = _run(run, args)
    if not itself.identical:
        return IdentityCheck("unreproducible", itself, recording)
    report = compare_bits(first, observed)
    return IdentityCheck("identical" if report.identical else "different", report, recording)


def _run(f: Callable[..., Any], args: Any) -> Any:
    return jax.block_until_ready(f(*args))


def _with_gradients(f: Callable[..., Any], args: Any) -> Callable[..., Any]:
    places = tuple(i for i, arg in enumerate(args) if _differentiable(arg))
    if not places:
        raise ValueError(
            "check_identity(grad=True) differentiates with respect to arguments of floating dtype, and there is none"
        )
    return jax.value_and_grad(f, argnums=places)


def _differentiable(arg: Any) -> bool:
    leaves = jax.tree.leaves(arg)
    return bool(leaves) and all(jax.numpy.issubdtype(jax.numpy.result_type(x), jax.numpy.inexact) for x in leaves)
