"""PYTEST_DONT_REWRITE

A comparison with a snapshot, for the reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from jaxtap_core.compare.diff import Difference
    from jaxtap_core.compare.table import Track

Outcome = Literal["written", "missing", "matched", "different"]


@dataclass(frozen=True)
class Comparison:
    """What a test compared with a snapshot, and how that came out.

    Attributes:
        name: of the entry of the snapshot.
        file: where the snapshot is, for people.
        outcome: ``"written"`` and ``"missing"`` are nothing compared.
        expected: the tracks of the snapshot, empty if nothing was compared.
        observed: the tracks of the test.
        difference: what the comparison found, ``None`` if nothing was compared.
    """

    name: str
    file: str
    outcome: Outcome
    expected: Sequence[Track]
    observed: Sequence[Track]
    difference: Difference | None

    def to_dict(self) -> dict[str, Any]:
        """What stands of it in the record of its test, see ``findings.schema.json``."""
        found = self.difference
        told: dict[str, Any] = {"compared": 0, "differences": [], "environment": {}}
        if found is not None:
            told = found.to_dict()
            del told["equal"]  # the outcome says it
        return {"name": self.name, "file": self.file, "outcome": self.outcome, **told}
