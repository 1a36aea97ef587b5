"""A lens inside an outer ``jit``, ``vmap`` or ``grad``: the program is rewritten while it is being traced.

There is no way out for data there but the host callback, so every site is live; the user's signature and custom rules
stay as they are. Each event carries whether its lane ran, since ``vmap`` may come later. The inside of a custom call is
observed; where an outer transformation replaces it by the rule of its author, that rule runs unobserved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtap_core import _compat
from jaxtap_core.errors import LensError, warn_once
from jaxtap_core.instrument import emission
from jaxtap_core.instrument.interpreter import Interpreter
from jaxtap_core.instrument.planner import Planner
from jaxtap_core.jaxpr.sharding import shards_here
from jaxtap_core.request.settings import Settings
from jaxtap_core.runtime.receiver import Receiver
from jaxtap_core.runtime.runs import Calls


class Traced(NamedTuple):
    """A call as a program: its jaxpr, its operands, and the structure of its result."""

    jaxpr: Any
    operands: list[Any]
    result: Any


def _is_operand(leaf: Any) -> bool:
    return _compat.is_tracer(leaf) or isinstance(leaf, jax.Array | np.ndarray | np.generic)


def trace_call(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Traced:
    """The program of ``f(*args, **kwargs)``; arguments that are no arrays stay as they are."""
    leaves, tree = jax.tree.flatten((args, dict(kwargs)))
    places = [i for i, leaf in enumerate(leaves) if _is_operand(leaf)]

    def call(*operands: Any) -> Any:
        filled = list(leaves)
        for i, operand in zip(places, operands, strict=True):
            filled[i] = operand
        inner_args, inner_kwargs = jax.tree.unflatten(tree, filled)
        return f(*inner_args, **inner_kwargs)

    operands = [leaves[i] for i in places]
    jaxpr, shape = jax.make_jaxpr(call, return_shape=True)(*operands)
    return Traced(jaxpr, operands, jax.tree.structure(shape))


def observe_inside(f: Callable[..., Any], receiver: Receiver, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call ``f`` under an outer transformation, with everything the settings ask for observed live."""
    settings = receiver.settings
    _check_possible(settings)
    name = getattr(f, "__name__", "function")
    shards = shards_here()
    if shards is not None and shards.spread:
        warn_once(
            ("spread", name),
            f"{name!r} runs unobserved inside a shard_map over {', '.join(shards.axes)} alone: a shard that is spread "
            "over devices cannot call the host",
        )
        return f(*args, **kwargs)
    count = shards.number if shards is not None else 0
    traced = trace_call(f, args, kwargs)
    plan = Planner(settings, name, inside=True).plan(traced.jaxpr, "", shards=count)
    receiver.unmet.note(name, plan.met)
    receiver.unmet.tell()
    calls = Calls(receiver, name, plan.sites, max(1, count))
    number = None
    if plan.live:
        shard = lax.axis_index(shards.axes) if shards is not None else 0
        number = emission.call_number(traced.operands, shard, calls.begin)
        if shards is not None:
            number = jnp.stack([number, shard])
    interpreter = Interpreter(plan, settings, calls.host_ends(), number, inside=True)
    outs = interpreter.evaluate(plan.body, traced.jaxpr, traced.operands)
    return jax.tree.unflatten(traced.result, outs)


def _check_possible(settings: Settings) -> None:
    """Raise for what needs a way out of the program that an outer transformation does not leave.

    Raises:
        LensError: the lens is to stop or to judge.
    """
    asked = {"gate": settings.gate is not None, "max_trips": settings.max_trips is not None}
    asked["fail_fast"] = settings.fail_fast
    if names := [name for name, given in asked.items() if given]:
        raise LensError(
            f"a lens inside a function that JAX is tracing (jit, vmap, grad, scan body) can neither judge nor stop it: "
            f"leave out {' and '.join(names)}, or put the lens round the call of the transformed function"
        )
