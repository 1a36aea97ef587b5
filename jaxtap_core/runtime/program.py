"""One observed program: planned and rewritten once, then only run.

The rewritten program is bound with the parameters of production (name, donation, shardings, compiler options), so that
it compiles like production and only once.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap_core import _compat
from jaxtap_core.instrument.interpreter import Interpreter
from jaxtap_core.instrument.plan import Plan, Site
from jaxtap_core.instrument.planner import DEBUG_PRIMITIVES, Planner
from jaxtap_core.jaxpr.address import current_phase, written_by_jax
from jaxtap_core.jaxpr.sharding import Shards
from jaxtap_core.jaxpr.visit import equations
from jaxtap_core.request.loan import Lenders
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.runs import host_ends

FIRST_ROWS = 1024  # small at first: a buffer costs its size at every call
LATER_ROWS = 32768


@dataclass(frozen=True, slots=True)
class Variant:
    """A rewritten program: how it is called, and how its extra outputs fold back into states.

    Production's jaxpr, from which it was made, is not kept: JAX is to forget it when the user lets go of the program.
    ``kept`` is the rewritten one where ``call`` holds that weakly.
    """

    call: Callable[..., Sequence[Any]]
    tree: Any
    outputs: int
    takes_run: bool
    kept: Any = None

    def run(
        self, jaxpr: Any, number: int, args: Sequence[Any], *, guarded: bool = False
    ) -> tuple[list[Any], dict[int, Any]]:
        """Outputs of the program and the states of its sites.

        Args:
            jaxpr: production's program.
            number: of the run.
            args: its operands.
            guarded: whether it stands in for production, so that transfers which the user forbids are forbidden.
        """
        if self.takes_run:
            with _compat.unwatched():
                args = [jnp.asarray(np.int32(number)), *args]
        with _at_hand(jaxpr), _compat.unwatched(guarded=guarded):
            outs = self.call(*args)
        return list(outs[: self.outputs]), self.tree.unflatten(outs[self.outputs :])


class _AtHand(threading.local):
    jaxpr: Any = None


_here = _AtHand()


@contextmanager
def _at_hand(jaxpr: Any) -> Iterator[None]:
    """Meanwhile JAX may trace the rewriting of ``jaxpr`` (again: under other settings of the user)."""
    before, _here.jaxpr = _here.jaxpr, jaxpr
    try:
        yield
    finally:
        _here.jaxpr = before


class Program:
    """One program of production, as one lens sees it.

    Args:
        jaxpr: the program.
        params: of the ``jit`` equation; ``None`` for an eager primitive.
        name: of the jitted function or the primitive.
        settings: of the lens. The program serves all equal ones, and keeps none alive.
        source: the user's line that called it.
        shards: of the ``shard_map`` outside of ``jit`` whose inside runs it: nothing but live events leave it there.
        twin: the same program, called from another line; they share what they compile as far as they can.

    Attributes:
        lenders: the lenses that it serves.
        settings: what they ask of the device.
    """

    def __init__(
        self,
        jaxpr: Any,
        params: dict[str, Any] | None,
        name: str,
        settings: Settings,
        source: str,
        shards: Shards | None = None,
        twin: Program | None = None,
    ) -> None:
        self.name = name
        self.shards = shards
        self.lenders: Lenders = Lenders() if twin is None else twin.lenders
        self.lenders.add(settings)
        self.settings = self.lenders.loan()
        self.outputs = len(_compat.body_of(jaxpr).jaxpr.outvars)
        self.eager = params is None or written_by_jax(jaxpr)  # no program that the user made
        self.donates = params is not None and any(params["donated_invars"])
        self.effects = _effects(jaxpr)
        self.debug_only = self.effects <= DEBUG_PRIMITIVES
        self._params = None if params is None else {k: v for k, v in params.items() if k != "jaxpr"}
        self._binding = () if params is None else _compat.jit_settings(params)
        self._run_production = None if params is None else _compat.runner_of(params)
        self.nbytes = _nbytes(jaxpr)
        self.source = source
        self.phase = current_phase()
        self._lock = threading.RLock()
        self._plans: dict[bool, Plan] = {}
        self._variants: dict[tuple[bool, bool, bool, bool, int], Variant] = {}
        # rows of the buffers whose final length is not known: more after a run for which they did not suffice
        self.rows = FIRST_ROWS
        self.plan = self.plan_of(jaxpr, replica=False)
        if twin is not None and twin.plan.looks_like(self.plan):
            self._variants = twin._variants  # whose emissions go to the places of the plan whose run they name

    def production(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run the program as it is: under the trace that evaluates, and as quickly as JAX itself would."""
        run = self._run_production
        if run is None or jax.config.jax_debug_key_reuse or any(map(_compat.is_tracer, args)):
            return primitive.bind(*args, **params)  # which also knows what to say of a tracer that leaked
        return run(*args)

    def binds_like(self, params: dict[str, Any], shards: Shards | None) -> bool:
        """Whether another ``jit`` equation of the same jaxpr is compiled the same way."""
        return self._binding == _compat.jit_settings(params) and self.shards == shards

    def plan_of(self, jaxpr: Any, *, replica: bool) -> Plan:
        """The plan; that of a replica leaves debug callbacks out."""
        replica = replica and bool(self.effects)
        with self._lock:
            if replica not in self._plans:
                planner = Planner(self.settings, self.name, replica=replica, inside=self.shards is not None)
                shards = self.shards.number if self.shards is not None else 0
                self._plans[replica] = planner.plan(jaxpr, self.source, self.phase, shards)
            return self._plans[replica]

    @functools.cached_property
    def may_overflow(self) -> bool:
        """Whether some buffer of the program may run full."""
        return any(self.overflows(site, None) for site in self.plan.sites.values())

    @property
    def must_flush(self) -> bool:
        """Whether buffers are to be flushed on the way: events are known to exceed them, or have before."""
        return self.rows > FIRST_ROWS or any(
            site.bound is not None and self.overflows(site, None) for site in self.plan.sites.values()
        )

    def overflows(self, site: Site, count: int | None) -> bool:
        """Whether ``count`` events of a site (``None``: as many as there may be) exceed its buffer."""
        if site.live:
            return False
        room = site.capacity(self.settings.buffer_bytes, self.rows)
        most = site.bound if count is None else count
        return most is None or most > room

    def overflowed(self, count: int) -> None:
        """Buffers of unknown length did not suffice: from now on they are larger, and flushed when full.

        Where they cannot be, they are to hold ``count`` events.
        """
        self.rows = max(LATER_ROWS, count)

    def variant(
        self,
        jaxpr: Any,
        args: Sequence[Any],
        *,
        replica: bool,
        flushing: bool,
        diagnosing: bool = False,
        copying: bool = False,
    ) -> Variant:
        """The rewritten program; ``jaxpr`` is production's, which is not kept.

        Args:
            jaxpr, args: production's program and its operands.
            replica: whether production runs beside it: nothing is donated and debug callbacks are left out.
            flushing: whether full buffers are handed to the host.
            diagnosing: whether loops keep what tells why they do not end.
            copying: whether values inside a step are taken from a copy of it.
        """
        # without effects and donation a replica is no other program
        replica = replica and (bool(self.effects) or self.donates)
        copying = copying and self.plan.looks_into_steps
        key = (replica, flushing, diagnosing, copying, self.rows)
        with self._lock:  # another thread may run the same program: it waits, and nothing compiles twice
            if key not in self._variants:
                self._variants[key] = self._build(jaxpr, args, replica, flushing, diagnosing, copying)
            return self._variants[key]

    def _build(
        self, jaxpr: Any, args: Sequence[Any], replica: bool, flushing: bool, diagnosing: bool, copying: bool
    ) -> Variant:
        plan = self.plan_of(jaxpr, replica=replica)
        takes_run = plan.live or flushing
        ends = host_ends()
        tree: list[Any] = []

        def observed(*operands: Any) -> list[Any]:
            run, inputs = (operands[0], operands[1:]) if takes_run else (None, operands)
            if self.shards is not None:
                run = jnp.stack([run, lax.axis_index(self.shards.axes)])
            interpreter = Interpreter(
                plan,
                self.settings,
                ends,
                run,
                rows=self.rows,
                flushing=flushing,
                diagnosing=diagnosing,
                copying=copying,
                inside=self.shards is not None,
            )
            outs = interpreter.evaluate(plan.body, _here.jaxpr, inputs)
            extra, structure = jax.tree.flatten(interpreter.states)
            tree.append(structure)
            return [*outs, *extra]

        operands = [np.int32(0), *args] if takes_run else list(args)
        asks = self._params is not None and _asks(self._params, _usable_donations(jaxpr, self._params, replica))
        asks = asks and self.shards is None  # which is a replica
        # constants of our own may go to the device even where the user forbids it to theirs
        with _compat.set_current_trace(_compat.eval_trace), _compat.unwatched(), _at_hand(jaxpr):
            if not asks:
                # the common case by the short road: traced once, dispatched in C++
                observed.__name__ = observed.__qualname__ = self.name
                function = jax.jit(observed)
                function.trace(*operands)
                return Variant(function, tree[-1], self.outputs, takes_run)
            new = jax.make_jaxpr(observed)(*operands)
        params = self._bind_params(jaxpr, new, takes_run, replica)
        return Variant(_compat.runner_of(params), tree[-1], self.outputs, takes_run, kept=new)

    def _bind_params(self, jaxpr: Any, new: Any, takes_run: bool, replica: bool) -> dict[str, Any]:
        """Production's parameters, made to fit the rewritten program's operands and outputs."""
        assert self._params is not None
        params = dict(self._params)
        donated = _usable_donations(jaxpr, params, replica)
        extra = len(_compat.body_of(new).jaxpr.outvars) - self.outputs
        lead = 1 if takes_run else 0
        params.update(
            jaxpr=new,
            donated_invars=(False,) * lead + donated,
            in_shardings=(_compat.UNSPECIFIED,) * lead + tuple(params["in_shardings"]),
            in_layouts=(None,) * lead + tuple(params["in_layouts"]),
            out_shardings=tuple(params["out_shardings"]) + (_compat.UNSPECIFIED,) * extra,
            out_layouts=tuple(params["out_layouts"]) + (None,) * extra,
        )
        return params


