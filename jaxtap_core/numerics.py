"""Numerics profiles: whether the bits of a program may depend on how XLA fuses it.

`native` leaves XLA alone. `strict` removes, on x86-64 CPUs, what makes bits depend on fusion:

* fused multiply-add. Whether `a*b + c` is contracted depends on which operations share a kernel.
  `--xla_cpu_max_isa=AVX` compiles for the last instruction set without it, which also is the same
  on every x86-64 machine of the last ten years.
* the algebraic simplifier, HLO pass `algsimp`. It rewrites `x / sqrt(y)`, constant chains and more,
  by how often a value is used.
* functions of their own for small loops, pass `small-while-loop-hoisting`. A loop of about 1 KB
  that holds no callback is compiled by another emitter, whose `cbrt`, and `log1p` and `rsqrt` of
  float16, round differently.

`--xla_disable_hlo_passes` leaves the two passes out. Then what is observed has the bits of what is
not, and jitted = eager = NumPy for programs of `+ - * / sqrt`, comparisons and selection.
`bench/strict.py` measures both, and what it costs.

Sharp edges, which no flag removes: results below the smallest normal number are flushed to zero
(NumPy keeps them); `x + 0.0` with a literal zero keeps a -0.0 under jit; and where two NaNs of
different bits meet, which of them survives is up to the compiler. The functions NumPy computes in
its own way (`exp`, `tanh`, reductions, matmul) differ from NumPy as before.

A profile is chosen before JAX starts a backend, since XLA reads `XLA_FLAGS` once. This module
imports JAX only to ask a JAX that is already imported.
"""

import os
import platform
import shlex
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Literal

Profile = Literal["native", "strict"]

# A flag that XLA does not know ends the process. These were verified with jaxlib 0.10.2 and 0.12.0.1.
_ISA = "xla_cpu_max_isa"
_PASSES = "xla_disable_hlo_passes"  # XLA joins the lists of several such flags
_FAST_MATH = "xla_cpu_enable_fast_math"

_STRICT_ISA = "AVX"
_STRICT_PASSES = ("algsimp", "small-while-loop-hoisting")

_added = ""  # what `numerics` has put into XLA_FLAGS


class NumericsError(RuntimeError):
    """A numerics profile cannot be had in this process; the message says why and what to do."""


class NumericsWarning(UserWarning):
    """`strict` cannot hold on this kind of machine; recordings are certified instead."""


def numerics(profile: Profile) -> None:
    """Choose the numerics profile of this process, before JAX starts a backend.

    Where `strict` cannot hold (a CPU that is not x86-64, another backend), a `NumericsWarning` says
    so, and `identity="auto"` certifies recordings as it does in `native`.

    Args:
        profile: `"native"` or `"strict"`. Flags that are in `XLA_FLAGS` already are kept.

    Raises:
        ValueError: there is no such profile.
        NumericsError: a backend runs under the other profile already; or `XLA_FLAGS` holds a flag
            that contradicts `strict`.

    Example:
        >>> numerics("native")
        >>> current_profile()
        'native'
    """
    global _added
    if profile not in ("native", "strict"):
        raise ValueError(f'there is no numerics profile {profile!r}, only "native" and "strict"')
    reason = _out_of_reach() if profile == "strict" else ""
    if reason:
        _say(reason)
        return
    if _backend_runs():
        if current_profile() != profile:
            raise NumericsError(
                f"numerics profile {profile!r} comes too late: JAX has started a backend under "
                f"{current_profile()!r}, and XLA reads its flags once. Choose the profile before "
                "anything runs or asks for devices, at best with --jaxtap-numerics or the ini "
                "option jaxtap_numerics"
            )
        return
    present = os.environ.get("XLA_FLAGS", "")
    if profile == "strict":
        missing = _missing_flags(present)
        if missing:
            _added = f" {missing}"
            os.environ["XLA_FLAGS"] = (present + _added).lstrip()
    elif _added:
        os.environ["XLA_FLAGS"] = present.replace(_added.lstrip(), "").rstrip()
        _added = ""


def current_profile() -> Profile:
    """The profile that holds: of the backend that runs, or of one that would start now.

    `"strict"` only where it keeps its promise: on the CPU backend of an x86-64 machine, whoever set
    the flags.
    """
    if _backend_runs():
        import jax

        strict = _runs_strict() and jax.default_backend() == "cpu"
    else:
        flags = _parse(os.environ.get("XLA_FLAGS", ""))
        isa, fast_math = flags.get(_ISA, [""])[-1], _is_on(flags.get(_FAST_MATH, ["false"])[-1])
        strict = _is_strict(_listed(flags), isa, fast_math)
        strict = strict and _chosen_platform() in ("", "cpu")
    return "strict" if strict and _is_x86() else "native"


