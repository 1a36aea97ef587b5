"""What a failure says: the whole story in its first line, at most twelve lines, all of it with -vv."""

from __future__ import annotations

import pytest
from inner import BORN, HEADLINE, lay, run

from jaxtap_core import Alert, Finding, Recording, TapEvent
from jaxtap_core.records.events import Certificate, ProgramVerdict
from pytest_jaxtap.observe.policy import Demand
from pytest_jaxtap.observe.watch import MOST_LINES, Watch

TWO = "def test_two():\n    descend(1.0)\n    jnp.log(jnp.float32(-1.0))\n"


def block(text: str) -> list[str]:
    """The lines between the title of the first failure and what follows it."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("___")) + 1
    end = next(i for i in range(start, len(lines)) if lines[i].startswith(("===", "---", "___")))
    return lines[start:end]


def test_twelve_lines_and_no_traceback(pytester: pytest.Pytester) -> None:
    lay(pytester, TWO)
    result = run(pytester, "--jaxtap-nan")
    told = block(result.stdout.str())
    assert len(told) <= MOST_LINES
    assert told[-1].startswith("  and 1 more finding (NaN in 'result' of log)")
    result.stdout.fnmatch_lines([HEADLINE, BORN, "  why:  sqrt of a negative number (-1)"])
    result.stdout.fnmatch_lines(["FAILED test_inner.py::test_two - jaxtap: NaN entered scan*"])
    result.stdout.fnmatch_lines(["*= jaxtap =*", "1 test: NaN born in sqrt at model.py:*"])


def test_very_verbose_tells_all(pytester: pytest.Pytester) -> None:
    lay(pytester, TWO)
    told = block(run(pytester, "--jaxtap-nan", "-vv").stdout.str())
    assert sum(line.startswith("jaxtap: ") for line in told) == 2
    assert any(line.startswith("  operand 0: ") for line in told)


@pytest.mark.parametrize("style", ["short", "native", "line"])
def test_every_style_of_traceback_tells_the_story(pytester: pytest.Pytester, style: str) -> None:
    lay(pytester, TWO)
    result = run(pytester, "--jaxtap-nan", f"--tb={style}")
    result.stdout.fnmatch_lines([HEADLINE])
    assert "body.py" not in result.stdout.str()
    assert "entries are hidden" not in result.stdout.str()


def test_full_trace_shows_the_way(pytester: pytest.Pytester) -> None:
    lay(pytester, TWO)
    assert "body.py" in run(pytester, "--jaxtap-nan", "--full-trace").stdout.str()


EVENT = TapEvent("scan[0]", 3, 9, (3,), None, "carry", "train", 0)


def told(demand: Demand, *, findings: int = 0, alerts: int = 0, verdict: str = "") -> str | None:
    """What a test fails for that was under ``demand`` and saw this."""
    recording = Recording()
    recording.findings += [Finding(EVENT, f"x{i}", "nan") for i in range(findings)]
    recording.alerts += [Alert(EVENT, f"alert {i}", "model.py:7") for i in range(alerts)]
    if verdict:
        program = ProgramVerdict("train", 0, verdict, "it says so", "out", (1,), "1.0", "2.0", 3)  # type: ignore[arg-type]
        recording.certificate = Certificate((program,))
    watch = Watch(demand)
    watch.add_body(recording)
    return watch.tell()


def test_many_findings_are_counted() -> None:
    lines = (told(Demand(gate="escape"), findings=9) or "").splitlines()
    assert lines[0] == "jaxtap: NaN entered scan[0] at step 3 of 9, carry leaf 'x0'"
    assert lines[1] == (
        "  and 8 more findings (NaN in 'x1' of scan[0] at step 3; NaN in 'x2' of scan[0] at step 3; "
        "NaN in 'x3' of scan[0] at step 3; …); -vv tells all"
    )


def test_an_alert_is_told_with_its_place() -> None:
    text = told(Demand(records=True), alerts=2)
    assert text is not None
    assert text.startswith("jaxtap: alert at scan[0] 3/9: alert 0 (model.py:7)\n  and 1 more finding (")


@pytest.mark.parametrize(
    ("demand", "verdict", "words"),
    [
        (Demand(certify=True), "different", "observing changed a result: train (call 0): different"),
        (Demand(certify=True), "uncertified", None),
        (Demand(certify=True, bitwise=True), "uncertified", "a result could not be certified: train"),
        (Demand(certify=True, bitwise=True), "identical", None),
        (Demand(), "different", None),
    ],
)
def test_certificates_count_where_they_are_asked_for(demand: Demand, verdict: str, words: str | None) -> None:
    text = told(demand, verdict=verdict)
    assert text is None if words is None else text is not None and words in text
