"""Runs that are under way: to whom the emissions of a compiled program belong, which serves many runs.

A program's emissions carry the number of the run; here it leads to the receiver of the recording that is active.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxtap_core.instrument import emission
from jaxtap_core.instrument.interpreter import HostEnds
from jaxtap_core.instrument.plan import Site
from jaxtap_core.runtime.receiver import Receiver


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one program: tells its emissions where to go.

    ``sites`` are those of its plan: the emissions of a program that was compiled for another line belong to them.
    ``handles`` take its live events. Nobody else keeps them alive, or a program would keep its last listener.
    """

    number: int
    receiver: Receiver
    program: str
    call: int
    sites: Mapping[int, Site]
    handles: list[emission.Handle] = field(default_factory=list)


_numbers = itertools.count(1)
_runs: dict[int, Run] = {}


def open_run(receiver: Receiver, program: str, call: int, sites: Mapping[int, Site]) -> Run:
    """A run whose emissions go to ``receiver`` until it is closed."""
    run = Run(next(_numbers) & 0x7FFFFFFF, receiver, program, call, sites)
    _runs[run.number] = run
    return run


def close_run(run: Run) -> None:
    """Nothing more will come from ``run``."""
    _runs.pop(run.number, None)


def _open_stream(site: Site, number: int, phase: str, lanes: int) -> emission.Handle:
    run = _runs.get(number)
    if run is None:
        return emission.nobody
    handle = run.receiver.open_stream(run.sites[site.number], run.program, run.call, phase, lanes)
    run.handles.append(handle)
    return handle


def host_ends() -> HostEnds:
    """The host's ends of a program's emissions: they go to whichever run they name."""

    def flushed(site: Site) -> emission.HostEnd:
        def receive(number: int, buffer: emission.Buffer, shard: int | None) -> None:
            run = _runs.get(number)
            if run is not None:
                run.receiver.data(run.sites[site.number], run.program, run.call, buffer, len(buffer.steps), shard)

        return emission.flush_end(site, receive)

    return HostEnds(lambda site: emission.live_end(site, _open_stream), flushed)
