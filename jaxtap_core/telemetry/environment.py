"""The environment a recording was made in: what decides its bits, besides the program."""

from __future__ import annotations

import os
import platform
from typing import Any

import jax
import jaxlib.version

# XLA flags that are known to change what is computed; all others are about speed, dumps and logs.
_FLAGS = (
    "xla_allow_excess_precision",
    "xla_backend_optimization_level",
    "xla_cpu_enable_fast_m",
    "xla_cpu_max_isa",
    "xla_disable_hlo_passes",
    "xla_force_host_platform_device_count",
    "xla_gpu_deterministic_ops",
    "xla_gpu_enable_fast_m",
    "xla_gpu_exclude_nondeterministic_ops",
)

Environment = dict[str, Any]


def fingerprint() -> Environment:
    """What the bits of a JAX program depend on, besides the program; starts a backend if none runs.

    Returns:
        plain dict of strings, booleans and lists of strings; keys in a fixed order.

    Example:
        >>> sorted(fingerprint())[:3]
        ['backend', 'device_kind', 'jax']
    """
    from jaxtap_core.numerics import current_profile

    device = jax.devices()[0]
    precision = jax.config.jax_default_matmul_precision
    return {
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "backend": device.platform,
        "device_kind": device.device_kind,
        "x64": bool(jax.config.jax_enable_x64),
        "prng_impl": str(jax.config.jax_default_prng_impl),
        "threefry_partitionable": bool(jax.config.jax_threefry_partitionable),
        "matmul_precision": None if precision is None else str(precision),
        "numerics": str(current_profile()),
        "xla_flags": sorted(
            flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.lstrip("-").startswith(_FLAGS)
        ),
    }


def differences(expected: Environment, got: Environment) -> dict[str, tuple[Any, Any]]:
    """The entries that differ, as ``name: (expected, got)``; what one side lacks is ``None``."""
    names = dict.fromkeys([*expected, *got])
    return {name: (expected.get(name), got.get(name)) for name in names if expected.get(name) != got.get(name)}
