"""PYTEST_DONT_REWRITE

The options of the lens, each declared beside what it means, and what all options share: how one is declared with its
twin in the ini file, and how it is read. A report declares its own (`pytest_jaxtap.report.base`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

LEVELS = ("escape", "outputs", "carry", "born")
PROFILES = ("native", "strict")


@dataclass(frozen=True)
class Options:
    """What the session asks of every test; a flag goes before its ini twin.

    Attributes:
        gate: level of the NaN gate (or names of primitives, comma separated), ``None`` while it is
            off.
        inf: whether the gate counts Inf too.
        identity: certify the taps of every test; without taps compare each program with itself.
        max_trips: trip budget of every ``while``.
        live: show on the terminal how far the loops of the running test are.
        allow_nan: node-id patterns of the tests in which the gate stays quiet.
        keep_donated: keep copies of donated inputs, so that the origin of a NaN can be replayed.
    """

    gate: str | None = None
    inf: bool = False
    identity: bool = False
    max_trips: int | None = None
    live: bool = False
    allow_nan: tuple[str, ...] = ()
    keep_donated: bool = False

    @property
    def watches(self) -> bool:
        """Whether tests without a marker run under the lens."""
        return self.gate is not None or self.identity or self.max_trips is not None

    def gate_of(self, nodeid: str) -> str | None:
        """The gate level for one test; ``None`` where the gate is off or kept quiet by a pattern."""
        if self.gate is not None and any(_fits(nodeid, pattern) for pattern in self.allow_nan):
            return None
        return self.gate


class Declarations:
    """Declares options of the command line, each with its twin in the ini file, and options of the ini file alone."""

    def __init__(self, parser: pytest.Parser) -> None:
        self._parser = parser
        self._group = parser.getgroup("jaxtap", "jaxtap: values inside JAX programs")

    def flag(self, name: str, text: str) -> None:
        """``--jaxtap-NAME``, which takes nothing, so that it swallows no path behind it."""
        self._group.addoption(f"--jaxtap-{name}", action="store_true", default=None, dest=_dest(name), help=text)
        self._parser.addini(_dest(name), f"the same as --jaxtap-{name}", type="bool", default=None)

    def value(self, name: str, metavar: str, convert: Callable[[str], Any], text: str) -> None:
        """``--jaxtap-NAME=METAVAR``."""
        self._group.addoption(
            f"--jaxtap-{name}", metavar=metavar, type=convert, default=None, dest=_dest(name), help=text
        )
        self._parser.addini(_dest(name), f"the same as --jaxtap-{name}", default=None)

    def ini(self, name: str, type_: Literal["bool", "linelist"], default: Any, text: str) -> None:
        """``jaxtap_NAME``, in the ini file alone."""
        self._parser.addini(_dest(name), text, type=type_, default=default)


def declare(declarations: Declarations) -> None:
    """Declare the options of the lens."""
    flag, value, ini = declarations.flag, declarations.value, declarations.ini
    flag("nan", "fail each test in which a NaN reaches a loop carry, a per-step output or a result")
    value(
        "nan-level",
        "LEVEL",
        level,
        "where the NaN gate looks: escape (default: what a program keeps), outputs (results only), carry (every loop), "
        "born (every primitive), or names of primitives, comma separated; implies --jaxtap-nan",
    )
    flag("inf", "the NaN gate counts Inf too; implies --jaxtap-nan")
    flag(
        "identity",
        "fail each test in which observing changes a bit of a result, or a program does not reproduce itself",
    )
    value(
        "numerics",
        "|".join(PROFILES),
        profile,
        "numerics profile of the session: native, or strict (bits do not depend on how XLA fuses)",
    )
    value("max-trips", "N", trips, "fail each test in which a while loop makes more than N trips")
    flag(
        "live",
        "while a test runs, show how far its loops are, and how fast, on one line below; runs each program with loops "
        "once ahead for that. On a terminal only: not in CI (the variable CI), under xdist (-n), or with -s",
    )
    ini(
        "allow-nan",
        "linelist",
        [],
        "tests in which the NaN gate stays quiet: node ids, files, folders; * and ? are wild",
    )
    ini(
        "keep-donated",
        "bool",
        False,
        "keep copies of donated inputs, so that the origin of a NaN can be replayed",
    )


def read(config: pytest.Config) -> Options:
    """What the command line and the ini file ask of the lens.

    Raises:
        pytest.UsageError: a value of the ini file makes no sense.
    """
    chosen = given(config, "nan-level", level)
    inf = bool(given(config, "inf"))
    on = bool(given(config, "nan")) or chosen is not None or inf
    return Options(
        gate=(chosen or "escape") if on else None,
        inf=inf,
        identity=bool(given(config, "identity")),
        max_trips=given(config, "max-trips", trips),
        live=bool(given(config, "live")),
        allow_nan=tuple(from_ini(config, "allow-nan")),
        keep_donated=from_ini(config, "keep-donated"),
    )


def apply_numerics(config: pytest.Config) -> None:
    """Set the numerics profile of the session, if one is asked for. JAX reads it when it starts a
    backend.

    Raises:
        pytest.UsageError: the profile cannot hold here, or comes too late.
    """
    chosen = config.known_args_namespace.jaxtap_numerics or from_ini(config, "numerics", profile)
    if chosen is None:
        return
    from jaxtap_core.numerics import NumericsError, numerics

    try:
        numerics(chosen)
    except NumericsError as error:
        raise pytest.UsageError(f"--jaxtap-numerics={chosen}: {error}") from None


def check_primitives(config: pytest.Config, options: Options) -> None:
    """Check names of primitives on the command line; only JAX knows them, so this waits until
    conftests have run.

    Raises:
        pytest.UsageError: there is no such primitive.
    """
    if options.gate is None or options.gate in LEVELS:
        return
    from jaxtap_core.request.levels import GateLevel

    try:
        GateLevel.parse(options.gate)
    except ValueError as error:
        raise pytest.UsageError(f"{_where(config, 'nan-level')}: {error}") from None


def level(text: str) -> str:
    """A level of the gate, or names of primitives as far as they can be told without JAX."""
    if not re.fullmatch(r"[\w*-]+(,[\w*-]+)*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a level ({', '.join(LEVELS)}) nor names of primitives, comma separated"
        )
    for part in text.split(","):
        if part.lower() in LEVELS and text != part.lower():
            raise argparse.ArgumentTypeError(f"{text!r}: a level stands alone and in small letters, {part.lower()!r}")
    return text


def profile(text: str) -> str:
    """A numerics profile."""
    if text not in PROFILES:
        raise argparse.ArgumentTypeError(f"there is no numerics profile {text!r}, only {' and '.join(PROFILES)}")
    return text


def trips(text: str) -> int:
    """A trip budget: a whole number, 1 or more."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a trip budget is a whole number, 1 or more, not {text!r}")
    return int(text)


