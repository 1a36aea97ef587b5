"""PYTEST_DONT_REWRITE

What travels from the process that runs a test to the one that reports: plain dicts on pytest's own
reports.

xdist carries reports as they come, so a worker that crashes loses nothing but the test it was
running. Only exact ``str``, ``int``, ``float``, ``bool``, ``list``, ``dict`` and ``None`` survive
the way; one NumPy scalar would end the session.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_jaxtap.observe.running import watch_of

MOST_ELEMENTS = 1000  # of a value in a report; longer arrays are shortened

Record = dict[str, Any]


def attach(item: pytest.Item, part: str, content: Any) -> None:
    """Add to the record of a test that runs: ``content`` becomes one entry of its list ``part``.

    Args:
        item: the test.
        part: e.g. ``"comparisons"``.
        content: anything; it is reduced to plain Python types.
    """
    watch_of(item).parts.setdefault(part, []).append(plain(content))


def blank(nodeid: str, location: tuple[str, int | None, str]) -> Record:
    """The record of a test of which nothing is known but where it stands, see ``findings.schema.json``.

    Args:
        nodeid: of the test.
        location: as pytest gives it: file, line counted from 0, name.
    """
    file, line, _ = location
    return {
        "nodeid": nodeid,
        "file": file,
        "line": (line or 0) + 1,
        "failure": [],
        "findings": [],
        "alerts": [],
        "certificates": [],
        "recordings": [],
        "files": [],
        "errors": [],
    }


def plain(value: Any) -> Any:
    """``value`` in exact plain Python types; long arrays as a short text."""
    from jaxtap_core.records.text import plain as to_plain

    return json.loads(json.dumps(to_plain(shortened(value))))


def shortened(value: Any) -> Any:
    from jaxtap_core.records.text import short

    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(item) for item in value]
    if getattr(value, "size", 0) > MOST_ELEMENTS:
        return f"{value.dtype}{list(value.shape)} {short(value)}"
    return value


def taken(report: pytest.TestReport) -> Record | None:
    """The record that came with a report, if any."""
    return getattr(report, "jaxtap", None)


def refuse(config: pytest.Config, items: list[pytest.Item], messages: list[str]) -> None:
    """End the session with usage errors found in what was collected.

    A worker of xdist cannot end the session: it sends the messages in a report, and runs nothing.

    Raises:
        pytest.UsageError: with ``messages``; in a worker its controller raises it, see `refused`.
    """
    if not hasattr(config, "workerinput"):
        raise pytest.UsageError(*messages)
    report = pytest.CollectReport("", "failed", "\n".join(messages), [])
    report.jaxtap_refused = messages  # type: ignore[attr-defined]
    items.clear()
    config.hook.pytest_collectreport(report=report)


def refused(report: pytest.CollectReport) -> None:
    """Raise what a worker could not.

    Raises:
        pytest.UsageError: the report comes from `refuse`.
    """
    if messages := getattr(report, "jaxtap_refused", None):
        raise pytest.UsageError(*messages)
