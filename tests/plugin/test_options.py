"""Options: what ``--help`` says, flags and their ini twins, and what is refused."""

from __future__ import annotations

from typing import get_args

import pytest
from inner import lay, outcomes, run

from jaxtap_core.numerics import Profile
from jaxtap_core.request import levels
from pytest_jaxtap import options
from pytest_jaxtap.options import Options

FLAGS = ("nan", "inf", "identity", "live", "github")
VALUES = {
    "nan-level": "LEVEL",
    "numerics": "native|strict",
    "max-trips": "N",
    "json": "PATH",
    "html": "PATH",
    "jsonl": "DIR",
}
INI_ALONE = ("jaxtap_allow_nan (linelist)", "jaxtap_keep_donated (bool)", "jaxtap_junit (bool)")


def test_help_shows_every_option_and_its_twin(pytester: pytest.Pytester) -> None:
    text = run(pytester, "--help").stdout.str()
    for flag in FLAGS:
        assert f"  --jaxtap-{flag} " in text
        assert f"  jaxtap_{flag} (bool):" in text
    for name, metavar in VALUES.items():
        assert f"  --jaxtap-{name}={metavar}" in text
        assert f"  jaxtap_{name.replace('-', '_')} (string):" in text
    for line in INI_ALONE:
        assert line in text


def test_the_words_that_options_take_are_those_of_the_lens() -> None:
    """They are written twice, since the plugin reads its options without the lens."""
    assert set(options.LEVELS) == set(levels.LEVELS)
    assert set(options.PROFILES) == set(get_args(Profile))


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_swallows_no_path(pytester: pytest.Pytester, flag: str) -> None:
    pytester.makepyfile(test_one="def test_one(): pass", test_two="def test_two(): pass")
    run(pytester, f"--jaxtap-{flag}", "test_one.py").assert_outcomes(passed=1)


LEVELS = """
def test_escapes():
    descend(1.0)

def test_masked():
    x = jnp.float32(-1.0)
    jax.jit(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0))(x)

def test_inf():
    overflow(1e3)

def test_dead_end():  # no NaN leaves the loop, none is a result
    jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jnp.nan_to_num(jnp.sqrt(y)), x))(jnp.float32(-1.0))
"""
CAUGHT = {
    "--jaxtap-nan": {"test_escapes"},
    "--jaxtap-nan-level=outputs": {"test_escapes"},
    "--jaxtap-nan-level=carry": {"test_escapes"},
    "--jaxtap-nan-level=born": {"test_escapes"},  # what selects drop harms nothing
    "--jaxtap-nan-level=log,sqrt": {"test_escapes", "test_masked", "test_dead_end"},
    "--jaxtap-inf": {"test_escapes", "test_inf"},
    "": set(),
}


@pytest.mark.parametrize("option", CAUGHT)
def test_levels(pytester: pytest.Pytester, option: str) -> None:
    lay(pytester, LEVELS)
    found = outcomes(run(pytester, "-v", *filter(None, [option])))
    assert {name for name, was in found.items() if was == "failed"} == CAUGHT[option]
    assert len(found) == 4


@pytest.mark.parametrize(
    ("ini", "args", "failed"),
    [
        ("jaxtap_nan = true", (), True),
        ("jaxtap_nan_level = outputs", (), True),
        ("jaxtap_inf = true", (), True),
        ("jaxtap_nan_level = log", (), False),
        ("jaxtap_nan_level = log", ("--jaxtap-nan-level=escape",), True),
        ("jaxtap_nan = true", ("-o", "jaxtap_nan=false"), False),
        ("jaxtap_nan = true\njaxtap_allow_nan = test_inner.py", (), False),
    ],
)
def test_ini_twins(pytester: pytest.Pytester, ini: str, args: tuple[str, ...], failed: bool) -> None:
    lay(pytester, "def test_it():\n    descend(1.0)\n", ini)
    run(pytester, *args).assert_outcomes(failed=int(failed), passed=int(not failed))


