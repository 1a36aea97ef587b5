"""PYTEST_DONT_REWRITE

What the reports of a run are made of.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_jaxtap.report.wire import Record


@dataclass
class Results:
    """The records of all tests of a run.

    Attributes:
        records: one plain dict a test that has something to tell, in the order in which they ended;
            see ``findings.schema.json`` for what they hold.
        observed: number of tests that ran under the lens.
        environment: what the bits of the programs depend on, ``None`` if no program ran.
        rootdir: what the paths in the records are relative to.
        extras: by node id and name of a report what that report alone shows of the test.
    """

    records: list[Record] = field(default_factory=list)
    observed: int = 0
    environment: Record | None = None
    rootdir: str = ""
    extras: dict[str, Record] = field(default_factory=dict)

    @property
    def failed(self) -> list[Record]:
        """The records of the tests that failed for what the lens saw; not those that were expected to."""
        return [r for r in self.records if r["failure"] and r["outcome"] == "failed"]

    @property
    def findings(self) -> int:
        """Number of findings in all tests."""
        return sum(len(record["findings"]) for record in self.records)

    def extra(self, nodeid: str, report: str) -> Record:
        """What the report of this name alone shows of a test; empty if nothing."""
        return self.extras.get(nodeid, {}).get(report, {})
