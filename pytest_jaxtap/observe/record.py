"""PYTEST_DONT_REWRITE

The record of one test: what the lens saw, as plain data for reports and as text for a failure.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from pytest_jaxtap.observe.watch import Seen, Watch, story
from pytest_jaxtap.observe.wire import Record, plain, shortened
from pytest_jaxtap.options import Options
from pytest_jaxtap.stash import OPTIONS, WATCH

if TYPE_CHECKING:
    from jaxtap_core import Alert, Finding, Recording, TapEvent


def put(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put the record of a test on its report, and what was seen into the text of a failure."""
    watch = item.stash.get(WATCH, None)
    if watch is None or (report.when != "call" and report.passed):
        return
    if watch.demand.idle and not watch.seen and not watch.parts:
        return
    options = item.config.stash[OPTIONS]
    record = _record(item, watch, options)
    report.jaxtap = record  # type: ignore[attr-defined]
    if options.junit:
        item.user_properties[:] = [*_foreign(item.user_properties), *_properties(record)]
    if report.failed and (text := _section(watch)):
        report.sections.append(("jaxtap", text))


def _record(item: pytest.Item, watch: Watch, options: Options) -> Record:
    file, line, _ = item.location
    recordings = [seen.recording for seen in watch.seen]
    record: Record = {
        "nodeid": item.nodeid,
        "file": file,
        "line": (line or 0) + 1,
        "failure": watch.failure.splitlines() if watch.failure is not None else [],
        "findings": [_finding(finding) for r in recordings for finding in r.findings],
        "alerts": [_alert(alert) for r in recordings for alert in r.alerts],
        "certificates": [plain(r.certificate) for r in recordings if r.certificate is not None],
        "recordings": [_recording(seen) for seen in watch.seen if len(seen.recording)],
        "files": [],
        "errors": [],
        **watch.parts,
    }
    if options.jsonl is not None:
        from pytest_jaxtap.report.telemetry import write

        record["files"], record["errors"] = write(item.nodeid, recordings, options.jsonl)
    if any(record[part] for part in ("findings", "alerts", "certificates", "recordings")):
        from jaxtap_core.telemetry.environment import fingerprint

        record["environment"] = plain(fingerprint())  # a program ran, so a backend runs
    if options.html is not None:
        record["page"] = for_page(record)
    return record


def for_page(record: Record) -> Record:
    """What only the page shows: ``curves``, a list for each comparison, and ``sources``, by place."""
    from pytest_jaxtap.report.excerpt import excerpts

    places = [finding["event"]["source"] for finding in record["findings"]]
    places += [finding["origin"]["source"] for finding in record["findings"] if finding["origin"]]
    places += [alert["source"] for alert in record["alerts"]]
    return {"curves": record.pop("curves", []), "sources": excerpts(places)}


def _finding(finding: Finding) -> Record:
    from jaxtap_core.records.story import tell

    event = finding.event
    return plain({**finding.to_dict(), "event": _event(event), "story": tell(finding, verbose=True)})


def _alert(alert: Alert) -> Record:
    return plain({"message": alert.message, "source": alert.source, "event": _event(alert.event)})


def _event(event: TapEvent) -> Record:
    told = {field.name: getattr(event, field.name) for field in fields(event)}
    return {**told, "value": shortened(event.value)}


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


def _properties(record: Record) -> list[tuple[str, object]]:
    """What JUnit shows of a record: a line each."""
    told = [("jaxtap_finding", finding["story"][0]) for finding in record["findings"]]
    told += [("jaxtap_alert", alert["message"]) for alert in record["alerts"]]
    return told + [
        ("jaxtap_certificate", "identical" if certificate["identical"] else "not identical")
        for certificate in record["certificates"]
    ]


def _foreign(properties: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """The properties of others; ours of an earlier run of the same test are over."""
    return [(name, value) for name, value in properties if not name.startswith("jaxtap_")]


def _section(watch: Watch) -> str:
    """What was seen, for the report of a failing test, as far as its failure has not told it."""
    lines: list[str] = []
    for seen in watch.seen:
        if len(seen.recording):
            lines += _told(seen.recording)
    if watch.failure is None:
        problems = watch.problems()
        lines += story(problems, verbose=watch.verbose).splitlines() if problems else []
    return "\n".join(lines)


def _told(recording: Recording) -> list[str]:
    """One line a stream, with its first and its last event."""
    lines = [repr(recording).strip("<>")]
    for stream in recording.streams:
        first, last = stream.event(0), stream.event(len(stream) - 1)
        lines.append(f"  {stream.key.program}, {stream.key.kind} {first}")
        if len(stream) > 1:
            lines.append(f"    … {len(stream)} events … {last}")
    return lines
