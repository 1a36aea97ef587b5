"""Numerics profiles: chosen before a backend starts, told from what XLA really read.

Everything here runs in processes of its own, since a process has one profile for life.
"""

import inspect
import os
import platform
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from jaxtap_core.numerics import numerics

PASSES = "--xla_disable_hlo_passes=algsimp,small-while-loop-hoisting"
STRICT = f"--xla_cpu_max_isa=AVX {PASSES}"

_FACTS = Path("/proc/cpuinfo")  # there on Linux alone
CPU = _FACTS.read_text().split() if _FACTS.exists() else []

x86_only = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="strict needs an x86-64 CPU"
)


def run(code: str, flags: str = "", before: tuple[str, ...] = (), told: bool = False, **environment: str) -> str:
    """Standard output (or, ``told``, error) of `code` in a new interpreter whose `XLA_FLAGS` are `flags`."""
    outer = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    done = subprocess.run(
        [*before, sys.executable, "-c", "import os, sys\n" + textwrap.dedent(code)],
        env=outer | environment | ({"XLA_FLAGS": flags} if flags else {}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return (done.stderr if told else done.stdout).strip()


REFUSED = """
    from jaxtap_core.numerics import NumericsError, numerics
    try:
        numerics("strict")
    except NumericsError as error:
        print(error)
"""


def test_the_module_itself_imports_no_jax():
    code = f"""
        import importlib.util
        spec = importlib.util.spec_from_file_location("numerics", {inspect.getfile(numerics)!r})
        numerics = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(numerics)
        numerics.numerics("native")
        numerics.current_profile()
        print("jax" in sys.modules or "numpy" in sys.modules)
    """
    assert run(code) == "False"


@x86_only
@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ("", STRICT),
        (
            "--xla_force_host_platform_device_count=2",
            f"--xla_force_host_platform_device_count=2 {STRICT}",
        ),
        ("--xla_disable_hlo_passes=dce,cse", f"--xla_disable_hlo_passes=dce,cse {STRICT}"),
        (
            "--xla_disable_hlo_passes=dce,algsimp --xla_cpu_max_isa=avx",
            "--xla_disable_hlo_passes=dce,algsimp --xla_cpu_max_isa=avx "
            "--xla_disable_hlo_passes=small-while-loop-hoisting",
        ),
        (STRICT, STRICT),
    ],
)
def test_flags_of_the_user_are_kept(present, expected):
    code = """
        from jaxtap_core.numerics import current_profile, numerics
        numerics("strict")
        numerics("strict")
        print(os.environ["XLA_FLAGS"], current_profile(), sep="|")
        numerics("native")
        print(os.environ["XLA_FLAGS"])
    """
    strict, _, native = run(code, present).partition("\n")
    assert strict == f"{expected}|strict"
    assert native == present


@x86_only
def test_xla_reads_both_lists_of_disabled_passes_and_the_users_devices():
    code = """
        from jaxtap_core.numerics import numerics
        numerics("strict")
        import jax
        print(jax.device_count())
        from jaxtap_core._compat import parsed_xla_options
        print(parsed_xla_options())
    """
    flags = "--xla_force_host_platform_device_count=2 --xla_disable_hlo_passes=some-pass"
    expected = "('some-pass,algsimp,small-while-loop-hoisting', 'AVX', False)"
    assert run(code, flags).splitlines() == ["2", expected]


@x86_only
@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("--xla_cpu_max_isa=AVX2", ["--xla_cpu_max_isa=AVX,", "--xla_cpu_max_isa=AVX2"]),
        ("--xla_cpu_enable_fast_math", ["fast_math=false", "has --xla_cpu_enable_fast_math="]),
        ("/etc/xla_flags", ["XLA_FLAGS=/etc/xla_flags names a file", STRICT]),
    ],
)
def test_a_contradiction_in_the_flags_is_an_error_that_names_both_sides(flags, names):
    message = run(REFUSED, flags)
    for name in names:
        assert name in message


OUT_OF_REACH = """
    import warnings
    from jaxtap_core.numerics import current_profile, numerics
    if not os.environ.get("ERRORS"):
        warnings.simplefilter("always")
    numerics("strict")
    print(current_profile(), os.environ.get("XLA_FLAGS", "no flags"))
    if not os.environ.get("JAX_PLATFORMS"):
        import jax, jaxtap_core as tap
        with tap.record(carry=True) as rec:
            jax.lax.fori_loop(0, 3, lambda i, x: x * 1.5, 1.0)
        print(rec.certificate)
"""


