"""A new report is one class that declares its own option, and one line that makes it known."""

from __future__ import annotations

import pytest
from inner import lay, run

from pytest_jaxtap.report import registry
from pytest_jaxtap.report.base import FileReport
from pytest_jaxtap.report.results import Results


class CausesReport(FileReport):
    option = "causes"
    help = "write a line a failed test to PATH"
    holds = "causes"

    def content(self, results: Results) -> bytes:
        return "".join(f"{record['failure'][0]}\n" for record in results.failed).encode()


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KNOWN", (*registry.KNOWN, CausesReport))


TESTS = "def test_bad():\n    descend(1.0)\ndef test_good():\n    descend(1e6)\n"


@pytest.mark.parametrize(
    ("ini", "args"),
    [("", ("--jaxtap-causes=out/causes.txt",)), ("jaxtap_causes = out/causes.txt", ())],
    ids=["option", "twin"],
)
def test_it_is_written_where_it_is_asked_for(pytester: pytest.Pytester, ini: str, args: tuple[str, ...]) -> None:
    lay(pytester, TESTS, ini)
    result = run(pytester, "--jaxtap-nan", *args)
    result.stdout.fnmatch_lines(["*= jaxtap =*", "causes in *causes.txt"])
    (line,) = (pytester.path / "out" / "causes.txt").read_text().splitlines()
    assert line.startswith("jaxtap: NaN entered scan[0] at step 2 of 4")


def test_it_is_not_written_otherwise(pytester: pytest.Pytester) -> None:
    lay(pytester, TESTS)
    assert "causes in" not in run(pytester, "--jaxtap-nan").stdout.str()


def test_help_shows_its_option_and_the_twin(pytester: pytest.Pytester) -> None:
    text = run(pytester, "--help").stdout.str()
    assert "  --jaxtap-causes=PATH" in text and "  jaxtap_causes (string):" in text


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (".", "*--jaxtap-causes takes a file, but . is a folder*"),
        ("a.json", "*--jaxtap-json and --jaxtap-causes would both be written to *a.json: give two paths*"),
    ],
)
def test_its_path_is_checked_as_that_of_any_other(pytester: pytest.Pytester, path: str, message: str) -> None:
    lay(pytester, TESTS)
    result = run(pytester, "--jaxtap-json=a.json", f"--jaxtap-causes={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
