"""PYTEST_DONT_REWRITE

The source lines of a place that a finding names, ``model.py:31 (mass_matrix)``.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_jaxtap.report.wire import Record

AROUND = 2  # lines shown before and after


def excerpts(places: Iterable[str]) -> Record:
    """The lines around each place whose file is known beyond doubt.

    A place has the name of its file, not the folder: a file counts if it is the only one of that
    name among the modules that are loaded.

    Returns:
        by place ``first`` (number of the first line), ``line`` (of the place) and ``lines``.
    """
    wanted = {place: found for place in places if (found := re.match(r"(.+\.py):(\d+) ", place))}
    if not wanted:
        return {}
    names = {found[1] for found in wanted.values()}
    loaded: dict[str, set[str]] = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and Path(path).name in names:
            loaded.setdefault(Path(path).name, set()).add(path)
    shown: Record = {}
    for place, found in wanted.items():
        paths, line = list(loaded.get(found[1], ())), int(found[2])
        if len(paths) == 1 and line <= len(text := linecache.getlines(paths[0])):
            first = max(1, line - AROUND)
            lines = [one.rstrip("\n") for one in text[first - 1 : line + AROUND]]
            shown[place] = {"first": first, "line": line, "lines": lines}
    return shown