def broken_promise() -> str:
    """Why `strict`, which was asked for, does not hold in the backend that runs; empty if it does."""
    if not (_backend_runs() and _runs_strict()):
        return ""
    import jax

    return _out_of_reach(jax.default_backend())


def _out_of_reach(backend: str = "") -> str:
    """Why `strict` cannot hold here: on this machine, or on `backend` (default: the one chosen)."""
    if not _is_x86():
        return (
            f"numerics profile 'strict' cannot hold on {platform.machine()}: its CPUs always fuse "
            f"multiply-add, and XLA has no switch against that. {_INSTEAD}"
        )
    backend = backend or _chosen_platform()
    if backend not in ("", "cpu"):
        return f"numerics profile 'strict' holds on the CPU backend alone, and this is {backend}. {_INSTEAD}"
    return ""


_INSTEAD = (
    "Recordings are certified instead (identity='auto'): their results have production's bits, but "
    "jitted, eager and NumPy runs need not agree"
)


def _say(reason: str) -> None:
    """Warn; where warnings are errors, print, since nothing is wrong with the program."""
    try:
        warnings.warn(f"jaxtap: {reason}", NumericsWarning, stacklevel=3)
    except NumericsWarning:
        sys.stderr.write(f"jaxtap: warning: {reason}\n")


@cache
def _runs_strict() -> bool:
    """Whether XLA has read the flags of `strict`; never changes once a backend runs."""
    from jaxtap_core._compat import parsed_xla_options

    passes, isa, fast_math = parsed_xla_options()
    return _is_strict(passes.split(","), isa, fast_math)


def _is_strict(disabled_passes: list[str], isa: str, fast_math: bool) -> bool:
    left_out = set(_STRICT_PASSES) <= set(disabled_passes)
    return left_out and isa.upper() == _STRICT_ISA and not fast_math


def _missing_flags(present: str) -> str:
    """What has to be added to `XLA_FLAGS` for `strict`; an error where that cannot work."""
    if present.strip() and not present.lstrip().startswith("--"):
        raise NumericsError(
            f"XLA_FLAGS={present} names a file, to which nothing can be added. Put the flags of "
            f"numerics profile 'strict' there: {_spelled(True, _STRICT_PASSES)}"
        )
    flags = _parse(present)
    if _is_on(flags.get(_FAST_MATH, ["false"])[-1]):
        raise _conflict(f"--{_FAST_MATH}=false", f"--{_FAST_MATH}={flags[_FAST_MATH][-1]}")
    isa = flags.get(_ISA, [""])[-1]
    if isa and isa.upper() != _STRICT_ISA:
        raise _conflict(f"--{_ISA}={_STRICT_ISA}", f"--{_ISA}={isa}")
    return _spelled(not isa, [name for name in _STRICT_PASSES if name not in _listed(flags)])


def _conflict(needed: str, present: str) -> NumericsError:
    return NumericsError(
        f"numerics profile 'strict' needs {needed}, but XLA_FLAGS has {present}. Remove that flag, or use 'native'"
    )


def _parse(flags: str) -> dict[str, list[str]]:
    """The values given to each flag, in order; a flag without a value has an empty one."""
    parsed: dict[str, list[str]] = {}
    for token in shlex.split(flags):
        name, _, value = token.removeprefix("--").partition("=")
        parsed.setdefault(name, []).append(value)
    return parsed


def _listed(flags: dict[str, list[str]]) -> list[str]:
    """The HLO passes that `flags` disable."""
    return ",".join(flags.get(_PASSES, [])).split(",")


def _spelled(isa: bool, passes: Sequence[str]) -> str:
    """The flags of `strict`: whether with that of the instruction set, and with which passes."""
    flags = [f"--{_ISA}={_STRICT_ISA}"] if isa else []
    if passes:
        flags.append(f"--{_PASSES}={','.join(passes)}")
    return " ".join(flags)


def _is_on(value: str) -> bool:
    """A boolean flag as XLA reads it: given without a value it is on."""
    return value.lower() in ("", "1", "true")


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _chosen_platform() -> str:
    """The platform that the environment asks for; empty if JAX may choose."""
    return os.environ.get("JAX_PLATFORMS", "").split(",")[0]


def _backend_runs() -> bool:
    """Whether XLA has read its flags. Without JAX nothing can have, and asking would import it."""
    if "jax" not in sys.modules:
        return False
    from jaxtap_core._compat import backends_are_initialized

    return backends_are_initialized()
