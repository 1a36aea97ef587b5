"""Where a NaN (or Inf) was born, and why.

The program is run again on the same inputs, and the bad value is followed backwards: from the
element where it was met, to the element of the operand that was bad before, through branches and
calls, back through the steps of a loop, until an equation is found that made it of good operands.
Only that equation's operands are then looked at closely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from jaxtap_core import _compat
from jaxtap_core.jaxpr.structure import BODY, PREDICATE, loop_of
from jaxtap_core.jaxpr.values import host_array
from jaxtap_core.provenance.activation import Activation, NotReproduced, numpy_codes
from jaxtap_core.provenance.backward import Given, follow, region_of, some_bad
from jaxtap_core.provenance.dead_branch import revived
from jaxtap_core.provenance.dependence import Index
from jaxtap_core.provenance.flat import BITS, CannotReplay, FlatProgram, Node, evaluate, flatten, quiet
from jaxtap_core.provenance.loop import AT_ENTRY, ENDLESS, NEVER, BadStep
from jaxtap_core.provenance.report import origin_of
from jaxtap_core.records.events import Origin
from jaxtap_core.records.kinds import Phase

DONATED = "inputs were donated"
KEEP = "set jaxtap_keep_donated = true, so that the inputs are kept for the replay"


@dataclass(frozen=True, slots=True)
class Target:
    """The bad value that somebody met.

    Attributes:
        kind: ``"carry"``, ``"output"`` (of a loop), ``"result"`` (of the program), ``"primitive"``, or ``"operand"``
            (of an equation that stands in no loop).
        path: address of the loop or primitive; empty for a result.
        steps: index vector of the step at which it was first met, outermost loop first. The last
            one may be ``None`` for a carry or an output: then it is looked for.
        index: which carry or output of the loop's equation, which result, which output of the
            primitive.
        bad: ``"nan"`` or ``"inf"``.
        lane: lane of a loop batched over its predicate, else ``None``.
        output: which output of the equation it is.
    """

    kind: Literal["carry", "output", "result", "primitive", "operand"]
    path: str
    steps: tuple[int | None, ...]
    index: int
    bad: Literal["nan", "inf"] = "nan"
    lane: Index | None = None
    output: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the replay found out about a `Target`.

    Attributes:
        origin: where it was born, and why.
        count, size, first_index: of the bad elements where it was met; ``None`` where the replay
            could not tell.
        last_good: ``step``, ``min``, ``max`` of the leaf before it turned bad (step -1: when it
            came in).
        step: the step at which it was met (-1: it was bad when it came into the loop).
        given: whether the program was given it, or holds it as a constant: it was not born here.
    """

    origin: Origin
    count: int | None = None
    size: int | None = None
    first_index: Index | None = None
    last_good: dict[str, Any] | None = None
    step: int | None = None
    given: bool = False


def explain_target(
    jaxpr: Any, args: Sequence[Any], target: Target, source: str = "", phase: Phase = "forward"
) -> Explanation:
    """Where the bad value ``target`` of a program was born.

    Args:
        jaxpr: the program, a closed jaxpr.
        args: its inputs, concrete.
        target: what was met, and where.
        source, phase: of what ran the program, for equations that know none of their own.

    Returns:
        The explanation. A program that cannot be replayed gets an origin with ``reproduced=False``
        and the reason.
    """
    if any(_is_deleted(arg) for arg in args):
        return _unexplained(DONATED, KEEP)
    try:
        with _compat.set_current_trace(_compat.eval_trace):
            return _Locator(jaxpr, args, target, source, phase).explain()
    except CannotReplay as error:
        return _unexplained(str(error))
    except Exception as error:  # an explanation must never be what breaks a test
        lines = str(error).splitlines() or [""]
        return _unexplained(f"the replay itself failed: {type(error).__name__}: {lines[0]}")


def _is_deleted(arg: Any) -> bool:
    return isinstance(arg, jax.Array) and arg.is_deleted()


def _unexplained(reason: str, advice: str = "") -> Explanation:
    return Explanation(Origin("", "", (), None, "", "forward", (), reason, advice, reproduced=False))