@x86_only
def test_a_backend_that_strict_does_not_reach_stays_native_and_is_told():
    assert run(OUT_OF_REACH, JAX_PLATFORMS="cuda,cpu").splitlines() == ["native no flags"]
    assert "holds on the CPU backend alone, and this is cuda" in run(OUT_OF_REACH, JAX_PLATFORMS="cuda", told=True)


def on_another_machine():
    """What makes a command believe that it runs on a machine without the switch."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ()
    if not shutil.which("setarch"):
        pytest.skip("nothing here to run as another architecture")
    return ("setarch", "linux32")  # the kernel then calls this machine i686


@pytest.mark.parametrize("errors", ["", "error::UserWarning"])
def test_a_machine_without_the_switch_certifies_instead_and_says_so(errors):
    before = on_another_machine()
    told = run(OUT_OF_REACH, before=before, told=True, PYTHONWARNINGS=errors, ERRORS=errors)
    assert "'strict' cannot hold on" in told
    assert "Recordings are certified instead" in told
    lines = run(OUT_OF_REACH, before=before, PYTHONWARNINGS=errors, ERRORS=errors).splitlines()
    assert lines == ["native no flags", "identical: 1 programs"]


def test_an_unknown_profile_is_an_error():
    with pytest.raises(ValueError, match="no numerics profile 'fast'"):
        numerics("fast")  # type: ignore[arg-type]


@x86_only
def test_after_a_backend_has_started_the_profile_is_what_xla_read_then():
    code = """
        from jaxtap_core.numerics import NumericsError, current_profile, numerics
        first, second = os.environ["PROFILES"].split(",")
        numerics(first)
        import jax
        jax.devices()
        os.environ["XLA_FLAGS"] = os.environ["LATER"]
        print(current_profile())
        numerics(first)
        try:
            numerics(second)
        except NumericsError as error:
            print(error)
    """
    was_strict = run(code, PROFILES="strict,native", LATER="").splitlines()
    was_native = run(code, PROFILES="native,strict", LATER=STRICT).splitlines()
    assert was_strict[0] == "strict"
    assert was_native[0] == "native"
    assert "started a backend under 'strict'" in was_strict[1]
    assert "started a backend under 'native'" in was_native[1]


@x86_only
def test_importing_jax_does_not_make_it_too_late():
    code = """
        import jax
        from jaxtap_core.numerics import current_profile, numerics
        numerics("strict")
        jax.devices()
        print(current_profile())
    """
    assert run(code) == "strict"


# Each line is a way in which XLA is known to round differently when it may: contraction, division
# by a root or a constant, chains of constants, a cancellation.
SAME_BITS = """
    from jaxtap_core.numerics import numerics
    numerics(os.environ["PROFILE"])
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jaxtap_core.compare.bits import compare_bits

    f32 = np.float32

    def outputs(m, x, y):
        return [
            x * y - x * x,
            x / m.sqrt(abs(y)),
            x / f32(3),
            (x * f32(3.1)) * f32(0.7),
            (x + f32(1e6)) - f32(1e6),
            m.where(x > y, x * y + y, m.sqrt(abs(x)) * m.sqrt(abs(y))),
        ]

    x, y = np.random.default_rng(0).standard_normal((2, 1000)).astype(f32)
    by_numpy = outputs(np, x, y)
    eager = outputs(jnp, jnp.asarray(x), jnp.asarray(y))
    jitted = jax.jit(lambda x, y: outputs(jnp, x, y))(x, y)
    print(compare_bits(eager, by_numpy).identical, compare_bits(jitted, by_numpy).identical)

    def loop(x, y, observed):
        def step(carry, _):
            new = [*outputs(jnp, carry, y), jnp.cbrt(carry)]
            t = jnp.sqrt(abs(carry) + 1)
            if observed == "live":
                jax.debug.callback(lambda *values: None, t, *new)
            carry = jnp.tanh(sum(new) / t)
            return carry, (t, new) if observed == "data" else None
        return jax.lax.scan(step, x, None, length=5)

    run = jax.jit(loop, static_argnums=2)
    same = []
    for x, y in ((x, y), (x[:8], y[:8])):  # small loops are compiled in a way of their own
        production = run(x, y, "")[0]
        same += [compare_bits(run(x, y, how)[0], production).identical for how in ("live", "data")]
    print(*same)
"""


@x86_only
def test_under_strict_jitted_eager_numpy_and_observed_agree_in_every_bit():
    assert run(SAME_BITS, PROFILE="strict").split() == ["True"] * 6


@x86_only
@pytest.mark.skipif("fma" not in CPU, reason="this CPU has no FMA; one that has lifts this")
def test_the_same_programs_do_not_agree_under_native():
    _, jitted, *observed = run(SAME_BITS, PROFILE="native").split()
    assert jitted == "False"
    assert "False" in observed
