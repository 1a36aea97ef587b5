"""Running programs ahead of themselves, so that somebody can see how far their loops are.

A program with loops first runs as a replica whose loops count their steps live and whose results are dropped. Then it
runs as it would have run without: production, or under whatever lens is on. So nothing that is seen here can change a
result, a recording, a certificate or a finding.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from jaxtap_core import _compat
from jaxtap_core.instrument.emission import Handle
from jaxtap_core.instrument.plan import Site
from jaxtap_core.recording.recording import Recording
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.cache import PROGRAMS
from jaxtap_core.runtime.context import Running
from jaxtap_core.runtime.policy import holds_program
from jaxtap_core.runtime.program import Program
from jaxtap_core.runtime.receiver import Receiver, Run
from jaxtap_core.runtime.runs import close_run, open_run
from jaxtap_core.runtime.session import Session

MOST_EVENTS = 10_000  # of one loop, as far as its length is known: each costs some 3 us


@dataclass(eq=False)
class Loop:
    """How far one loop is.

    Attributes:
        path, total, depth: as of its events.
        steps: index vector of the last step that was heard of, outermost loop first; empty before the first.
    """

    path: str
    total: int | None
    depth: int
    every: int
    steps: tuple[int, ...] = ()
    _heard: int = 0
    _first: float = 0.0
    _last: float = 0.0

    def hear(
        self, steps: tuple[int, ...], lane: Any, active: Any, leaves: Any, now: float, shard: int | None = None
    ) -> bool:
        """A step is over; called from within the program. Of several shards the first speaks for all."""
        if not shard:
            if not self._heard:
                self._first = now
            self.steps, self._heard, self._last = steps, self._heard + 1, now
        return False  # the program goes on

    @property
    def rate(self) -> float | None:
        """Steps per second on average; ``None`` before the second one, or where steps left out cannot be counted."""
        seconds = self._last - self._first
        if self._heard < 2 or not seconds or (self.every > 1 and not self.total):
            return None
        each = self.total / -(-self.total // self.every) if self.total else 1.0
        return (self._heard - 1) * each / seconds


@dataclass(eq=False)
class Progress:
    """A program that is running.

    Attributes:
        program: its name.
        loops: the user's loops, in program order, each before those inside it.
        since: when it was started (seconds, monotonic).
        counted: whether its loops count their steps: not in a program with side effects, which runs only once.
        again: whether it is running for its results by now, uncounted.
    """

    program: str
    loops: tuple[Loop, ...]
    since: float = field(default_factory=time.monotonic)
    counted: bool = True
    again: bool = False

    def step(self, loop: Loop) -> int | None:
        """The step that ``loop`` is in, as far as it or a loop inside it has told; ``None`` before that."""
        inside = (one.steps for one in self.loops if one is loop or one.path.startswith(f"{loop.path}/"))
        return max((steps[: loop.depth] for steps in inside if steps), default=(None,))[-1]


class Ahead:
    """Runs the programs of one thread ahead, while it is `watching`.

    Args:
        over: called when a program that was shown has ended, before the code that called it goes on.

    Attributes:
        progress: of the program that is running, to be looked at from any thread; ``None`` while none is.
    """

    def __init__(self, over: Callable[[], None]) -> None:
        self.progress: Progress | None = None
        self._over = over
        self._thread = threading.get_ident()
        self._unfit: weakref.WeakSet[Program] = weakref.WeakSet()

    def execute(self, session: Session, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """What ``session`` makes of a program, which may run ahead of that."""
        __tracebackhide__ = True
        if threading.get_ident() != self._thread or not holds_program(primitive):
            return session.execute(primitive, args, params)
        try:
            self._run_ahead(session, primitive, args, params)
            if self.progress is None:
                return session.execute(primitive, args, params)
            self.progress.again = self.progress.counted
            outs = session.execute(primitive, args, params)
            with suppress(Exception):  # whether it failed the user hears where the results are used
                jax.block_until_ready(outs)
            return outs
        finally:
            self.progress = None
            self._over()

    def _run_ahead(self, session: Session, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> None:
        """Run a replica, for everybody to see. Whatever goes wrong, production says it better, or goes without."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                jaxpr, program, settings = _program(session.settings.max_trips, primitive, args, params)
            if not program.plan.sites or program in self._unfit:
                return
            sites = sorted(program.plan.sites.values(), key=lambda site: list(map(int, re.findall(r"\d+", site.path))))
            loops = {s.path: Loop(s.path, s.total, s.depth, settings.sample_every) for s in sites}
            progress = self.progress = Progress(program.name, tuple(loops.values()))
            # a loop that would be stopped by an alert or a finding must not run on ahead of that
            progress.counted = (
                program.debug_only
                and not session.settings.fail_fast
                and not any(_compat.is_ref(jax.typeof(x)) for x in args)
            )
            if not progress.counted:
                return
        except Exception:
            return
        session.running = Running(program.name, program.plan, _compat.current_source(), progress.since)
        run = open_run(_Counter(settings, loops), program.name, 0, program.plan.sites)
        try:
            variant = program.variant(jaxpr, args, replica=True, flushing=False)
            jax.block_until_ready(variant.run(jaxpr, run.number, args))
        except Exception:
            self._unfit.add(program)
        finally:
            close_run(run)
            session.running = None


