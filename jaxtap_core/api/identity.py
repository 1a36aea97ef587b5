"""Whether observing changes a bit: production against itself first, then production against the observed run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import jax
import numpy as np

from jaxtap_core.api.record import record, unobserved
from jaxtap_core.compare.bit_report import BitReport
from jaxtap_core.compare.bits import compare_bits
from jaxtap_core.errors import did_you_mean
from jaxtap_core.recording.recording import Recording
from jaxtap_core.records.text import plain
from jaxtap_core.request.settings import Settings

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
        f: the program.
        args: its arguments, by position; every run gets copies of the arrays, so it may donate them.
        grad: compare values and gradients; ``f`` then gives a float scalar and is differentiated with respect to its
            arguments of floating dtype.
        lens_options: as for ``tap.record``. The observed run is inline unless ``identity=`` says otherwise: a
            certified one gives production's bits by construction.

    Returns:
        An `IdentityCheck`.

    Raises:
        TypeError: there is no such option of the lens.
        ValueError: with ``grad``, no argument can be differentiated.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxtap_core as tap
        >>> tap.check_identity(jax.jit(lambda x: jax.lax.fori_loop(0, 9, lambda i, c: jnp.sin(c), x)), 1.0).outcome
        'identical'
    """
    return check_as("tap.check_identity", f, args, grad, lens_options)


def check_as(
    caller: str, f: Callable[..., Any], args: tuple[Any, ...], grad: bool, lens_options: Mapping[str, Any]
) -> IdentityCheck:
    """`check_identity` for ``caller``, the name that its messages give."""
    options = {"identity": "inline", **lens_options}
    _check_options(caller, options)
    run = _with_gradients(caller, f, args) if grad else f
    with unobserved():
        first, second, third = (_copied(args) for _ in range(3))
        production, again = _run(run, first), _run(run, second)
    itself = compare_bits(production, again)
    with record(**options) as recording:
        observed = _run(run, third)
    if not itself.identical:
        return IdentityCheck("unreproducible", itself, recording)
    report = compare_bits(production, observed)
    return IdentityCheck("identical" if report.identical else "different", report, recording)


def _check_options(caller: str, options: Mapping[str, Any]) -> None:
    known = [field.name for field in fields(Settings) if field.init]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known, " ({})")
            raise TypeError(
                f"{caller}(): {name!r} is no option of the lens{hint}; arguments of the function go by position, or "
                f"through functools.partial(f, {name}=...). Options of the lens: {', '.join(known)}"
            )


def _copied(args: Any) -> Any:
    """``args`` with arrays of their own: same type and place, another memory."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array | np.ndarray) else leaf, args)


def _run(f: Callable[..., Any], args: Any) -> Any:
    return jax.block_until_ready(f(*args))


def _with_gradients(caller: str, f: Callable[..., Any], args: Any) -> Callable[..., Any]:
    places = tuple(i for i, arg in enumerate(args) if _differentiable(arg))
    if not places:
        raise ValueError(
            f"{caller}(grad=True) differentiates with respect to arguments of floating dtype, and there is none"
        )
    return jax.value_and_grad(f, argnums=places)


def _differentiable(arg: Any) -> bool:
    leaves = jax.tree.leaves(arg)
    return bool(leaves) and all(jax.numpy.issubdtype(jax.numpy.result_type(x), jax.numpy.inexact) for x in leaves)
