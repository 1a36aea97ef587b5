"""Other people's test suites under the plugin: the same outcomes as without it, and what that costs.

Downloads the source distribution of a package, unpacks it, and runs the tests in it in several ways that take turns:

    plain     without the plugin (``-p no:jaxtap``)
    idle      the plugin is there and asked for nothing
    nan       ``--jaxtap-nan``
    outputs   ``--jaxtap-nan-level=outputs``

Every test whose outcome is not the plain one is printed with the reason, then the time of each way as a ratio to plain:
wall time, and processor time, which neighbours on the machine disturb less. Examples, from anywhere:

    python tests/real/suites.py optax==0.2.8
    python tests/real/suites.py blackjax==1.7.1 --select "tests/mcmc/*.py" "tests/smc/*.py" --repeat 3
    python tests/real/suites.py numpyro==0.22.0 --select test/test_handlers.py --ways plain nan --out outcomes/

Packages that a suite needs (chex, absl-py, …) must be installed beside jax. The exit status is 1 where an outcome
differs, whatever the reason: a real NaN in somebody's test is a difference too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

WAYS: Mapping[str, tuple[str, ...]] = {
    "plain": ("-p", "no:jaxtap"),
    "idle": (),
    "nan": ("--jaxtap-nan",),
    "outputs": ("--jaxtap-nan-level=outputs",),
}

# pytest-asyncio warns about its configuration at start, which ends a suite that turns warnings into errors.
APART = ("-p", "no:cacheprovider", "-p", "no:asyncio")


class Unavailable(Exception):
    """The source distribution could not be had; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """How one test ended (``passed``, ``failed``, ``error``, ``skipped``), and why if it did not pass."""

    word: str
    reason: str = ""


@dataclass(frozen=True)
class Result:
    """One run of a suite: outcomes by test id, seconds of wall clock and of processor, pytest's exit status."""

    outcomes: Mapping[str, Outcome]
    wall: float
    cpu: float
    status: int
    output: str


def fetch(requirement: str, into: Path, *, timeout: float = 300) -> Path:
    """Folder of the unpacked source distribution of ``requirement`` (``name==version``), downloaded with pip.

    Raises:
        Unavailable: pip could not get it.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-q"]
    try:
        done = subprocess.run(
            [*command, "-d", str(into), requirement], capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"pip gave no answer in {timeout:g} s when asked for {requirement}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise Unavailable(f"pip cannot download {requirement}: {lines[0] if lines else 'it does not say why'}")
    archive = next(into.glob("*.tar.gz"))
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")
    return into / archive.name.removesuffix(".tar.gz")


def run(root: Path, files: Sequence[str], way: str, *, timeout: float = 3600) -> Result:
    """Run ``files`` of the suite at ``root`` one way, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "junit.xml")
        command = [sys.executable, "-m", "pytest", "-q", *APART]
        command += ["--continue-on-collection-errors", f"--junitxml={report}", *WAYS[way], *files]
        before, began = os.times(), time.perf_counter()
        done = subprocess.run(
            command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False
        )
        wall, after = time.perf_counter() - began, os.times()
        cpu = after.children_user - before.children_user + after.children_system - before.children_system
        outcomes = read_outcomes(report) if report.exists() else {}
    return Result(outcomes, wall, cpu, done.returncode, done.stdout)


def read_outcomes(report: Path) -> dict[str, Outcome]:
    """Outcomes of a JUnit file by ``class::name``; an error in a fixture counts over the body's outcome."""
    outcomes: dict[str, Outcome] = {}
    for case in ET.parse(report).iter("testcase"):
        if case.get("name") is None:  # the test that was running when somebody interrupted pytest
            continue
        name = f"{case.get('classname')}::{case.get('name')}"
        outcome = Outcome("passed")
        for tag, word in (("skipped", "skipped"), ("failure", "failed"), ("error", "error")):
            told = case.find(tag)
            if told is not None:
                outcome = Outcome(word, told.get("message") or "")
        if name not in outcomes or outcome.word in ("failed", "error"):
            outcomes[name] = outcome
    return outcomes


def differences(plain: Result, other: Result) -> list[str]:
    """One text for every test that ended otherwise than in the plain run."""
    lines = []
    for name in sorted({*plain.outcomes, *other.outcomes}):
        was, now = (result.outcomes.get(name, Outcome("missing")) for result in (plain, other))
        if was.word != now.word:
            reason = (now.reason or was.reason).splitlines()
            lines.append("\n    ".join([f"{name}: {was.word} -> {now.word}", *reason]))
    return lines


def summary(result: Result) -> str:
    """Counts of the outcomes, e.g. ``12 passed, 1 skipped``."""
    counts = Counter(outcome.word for outcome in result.outcomes.values())
    return ", ".join(f"{counts[word]} {word}" for word in sorted(counts)) or f"no outcome (status {result.status})"


def compare(root: Path, files: Sequence[str], ways: Sequence[str], repeat: int, out: Path | None) -> bool:
    """Run all ways in turn, print differences and ratios; whether all outcomes are the same."""
    times: dict[str, list[Result]] = {way: [] for way in ways}
    same = True
    for number in range(repeat):
        for way in ways:
            result = run(root, files, way)
            times[way].append(result)
            print(f"{way:8} {summary(result)}; wall {result.wall:.1f} s, cpu {result.cpu:.1f} s", flush=True)
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                (out / f"{way}.{number}.log").write_text(result.output)
    plain = times["plain"]
    for way in ways:
        if way == "plain":
            told = [line for again in plain[1:] for line in differences(plain[0], again)]
            title = "plain runs differ from each other"
        else:
            told, title = differences(plain[0], times[way][0]), f"{way} differs from plain"
            same &= not told
        if told:
            print(f"\n{title} in {len(told)} tests:", *told, sep="\n  ")
        walls = [a.wall / b.wall for a, b in zip(times[way], plain, strict=True)]
        cpus = [a.cpu / b.cpu for a, b in zip(times[way], plain, strict=True)]
        print(f"{way:8} wall x {_middle(walls):.2f}   cpu x {_middle(cpus):.2f}   (median of {repeat})")
    return same


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirement", help="the package, NAME==VERSION, or the folder of an unpacked distribution")
    parser.add_argument("--select", nargs="+", default=[], help="files or globs in it (default: all it collects)")
    parser.add_argument("--ways", nargs="+", default=["plain", "idle", "nan"], choices=WAYS, help="how to run it")
    parser.add_argument("--repeat", type=int, default=1, help="how often each way runs")
    parser.add_argument("--out", type=Path, help="folder for the output of every run")
    chosen = parser.parse_args(arguments)
    if "plain" not in chosen.ways:
        parser.error("--ways needs plain: the others are compared with it")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(chosen.requirement)
        if not root.is_dir():
            try:
                root = fetch(chosen.requirement, Path(folder))
            except Unavailable as error:
                print(error, file=sys.stderr)
                return 2
        files = sorted(str(p.relative_to(root)) for pattern in chosen.select for p in root.glob(pattern))
        if chosen.select and not files:
            parser.error(f"nothing in {root.name} fits {' '.join(chosen.select)}")
        return 0 if compare(root, files, chosen.ways, chosen.repeat, chosen.out) else 1


if __name__ == "__main__":
    sys.exit(main())
