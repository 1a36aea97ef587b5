"""Programs that have been started and not yet been judged, so that asynchronous dispatch goes on under the lens.

A pending program keeps its inputs and outputs alive until it is settled. How many may wait, and how many bytes they
may hold, is bounded; programs that are ready are settled first, so that nobody waits in the common case.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxtap_core.plan import Plan
from jaxtap_core.program import Program, Run

MOST_PROGRAMS = 64
MOST_BYTES = 256 * 2**20


@dataclass(slots=True)
class Pending:
    """One started program.

    Attributes:
        name, call: of the program.
        jaxpr: function that gives the program's jaxpr, built only when it is needed.
        args, outs: inputs and production's (or, inline, the only) outputs.
        observed: the replica's outputs, where one ran.
        states: extra outputs: buffers and verdicts by site number.
        program, plan, run: of an observed program; ``None`` where only results are judged.
        flushed: whether full buffers were flushed on the way.
        reason: why the run cannot be certified, or empty.
        source_info: what JAX knows of the user's line that ran it.
    """

    name: str
    call: int
    jaxpr: Callable[[], Any]
    args: Sequence[Any]
    outs: Sequence[Any]
    source_info: Any = None
    observed: Sequence[Any] | None = None
    states: dict[int, Any] | None = None
    program: Program | None = None
    plan: Plan | None = None
    run: Run | None = None
    flushed: bool = False
    reason: str = ""

    @property
    def ready(self) -> bool:
        """Whether its outputs have been computed."""
        return all(_ready(x) for x in self.outs)

    @property
    def nbytes(self) -> int:
        """Bytes that waiting keeps alive."""
        return sum(getattr(x, "nbytes", 0) for x in (*self.args, *self.outs) if isinstance(x, jax.Array))


def _ready(x: Any) -> bool:
    if not isinstance(x, jax.Array):
        return True
    try:
        return bool(x.is_ready())  # type: ignore[attr-defined]
    except AttributeError:  # an array of typed keys cannot be asked itself
        return bool(jax.random.key_data(x).is_ready())
    except RuntimeError:  # deleted meanwhile
        return True


class Queue:
    """Pending programs in the order they ran; ``settle`` is called once for each."""

    def __init__(self, settle: Callable[[Pending], None]) -> None:
        self._settle = settle
        self._waiting: deque[tuple[Pending, int]] = deque()
        self._bytes = 0

    def add(self, pending: Pending) -> None:
        """Let one more program wait; settle those that are ready, and the oldest when too many wait."""
        size = pending.nbytes
        self._waiting.append((pending, size))
        self._bytes += size
        while self._waiting and (
            len(self._waiting) > MOST_PROGRAMS or self._bytes > MOST_BYTES or self._waiting[0][0].ready
        ):
            self._pop()

    def drain(self) -> None:
        """Settle all, in order."""
        while self._waiting:
            self._pop()

    def _pop(self) -> None:
        pending, size = self._waiting.popleft()
        self._bytes -= size
        self._settle(pending)


def held(args: Sequence[Any], donated: Sequence[bool], *, keep_donated: bool) -> list[Any]:
    """The inputs to hold until the verdict: donated ones are copied where the user asked for it."""
    if not keep_donated:
        return list(args)
    return [jnp.copy(x) if gone else x for x, gone in zip(args, donated, strict=True)]