class _Locator:
    """One program, its inputs and one target."""

    def __init__(self, jaxpr: Any, args: Sequence[Any], target: Target, source: str, phase: Phase) -> None:
        self.source, self.phase = source, phase
        self.jaxpr, self.args, self.target = quiet(jaxpr), list(args), target
        self.bit = BITS[target.bad]
        self.names = _compat.arg_names(jaxpr)
        self.flat = flatten(self.jaxpr, self.source, self.phase)
        if any(_compat.is_ref(self.flat.avals[n]) for n in self.flat.inputs):
            raise CannotReplay("the program changes a mutable reference it was given: its first content is gone")
        self.shift = 0
        if _compat.body_of(self.jaxpr).jaxpr.effects:
            self._discharge()
        complete = target.kind == "result"  # of other programs it is not known whether they came to an end
        self.root = Activation(self.flat, self.args, complete=complete)

    def explain(self) -> Explanation:
        """The explanation of the target."""
        if self.target.kind == "result":
            return self._result()
        if self.target.kind == "primitive":
            return self._primitive()
        if self.target.kind == "operand":
            return self._operand()
        return self._loop_leaf()

    def _discharge(self) -> None:
        """Turn references into values; a scan that used some has more carries, before its own."""
        old, target = self.flat, self.target
        self.jaxpr = _compat.without_refs(self.jaxpr)
        self.flat = flatten(self.jaxpr, self.source, self.phase)
        if target.kind == "carry":
            before, after = node_of(old, target.path).eqn, node_of(self.flat, target.path).eqn
            if len(before.outvars) != len(after.outvars):
                loop = loop_of(before)
                if loop.predicate is not None:
                    raise CannotReplay(f"{target.path} uses mutable references")
                _, consts, _, _ = loop.split([var.aval for var in before.invars])
                self.shift = 1 + sum(map(_compat.is_ref, consts))

    # -- the three kinds of target

    def _result(self) -> Explanation:
        results = jax.jit(_compat.jaxpr_as_fun(self.jaxpr))(*self.args)
        code = numpy_codes(host_array(results[self.target.index]))
        if not (code & self.bit).any():
            raise CannotReplay(f"a second run of the same program did not give it again{self._without_jit()}")
        try:
            return self._follow(self.root, self.flat.outputs[self.target.index], code, ...)
        except NotReproduced as error:
            raise CannotReplay(f"{error}{self._without_jit()}") from error

    def _without_jit(self) -> str:
        env = evaluate(self.flat, self.args, self.flat.outputs)
        code = numpy_codes(host_array(env[self.flat.outputs[self.target.index]]))
        seen = "is there" if (code & self.bit).any() else "is not there"
        return f"; run equation by equation, without jit, it {seen}"

    def _primitive(self) -> Explanation:
        activation, node = self._descend()
        number = node.outputs[self.target.index]
        return self._follow(activation, number, activation.code(number), self.target.lane or ...)

    def _operand(self) -> Explanation:
        activation, node = self._descend()
        number = node.inputs[self.target.index]
        return self._follow(activation, number, activation.code(number), ...)

    def _loop_leaf(self) -> Explanation:
        activation, node = self._descend()
        replay = activation.replay(node)
        leaf = self.target.index + (replay.loop.num_carry if self.target.kind == "output" else self.shift)
        out = replay.body.outputs[leaf]
        known = self.target.steps[-1] if self.target.steps else None
        region = region_of(replay.shape(leaf), self.target.lane)
        stop = ENDLESS if known is None else known + 1
        found = replay.step_that_turned_bad(leaf, self.bit, region, first=True, stop=stop)
        if found.step == NEVER:
            raise NotReproduced(self.target.path)
        if found.step == AT_ENTRY:
            number = replay.initial(leaf)
            return self._follow(activation, number, activation.code(number), self.target.lane or ..., step=AT_ENTRY)
        body = activation.body(node, found.before, found.step)
        code = body.code(out)
        if replay.loop.lanes and code.shape:
            active = replay.active(found.before)
            code = np.where(active.reshape(active.shape + (1,) * (code.ndim - active.ndim)), code, 0)
        return self._follow(body, out, code, self.target.lane or ..., found)

    def _follow(
        self,
        activation: Activation,
        number: int,
        code: np.ndarray,
        box: Any,
        found: BadStep | None = None,
        step: int | None = None,
    ) -> Explanation:
        whole = code.shape == activation.shape(number)
        elements = some_bad(code, self.bit, box) if whole else []
        index = elements[0] if elements else None
        if found is not None and activation.entry is not None:
            activation.entry = activation.entry._replace(element=index)
            step = found.step
        end = follow(activation, number, index, self.target.bad, elements[1:])
        if isinstance(end, Given):
            end = revived(end) or end
        return Explanation(
            origin=origin_of(end, self.names),
            given=isinstance(end, Given),
            count=int(((code & self.bit) > 0).sum()) if whole else None,
            size=code.size if whole else None,
            first_index=index,
            last_good=_last_good(found),
            step=step,
        )

    # -- going to the target

    def _descend(self) -> tuple[Activation, Node]:
        """The activation in which the target's loop or primitive stands, and its node."""
        activation, steps = self.root, iter(self.target.steps)
        segments = self.target.path.split("/")
        while True:
            activation, node = activation.locate(segments.pop(0))
            if not segments:
                return activation, node
            if node.kind == "branches":
                activation = activation.branch(node)
                if not activation.path.endswith(f"/{segments.pop(0)}"):
                    raise NotReproduced(f"another branch of {node.segment} is taken")
            elif node.kind == "loop":
                step = next(steps, None)
                if step is None:
                    raise CannotReplay(f"the step of {node.segment} is not known")
                if segments[0] == PREDICATE:
                    segments.pop(0)
                    activation = activation.pred_at(node, step)
                else:
                    activation = activation.at_step(node, step)
            else:
                raise CannotReplay(f"the program has no {self.target.path}")
            activation.complete = self.target.kind == "result"


def node_of(flat: FlatProgram, path: str) -> Node:
    """The equation at an address."""
    segments = path.split("/")
    while True:
        segment = segments.pop(0)
        node = flat.node_at(segment)
        if node is None:
            raise CannotReplay(f"the program has no {segment}")
        if not segments:
            return node
        named = node.kind == "branches" or segments[0] == PREDICATE
        flat = node.inner(segments.pop(0) if named else BODY)


def _last_good(found: BadStep | None) -> dict[str, Any] | None:
    if found is None or not np.isfinite(found.last).all():
        return None
    return {"step": found.step - 1, "min": found.last[0], "max": found.last[1]}
