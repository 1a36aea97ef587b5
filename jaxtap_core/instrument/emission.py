"""From the device to the host: buffers for what travels as data, an emission primitive for what must be live.

As data: each site owns a buffer on the device, threaded through every loop around it, appended to by a step at a time
and returned as an extra output of the program. Nothing in the program calls the host, so the bits of its results are
disturbed as little as can be had. A buffer that could run full is handed to the host by the emission primitive.

Live: the emission primitive of `_compat` sends the values at once. It costs some thirty times less than
``jax.debug.callback``, since nothing is moved back onto a device. Host code behind it never touches JAX.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap_core import _compat
from jaxtap_core.instrument.control_flow import once_if
from jaxtap_core.instrument.plan import Site
from jaxtap_core.jaxpr.sharding import explicit_sharding, sharded_like


class Buffer(NamedTuple):
    """What one site has collected: ``count`` events; row ``i`` of each column belongs to event ``i``."""

    count: Any
    steps: Any
    active: Any
    leaves: list[Any]


def empty(site: Site, rows: int) -> Buffer:
    """A buffer of ``site`` with room for ``rows`` events."""
    selection = site.selection
    zeros = lambda shape, dtype: lax.broadcast(np.zeros((), dtype), (rows, *shape))
    column = lambda shape, dtype, sharding: sharded_like(zeros(shape, dtype), sharding, lead=1)
    return Buffer(
        jnp.int32(0),
        zeros((site.depth,), np.int32),
        zeros(site.lanes, bool) if site.lanes else None,
        list(map(column, selection.shapes, selection.dtypes, selection.shardings)),
    )


def append(buffer: Buffer, steps: Any, active: Any, leaves: Sequence[Any]) -> Buffer:
    """``buffer`` with one more event. Past its end the last row is overwritten; ``count`` still tells the truth."""

    def put(column: Any, row: Any) -> Any:
        # written out: the convenience of lax costs several times as much to trace, and taps are many
        start = (buffer.count, *([np.int32(0)] * (column.ndim - 1)))
        row = lax.expand_dims(row, (0,))
        return lax.dynamic_update_slice(column, row, start, allow_negative_indices=False)

    return Buffer(
        buffer.count + 1,
        put(buffer.steps, steps),
        put(buffer.active, active) if buffer.active is not None else None,
        [put(column, row) for column, row in zip(buffer.leaves, leaves, strict=True)],
    )


def fetched(buffer: Buffer, shards: int) -> Iterator[tuple[int | None, Buffer]]:
    """``buffer`` on the host: of every shard with its index, or (``None``, buffer) where there are none."""
    count, steps, leaves = np.asarray(buffer.count), np.asarray(buffer.steps), list(map(np.asarray, buffer.leaves))
    active = None if buffer.active is None else np.asarray(buffer.active)
    if not shards:
        yield None, Buffer(count, steps, active, leaves)
    for i in range(shards):
        yield i, Buffer(count[i], steps[i], None if active is None else active[i], [leaf[i] for leaf in leaves])


def flush_when_full(buffer: Buffer, rows: int, run: Any, host_end: HostEnd) -> Buffer:
    """Hand a full buffer to the host and start anew; for sites that may bring more than the buffer holds."""

    def flush(full: Buffer) -> Buffer:
        _emit(run, None, [full.steps, *_optional(full.active), *full.leaves], host_end)
        return full._replace(count=lax.full_like(full.count, 0))

    return once_if(buffer.count >= rows, flush, buffer)


def emit(run: Any, steps: Any, active: Any, leaves: Sequence[Any], host_end: HostEnd) -> None:
    """Send one event to the host at once; ``run`` is followed by the index of the shard where there are several."""
    head = jnp.concatenate([jnp.ravel(run).astype(jnp.int32), steps])
    _emit(head, active, leaves, host_end)


def ask(run: Any, steps: Any, active: Any, leaves: Sequence[Any], host_end: HostEnd) -> Any:
    """Send one event and wait for the host's word whether the program is to stop; a boolean scalar."""
    head = jnp.concatenate([jnp.reshape(run, (1,)).astype(jnp.int32), steps])
    operands = [head, *_optional(active), *leaves]
    return ask_p.bind(*operands, callback=host_end, lanes=0, masked=active is not None)[0]


def call_number(operands: Sequence[Any], shard: Any, begin: Callable[[int], int]) -> Any:
    """Ask the host for the number of a call that begins, once ``operands`` (any arrays) are there; an int32 scalar.

    One element of each goes to the host: what it is does not matter, only that one call follows another. ``shard`` is
    the index of the one that asks, 0 where there are none.
    """
    one = lambda x: lax.reshape(lax.slice(x, (0,) * x.ndim, (1,) * x.ndim), ())
    first = [one(x) for x in map(jnp.asarray, operands) if _is_plain(x)]

    def lowered(phase: str, lanes: int, masked: bool) -> Arrived:
        del phase, lanes, masked
        return lambda shard, *arrays: begin(int(shard))

    return call_p.bind(jnp.int32(shard), *first, callback=lowered, lanes=0, masked=False)[0]


