"""Runs that are under way: to whom the emissions of a compiled program belong, which serves many runs.

A program's emissions carry the number of the run; here it leads to the receiver of the recording that is active.
"""

from __future__ import annotations

import itertools

from jaxtap_core.instrument import emission
from jaxtap_core.instrument.interpreter import HostEnds
from jaxtap_core.instrument.plan import Site
from jaxtap_core.records.events import Alert
from jaxtap_core.runtime.receiver import Receiver, Run

_numbers = itertools.count(1)
_runs: dict[int, Run] = {}


def open_run(receiver: Receiver, program: str, call: int, alerts: list[Alert] | None = None) -> Run:
    """A run whose emissions go to ``receiver`` until it is closed, and whose alerts also go to ``alerts``."""
    run = Run(next(_numbers) & 0x7FFFFFFF, receiver, program, call, [] if alerts is None else alerts)
    _runs[run.number] = run
    return run


def close_run(run: Run) -> None:
    """Nothing more will come from ``run``."""
    _runs.pop(run.number, None)


def host_ends() -> HostEnds:
    """The host's ends of a program's emissions: they go to whichever run they name."""

    def flushed(site: Site) -> emission.HostEnd:
        def receive(number: int, buffer: emission.Buffer, shard: int | None) -> None:
            run = _runs.get(number)
            if run is not None:
                run.receiver.data(site, run, buffer, len(buffer.steps), shard)

        return emission.flush_end(site, receive)

    return HostEnds(lambda site: emission.live_end(site, _runs.get), flushed)
