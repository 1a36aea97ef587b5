"""The ways to put the lens on: round a block, or round a function; and to look away."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import FrameType
from typing import Any, overload

from jaxtap_core import _compat
from jaxtap_core.api import mesh
from jaxtap_core.api.trace import LENS, take_off
from jaxtap_core.errors import LensError
from jaxtap_core.jaxpr.visit import executed
from jaxtap_core.recording.recording import Recording, called_within
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime import context
from jaxtap_core.runtime.receiver import Receiver
from jaxtap_core.runtime.session import Session
from jaxtap_core.runtime.traced import observe_inside, trace_call


class Block:
    """A ``with`` block under a lens. Each can be entered once at a time; blocks nest, the innermost receives.

    Args:
        receiver: where everything goes, and what is asked of the lens.
        last: whether nothing follows for the same receiver.
        by_user: whether the user's code enters it, so that `off` leaves it.
        beside: the session of the block in another thread into which this one is taken.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        last: bool = True,
        by_user: bool = True,
        beside: Session | None = None,
    ) -> None:
        self._receiver = receiver
        self._last = last
        self._by_user = by_user
        self._beside = beside
        self._entered: context.Entered | None = None
        self._taken_off = False
        self._outer: Any = None

    def __enter__(self) -> Recording:
        if self._entered is not None:
            raise LensError("this tap.record(...) block is entered already; make another for a nested one")
        take_off()
        if _being_traced():
            raise LensError(
                "tap.record(...) was entered inside a function that JAX is tracing (jit, vmap, grad, scan body). "
                "Enter it around the call of the transformed function instead, or, to observe inside, wrap the "
                "function: g = tap.verbose(f, on_step=print) and call g there"
            )
        if self._beside is not None:
            session = self._beside.beside()
        else:
            session = Session(self._receiver, last=self._last, outer=context.innermost())
            self._receiver.recording.entered(session, self._taken_in)
        mesh.acquire()
        self._entered = context.enter(session, leave=self._leave_early, release=mesh.release, by_user=self._by_user)
        self._outer, self._taken_off = _compat.current_trace(), False
        _compat.make_current(LENS)
        return self._receiver.recording

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self._entered is not None:
            self._leave(error)
        elif not self._taken_off:
            raise LensError("this tap.record(...) block is not entered: it was left already, or never entered")

    def _taken_in(self, session: Session) -> AbstractContextManager[Any]:
        """What takes whichever thread enters it into the block of ``session``."""
        if _being_traced():
            return nullcontext()  # the program that is being made belongs to whoever will run it
        return Block(self._receiver, beside=session)

    def _leave_early(self) -> None:
        self._taken_off = True
        self._leave()

    def _leave(self, error: BaseException | None = None) -> None:
        entered, self._entered = self._entered, None
        assert entered is not None
        session: Any = entered.session
        self._receiver.recording.left(session)
        innermost = context.leave(entered)
        # where it is left in another thread, or in a function that JAX is tracing, the lens takes itself off later
        if (innermost or not context.on_here()) and not _being_traced():
            _compat.make_current(self._outer if context.on_here() else _compat.eval_trace)
        try:
            with _compat.set_current_trace(_compat.eval_trace):
                session.close(failed=error is not None)
        except BaseException as stopped:
            self._receiver.leave(stopped)
            raise
        self._receiver.leave(error)

    def __getattr__(self, name: str) -> Any:
        receiver = self.__dict__.get("_receiver")
        if receiver is not None and hasattr(receiver.recording, name):
            raise AttributeError(
                f"a recording is made by entering the block: with tap.record(...) as rec: ..., then rec.{name}",
                name=name,
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "tap.record(...) with options alone is a context manager, no decorator: with tap.record(...) as rec: ..., "
            "or wrap a function: g, rec = tap.record(f, ...)"
        )


def _being_traced() -> bool:
    """Whether JAX is making a program here, rather than executing one."""
    trace = _compat.current_trace()
    return not (_compat.is_eval_trace(trace) or trace is LENS)


