"""What a comparison of bits found, as data and as text."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Problem = Literal["bits", "weak type", "dtype", "shape", "value", "missing", "extra", "structure"]
What = Literal["value", "NaN on one side", "NaN payload", "sign of zero"]

_SHOWN_LEAVES = 10


@dataclass(frozen=True)
class ElementDiff:
    """One element that differs.

    Attributes:
        index: where in the leaf; `()` for a scalar.
        expected, got: the values in decimal; a typed PRNG key as its words.
        expected_hex, got_hex: their bits.
        ulp: representable numbers between the two (`jaxtap_core.telemetry.ulp.ulp_distance`); `None` where there
            is no such distance: for a NaN against a number, and for dtypes other than floats.
        what: `"value"`, `"NaN on one side"`, `"NaN payload"` or `"sign of zero"`.
    """

    index: tuple[int, ...]
    expected: str
    got: str
    expected_hex: str
    got_hex: str
    ulp: int | None
    what: What

    def __str__(self) -> str:
        note = f" ({self.ulp} ulp)" if self.ulp else ""
        if self.what != "value":
            note = f" ({self.what})"
        return (
            f"at {list(self.index)}: expected {self.expected} = {self.expected_hex}, "
            f"got {self.got} = {self.got_hex}{note}"
        )


@dataclass(frozen=True)
class LeafDiff:
    """One leaf that differs.

    Attributes:
        path: its place in the pytree, as `jax.tree_util.keystr` writes it; empty for a bare value.
        problem: what is wrong first of all.
        expected, got: dtype and shape of either side (`float32[3]`), its value if it is no array,
            `None` where there is no such leaf.
        differing, total: elements that differ, of how many; 0 if elements could not be compared.
        first, worst: the first element that differs, and the one farthest off.
    """

    path: str
    problem: Problem
    expected: str | None
    got: str | None
    differing: int = 0
    total: int = 0
    first: ElementDiff | None = None
    worst: ElementDiff | None = None

    def __str__(self) -> str:
        name = self.path or "the value"
        if self.problem == "missing":
            return f"{name}: missing, expected {self.expected}"
        if self.problem == "extra":
            return f"{name}: not expected, got {self.got}"
        lines = []
        if self.problem != "bits":
            what = "" if self.problem == "value" else f"{self.problem}: "
            lines.append(f"{name}: {what}expected {self.expected}, got {self.got}")
        if self.first and self.worst:
            count = f"{self.differing} of {self.total} elements differ"
            lines.append(f"{name} {self.expected}: {count}")
            if self.worst == self.first:
                lines.append(f"  {self.first}")
            else:
                lines += [f"  first {self.first}", f"  worst {self.worst}"]
        return "\n".join(lines)


@dataclass(frozen=True)
class BitReport:
    """What `compare_bits` found: `identical`, or the leaves that differ, of how many `compared`."""

    identical: bool
    leaves: tuple[LeafDiff, ...]
    compared: int

    def __str__(self) -> str:
        if self.identical:
            return f"identical: {self.compared} {'leaf' if self.compared == 1 else 'leaves'}"
        in_leaves = sum(leaf.problem != "structure" for leaf in self.leaves)
        header = f"{in_leaves} of {self.compared} leaves differ"
        if in_leaves < len(self.leaves):
            header = f"the structure differs, and {header}"
        lines = [header]
        for leaf in self.leaves[:_SHOWN_LEAVES]:
            lines += [f"  {line}" for line in str(leaf).splitlines()]
        if len(self.leaves) > _SHOWN_LEAVES:
            lines.append(f"  and {len(self.leaves) - _SHOWN_LEAVES} more")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The report in plain Python types, fit for JSON."""
        return asdict(self)