def _is_plain(x: Any) -> bool:
    """Whether ``x`` is an array that has an element to show."""
    aval = jax.typeof(x)
    if _compat.is_ref(aval) or explicit_sharding(aval) is not None:
        return False
    return bool(aval.size) and not jnp.issubdtype(aval.dtype, jax.dtypes.extended)


def _optional(value: Any) -> list[Any]:
    return [] if value is None else [value]


def _batch(operands: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    """The rule for ``vmap``: every operand gets the lane axis in front; the host takes the lanes apart."""
    size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
    moved = [
        jnp.broadcast_to(x, (size, *jnp.shape(x))) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(operands, dims, strict=True)
    ]
    emit_p.bind(*moved, **{**params, "lanes": params["lanes"] + 1})
    return [], []


def _batch_call(operands: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    """The rule for ``vmap``: all lanes are one call."""
    one = [x if d is None else lax.index_in_dim(x, 0, d, keepdims=False) for x, d in zip(operands, dims, strict=True)]
    return call_p.bind(*one, **params), [None]


emit_p = _compat.emission_primitive("tap", _batch)
ask_p = _compat.emission_primitive("tap_ask", _batch, answer=np.bool_)
call_p = _compat.emission_primitive("tap_call", _batch_call, answer=np.int32)


def _emit(head: Any, active: Any, leaves: Sequence[Any], host_end: HostEnd) -> None:
    emit_p.bind(head, *_optional(active), *leaves, callback=host_end, lanes=0, masked=active is not None)


Arrived = Callable[..., Any]
HostEnd = Callable[[str, int, bool], Arrived]
Handle = Callable[[tuple[int, ...], Any, Any, Sequence[np.ndarray], float, int | None], bool]


def flush_end(site: Site, receive: Callable[[int, Buffer, int | None], None]) -> HostEnd:
    """The host's end of `flush_when_full`; ``receive(run, buffer, shard)``."""

    def lowered(phase: str, lanes: int, masked: bool) -> Arrived:
        del phase, lanes, masked

        def arrived(run: np.ndarray, steps: np.ndarray, *columns: np.ndarray) -> None:
            rest = list(columns)
            active = rest.pop(0) if site.lanes else None
            number, *shard = run.ravel().tolist()
            receive(number, Buffer(np.int32(len(steps)), steps, active, rest), *(shard or [None]))

        return arrived

    return lowered


class Running(Protocol):
    """A run whose events arrive: it holds the functions that take them, so that a compiled program holds nobody."""

    handles: dict[object, Handle]

    def open(self, site: Site, phase: str, lanes: int) -> Handle:
        """The function that takes the events of a site: ``handle(steps, lane, active, leaves, time, shard)``."""


def live_end(site: Site, run_of: Callable[[int], Running | None]) -> HostEnd:
    """The host's end of `emit`: takes lanes apart, leaves out lanes that did not run, and hands on one event each.

    ``run_of(number)`` gives the run that an event belongs to, or ``None`` when nobody waits for it any more.
    """

    def lowered(phase: str, lanes: int, masked: bool) -> Arrived:
        here = object()  # several lowerings of one site may serve one run

        def handle_of(number: int) -> Handle:
            run = run_of(number)
            if run is None:
                return nobody
            handle = run.handles.get(here)
            if handle is None:
                handle = run.handles[here] = run.open(site, phase, lanes)
            return handle

        def plain(head: np.ndarray, *leaves: np.ndarray) -> bool:
            run, *steps = head.tolist()
            return handle_of(run)(tuple(steps), None, None, leaves, time.monotonic(), None)

        def in_shard(head: np.ndarray, *rest: np.ndarray) -> bool:
            active, leaves = (rest[0], rest[1:]) if masked else (None, rest)
            if active is not None and not active.ndim:
                if not active:
                    return False
                active = None
            run, shard, *steps = head.tolist()
            return handle_of(run)(tuple(steps), None, active, leaves, time.monotonic(), shard)

        def with_mask(head: np.ndarray, active: np.ndarray, *leaves: np.ndarray) -> bool:
            run, *steps = head.tolist()
            if active.ndim:
                return handle_of(run)(tuple(steps), None, active, leaves, time.monotonic(), None)
            if active:
                return handle_of(run)(tuple(steps), None, None, leaves, time.monotonic(), None)
            return False

        def with_lanes(head: np.ndarray, *rest: np.ndarray) -> bool:
            now = time.monotonic()
            active, leaves = (rest[0], rest[1:]) if masked else (None, rest)
            for lane in np.ndindex(head.shape[:lanes]):
                ran = active[lane] if active is not None else None
                if ran is not None and not ran.ndim:
                    if not ran:
                        continue
                    ran = None
                run, *steps = head[lane].tolist()
                shard = steps.pop(0) if site.shards else None
                handle_of(run)(tuple(steps), lane, ran, [x[lane] for x in leaves], now, shard)
            return False

        if lanes:
            return with_lanes
        return in_shard if site.shards else with_mask if masked else plain

    return lowered


def nobody(steps: Any, lane: Any, active: Any, leaves: Any, now: float, shard: Any) -> bool:
    """Takes events of runs that nobody waits for any more."""
    return False
