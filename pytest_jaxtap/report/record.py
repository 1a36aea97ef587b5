"""PYTEST_DONT_REWRITE

The record of one test: what was seen and compared in it, as plain data for reports and as text for a failure.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from pytest_jaxtap.observe.running import WATCH
from pytest_jaxtap.observe.watch import Seen, Watch, told
from pytest_jaxtap.report.base import REPORTS
from pytest_jaxtap.report.comparison import Comparison
from pytest_jaxtap.report.wire import Record, attach, blank, plain, shortened

if TYPE_CHECKING:
    from jaxtap_core import Alert, Finding, Recording, TapEvent


def compared(item: pytest.Item, comparison: Comparison) -> None:
    """The test ``item``, which still runs, compared something with a snapshot; kept if a report was asked for."""
    if reports := item.config.stash[REPORTS]:
        attach(item, "comparisons", comparison.to_dict())
    for report in reports:
        report.compared(item, comparison)


def put(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put the record of a test on its report, and what was seen into the text of a failure."""
    watch = item.stash.get(WATCH, None)
    if watch is None or (report.when != "call" and report.passed):
        return
    if watch.demand.idle and not watch.seen and not watch.parts:
        return
    record = _record(item, watch)
    for one in item.config.stash[REPORTS]:
        one.tested(item, watch, record)
    report.jaxtap = record  # type: ignore[attr-defined]
    if report.failed and (text := _section(watch)):
        report.sections.append(("jaxtap", text))


def _record(item: pytest.Item, watch: Watch) -> Record:
    recordings = [seen.recording for seen in watch.seen]
    record = blank(item.nodeid, item.location) | {
        "failure": watch.failure.splitlines() if watch.failure is not None else [],
        "findings": [_finding(finding) for r in recordings for finding in r.findings],
        "alerts": [_alert(alert) for r in recordings for alert in r.alerts],
        "certificates": [plain(r.certificate) for r in recordings if r.certificate is not None],
        "recordings": [_recording(seen) for seen in watch.seen if len(seen.recording)],
        "extra": {},
        **watch.parts,
    }
    if any(record[part] for part in ("findings", "alerts", "certificates", "recordings")):
        from jaxtap_core.telemetry.environment import fingerprint

        record["environment"] = plain(fingerprint())  # a program ran, so a backend runs
    return record


def _finding(finding: Finding) -> Record:
    from jaxtap_core.records.story import tell

    event = finding.event
    return plain({**finding.to_dict(), "event": _event(event), "story": tell(finding, verbose=True)})


def _alert(alert: Alert) -> Record:
    return plain({"message": alert.message, "source": alert.source, "event": _event(alert.event)})


def _event(event: TapEvent) -> Record:
    content = {field.name: getattr(event, field.name) for field in fields(event)}
    return {**content, "value": shortened(event.value)}


def _recording(seen: Seen) -> Record:
    streams = [
        {
            "program": stream.key.program,
            "call": stream.key.call,
            "path": stream.key.path,
            "kind": stream.key.kind,
            "leaves": list(stream.key.names),
            "events": len(stream),
        }
        for stream in seen.recording.streams
    ]
    return plain({"source": seen.source, "events": len(seen.recording), "streams": streams})


_NOTE = (
    "note: the NaN gate looked into loops, so the last bits of their results may not be production's;\n"
    "  a test that compares bits by hand gets production's with @pytest.mark.tap(bitwise=True)"
)


def _section(watch: Watch) -> str:
    """What was seen, for the report of a failing test, as far as its failure has not told it."""
    lines: list[str] = []
    for seen in watch.seen:
        if len(seen.recording):
            lines += _streams(seen.recording)
    if watch.failure is None:
        objections = watch.objections()
        lines += told(objections, verbose=watch.verbose).splitlines() if objections else []
        if watch.demand.disturbs:
            lines.append(_NOTE)
    return "\n".join(lines)


def _streams(recording: Recording) -> list[str]:
    """One line a stream, with its first and its last event."""
    lines = [repr(recording).strip("<>")]
    for stream in recording.streams:
        first, last = stream.event(0), stream.event(len(stream) - 1)
        lines.append(f"  {stream.key.program}, {stream.key.kind} {first}")
        if len(stream) > 1:
            lines.append(f"    … {len(stream)} events … {last}")
    return lines
