"""The only file that names non-public parts of JAX.

Each name is fetched at import. When one has moved, the error says which, and which releases of jax are known to
work, so that a user of a newer jax reads one line instead of a traceback from our inside.
"""

from __future__ import annotations

import dataclasses
import importlib
import operator
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np
from jax.extend import core as jex_core

VERIFIED = "0.10.2 to 0.12.0"

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _need(module: str, name: str) -> Any:
    """``module.name``, or an error for people that says what moved."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"jaxtap: jax {jax.__version__} no longer has {module}.{name}, which the lens needs "
            f"({error}). Verified releases of jax: {VERIFIED}. Install one of those, or a newer pytest-jaxtap."
        ) from error


Trace: Any = _need("jax.core", "Trace")
Tracer: Any = _need("jax.core", "Tracer")
Literal: Any = _need("jax.extend.core", "Literal")
Primitive: Any = _need("jax.extend.core", "Primitive")
DropVar: Any = _need("jax.extend.core", "DropVar")
set_current_trace: Callable[[Any], AbstractContextManager[Any]] = _need("jax.extend.core", "set_current_trace")
jaxpr_as_fun: Callable[..., Any] = _need("jax.extend.core", "jaxpr_as_fun")
eval_trace: Any = _need("jax._src.core", "eval_trace")
_trace_ctx: Any = _need("jax._src.core", "trace_ctx")
_EvalTrace: Any = _need("jax._src.core", "EvalTrace")
_Ref: Any = _need("jax._src.state.types", "AbstractRef")
_discharge_state: Callable[..., Any] = _need("jax._src.state.discharge", "discharge_state")
_InputEffect: Any = _need("jax._src.effects", "JaxprInputEffect")
_ReadEffect: Any = _need("jax._src.state.types", "ReadEffect")
_AxisEffect: Any = _need("jax._src.core", "NamedAxisEffect")
_InternalEffect: Any = _need("jax._src.core", "InternalMutableArrayEffect")
UNSPECIFIED: Any = _need("jax._src.sharding_impls", "UNSPECIFIED")
jit_p: Any = _need("jax._src.pjit", "jit_p")
_run_jit: Callable[..., Any] = _need("jax._src.pjit", "_pjit_call_impl_python")
_fast_data: Callable[..., Any] = _need("jax._src.pjit", "_get_fastpath_data")
_jit_as_function: Callable[..., Any] = _need("jax._src.pjit", "_get_jaxpr_as_fun")
_fast_cache: Callable[..., Any] = _need("jax._src.pjit", "_get_cpp_global_cache")
_awaits_profile: Callable[..., bool] = _need("jax._src.pjit", "_need_to_rebuild_with_fdo")
_FastKeys: Any = _need("jax._src.interpreters.pxla", "JitGlobalCppCacheKeys")
_shard_argument: Any = _need("jax._src.interpreters.pxla", "cc_shard_arg")
_fast_jit: Callable[..., Any] = _need("jax._src.lib", "_jax").pjit
_argument_trees: Any = _need("jax._src.tree_util", "dispatch_registry")
_source = importlib.import_module("jax._src.source_info_util")
_user_context: Callable[..., AbstractContextManager[Any]] = _need("jax._src.source_info_util", "user_context")
_user_frame: Callable[[Any], Any] = _need("jax._src.source_info_util", "user_frame")
_current_source: Callable[[], Any] = _need("jax._src.source_info_util", "current")
_current_name_stack: Callable[[], Any] = _need("jax._src.source_info_util", "current_name_stack")
_need("jax.extend.source_info_util", "register_exclusion")(_OWN)
_WATCHES = [
    _need("jax._src.config", name)
    for name in ("debug_nans", "debug_infs", "check_tracer_leaks", "debug_key_reuse", "no_tracing")
]
_GUARDS = [
    _need("jax._src.config", f"transfer_guard_{way}")
    for way in ("host_to_device", "device_to_device", "device_to_host")
]
_check_special: Callable[[str, Any], Any] = _need("jax._src.dispatch", "check_special_array")
_NotFinite: Any = _need("jax._src.api_util", "InternalFloatingPointError")
_effects = importlib.import_module("jax._src.effects")
_mlir = importlib.import_module("jax._src.interpreters.mlir")
_emit_python_callback: Callable[..., Any] = _need("jax.interpreters.mlir", "emit_python_callback")
_op_sharding: Callable[..., Any] = _need("jax._src.callback", "_callback_op_sharding")
_batching = importlib.import_module("jax._src.interpreters.batching")
_ad = importlib.import_module("jax._src.interpreters.ad")
_partial_eval = importlib.import_module("jax._src.interpreters.partial_eval")
_shard_map: Any = _need("jax._src.shard_map", "shard_map_p")
_ShardMapTrace: Any = _need("jax._src.shard_map", "ShardMapTrace")


# -- traces ----------------------------------------------------------------------------------------------------------


def current_trace() -> Any:
    """The trace that receives what this thread executes now."""
    return _trace_ctx.trace


def make_current(trace: Any) -> None:
    """From now on ``trace`` receives what this thread executes; for blocks that do not end in the order they began."""
    _trace_ctx.set_trace(trace)


def is_eval_trace(trace: Any) -> bool:
    """Whether ``trace`` executes at once, i.e. no transformation is being traced."""
    return isinstance(trace, _EvalTrace)


def runs_shards(trace: Any) -> bool:
    """Whether ``trace`` is that of a ``shard_map`` outside of ``jit``, which runs every primitive on all shards."""
    return isinstance(trace, _ShardMapTrace)


def is_tracer(value: Any) -> bool:
    """Whether ``value`` belongs to a transformation that is being traced."""
    return isinstance(value, Tracer)


# -- what the user has JAX look for in their programs ------------------------------------------------------------------


def unwatched(*, guarded: bool = False) -> AbstractContextManager[Any]:
    """Meanwhile nothing is looked for or forbidden that the user has JAX look for or forbid in *their* programs.

    That is NaN, Inf, leaked tracers, reused keys, tracing and, unless still ``guarded``, transfers: what the lens runs
    for itself is none of the user's.
    """
    # asked several times a program, and nearly always in vain
    watching = any(map(_value, _WATCHES))
    guarding = not guarded and not _UNGUARDED.issuperset(map(_value, _GUARDS))
    return _switched(watching, guarding) if watching or guarding else _NOTHING


@contextmanager
def _switched(watching: bool, guarding: bool) -> Iterator[None]:
    with ExitStack() as stack:
        for state in _WATCHES if watching else ():
            stack.enter_context(state(False))
        for state in _GUARDS if guarding else ():
            stack.enter_context(state("allow"))
        yield


_value = operator.attrgetter("value")
_UNGUARDED = frozenset({None, "allow"})
_NOTHING: AbstractContextManager[Any] = nullcontext()


def check_finite(primitive: Any, results: Sequence[Any]) -> None:
    """What JAX does with the results of a program that it has run: raises where the user has it look for NaN or Inf.

    Raises:
        FloatingPointError: of an eager primitive; of a jitted program JAX's own error, which leads to a fuller one.
    """
    if not (jax.config.jax_debug_nans or jax.config.jax_debug_infs):
        return
    try:
        for x in results:
            if isinstance(x, jax.Array) and not is_tracer(x) and not x.is_deleted():
                _check_special(primitive.name, x)
    except _NotFinite as error:
        if primitive is jit_p:
            raise
        raise FloatingPointError(f"invalid value ({error.ty}) encountered in {primitive.name}") from None


# -- jaxprs ----------------------------------------------------------------------------------------------------------


class Body(NamedTuple):
    """A jaxpr with its constants apart, whichever way this jax stores them."""

    jaxpr: Any
    consts: Sequence[Any]


def body_of(jaxpr: Any) -> Body:
    """``jaxpr`` (closed or open) as (jaxpr, constants)."""
    if hasattr(jaxpr, "jaxpr"):
        return Body(jaxpr.jaxpr, jaxpr.consts)
    return Body(jaxpr, getattr(jaxpr, "consts", ()))


def constvars_of(jaxpr: Any) -> Sequence[Any]:
    """Variables of ``jaxpr`` that stand for its constants."""
    return body_of(jaxpr).jaxpr.constvars


def with_equations(jaxpr: Any, eqns: Sequence[Any], effects: Iterable[Any]) -> Any:
    """``jaxpr`` (closed or open) with other equations and effects, all else kept."""
    inner = body_of(jaxpr).jaxpr
    changed = inner.replace(eqns=list(eqns), effects=frozenset(effects))
    return changed if inner is jaxpr else jaxpr.replace(jaxpr=changed)


def called_from(jaxpr: Any, source_info: Any) -> Any:
    """``jaxpr`` (closed), each of whose equations the line of ``source_info`` has built."""
    inner = body_of(jaxpr).jaxpr
    return with_equations(jaxpr, [eqn.replace(source_info=source_info) for eqn in inner.eqns], inner.effects)


def solve_of_custom_root(params: dict[str, Any]) -> Any:
    """The ``solve`` of a ``custom_root`` that has not been lowered yet (jax 0.12), else ``None``."""
    prim = params["_prim"]
    return prim.solve_jaxpr if type(prim).__name__ == "CustomRoot" else None


def with_params(jaxpr: Any, params: dict[str, Any]) -> Any:
    """``jaxpr``, a closed one, with other parameters of its equation; one of several equations stays as it is."""
    eqns = body_of(jaxpr).jaxpr.eqns
    if len(eqns) != 1:
        return jaxpr
    (eqn,) = eqns
    return with_equations(jaxpr, [eqn.replace(params={**eqn.params, **params})], body_of(jaxpr).jaxpr.effects)


def is_internal_effect(effect: Any) -> bool:
    """Whether an effect stays inside the program: use of a mutable reference, or of a mesh axis."""
    return isinstance(effect, _InputEffect | _InternalEffect | _AxisEffect)


def keeps_alive(effect: Any) -> bool:
    """Whether an equation with that effect is executed even where nobody uses its results.

    All are but those that read or make a mutable reference, or use a mesh axis. (``pure_callback`` has no effect.)
    """
    return not isinstance(effect, _ReadEffect | _InternalEffect | _AxisEffect)


def unvarying(aval: Any) -> Any:
    """A type without what is known about its varying between shards."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def without_refs(jaxpr: Any) -> Any:
    """A closed jaxpr that computes the same without the mutable references it makes, as plain values.

    A ``scan`` that used references gets a counter as its first carry, then those among its constants, then its own
    carries, then those among its scanned inputs.
    """
    return _discharge_state(jaxpr)


