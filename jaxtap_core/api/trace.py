"""The lens itself: a trace that receives every program a thread executes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtap_core import _compat
from jaxtap_core.runtime import context, progress


class LensTrace(_compat.Trace):
    """Receives each program that is executed at top level, after all transformations, and hands it to its session.

    There is one for all blocks: JAX keeps an entry of a function's fast cache for every trace that it was called under.
    """

    is_lens = True

    def __init__(self) -> None:
        super().__init__()
        self.parent_trace = _compat.eval_trace

    def stage_value(self, value: Any) -> Any:
        with _compat.set_current_trace(_compat.eval_trace):
            return _compat.eval_trace.stage_value(value)

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        __tracebackhide__ = True
        with _compat.set_current_trace(_compat.eval_trace):
            session = context.session_of_program()
            if session is not None:
                return progress.execute(session, primitive, args, params)
            if not context.on_here():  # the block was left in another thread
                operands, args = args, [*args]
                operands.append(_TakesOff())
            return primitive.bind(*args, **params)

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, args: Any, /, **_: Any) -> Any:
        with _compat.set_current_trace(self):
            return fun.call_wrapped(*args)

    def process_custom_vjp_call(self, primitive: Any, fun: Any, fwd: Any, bwd: Any, args: Any, /, **_: Any) -> Any:
        with _compat.set_current_trace(self):
            return fun.call_wrapped(*args)

    def process_call(self, primitive: Any, fun: Any, args: Any, params: Any, /) -> Any:
        # as the forward pass of an eager ``checkpoint`` does on jax 0.10: its inside is executed equation by equation
        with _compat.set_current_trace(self):
            return primitive.impl(fun, *args, **params)

    def process_shard_map(self, primitive: Any, fun: Any, args: Any, /, **params: Any) -> Any:
        # run outside of jit: JAX executes its inside primitive by primitive, each on all shards
        return self.process_primitive(primitive, args, {**params, "subfuns": (_seen_within(fun),)})

    def cur_qdd(self, x: Any) -> Any:
        return _compat.eval_trace.cur_qdd(x)


class ShardsTrace(_compat.Trace):
    """Stands before the trace of a ``shard_map`` outside of ``jit``, and shows its programs to the session.

    Args:
        within: JAX's own trace, which runs a primitive on all shards.
    """

    def __init__(self, within: Any) -> None:
        super().__init__()
        self.parent_trace = self._within = within

    def stage_value(self, value: Any) -> Any:
        return self._within.stage_value(value)

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        __tracebackhide__ = True
        session = context.session_of_program()
        if session is not None:
            return session.execute_in_shards(primitive, args, params, self._within)
        with _compat.set_current_trace(self._within):
            return primitive.bind(*args, **params)

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, args: Any, /, **_: Any) -> Any:
        with _compat.set_current_trace(self):
            return fun.call_wrapped(*args)

    def process_custom_vjp_call(self, primitive: Any, fun: Any, fwd: Any, bwd: Any, args: Any, /, **_: Any) -> Any:
        with _compat.set_current_trace(self):
            return fun.call_wrapped(*args)

    def process_call(self, primitive: Any, fun: Any, args: Any, params: Any, /) -> Any:
        with _compat.set_current_trace(self):
            return primitive.impl(fun, *args, **params)

    def process_shard_map(self, primitive: Any, fun: Any, args: Any, /, **params: Any) -> Any:
        with _compat.set_current_trace(self._within):
            return primitive.bind(*args, **params, subfuns=(_seen_within(fun),))

    def cur_qdd(self, x: Any) -> Any:
        return self._within.cur_qdd(x)


def _seen_within(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The inside of a ``shard_map``, whose programs are to be seen where it is executed at once."""

    def seen(*args: Any) -> Any:
        within = _compat.current_trace()
        if not _compat.runs_shards(within):
            return fun(*args)
        with _compat.set_current_trace(ShardsTrace(within)):
            return fun(*args)

    return seen


LENS = LensTrace()


def take_off() -> None:
    """Where no block of this thread is on any more, its lens goes."""
    if _compat.current_trace() is LENS and not context.on_here():
        _compat.make_current(_compat.eval_trace)
        context.rid_of_lens()


class _TakesOff:
    """Takes the lens off once JAX is done with a program: until then it puts back the trace that was current.

    It is hidden among the operands of the program, which go when JAX's own function ends.
    """

    __slots__ = ()

    def __del__(self) -> None:
        take_off()
