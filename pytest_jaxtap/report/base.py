"""PYTEST_DONT_REWRITE

What a report is. A new one is a file in `pytest_jaxtap.report.formats` and its line in
`pytest_jaxtap.report.registry`; a report that is one file has little to say:

    class CausesReport(FileReport):
        option = "causes"  # --jaxtap-causes=PATH, and jaxtap_causes in the ini file
        help = "write a line a failed test to PATH"
        holds = "causes"

        def content(self, results: Results) -> bytes:
            return "".join(f"{record['failure'][0]}\\n" for record in results.failed).encode()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import pytest

from pytest_jaxtap.options import Declarations, path_given

if TYPE_CHECKING:
    from pytest_jaxtap.observe.watch import Watch
    from pytest_jaxtap.report.comparison import Comparison
    from pytest_jaxtap.report.results import Results
    from pytest_jaxtap.report.wire import Record


class Report(ABC):
    """One way to tell what was seen; there is an instance where it was asked for.

    An instance is made in every process that runs tests, and in the one that reports (without xdist they are one). What
    goes from the first to the second goes through the records of the tests.
    """

    @classmethod
    @abstractmethod
    def declare(cls, declarations: Declarations) -> None:
        """Declare the option."""

    @classmethod
    @abstractmethod
    def asked(cls, config: pytest.Config) -> Self | None:
        """The report that the command line or the ini file asks for, ``None`` if they do not.

        Raises:
            pytest.UsageError: it is asked for something that cannot be.
        """

    # -- where a test runs

    def compared(self, item: pytest.Item, comparison: Comparison) -> None:  # noqa: B027  most reports need not care
        """The test ``item``, which still runs, compared something with a snapshot."""

    def tested(self, item: pytest.Item, watch: Watch, record: Record) -> None:  # noqa: B027
        """The test ``item`` is over: add to its ``record`` what this report needs besides, in plain types."""

    # -- where the run is reported

    def write(self, results: Results) -> str | None:
        """The run is over: write the report, and say where.

        Raises:
            OSError: it cannot be written.
        """
        return None

    def lines(self, results: Results) -> Iterable[str]:
        """Lines for the end of what pytest writes to the terminal."""
        return ()


class FileReport(Report):
    """A report that is one file, whose path its option takes; it is written whole or not at all."""

    option: ClassVar[str]
    help: ClassVar[str]
    holds: ClassVar[str]  # what the file holds, for the line that says where it is

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def declare(cls, declarations: Declarations) -> None:
        declarations.value(cls.option, "PATH", str, cls.help)

    @classmethod
    def asked(cls, config: pytest.Config) -> Self | None:
        path = path_given(config, cls.option)
        return None if path is None else cls(path)

    @abstractmethod
    def content(self, results: Results) -> bytes:
        """All that stands in the file."""

    def write(self, results: Results) -> str:
        from jaxtap_core.telemetry.files import write_atomically

        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(str(self.path), [self.content(results)])
        return f"{self.holds} in {self.path}"


# on the config: the reports that are asked for
REPORTS: pytest.StashKey[tuple[Report, ...]] = pytest.StashKey()