def portable(exported: Any) -> Any:
    """An exported program without the function that makes its derivative, which cannot be pickled."""
    return dataclasses.replace(exported, _get_vjp=None)


def is_jaxpr(value: Any) -> bool:
    """Whether a parameter of an equation is a program of its own."""
    return hasattr(value, "eqns")


def sub_jaxprs(params: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(parameter name, jaxpr) of every program inside an equation's parameters."""
    for name, value in params.items():
        if is_jaxpr(value):
            yield name, value
        elif isinstance(value, tuple | list):
            for item in value:
                if is_jaxpr(item):
                    yield name, item


class ScanParts(NamedTuple):
    """How the operands of a ``scan`` equation divide."""

    num_consts: int
    num_carry: int


def scan_parts(params: dict[str, Any]) -> ScanParts:
    """Number of constants and of carries of a ``scan`` equation (jax stores them in two ways)."""
    if "num_consts" in params:
        return ScanParts(params["num_consts"], params["num_carry"])
    consts, carry, _ = params["ft_in"].unpack()
    return ScanParts(len(consts), len(carry))


def manual_axes(params: dict[str, Any]) -> frozenset[str]:
    """The axes of the mesh over which a ``shard_map`` equation maps (jax has had two names for them)."""
    return frozenset(params["newly_manual_axes"] if "newly_manual_axes" in params else params["manual_axes"])


def is_ref(aval: Any) -> bool:
    """Whether ``aval`` is a mutable reference."""
    return isinstance(aval, _Ref)


def arg_names(jaxpr: Any) -> tuple[str, ...]:
    """The user's names of a jaxpr's inputs as jax kept them (``c['a']``; empty where there is none)."""
    inner = body_of(jaxpr).jaxpr
    names = getattr(inner.debug_info, "arg_names", None)
    if names is None or len(names) != len(inner.invars):
        return ("",) * len(inner.invars)
    return tuple(name or "" for name in names)


def traced_from(jaxpr: Any) -> str:
    """File of the function that a jaxpr was traced from; empty where jax does not say."""
    return getattr(body_of(jaxpr).jaxpr.debug_info, "func_filename", None) or ""


def traced_function(jaxpr: Any) -> str:
    """Name of the function that a jaxpr was traced from; empty where jax does not say."""
    return getattr(body_of(jaxpr).jaxpr.debug_info, "func_name", None) or ""


def result_paths(jaxpr: Any) -> tuple[str, ...]:
    """Where each output of a jaxpr stood in what the user's function returned."""
    inner = body_of(jaxpr).jaxpr
    paths = getattr(inner.debug_info, "result_paths", None)
    if paths is None or len(paths) != len(inner.outvars):
        return ("",) * len(inner.outvars)
    return tuple(path or "" for path in paths)


# -- equations -------------------------------------------------------------------------------------------------------


def bind_params(eqn: Any) -> dict[str, Any]:
    """Parameters with which ``eqn`` can be bound again (custom rules need theirs rebuilt)."""
    return eqn.primitive.get_bind_params(eqn.params)


class equation_context:  # noqa: N801 - used like the context managers of contextlib
    """The settings under which an equation was built: PRNG flavour, precision, metadata, scopes, source line."""

    __slots__ = ("_ctx", "_source")

    def __init__(self, eqn: Any) -> None:
        stack = _current_name_stack() + eqn.source_info.name_stack
        self._source = _user_context(eqn.source_info.traceback, name_stack=stack)
        self._ctx = eqn.ctx.manager

    def __enter__(self) -> None:
        self._source.__enter__()
        self._ctx.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._ctx.__exit__(*exc)
        self._source.__exit__(*exc)


def name_stack_of(source_info: Any) -> str:
    """The scopes an equation stands in, e.g. ``jit(f)/transpose(jvp(while))``."""
    return str(source_info.name_stack)


def current_scopes() -> str:
    """The scopes in which the program that is being executed right now stands; cheap, and empty nearly always."""
    stack = _current_name_stack()
    return str(stack) if stack.stack else ""


def current_source() -> Any:
    """Source information of what is being executed right now."""
    return _current_source()


class Frame(NamedTuple):
    """One place in the user's code."""

    file: str
    line: int
    function: str


def user_frame(source_info: Any) -> Frame | None:
    """The innermost frame outside of JAX in which an equation was built."""
    frame = _user_frame(source_info.traceback)
    if frame is None:
        return None
    return Frame(frame.file_name, frame.start_line, frame.function_name)


def raw_files(source_info: Any) -> Iterable[tuple[str, str]]:
    """(file, function) of the frames in which an equation was built, innermost first, our own left out."""
    if source_info.traceback is None:
        return ()
    codes, _ = source_info.traceback.raw_frames()
    return ((code.co_filename, code.co_name) for code in codes if not code.co_filename.startswith(_OWN))


# -- dispatch --------------------------------------------------------------------------------------------------------

# in the order in which JAX itself asks for the function, which is found again by them
_JIT_SETTINGS = (
    "in_shardings",
    "out_shardings",
    "in_layouts",
    "out_layouts",
    "donated_invars",
    "ctx_mesh",
    "name",
    "keep_unused",
    "inline",
    "compiler_options_kvs",
)
jit_settings = operator.itemgetter(*_JIT_SETTINGS)  # of the parameters of a ``jit`` equation, all but its jaxpr


def runner_of(params: dict[str, Any]) -> Callable[..., list[Any]]:
    """A function that runs the program of a ``jit`` equation, as binding ``jit_p`` with ``params`` would.

    Binding makes, at every call, the function that JAX dispatches in C++, which costs more than the dispatch; here it
    is made once. It shares JAX's cache of executables, so that nothing compiles again, and holds the jaxpr weakly:
    whoever calls has it.
    """
    settings = dict(zip(_JIT_SETTINGS, jit_settings(params), strict=True))
    jaxpr_ref = weakref.ref(params["jaxpr"])

    def first_call(*args: Any, **_: Any) -> Any:
        jaxpr = jaxpr_ref()
        assert jaxpr is not None
        outs, executable, profiler, constants = _run_jit(*args, jaxpr=jaxpr, **settings)
        fast = _fast_data(
            executable, jax.tree.structure(outs), args, outs, jaxpr.effects, jaxpr.consts, profiler, constants
        )
        return outs, fast, _awaits_profile(profiler)

    key = _FastKeys(
        donate_argnums=tuple(i for i, donated in enumerate(params["donated_invars"]) if donated),
        donate_argnames=None,
        device=None,
        backend=None,
        in_shardings_treedef=None,
        in_shardings_leaves=params["in_shardings"],
        out_shardings_treedef=None,
        out_shardings_leaves=params["out_shardings"],
        in_layouts_treedef=None,
        in_layouts_leaves=params["in_layouts"],
        out_layouts_treedef=None,
        out_layouts_leaves=params["out_layouts"],
    )
    return _fast_jit(
        params["name"],
        _jit_as_function(params["jaxpr"], *jit_settings(params)),
        first_call,
        [],
        [],
        key,
        _argument_trees,
        _shard_argument,
        _fast_cache(key.contains_explicit_attributes),
    )


# -- primitives ------------------------------------------------------------------------------------------------------


def known_primitives() -> set[str]:
    """Names of all primitives that this process can execute."""
    tables: list[Any] = [_mlir._lowerings, _ad.primitive_jvps, _batching.fancy_primitive_batchers]
    tables += list(_mlir._platform_specific_lowerings.values())
    return {primitive.name for table in tables for primitive in table} | {"jit", "scan", "while", "cond"}


# -- emission --------------------------------------------------------------------------------------------------------


class _EmitEffect(_effects.Effect):  # type: ignore[name-defined]
    """Values leave the device here: keeps the emission from being removed as dead code."""

    def __str__(self) -> str:
        return "tap"


emit_effect = _EmitEffect()
for _allowed in (
    "lowerable_effects",
    "control_flow_allowed_effects",
    "remat_allowed_effects",
    "custom_derivatives_allowed_effects",
    "partial_eval_kept_effects",  # or ``grad`` drops what a loop emits
):
    _need("jax._src.effects", _allowed).add_type(_EmitEffect)


def emission_primitive(name: str, batch: Callable[..., Any], *, answer: Any = None) -> Any:
    """A primitive that hands its operands to the host.

    Its parameters: ``callback(phase, lanes, masked)``, which is asked when the emission is lowered for the function
    that takes the arrays, and the two that it is given along. The host's answer comes back as a scalar of the dtype
    ``answer``; by default there is none.

    The lowering goes straight to the runtime's callback, which is some thirty times cheaper than
    ``jax.debug.callback``: nothing is moved back onto a device. ``batch(operands, dims, params)`` is its vmap rule.
    Under differentiation the primal operands are emitted and nothing is added to the tangents.
    """
    primitive = Primitive(name)
    primitive.multiple_results = True
    answers = [] if answer is None else [jax.core.ShapedArray((), np.dtype(answer))]
    primitive.def_effectful_abstract_eval(lambda *avals, **params: (answers, {emit_effect}))

    def impl(*operands: Any, **params: Any) -> list[Any]:
        # An eager emission takes the same road as a compiled one.
        with set_current_trace(eval_trace):
            return jax.jit(lambda *args: primitive.bind(*args, **params))(*operands)

    def lower(
        ctx: Any, *operands: Any, callback: Callable[..., Any], lanes: int, masked: bool, again: bool = False
    ) -> Any:
        arrived = callback("recompute" if again else "", lanes, masked)

        def host(*arrays: Any) -> tuple[Any, ...]:
            word = arrived(*arrays)
            return tuple(np.asarray(word, aval.dtype) for aval in answers)

        results, _, _ = _emit_python_callback(
            ctx,
            host,
            None,
            list(operands),
            ctx.avals_in,
            ctx.avals_out,
            has_side_effect=True,
            returns_token=False,
            sharding=_op_sharding(ctx.module_context.axis_context, None, ctx.avals_out),
        )
        return results

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
        outs = primitive.bind(*primals, **params)
        return outs, [_ad.Zero(aval.to_tangent_aval()) for aval in answers]

    def rematerialise(
        saveable: Callable[..., Any], unknown: Sequence[bool], kept: Sequence[bool], eqn: Any
    ) -> tuple[Any, Any, list[bool], list[bool], list[Any]]:
        # what checkpoint computes again is emitted again: it is executed again
        residuals = [x for x, ready in zip(eqn.invars, kept, strict=True) if not ready and not isinstance(x, Literal)]
        if any(unknown):
            return None, eqn, [], [], residuals
        if saveable(primitive, *(x.aval for x in eqn.invars), **eqn.params) is True:
            return eqn, None, [], [], []
        return eqn, eqn.replace(params={**eqn.params, "again": True}), [], [], residuals

    primitive.def_impl(impl)
    if not answers:
        _partial_eval.partial_eval_jaxpr_custom_rules[primitive] = rematerialise
    _mlir.register_lowering(primitive, lower, cacheable=False)
    _batching.primitive_batchers[primitive] = batch
    _ad.primitive_jvps[primitive] = jvp
    return primitive


# -- set_mesh --------------------------------------------------------------------------------------------------------


def mesh_setter() -> type:
    """The class behind ``jax.set_mesh``, which refuses to work while a trace other than evaluation is current."""
    setter: Any = jax.set_mesh
    if not isinstance(setter, type):
        raise ImportError(f"jaxtap: jax.set_mesh is no longer a class in jax {jax.__version__}; verified: {VERIFIED}.")
    return setter


def backends_are_initialized() -> bool:
    """Whether JAX has started a backend, after which ``XLA_FLAGS`` no longer counts."""
    return bool(_need("jax._src.xla_bridge", "backends_are_initialized")())


def parsed_xla_options() -> tuple[str, str, bool]:
    """(disabled HLO passes, greatest CPU instruction set, fast math), as XLA has read them from ``XLA_FLAGS``.

    XLA reads the variable once, at the first need; this is such a need. Of the instruction set only ``AVX`` can be
    told from the rest: it has no attribute, but stands in the serialized options.
    """
    options = _need("jax._src.lib", "xla_client").CompileOptions()
    build = options.executable_build_options  # must outlive its debug options, which only borrow from it
    debug = build.debug_options
    isa = "AVX" if b"\x03avx" in options.SerializeAsString().lower() else ""
    return debug.xla_disable_hlo_passes, isa, debug.xla_cpu_enable_fast_math


__all__ = [name for name in dir() if not name.startswith("__")] + ["jex_core"]