def _dest(name: str) -> str:
    return "jaxtap_" + name.replace("-", "_")


def _where(config: pytest.Config, name: str) -> str:
    """Where an option was given, for messages."""
    return f"ini option {_dest(name)}" if config.getoption(_dest(name)) is None else f"--jaxtap-{name}"


def given(config: pytest.Config, name: str, convert: Callable[[str], Any] | None = None) -> Any:
    """An option of the command line, or else its twin in the ini file, which ``convert`` makes sense of.

    Raises:
        pytest.UsageError: the twin makes no sense.
    """
    value = config.getoption(_dest(name))
    return from_ini(config, name, convert) if value is None else value


def from_ini(config: pytest.Config, name: str, convert: Callable[[str], Any] | None = None) -> Any:
    """An option of the ini file.

    Raises:
        pytest.UsageError: it makes no sense.
    """
    try:
        value = config.getini(_dest(name))
        return value if convert is None or value is None else convert(value)
    except (argparse.ArgumentTypeError, ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"ini option {_dest(name)}: {error}") from None


def path_given(config: pytest.Config, name: str, *, folder: bool = False) -> Path | None:
    """A path for a report: from where pytest was called, or in the ini file from its folder.

    Args:
        config: of the session.
        name: of the option.
        folder: whether a folder is wanted, not a file.

    Raises:
        pytest.UsageError: nothing can be written there.
    """
    given, base = config.getoption(_dest(name)), config.invocation_params.dir
    if given is None:
        given = config.getini(_dest(name))
        base = config.rootpath if config.inipath is None else config.inipath.parent
    if given is None:
        return None
    where, wanted = _where(config, name), "folder" if folder else "file"
    if not given:
        raise pytest.UsageError(f"{where} takes the path of a {wanted}, none was given")
    path = base / Path(given).expanduser()
    if path.exists() and path.is_dir() != folder:
        raise pytest.UsageError(f"{where} takes a {wanted}, but {given} is a {'file' if folder else 'folder'}")
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise pytest.UsageError(f"{where}: nothing can be written to {given}, since {parent.name} is no folder")
    return path


def _fits(nodeid: str, pattern: str) -> bool:
    """Whether a test stands at or below ``pattern``; brackets in it are not wild."""
    wild = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern.rstrip("/"))
    return re.fullmatch(rf"{wild}($|(/|::|\[).*)", nodeid, re.DOTALL) is not None