def _asks(params: dict[str, Any], donated: Sequence[bool]) -> bool:
    """Whether a ``jit`` equation asks something of the compiler that ``jax.jit(f)`` alone would not."""
    return (
        any(donated)
        or params["keep_unused"]
        or bool(params["compiler_options_kvs"])
        or not params["ctx_mesh"].empty
        or any(x is not _compat.UNSPECIFIED for x in (*params["in_shardings"], *params["out_shardings"]))
        or any(x is not None for x in (*params["in_layouts"], *params["out_layouts"]))
    )


def _usable_donations(jaxpr: Any, params: dict[str, Any], replica: bool) -> tuple[bool, ...]:
    """Which donations production can use: each needs an output of its type. An extra output must not take another.

    Replicas never donate: production still needs the arguments.
    """
    donated = params["donated_invars"]
    if replica:
        return (False,) * len(donated)
    inner = _compat.body_of(jaxpr).jaxpr
    room: dict[Any, int] = {}
    for var in inner.outvars:
        kind = (var.aval.shape, var.aval.dtype) if hasattr(var.aval, "shape") else None
        room[kind] = room.get(kind, 0) + 1
    usable = []
    for var, donate in zip(inner.invars, donated, strict=True):
        kind = (var.aval.shape, var.aval.dtype) if hasattr(var.aval, "shape") else None
        usable.append(donate and room.get(kind, 0) > 0)
        if usable[-1]:
            room[kind] -= 1
    return tuple(usable)


def _nbytes(jaxpr: Any) -> int:
    """Bytes that the operands and the results of a program take."""
    inner = _compat.body_of(jaxpr).jaxpr
    avals = [var.aval for var in (*inner.invars, *inner.outvars)]
    return sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in avals if hasattr(aval, "shape"))


def _effects(jaxpr: Any) -> frozenset[str]:
    """Names of the primitives with side effects in a program."""
    if not _compat.body_of(jaxpr).jaxpr.effects:
        return frozenset()
    acting = (eqn for eqn in equations(jaxpr) if not all(map(_compat.is_internal_effect, eqn.effects)))
    return frozenset(eqn.primitive.name for eqn in acting if not any(_compat.sub_jaxprs(eqn.params)))
