"""PYTEST_DONT_REWRITE

The options of the plugin, each declared beside what it means, with its twin in the ini file.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        json, html: where findings go, for programs and for people.
        jsonl: the folder for recordings.
        live: show on the terminal how far the loops of the running test are.
        github: annotate the run on GitHub.
        junit: write what was seen as properties of JUnit test cases.
        allow_nan: node-id patterns of the tests in which the gate stays quiet.
        keep_donated: keep copies of donated inputs, so that the origin of a NaN can be replayed.
    """

    gate: str | None = None
    inf: bool = False
    identity: bool = False
    max_trips: int | None = None
    json: Path | None = None
    html: Path | None = None
    jsonl: Path | None = None
    live: bool = False
    github: bool = False
    junit: bool = False
    allow_nan: tuple[str, ...] = ()
    keep_donated: bool = False

    @property
    def watches(self) -> bool:
        """Whether tests without a marker run under the lens."""
        return self.gate is not None or self.identity or self.max_trips is not None

    @property
    def reports(self) -> bool:
        """Whether anything is written when the run is over."""
        return self.json is not None or self.html is not None or self.github

    def gate_of(self, nodeid: str) -> str | None:
        """The gate level for one test; ``None`` where the gate is off or kept quiet by a pattern."""
        if self.gate is not None and any(_fits(nodeid, pattern) for pattern in self.allow_nan):
            return None
        return self.gate


def declare(parser: pytest.Parser) -> None:
    """Declare all options and their ini twins."""
    group = parser.getgroup("jaxtap", "jaxtap: values inside JAX programs")

    def flag(name: str, text: str) -> None:
        group.addoption(f"--jaxtap-{name}", action="store_true", default=None, dest=_dest(name), help=text)
        parser.addini(_dest(name), f"the same as --jaxtap-{name}", type="bool", default=None)

    def value(name: str, metavar: str, convert: Any, text: str) -> None:
        group.addoption(
            f"--jaxtap-{name}",
            metavar=metavar,
            type=convert,
            default=None,
            dest=_dest(name),
            help=text,
        )
        parser.addini(_dest(name), f"the same as --jaxtap-{name}", default=None)

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
    value("json", "PATH", str, "write findings, alerts and certificates to PATH as JSON")
    value("html", "PATH", str, "write a page for people to PATH: findings, and plots of what was compared")
    value("jsonl", "DIR", str, "write every recording to DIR as JSON Lines, a file per test")
    flag(
        "live",
        "while a test runs, show how far its loops are, and how fast, on one line below; runs each program with loops "
        "once ahead for that. On a terminal only: not in CI (the variable CI), under xdist (-n), or with -s",
    )
    flag("github", "annotate the failures on GitHub and add a summary to the step")
    parser.addini(
        "jaxtap_allow_nan",
        "tests in which the NaN gate stays quiet: node ids, files, folders; * and ? are wild",
        type="linelist",
        default=[],
    )
    parser.addini(
        "jaxtap_keep_donated",
        "keep copies of donated inputs, so that the origin of a NaN can be replayed",
        type="bool",
        default=False,
    )
    parser.addini(
        "jaxtap_junit",
        "write findings, alerts and certificates as properties of JUnit test cases",
        type="bool",
        default=False,
    )


def read(config: pytest.Config) -> Options:
    """What the command line and the ini file ask for.

    Raises:
        pytest.UsageError: a value of the ini file, or a path, makes no sense.
    """
    chosen = _given(config, "nan-level", level)
    inf = bool(_given(config, "inf"))
    on = bool(_given(config, "nan")) or chosen is not None or inf
    json, html = _path(config, "json"), _page(config)
    if json is not None and json == html:
        raise pytest.UsageError(f"--jaxtap-json and --jaxtap-html would both be written to {json}: give two paths")
    return Options(
        gate=(chosen or "escape") if on else None,
        inf=inf,
        identity=bool(_given(config, "identity")),
        max_trips=_given(config, "max-trips", trips),
        json=json,
        html=html,
        jsonl=_path(config, "jsonl"),
        live=bool(_given(config, "live")),
        github=bool(_given(config, "github")),
        junit=_from_ini(config, "junit"),
        allow_nan=tuple(_from_ini(config, "allow-nan")),
        keep_donated=_from_ini(config, "keep-donated"),
    )


def apply_numerics(config: pytest.Config) -> None:
    """Set the numerics profile of the session, if one is asked for. JAX reads it when it starts a
    backend.

    Raises:
        pytest.UsageError: the profile cannot hold here, or comes too late.
    """
    chosen = config.known_args_namespace.jaxtap_numerics or _from_ini(config, "numerics", profile)
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


def _given(config: pytest.Config, name: str, convert: Any = None) -> Any:
    value = config.getoption(_dest(name))
    return _from_ini(config, name, convert) if value is None else value


def _from_ini(config: pytest.Config, name: str, convert: Any = None) -> Any:
    try:
        value = config.getini(_dest(name))
        return value if convert is None or value is None else convert(value)
    except (argparse.ArgumentTypeError, ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"ini option {_dest(name)}: {error}") from None


def _path(config: pytest.Config, name: str) -> Path | None:
    """A path: from where pytest was called, or in the ini file from its folder."""
    given, base = config.getoption(_dest(name)), config.invocation_params.dir
    if given is None:
        given = config.getini(_dest(name))
        base = config.rootpath if config.inipath is None else config.inipath.parent
    if given is None:
        return None
    where = _where(config, name)
    if not given:
        raise pytest.UsageError(
            f"{where} takes the path of a {'folder' if name == 'jsonl' else 'file'}, none was given"
        )
    path = base / Path(given).expanduser()
    if name == "jsonl" and path.exists() and not path.is_dir():
        raise pytest.UsageError(f"{where} takes a folder, but {given} is a file")
    if name != "jsonl" and path.is_dir():
        raise pytest.UsageError(f"{where} takes a file, but {given} is a folder")
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise pytest.UsageError(f"{where}: nothing can be written to {given}, since {parent.name} is no folder")
    return path


def _page(config: pytest.Config) -> Path | None:
    path = _path(config, "html")
    if path is not None and importlib.util.find_spec("plotly") is None:
        raise pytest.UsageError("--jaxtap-html draws with plotly, which is missing: pip install 'pytest-jaxtap[html]'")
    return path


def _fits(nodeid: str, pattern: str) -> bool:
    """Whether a test stands at or below ``pattern``; brackets in it are not wild."""
    wild = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern.rstrip("/"))
    return re.fullmatch(rf"{wild}($|(/|::|\[).*)", nodeid, re.DOTALL) is not None
