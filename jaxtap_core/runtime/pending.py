"""Programs that have been started and not yet been judged, so that asynchronous dispatch goes on under the lens.

A pending program keeps its inputs and outputs alive until it is settled. How many may wait, and how many bytes they
may hold, is bounded; programs that are ready are settled first, so that nobody waits in the common case.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap_core import _compat
from jaxtap_core.errors import warn_once
from jaxtap_core.gate.executed import Donated, Executed
from jaxtap_core.instrument import emission
from jaxtap_core.jaxpr.values import can_hold_nan
from jaxtap_core.runtime.program import Program
from jaxtap_core.runtime.receiver import Run

MOST_PROGRAMS = 64
MOST_BYTES = 256 * 2**20
LAG = 4  # programs of which only results are judged run on before anybody asks for those of an earlier one


@dataclass(slots=True)
class Pending(Executed):
    """A program that was started and waits for its verdict.

    Attributes:
        program, run: of an observed program; ``None`` where only results are judged.
        flushed: whether full buffers were flushed on the way.
        eager: whether it is no program that the user made, but an eager primitive or a function of JAX's library.
    """

    program: Program | None = None
    run: Run | None = None
    flushed: bool = False
    eager: bool = False

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
    """Pending programs in the order they ran; ``settle`` is called once for each.

    One thread adds; the block may be left, and what waits be settled, in another.
    """

    def __init__(self, settle: Callable[[Pending], None]) -> None:
        self._settle = settle
        self._waiting: deque[tuple[Pending, int]] = deque()
        self._bytes = 0
        self._lock = threading.RLock()

    def add(self, pending: Pending, size: int | None = None) -> None:
        """Let one more program wait; settle those that are ready, and the oldest when too many wait.

        ``size`` is what waiting keeps alive, in bytes, where it is known.
        """
        with self._lock:
            self._add(pending, size)

    def _add(self, pending: Pending, size: int | None) -> None:
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
        """The program that has waited longest, or ``None``; may be asked at any time."""
        try:
            return self._waiting[0][0]
        except IndexError:
            return None

    def drain(self) -> None:
        """Settle all, in order."""
        with self._lock:
            while self._waiting:
                self._pop()

    def give_up(self, arrays: Sequence[Any]) -> None:
        """``arrays`` are about to be donated: what waiting programs need of them is asked for on the device."""
        gone = {id(x) for x in arrays}
        with self._lock, _compat.unwatched():
            if any(p.observed is not None and any(id(x) in gone for x in p.outs) for p, _ in self._waiting):
                self.drain()  # a certificate needs the results themselves
            for pending, _ in self._waiting:
                pending.args = [_given_up(x, gone) for x in pending.args]
                pending.outs = [_given_up(x, gone) for x in pending.outs]

    def _pop(self) -> None:
        pending, size = self._waiting.popleft()
        self._bytes -= size
        self._settle(pending)


def _given_up(x: Any, gone: set[int]) -> Any:
    return Donated(x) if id(x) in gone and can_hold_nan(x) else x


def spared(args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """The inputs of a program that is run twice, for the first time: it may have copies of those that it donates."""
    donated = params.get("donated_invars") or (False,) * len(args)
    with _compat.unwatched():
        return [x.copy() if gone and isinstance(x, jax.Array) else x for x, gone in zip(args, donated, strict=True)]


def held(args: Sequence[Any], donated: Sequence[bool], *, keep_donated: bool) -> list[Any]:
    """The inputs to hold until the verdict: of those that are donated, copies where the user asked for them."""
    if keep_donated:  # of every type: a replay needs them all
        return [jnp.copy(x) if gone else x for x, gone in zip(args, donated, strict=True)]
    return [Donated(x) if gone and can_hold_nan(x) else x for x, gone in zip(args, donated, strict=True)]


def collect(pending: Pending, *, copying: bool) -> None:
    """Hand on what an observed program brought as data; ``copying`` as when it ran."""
    program, plan, states, run = pending.program, pending.plan, pending.states, pending.run
    assert program is not None and plan is not None and states is not None and run is not None
    buffers = {site: states[site.number] for site in plan.sites.values() if not site.live}
    if program.may_overflow and (not pending.flushed or any(site.spread for site in buffers)):
        counts = {site: int(np.asarray(buffer.count).max()) for site, buffer in buffers.items()}  # of several shards
        again = lambda site, n: n > program.rows if site.spread else not pending.flushed
        if most := max((n for site, n in counts.items() if program.overflows(site, n) and again(site, n)), default=0):
            buffers = _again(pending, copying, most)
    for site, buffer in buffers.items():
        for shard, own in emission.fetched(buffer, site.shards):
            rows = min(int(own.count), len(own.steps))
            if rows < own.count:
                warn_once(
                    ("lost", pending.name, site.path),
                    f"{site.path} of {pending.name!r}: {int(own.count) - rows} events of shard {shard} did not fit in "
                    f"buffer_bytes={program.settings.buffer_bytes}; from a shard that is spread over devices they "
                    "cannot leave earlier",
                )
            run.receiver.data(site, run, own, rows, shard)


def _again(pending: Pending, copying: bool, most: int) -> dict[Any, emission.Buffer]:
    """More events than the buffers hold: run the replica once more, handing full buffers to the host."""
    program = pending.program
    assert program is not None and pending.run is not None
    program.overflowed(most)
    jaxpr = pending.jaxpr()
    variant = program.variant(jaxpr, pending.args, replica=True, flushing=True, copying=copying)
    outs, states = variant.run(jaxpr, pending.run.number, pending.args)
    jax.block_until_ready((outs, states))
    jax.effects_barrier()
    plan = program.plan_of(jaxpr, replica=True)
    return {site: states[site.number] for site in plan.sites.values() if not site.live}