@pytest.mark.parametrize(
    ("pattern", "quiet"),
    [
        ("tests/model", True),
        ("tests/model/", True),
        ("tests/model/test_a.py", True),
        ("tests/model/test_a.py::TestFit", True),
        ("tests/model/test_a.py::TestFit::test_x", True),
        ("tests/model/test_a.py::TestFit::test_x[1-y]", True),
        ("tests/model/test_a.py::TestFit::test_x[2-y]", False),
        ("tests/mod", False),
        ("test_a.py", False),
        ("*::test_x", True),
        ("*test_a.py", True),
        ("tests/model/test_?.py", True),
        ("tests/model/test_a.py::TestFit::test", False),
    ],
)
def test_patterns_of_allow_nan(pattern: str, quiet: bool) -> None:
    options = Options(gate="escape", allow_nan=(pattern,))
    gate = options.gate_of("tests/model/test_a.py::TestFit::test_x[1-y]")
    assert gate == (None if quiet else "escape")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--jaxtap-nan-level=tests/",), "*'tests/' is neither a level (escape, outputs, carry, born) nor*"),
        (("--jaxtap-nan-level=sqroot",), "*no JAX primitive is called 'sqroot'; did you mean 'sqrt'*"),
        (("--jaxtap-max-trips=0",), "*a trip budget is a whole number, 1 or more, not '0'*"),
        (("-o", "jaxtap_max_trips=many"), "*ini option jaxtap_max_trips: *not 'many'*"),
        (("--jaxtap-numerics=loose",), "*no numerics profile 'loose', only native and strict*"),
        (("--jaxtap-json=.",), "*--jaxtap-json takes a file, but . is a folder*"),
        (("--jaxtap-jsonl=test_one.py",), "*--jaxtap-jsonl takes a folder, but test_one.py is a file*"),
        (("--jaxtap-nan-level=Escape",), "*'Escape': a level stands alone and in small letters, 'escape'*"),
        (("--jaxtap-nan-level=born,log",), "*'born,log': a level stands alone *'born'*"),
        (("-o", "jaxtap_nan_level=escap"), "*ini option jaxtap_nan_level: 'escap' *Did you mean the level 'escape'?*"),
        (("-o", "jaxtap_live=maybe"), "*ini option jaxtap_live: invalid truth value 'maybe'*"),
        (("-o", "jaxtap_keep_donated=x"), "*ini option jaxtap_keep_donated: invalid truth value 'x'*"),
        (("--jaxtap-json=",), "*--jaxtap-json takes the path of a file, none was given*"),
        (("-o", "jaxtap_jsonl="), "*ini option jaxtap_jsonl takes the path of a folder, none was given*"),
        (
            ("--jaxtap-html=test_one.py/a",),
            "*--jaxtap-html: nothing can be written to *since test_one.py is no folder*",
        ),
        (
            ("--jaxtap-json=a", "--jaxtap-html=a"),
            "*--jaxtap-json and --jaxtap-html would both be written to *give two*",
        ),
    ],
)
def test_nonsense_is_a_usage_error(pytester: pytest.Pytester, args: tuple[str, ...], message: str) -> None:
    pytester.makepyfile(test_one="def test_one(): pass")
    result = run(pytester, *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_numerics_come_too_late_when_a_backend_runs(pytester: pytest.Pytester) -> None:
    import jax

    jax.devices()
    pytester.makepyfile(test_one="def test_one(): pass")
    result = run(pytester, "--jaxtap-numerics=strict")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--jaxtap-numerics=strict: *too late*"])


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["serial", "n1"])
def test_strict_numerics_precede_the_conftests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    pytester.makeconftest("import jax\njax.devices()\n")
    pytester.makeini("[pytest]\njaxtap_numerics = strict\n")
    pytester.makepyfile(
        test_profile="""
        def test_profile():
            from jaxtap_core.numerics import current_profile
            assert current_profile() == "strict"
        """
    )
    run(pytester, *workers, subprocess=True).assert_outcomes(passed=1)


def test_xdist_hears_of_wrong_options_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one="def test_one(): pass")
    result = run(pytester, "-n2", "--jaxtap-nan-level=sqroot")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no JAX primitive is called 'sqroot'*"])
