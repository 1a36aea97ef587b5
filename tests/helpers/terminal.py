"""A terminal to run things on, as far as the plugin and pytest use one: what it was sent, and what it shows at the end.

Of control sequences it knows the few handled below; colours are dropped, any other is an error.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress

ROWS, COLUMNS = 12, 100
_TOKEN = re.compile(r"\x1b\[[\d;]*[A-Za-z]|\x1b.|.", re.DOTALL)


def run(command: Sequence[str], folder: str, environment: Mapping[str, str]) -> str:
    """Run ``command`` with a terminal for its output; everything that it wrote there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(command, stdout=slave, stderr=slave, cwd=folder, env=dict(environment)) as process:
        os.close(slave)
        written = b""
        with suppress(OSError):  # the other end is closed
            while data := os.read(master, 65536):
                written += data
        os.close(master)
        process.wait(timeout=60)
    return written.decode()


def screen(written: str) -> list[str]:
    """All lines of a terminal of `ROWS` and `COLUMNS` after ``written``: those that scrolled out of it, and the rest.

    Raises:
        ValueError: a control sequence that is not known here.
    """
    gone: list[str] = []
    rows = [[" "] * COLUMNS for _ in range(ROWS)]
    row = column = 0
    saved = (0, 0)

    def down() -> None:
        nonlocal row
        if row + 1 < ROWS:
            row += 1
            return
        gone.append("".join(rows.pop(0)))
        rows.append([" "] * COLUMNS)

    for token in _TOKEN.findall(written):
        if token == "\n" or token == "\x1bD":
            down()
        elif token == "\r":
            column = 0
        elif token == "\x1b[A":
            row = max(row - 1, 0)
        elif token == "\x1b[B":
            row = min(row + 1, ROWS - 1)
        elif token == "\x1b7":
            saved = row, column
        elif token == "\x1b8":
            row, column = saved
        elif token in ("\x1b[K", "\x1b[J"):
            rows[row][column:] = [" "] * (COLUMNS - column)
            if token == "\x1b[J":
                rows[row + 1 :] = [[" "] * COLUMNS for _ in rows[row + 1 :]]
        elif token.startswith("\x1b") and not token.endswith("m"):
            raise ValueError(f"unknown control sequence {token!r}")
        elif not token.startswith("\x1b"):
            if column == COLUMNS:
                column = 0
                down()
            rows[row][column] = token
            column += 1
    return [line.rstrip() for line in [*gone, *map("".join, rows)]]
