"""The leaves of a loop as the user knows them: their names, their order, and where each is found.

JAX turns a carry leaf that the body returns unchanged into a constant, before the loop is bound; here it is a leaf
again, under its name. The hidden counter and limit of ``fori_loop`` are not leaves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from jaxtap_core import _compat
from jaxtap_core.jaxpr.address import is_fori
from jaxtap_core.jaxpr.structure import loop_of


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf: its name, and which carry or which constant of the loop holds it."""

    name: str
    role: Literal["carry", "const"]
    index: int


@dataclass(frozen=True, slots=True)
class Leaves:
    """The carry leaves of one loop, in the user's order where it could be known (``ordered``)."""

    leaves: tuple[Leaf, ...]
    ordered: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names in order."""
        return tuple(leaf.name for leaf in self.leaves)

    def values(self, consts: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
        """The leaves' values among a loop's constants and carries."""
        return [(carry if leaf.role == "carry" else consts)[leaf.index] for leaf in self.leaves]


def tidy(name: str) -> str:
    """``c[0]['L']`` as users write it: ``c[0].L``."""
    return re.sub(r"\[(['\"])(.*?)\1\]", r".\2", name)


def _elements(name: str) -> list[str]:
    """``c[0]['L'].x`` as ``["c", "[0]", "['L']", ".x"]``."""
    return re.findall(r"^[^.\[]+|\[.*?\]|\.[^.\[]+", name)


def _compare(left: list[str], right: list[str]) -> int | None:
    """Which of two leaf paths comes first in a flattened pytree; ``None`` where names do not tell."""
    for a, b in zip(left, right, strict=False):
        if a == b:
            continue
        if a.startswith("[") and b.startswith("["):
            try:
                x, y = int(a[1:-1]), int(b[1:-1])
            except ValueError:
                return -1 if a < b else 1
            return -1 if x < y else 1
        return None  # attributes: the order of a NamedTuple's fields is not in their names
    return -1 if len(left) < len(right) else 1


def _roots(names: Sequence[str], depth: int) -> set[tuple[str, ...]]:
    return {tuple(_elements(name)[:depth]) for name in names if name}


def _merge(carried: list[Leaf], passed: list[Leaf]) -> Leaves:
    """Put pass-through leaves where they stood among the carried ones."""
    merged, ordered = [(leaf, _elements(leaf.name)) for leaf in carried], True
    for leaf in passed:
        path = _elements(leaf.name)
        verdicts = [_compare(path, other) for _, other in merged]
        if None in verdicts:
            ordered = False
            merged.append((leaf, path))
        else:
            merged.insert(sum(verdict == 1 for verdict in verdicts), (leaf, path))
    return Leaves(tuple(replace(leaf, name=tidy(leaf.name)) for leaf, _ in merged), ordered)


def _named(const_names: Sequence[str], carry_names: Sequence[str], x_names: Sequence[str], hidden: int) -> Leaves:
    shown = carry_names[hidden:]
    if not any(shown) and not any(const_names):
        return Leaves(tuple(Leaf(f"carry[{i}]", "carry", hidden + i) for i in range(len(shown))), ordered=True)
    counter = _roots(carry_names[:hidden], 1)
    depth = (
        2 if _roots([*shown, *const_names], 1) & _roots(x_names, 1) else 1
    )  # ``def body(*args)``: args[0] is the carry
    own = _roots(shown, depth)
    foreign = _roots(x_names, depth) | counter
    carried = [Leaf(name or f"carry[{hidden + i}]", "carry", hidden + i) for i, name in enumerate(shown)]
    passed = []
    for i, name in enumerate(const_names):
        root = tuple(_elements(name)[:depth])
        if name and (root in own or (not own and root not in foreign)):
            passed.append(Leaf(name, "const", i))
    return _merge(carried, passed)


def _hidden_counters(names: Sequence[str], fori: bool, dynamic: bool) -> int:
    if not fori:
        return 0
    return min(2 if dynamic else 1, len(names))


def carry_leaves(eqn: Any) -> Leaves:
    """The carry leaves of a loop equation."""
    loop = loop_of(eqn)
    consts, carry, xs = loop.split_inputs(_compat.arg_names(loop.body))
    # a fori_loop that stayed a while carries its limit behind its counter
    hidden = _hidden_counters(carry, is_fori(eqn.source_info), dynamic=loop.length is None)
    return _named(consts, carry, xs, hidden)


def output_names(eqn: Any) -> tuple[str, ...]:
    """Names of the per-step outputs of a loop: ``out.loss``, ``out[1]``, ``out``."""
    loop = loop_of(eqn)
    paths = _compat.result_paths(loop.body)[loop.num_carry :]
    names = []
    for i, path in enumerate(paths):
        rest = path.removeprefix("result[1]")
        names.append(tidy(f"out{rest}") if path.startswith("result[1]") else f"out[{i}]")
    return tuple(names) if len(set(names)) == len(names) else tuple(f"out[{i}]" for i in range(len(names)))


def matching(query: str, names: Sequence[str]) -> list[int]:
    """Which of ``names`` the user means by ``query``: the name itself, or a suffix from a dot or bracket on.

    Example:
        >>> names = ["state.step_size", "state.x[0]"]
        >>> matching("step_size", names), matching("x[0]", names)
        ([0], [1])
    """
    query = tidy(query)
    exact = [i for i, name in enumerate(names) if name == query]
    if exact:
        return exact
    tails = ("." + query, query) if query.startswith("[") else ("." + query,)
    return [i for i, name in enumerate(names) if name.endswith(tails)]
