"""Levels of the NaN gate, as users write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from jaxtap_core.errors import nearest
from jaxtap_core.request.taps import watch_nan

LEVELS = ("outputs", "escape", "carry", "born")


@dataclass(frozen=True)
class GateLevel:
    """One level of `LEVELS`, or ``primitives`` with their names.

    ``outputs`` judges results; ``escape`` what a program keeps, the carries and outputs of its outermost loops besides;
    ``carry`` those of every loop; ``born`` every primitive.
    """

    name: Literal["outputs", "escape", "carry", "born", "primitives"]
    primitives: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, gate: Any) -> GateLevel:
        """The level that ``gate`` means: ``True``, a level's name, primitive names (comma separated or several).

        Raises:
            ValueError: neither a level nor a primitive.
        """
        if isinstance(gate, GateLevel):
            return gate
        if gate is True:
            return cls("escape")
        if isinstance(gate, str) and gate in LEVELS:
            return cls(gate)  # type: ignore[arg-type]
        if isinstance(gate, str):
            names = tuple(part.strip() for part in gate.split(",") if part.strip())
        elif isinstance(gate, list | tuple | set | frozenset):
            names = tuple(gate)
        else:
            names = ()
        if not names:
            raise ValueError(f"the NaN gate takes a level ({', '.join(LEVELS)}) or names of primitives, not {gate!r}")
        try:
            watched = watch_nan(names).primitives
        except (TypeError, ValueError) as error:
            near = nearest(str(gate), LEVELS, alike=0.6)
            why = f". Did you mean the level {near[0]!r}?" if near else f": {error}."
            raise ValueError(
                f"{gate!r} is neither a level of the NaN gate ({', '.join(LEVELS)}) nor a primitive{why}"
            ) from None
        if watched == "*":
            return cls("born")
        return cls("primitives", watched)

    def watches(self, name: str) -> bool:
        """Whether outputs of primitives called ``name`` are checked where they are born."""
        return self.name == "born" or name in self.primitives

    @property
    def judges_results(self) -> bool:
        """Whether results of programs are judged."""
        return self.name in ("outputs", "escape", "carry")

    def looks_into(self, depth: int) -> bool:
        """Whether carries and outputs of a loop that stands in ``depth`` others are judged."""
        return self.name == "carry" or (self.name == "escape" and not depth)
