"""Runs that are under way: to whom the emissions of a compiled program belong, which serves many runs.

A program's emissions carry the number of the run; here it leads to the receiver of the recording that is active.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping

from jaxtap_core.instrument import emission
from jaxtap_core.instrument.interpreter import HostEnds
from jaxtap_core.instrument.plan import Site
from jaxtap_core.records.events import Alert
from jaxtap_core.runtime.receiver import Receiver, Run

LATEST = 64  # calls under an outer transformation that are at hand; events of earlier ones find their place again

_numbers = itertools.count(1)
_runs: dict[int, Run] = {}


def open_run(
    receiver: Receiver, program: str, call: int, sites: Mapping[int, Site], alerts: list[Alert] | None = None
) -> Run:
    """A run whose emissions go to ``receiver`` until it is closed, and whose alerts also go to ``alerts``."""
    run = Run(next(_numbers) & 0x7FFFFFFF, receiver, program, call, sites, [] if alerts is None else alerts)
    _runs[run.number] = run
    return run


def close_run(run: Run) -> None:
    """Nothing more will come from ``run``."""
    _runs.pop(run.number, None)


class Calls:
    """The calls of one function under an outer transformation: each gets its number when it begins, on the device.

    Nobody knows when such a call ends. What is kept is kept by the compiled program that asks for it.

    Args:
        receiver: who takes their events.
        program: name of the function.
        sites: of its plan.
        shards: how many shards make each call; 1 where there are none.
    """

    def __init__(self, receiver: Receiver, program: str, sites: Mapping[int, Site], shards: int = 1) -> None:
        self._receiver = receiver
        self._program = program
        self._sites = sites
        self._shards = shards
        self._runs: dict[int, Run] = {}
        self._lock = threading.Lock()
        self._given: dict[int, int] = {}  # to calls that some shard has not begun yet
        self._begun: Counter[int] = Counter()

    def begin(self, shard: int = 0) -> int:
        """A call begins in one of its shards, all of which make the same calls; gives its number."""
        with self._lock:
            order = self._begun[shard]
            self._begun[shard] += 1
            if order not in self._given:
                self._given[order] = self._receiver.recording.next_call(self._program)
            number = self._given[order]
            if len(self._begun) == self._shards and min(self._begun.values()) > order:
                del self._given[order]
            return number

    def _run(self, number: int) -> Run:
        run = self._runs.get(number)
        if run is None:
            if len(self._runs) >= LATEST:
                self._runs.pop(next(iter(self._runs)), None)
            run = self._runs.setdefault(number, Run(number, self._receiver, self._program, number, self._sites, []))
        return run

    def host_ends(self) -> HostEnds:
        """The host's ends of its emissions, each of which says its number."""
        return HostEnds(lambda site: emission.live_end(site, self._run), _no_flush)


def _no_flush(site: Site) -> emission.HostEnd:
    raise AssertionError("under an outer transformation everything is live")


def host_ends() -> HostEnds:
    """The host's ends of a program's emissions: they go to whichever run they name."""

    def flushed(site: Site) -> emission.HostEnd:
        def receive(number: int, buffer: emission.Buffer, shard: int | None) -> None:
            run = _runs.get(number)
            if run is not None:
                run.receiver.data(run.sites[site.number], run, buffer, len(buffer.steps), shard)

        return emission.flush_end(site, receive)

    return HostEnds(lambda site: emission.live_end(site, _runs.get), flushed)