@overload
def record(f: None = None, /, **options: Any) -> Block: ...
@overload
def record(f: Callable[..., Any], /, **options: Any) -> tuple[Callable[..., Any], Recording]: ...
def record(f: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Observe what runs in a ``with`` block, or what a function runs, and record it.

    Args:
        f: a function to wrap; without it the result is a context manager.
        options: what to observe, see `jaxtap_core.request.settings.Settings`: ``select``, ``on_step``, ``select_ys``,
            ``on_ys``, ``taps``, ``alert``, ``alert_ys``, ``alert_once``, ``alert_ys_once``, ``sample_every``,
            ``where``, ``max_depth``, ``ops``, ``gate``, ``inf``, ``fail_fast``, ``max_trips``, ``identity``, ``sinks``.

    Returns:
        A context manager that gives a `Recording`; or, given ``f``, the pair ``(g, recording)`` where ``g`` is called
        like ``f`` and every call adds to the recording.

    Raises:
        TypeError, ValueError: an option that does not exist or does not make sense.
        LensError: entered inside a function that JAX is tracing.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import jaxtap_core as tap
        >>> @jax.jit
        ... def train(x):
        ...     return jax.lax.fori_loop(0, 3, lambda i, loss: loss / 2, x)
        >>> with tap.record(select="loss") as rec:
        ...     result = train(8.0)
        >>> [float(event.value) for event in rec.events]
        [4.0, 2.0, 1.0]
    """
    receiver = Receiver(Settings.of("tap.record", options), Recording())
    if f is None:
        return Block(receiver)
    if not options and _decorates(sys._getframe(1), f):
        raise TypeError(
            f"@tap.record is no decorator: what it gives for a function is a pair, g, rec = tap.record({f.__name__}), "
            "so that a test would be hidden. Write with tap.record(...) as rec: ... inside, or above a test "
            "@pytest.mark.tap(...)"
        )
    return _wrapped("tap.record", f, receiver), receiver.recording


def _decorates(caller: FrameType, f: Callable[..., Any]) -> bool:
    """Whether the line that ``caller`` is in stands above the definition of ``f``, as a decorator does."""
    code = getattr(inspect.unwrap(f), "__code__", None) if callable(f) else None
    if code is None or code.co_name == "<lambda>" or code.co_filename != caller.f_code.co_filename:
        return False
    if code.co_filename.startswith("<"):  # typed in: all that is has one name, and begins at the first line
        return False
    first = code.co_firstlineno
    body = min((line for *_, line in code.co_lines() if line and line > first), default=first + 1)
    return first <= caller.f_lineno < body


def verbose(f: Callable[..., Any], /, **options: Any) -> Callable[..., Any]:
    """Wrap ``f`` so that its events are heard live, and not kept.

    Args:
        f: any function that runs JAX programs; it may be jitted. Wrapped inside an outer ``jit``, ``vmap`` or ``grad``
            it works as well: events then carry the lane.
        options: as for `record`; ``on_step`` and ``on_ys`` hear the events.

    Returns:
        A function called like ``f``.
    """
    return _wrapped("tap.verbose", f, Receiver(Settings.of("tap.verbose", options), Recording(), keep=False))


def _wrapped(name: str, f: Callable[..., Any], receiver: Receiver) -> Callable[..., Any]:
    if not callable(f):
        raise TypeError(f"{name}(f, ...) wraps a function, not {f!r}; options go by keyword: {name}(select=...)")

    run = called_within(f, lambda: Block(receiver, last=False))

    @functools.wraps(f)
    def observed(*args: Any, **kwargs: Any) -> Any:
        if _being_traced():
            return observe_inside(f, receiver, args, kwargs)
        return run(*args, **kwargs)

    return observed


def standing(**options: Any) -> Block:
    """`record` as a block that `off` leaves on: of what runs the user's code, such as a test framework."""
    return Block(Receiver(Settings.of("tap.record", options), Recording()), by_user=False)


def off() -> None:
    """Leave every block that code of yours has entered in this thread, innermost first.

    For a block that was entered by hand and lost, as happens in notebooks: it stays on until it is left. A block that
    was left so may be left once more, and nothing happens. What a test framework has put on stays on.

    Raises:
        TapAlert: a block with ``fail_fast`` has one to raise; all are left before.

    Example:
        >>> import jaxtap_core as tap
        >>> rec = tap.record().__enter__()
        >>> tap.off()
    """
    with ExitStack() as left_in_turn:
        for entered in context.on_here():
            if entered.by_user:
                left_in_turn.callback(entered.leave)


@contextmanager
def unobserved() -> Iterator[None]:
    """What stands in this block runs as if no lens were there."""
    if _compat.current_trace() is not LENS:
        yield
        return
    with _compat.set_current_trace(_compat.eval_trace):
        yield


@contextmanager
def allow_nan() -> Iterator[None]:
    """What stands in this block may make NaNs: the gate looks away, everything else is observed as before."""
    session = context.innermost() if _compat.current_trace() is LENS else None
    if session is None:
        yield
        return
    session.settle_now()
    session.policy.gate_paused += 1
    try:
        yield
    finally:
        session.settle_now()
        session.policy.gate_paused -= 1


def primitives(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> dict[str, int]:
    """How often each primitive stands in the program that ``f`` makes of these arguments, inner programs included.

    Only what would run, and so can be tapped: not the rules that a derivative would need.

    Example:
        >>> import jax.numpy as jnp
        >>> primitives(lambda x: jnp.sin(x) * jnp.sin(2 * x), 1.0)
        {'mul': 2, 'sin': 2}
    """
    with _compat.set_current_trace(_compat.eval_trace):
        jaxpr = trace_call(f, args, kwargs).jaxpr
    return dict(sorted(Counter(eqn.primitive.name for eqn in executed(jaxpr)).items()))
