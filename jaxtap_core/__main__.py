"""``python -m jaxtap_core diff A.jsonl B.jsonl``: compare two recordings from a shell.

Exit codes, for scripts: 0 equal, 1 different, 2 unusable input.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Sequence

EQUAL, DIFFERENT, UNUSABLE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    from jaxtap_core.compare.diff import diff
    from jaxtap_core.recording.stored import read_jsonl

    try:
        found = diff(
            read_jsonl(options.expected),
            read_jsonl(options.got),
            rtol=options.rtol,
            atol=options.atol,
            ulp=options.ulp,
            nan=options.nan,
        )
    except (OSError, ValueError) as error:
        print(f"jaxtap_core diff: {error}", file=sys.stderr)
        return UNUSABLE
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may be in any script
    print(json.dumps(found.to_dict(), indent=2) if options.json else found)
    return EQUAL if found.equal else DIFFERENT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jaxtap_core", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "diff",
        help="compare two recordings",
        description="Compare two recordings written by Recording.to_jsonl or a JSONLSink. "
        "Exit code: 0 equal, 1 different, 2 unusable input.",
    )
    command.add_argument("expected", metavar="A.jsonl", help="what was expected")
    command.add_argument("got", metavar="B.jsonl", help="what was got")
    command.add_argument("--rtol", type=float, default=0.0, help="relative tolerance (default 0)")
    command.add_argument("--atol", type=float, default=0.0, help="absolute tolerance (default 0)")
    command.add_argument("--ulp", type=int, default=0, help="representable numbers apart (default 0)")
    command.add_argument(
        "--nan",
        choices=("payload", "any"),
        default="payload",
        help="which NaNs are equal: those of equal bits, or any",
    )
    command.add_argument("--json", action="store_true", help="print the differences as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