class _Counter(Receiver):
    """The host's end of the steps that a replica counts."""

    def __init__(self, settings: Settings, loops: dict[str, Loop]) -> None:
        super().__init__(settings, Recording(), keep=False)
        self._loops = loops

    def open_stream(self, site: Site, run: Run, phase: str, lanes: int) -> Handle:
        return self._loops[site.path].hear


def _program(
    max_trips: int | None, primitive: Any, args: Sequence[Any], params: dict[str, Any]
) -> tuple[Any, Program, Settings]:
    """A program whose loops count their steps, not too many of them, and what was asked of the lens for that."""

    def counted(settings: Settings) -> tuple[Any, Program, Settings]:
        if primitive is _compat.jit_p:
            jaxpr, program = params["jaxpr"], PROGRAMS.jitted(params, settings, _compat.current_source)
        else:
            jaxpr, program = PROGRAMS.eager(primitive, args, params, settings, _compat.current_source)
        return jaxpr, program, settings

    every_step = Settings(select=_nothing, on_step=_unheard, where=_of_the_user, max_trips=max_trips)
    found = counted(every_step)
    sites = found[1].plan.sites.values()
    if all((site.bound or 0) <= MOST_EVENTS for site in sites):
        return found
    return counted(_fewer(every_step, sites))


def _fewer(settings: Settings, sites: Collection[Site]) -> Settings:
    """Loops that are known to make too many steps are not counted, nor those inside; an outermost one now and then."""
    known = [(site.depth, site.bound or 0) for site in sites]
    deepest = min(depth for depth, most in known if most > MOST_EVENTS) - 1
    longest = max(most for depth, most in known if depth == 1)
    return replace(settings, max_depth=max(1, deepest), sample_every=-(-longest // MOST_EVENTS) or 1)


def _nothing(leaves: Sequence[Any]) -> tuple[()]:
    return ()


def _unheard(event: Any) -> None:
    """Makes loops live; a `_Counter` listens in its place."""


def _of_the_user(path: str) -> bool:
    return "jax:" not in path


_ahead: Ahead | None = None


@contextmanager
def watching(ahead: Ahead) -> Iterator[None]:
    """While this is open, programs that run under a lens run ahead."""
    global _ahead
    before, _ahead = _ahead, ahead
    try:
        yield
    finally:
        _ahead = before


def execute(session: Session, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run one program in ``session``, ahead of that too if somebody is `watching`."""
    __tracebackhide__ = True
    if _ahead is None:
        return session.execute(primitive, args, params)
    return _ahead.execute(session, primitive, args, params)
