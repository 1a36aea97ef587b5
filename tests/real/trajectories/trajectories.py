"""Real trajectories across releases of jax: which agree to the bit, and what the report says of those that do not.

The programs are in ``programs.py``, and what they did on jax 0.10.2 beside it, natively and under strict numerics. With
the interpreter whose jax is to be compared:

    python tests/real/trajectories/trajectories.py compare
    python tests/real/trajectories/trajectories.py record /tmp/other        # with another interpreter, and then
    python tests/real/trajectories/trajectories.py compare /tmp/other

``record`` without a folder writes what is in the repository: with jax 0.10.2. The exit status is 1 where any differs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROFILES = ("native", "strict")


@dataclass(frozen=True)
class Compared:
    """What became of the programs under one profile.

    Attributes:
        status: pytest's exit status.
        output: all that pytest said.
        comparisons: by test, the comparison with its snapshot as ``--jaxtap-json`` gives it.
    """

    status: int
    output: str
    comparisons: dict[str, dict[str, Any]]


def run(profile: str, folder: Path, *arguments: str) -> Compared:
    """Run the programs under one numerics profile, with the snapshots in ``folder``; nothing there is changed unless
    ``--snapshot-update`` is among ``arguments``."""
    snapshots = folder / profile
    with tempfile.TemporaryDirectory() as made:
        place, report = Path(made), Path(made, "report.json")
        shutil.copy(HERE / "programs.py", place)
        if snapshots.exists():
            shutil.copytree(snapshots, place / "__tap_snapshots__" / "programs")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", "-vv"]
        command += [f"--jaxtap-numerics={profile}", f"--jaxtap-json={report}", "programs.py", *arguments]
        done = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        tests = json.loads(report.read_text())["tests"] if report.exists() else []
        if "--snapshot-update" in arguments and done.returncode == 0:
            shutil.copytree(place / "__tap_snapshots__" / "programs", snapshots, dirs_exist_ok=True)
    found = {test["nodeid"].partition("::")[2]: test["comparisons"][0] for test in tests if test["comparisons"]}
    return Compared(done.returncode, done.stdout, found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("folder", nargs="?", type=Path, default=HERE)
    parser.add_argument("--numerics", nargs="+", choices=PROFILES, default=PROFILES)
    asked = parser.parse_args(arguments)
    differ = False
    for profile in asked.numerics:
        compared = run(profile, asked.folder, *(["--snapshot-update"] if asked.what == "record" else []))
        print(f"== {profile}\n{compared.output}")
        differ |= compared.status != 0
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
