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

from jaxtap_core.instrument.nonfinite import has_bad
from jaxtap_core.instrument.plan import Plan
from jaxtap_core.records.events import Phase
from jaxtap_core.runtime.program import Program, Run

MOST_PROGRAMS = 64
MOST_BYTES = 256 * 2**20
LAG = 4  # programs of which only results are judged run on before anybody asks for those of an earlier one


@dataclass(slots=True)
class Pending:
    """One started program.

    Attributes:
        name, call: of the program.
        jaxpr: function that gives the program's jaxpr, built only when it is needed.
        args, outs: inputs and production's (or, inline, the only) outputs.
        since: when it was started (seconds, monotonic).
        source_info: what JAX knows of the user's line that ran it.
        observed: the replica's outputs, where one ran.
        states: extra outputs: buffers and verdicts by site number.
        program, plan, run: of an observed program; ``None`` where only results are judged.
        flushed: whether full buffers were flushed on the way.
        reason: why the run cannot be certified, or empty.
        phase: which pass of a differentiated computation ran it.
    """

    name: str
    call: int
    jaxpr: Callable[[], Any]
    args: Sequence[Any]
    outs: Sequence[Any]
    since: float
    source_info: Any
    observed: Sequence[Any] | None = None
    states: dict[int, Any] | None = None
    program: Program | None = None
    plan: Plan | None = None
    run: Run | None = None
    flushed: bool = False
    reason: str = ""
    phase: Phase = "forward"

    @property
    def ready(self) -> bool:
        """Whether its outputs have been computed."""
        return all(map(_ready, self.outs))

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

    def add(self, pending: Pending, size: int | None = None) -> None:
        """Let one more program wait; settle those that are ready, and the oldest when too many wait.

        ``size`` is what waiting keeps alive, in bytes, where it is known.
        """
        if pending.program is not None and not self._waiting and pending.ready:
            self._settle(pending)  # the common case, without a look at sizes
            return
        size = pending.nbytes if size is None else size
        self._waiting.append((pending, size))
        self._bytes += size
        lag = LAG if pending.program is None else 0  # what has only just been started is seldom ready
        while self._waiting and (
            len(self._waiting) > MOST_PROGRAMS
            or self._bytes > MOST_BYTES
            or (len(self._waiting) > lag and self._waiting[0][0].ready)
        ):
            self._pop()

    @property
    def oldest(self) -> Pending | None:
        """The program that has waited longest, or ``None``."""
        return self._waiting[0][0] if self._waiting else None

    def drain(self) -> None:
        """Settle all, in order."""
        while self._waiting:
            self._pop()

    def give_up(self, arrays: Sequence[Any]) -> None:
        """``arrays`` are about to be donated: what waiting programs need of them is asked for on the device."""
        gone = {id(x) for x in arrays}
        for pending, _ in self._waiting:
            if pending.observed is not None and any(id(x) in gone for x in pending.outs):
                self.drain()  # a certificate needs the results themselves
                return
            pending.args = [_given_up(x, gone) for x in pending.args]
            pending.outs = [_given_up(x, gone) for x in pending.outs]

    def _pop(self) -> None:
        pending, size = self._waiting.popleft()
        self._bytes -= size
        self._settle(pending)


class Donated:
    """An array that was donated, and what the gate may ask of it: whether it held a NaN or an Inf."""

    __slots__ = ("array", "inf", "nan")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.nan, self.inf = _flags(array)


@jax.jit
def _flags(x: Any) -> tuple[Any, Any]:
    return has_bad(x), has_bad(x, nan=False, inf=True)


def _given_up(x: Any, gone: set[int]) -> Any:
    return Donated(x) if id(x) in gone and is_inexact(x) else x


def is_inexact(x: Any) -> bool:
    """Whether ``x`` is an array that can hold a NaN."""
    # a Python number that JAX knows the type of has a dtype and no size
    return getattr(getattr(x, "dtype", None), "kind", "") in ("f", "c", "V") and getattr(x, "size", 1) > 0


def held(args: Sequence[Any], donated: Sequence[bool], *, keep_donated: bool) -> list[Any]:
    """The inputs to hold until the verdict: of those that are donated, copies where the user asked for them."""
    if keep_donated:  # of every type: a replay needs them all
        return [jnp.copy(x) if gone else x for x, gone in zip(args, donated, strict=True)]
    return [Donated(x) if gone and is_inexact(x) else x for x, gone in zip(args, donated, strict=True)]
