"""PYTEST_DONT_REWRITE

One test on the page.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pytest_jaxtap.report.page.markup import Markup, el
from pytest_jaxtap.report.wire import Record

# Curves of these verdicts are shown first, and the first of them opened.
WORSE = ("different", "missing", "extra")


def anchor(nodeid: str) -> str:
    """The ``id`` of a test's article."""
    return f"test-{hashlib.sha256(nodeid.encode(errors='replace')).hexdigest()[:12]}"


def article(record: Record, extra: Record) -> Markup:
    """A test: its outcome, and what was seen.

    Args:
        record: of the test, see ``findings.schema.json``.
        extra: what only the page shows, see `pytest_jaxtap.report.formats.html.HtmlReport.tested`.
    """
    name, outcome = anchor(record["nodeid"]), record["outcome"]
    sources = dict(extra.get("sources", {}))  # each is shown once a test
    place = f"{record['file']}:{record['line']}, {record['duration']:.2f} s"
    place += f", worker {record['worker']}" if record["worker"] else ""
    heading = el("h3", el("span", outcome, class_=f"outcome {outcome}"), " ", record["nodeid"], id=f"{name}-name")
    told = record["failure"] and not record["findings"]
    curves = extra.get("curves", [])
    comparisons = record.get("comparisons", [])
    return el(
        "article",
        heading,
        el("p", place, class_="place"),
        _lines(record["failure"]) if told else None,
        *(_finding(finding, sources) for finding in record["findings"]),
        *(_alert(alert, sources) for alert in record["alerts"]),
        *(
            _comparison(comparison, curves[number] if number < len(curves) else [], f"{name}-{number}")
            for number, comparison in enumerate(comparisons)
        ),
        *_certificates(record["certificates"]),
        *_recordings(record["recordings"]),
        *_list("Recordings on disk", record["files"]),
        *_list("What could not be done", record["errors"]),
        id=name,
        data_outcome=outcome,
        aria_labelledby=f"{name}-name",
    )


def _lines(lines: Iterable[str]) -> Markup:
    return el("pre", "\n".join(lines))


def _finding(finding: Record, sources: Record) -> Markup:
    story, origin = finding["story"], finding["origin"] or {}
    places = (origin.get("source"), finding["event"]["source"])
    return el("section", el("h4", story[0]), _lines(line.strip() for line in story[1:]), *_excerpts(places, sources))


def _alert(alert: Record, sources: Record) -> Markup:
    event = alert["event"]
    step = f" at step {', '.join(map(str, event['steps']))}" if event["steps"] else ""
    return el(
        "section",
        el("h4", f"Alert in {event['path'] or event['program']}{step}: {alert['message']}"),
        el("p", alert["source"]),
        *_excerpts([alert["source"]], sources),
    )


def _excerpts(places: Iterable[str | None], sources: Record) -> Iterator[Markup]:
    for place in places:
        if place is not None and place in sources:
            yield _excerpt(place, sources.pop(place))


def _excerpt(place: str, excerpt: Record) -> Markup:
    lines = []
    for number, text in enumerate(excerpt["lines"], excerpt["first"]):
        here = number == excerpt["line"]
        lines.append(el("mark", f"> {number:4} {text}") if here else f"  {number:4} {text}")
        lines.append("\n")
    return el("figure", el("figcaption", place), el("pre", el("code", *lines)))


def _comparison(comparison: Record, curves: Sequence[Record], name: str) -> Markup:
    worse = [curve for curve in curves if curve["verdict"] in WORSE]
    rest = [curve for curve in curves if curve["verdict"] not in WORSE]
    notes = [one["text"] for one in comparison["differences"] if not curves or one["problem"] != "values"]
    return el(
        "section",
        el("h4", f"Snapshot {comparison['name']}: {comparison['outcome']}"),
        el("p", f"{comparison['file']}; {_counted(len(worse), len(curves))}"),
        el("ul", *(el("li", note) for note in notes)) if notes else None,
        _changed(comparison["environment"]),
        *(_curve(curve, f"{name}-{n}", opened=n == 0) for n, curve in enumerate(worse)),
        *(_curve(curve, f"{name}-{n}", opened=False) for n, curve in enumerate(rest, len(worse))),
    )


def _counted(worse: int, all_: int) -> str:
    return f"{worse} of {all_} streams differ" if all_ else "nothing to compare with"


def _changed(environment: Record) -> Markup | None:
    if not environment:
        return None
    rows = [(name, *map(cell, pair)) for name, pair in environment.items()]
    return _table("What differs between the two environments", ("", "expected", "observed"), rows)


def _curve(curve: Record, name: str, *, opened: bool) -> Markup:
    title = " ".join(part for part in (curve["leaf"], f"[{curve['stream']}]" if curve["stream"] else "") if part)
    head = el("summary", el("span", curve["verdict"], class_=f"verdict {curve['verdict'].split()[0]}"), " ", title)
    caption = el("figcaption", f"{curve['type']}; {curve['caption']}", id=name)
    if not curve["data"]:
        return el("details", head, _lines(curve["text"]) if curve["text"] else None, caption, open=opened)
    return el(
        "details",
        head,
        _lines(curve["text"]) if curve["text"] else None,
        el(
            "figure",
            el("div", role="img", aria_label=f"Plot of {title}, expected and observed", aria_describedby=name),
            caption,
            el("details", el("summary", f"Values of {title} as a table"), class_="values"),
            el("script", Markup(curve["data"]), type="text/plain"),
            class_="plot",
        ),
        open=opened,
    )


def _certificates(certificates: Sequence[Record]) -> Iterator[Markup]:
    programs = [program for certificate in certificates for program in certificate["programs"]]
    if not programs:
        return
    verdicts = Counter(program["verdict"] for program in programs)
    rows = []
    for program in programs:
        where = f"{program['leaf']}{program['index'] or ''}" if program["leaf"] else ""
        apart = "" if program["ulp"] is None else f"{program['ulp']} ulp"
        values = (program["expected"], program["got"])
        rows.append((program["name"], program["call"], program["verdict"], where, *values, apart, program["reason"]))
    head = ("program", "call", "verdict", "where", "expected", "got", "apart", "reason")
    yield el(
        "details",
        el("summary", "Certificates: ", ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())),
        _table("Whether observing left every bit as it is", head, rows),
        open=set(verdicts) != {"identical"},
    )


def _recordings(recordings: Sequence[Record]) -> Iterator[Markup]:
    head = ("path", "program", "call", "kind", "leaves", "events")
    rows = [[stream[name] for name in head] for recording in recordings for stream in recording["streams"]]
    rows = [[", ".join(cell) if isinstance(cell, list) else cell for cell in row] for row in rows]
    if rows:
        table = _table("Recorded streams", head, rows)
        yield el("details", el("summary", f"Recorded: {len(rows)} streams"), table)


def _list(title: str, entries: Sequence[str]) -> Iterator[Markup]:
    if entries:
        yield el("h4", title)
        yield el("ul", *(el("li", entry) for entry in entries))


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """A table whose rows are named by their first cell; it can be scrolled with the keyboard."""
    body = (el("tr", el("th", first, scope="row"), *(el("td", cell) for cell in rest)) for first, *rest in rows)
    names = (el("th", name, scope="col") if name else el("td") for name in head)
    table = el("table", el("caption", caption), el("thead", el("tr", *names)), el("tbody", *body))
    return el("div", table, class_="wide", tabindex=0, role="region", aria_label=caption)


def cell(value: object) -> str:
    """A value of an environment, for people."""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return "none" if value in (None, "") else str(value)
