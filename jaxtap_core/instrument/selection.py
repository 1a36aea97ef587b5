"""What is taken of the values at a site: leaves picked by name, or what a reducer makes of them on the device."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap_core import _compat
from jaxtap_core.errors import LensError, warn
from jaxtap_core.jaxpr.leaves import matching
from jaxtap_core.jaxpr.sharding import explicit_sharding
from jaxtap_core.request.reducers import takes_path
from jaxtap_core.request.settings import Settings
from jaxtap_core.request.taps import Tap


@dataclass(frozen=True, eq=False)
class Selection:
    """A selection made ready for one site.

    Attributes:
        reduce: from the values there to a flat list of arrays that can leave the device.
        names: column names of those arrays.
        rebuild: from arrays of that list (on the host) to the pytree that the user selected.
        shapes, dtypes: of those arrays.
        shardings: over mesh axes that are part of a type (``AxisType.Explicit``); ``None`` for the others.
    """

    reduce: Callable[[Sequence[Any]], list[Any]]
    names: tuple[str, ...]
    rebuild: Callable[[Sequence[Any]], Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    shardings: tuple[Any, ...]


class Misfit(NamedTuple):
    """A loop that a selection does not fit: its path, its leaves, and why."""

    path: str
    leaves: tuple[str, ...]
    reason: str


@dataclass(eq=False)
class Met:
    """What one program has of what was asked for.

    Attributes:
        fitted: how many loops ``select`` and ``select_ys`` fit.
        misfits: the loops of the user's that they do not fit.
        taps: which of the lens's taps met a primitive.
        asked, passed: the loops that ``where`` was asked for, and how many it let through.
    """

    fitted: Counter[str] = field(default_factory=Counter)
    misfits: list[tuple[str, Misfit]] = field(default_factory=list)
    taps: set[int] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    passed: int = 0


class Unmet:
    """What a lens was asked for and did not meet, told at the end of the block; each thing once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._met = Met()
        self._told: set[str] = set()

    def note(self, program: str, met: Met) -> None:
        """What there was in one program."""
        mine = self._met
        mine.fitted += met.fitted
        mine.taps |= met.taps
        mine.passed += met.passed
        mine.asked = list(dict.fromkeys((*mine.asked, *(f"{program}: {loop}" for loop in met.asked))))[:_MOST]
        known = {(argument, misfit.path) for argument, misfit in mine.misfits}
        for argument, misfit in met.misfits:
            named = misfit._replace(path=f"{program}: {misfit.path}")
            if (argument, named.path) not in known:
                mine.misfits.append((argument, named))

    def tell(self) -> None:
        """Warn, if there is anything to warn of."""
        settings, met = self._settings, self._met
        unmet = [tap for i, tap in enumerate(settings.taps) if i not in met.taps]
        if unmet:
            names = ", ".join("'*'" if tap.primitives == "*" else repr(sorted(tap.primitives))[1:-1] for tap in unmet)
            self._warn(
                "taps", f"no primitive was met by the tap on {names}; tap.primitives(f, *args) lists what there is"
            )
        emits = settings.emits_carry or settings.emits_outputs
        if settings.filter is not None and emits and not met.passed:
            there = f"; there were: {_some(met.asked)}" if met.asked else "; there was no loop"
            self._warn(
                "where", f"where={_name(settings.where)} let no loop through, nothing was recorded of any{there}"
            )
            return
        if settings.select is not None and settings.emits_carry:
            self._tell_of("select", "no loop was met")
        if settings.select_ys is not None:
            self._tell_of("select_ys", "no scan with per-step outputs was met")

    def _tell_of(self, argument: str, nothing: str) -> None:
        misfits = [misfit for which, misfit in self._met.misfits if which == argument]
        lines = "".join(f"\n  {m.path}: {m.reason}; its leaves: {_some(m.leaves)}" for m in misfits)
        given = f"{argument}={_name(getattr(self._settings, argument))}"
        if not self._met.fitted[argument]:
            self._warn(argument, f"{given} fits no loop, nothing was recorded:{lines or f' {nothing}'}")
        elif misfits:
            self._warn(argument, f"{given} does not fit some loops, which were skipped:{lines}")

    def _warn(self, what: str, message: str) -> None:
        if what not in self._told:
            self._told.add(what)
            warn(message)


_MOST = 1000  # loops that are remembered for a warning


def _name(given: Any) -> str:
    return getattr(given, "__qualname__", type(given).__name__) if callable(given) else repr(given)


def _some(names: Sequence[str], most: int = 12) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def storable(value: Any) -> Any:
    """``value`` as an array that can leave the device: key data for typed keys, ``bool`` zeros for ``float0``."""
    dtype = value.dtype if hasattr(value, "dtype") else np.result_type(value)
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.key_data(value)
    if dtype == jax.dtypes.float0:
        return jnp.zeros(np.shape(value), bool)
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


def _prepare(
    reduce: Callable[[Sequence[Any]], list[Any]],
    names: Sequence[str],
    rebuild: Callable[[Sequence[Any]], Any],
    avals: Sequence[Any],
) -> Selection:
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=explicit_sharding(aval)) for aval in avals]
    out = jax.eval_shape(lambda *leaves: [storable(x) for x in reduce(leaves)], *structs)
    return Selection(
        lambda leaves: [storable(x) for x in reduce(leaves)],
        tuple(names),
        rebuild,
        tuple(x.shape for x in out),
        tuple(np.dtype(x.dtype) for x in out),
        tuple(explicit_sharding(x) for x in out),
    )


def _pick(
    places: Sequence[int],
    names: Sequence[str],
    rebuild: Callable[[Sequence[Any]], Any],
    avals: Sequence[Any],
) -> Selection:
    """The values at ``places`` as they are; nothing has to be traced to know what comes out."""
    stored = [_stored(avals[i]) for i in places]
    return Selection(
        lambda values: [storable(values[i]) for i in places],
        tuple(names),
        rebuild,
        tuple(tuple(x.shape) for x in stored),
        tuple(np.dtype(x.dtype) for x in stored),
        tuple(explicit_sharding(x) for x in stored),
    )


def _stored(aval: Any) -> Any:
    """Shape and dtype of what `storable` makes of a value of this aval."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    if aval.dtype == jax.dtypes.float0:
        return jax.ShapeDtypeStruct(aval.shape, np.dtype(bool))
    return aval


@dataclass(frozen=True)
class _AsDict:
    """Rebuilds a dict of leaves by name. Classes instead of closures, so that streams can be compared and sent."""

    names: tuple[str, ...]

    def __call__(self, leaves: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, leaves, strict=True))


@dataclass(frozen=True)
class Unflatten:
    """Rebuilds a pytree."""

    tree: Any

    def __call__(self, leaves: Sequence[Any]) -> Any:
        return self.tree.unflatten(leaves)


def first(leaves: Sequence[Any]) -> Any:
    """The only leaf of a selection."""
    return leaves[0]


def _by_name(selection: Any, names: Sequence[str], avals: Sequence[Any], path: str) -> Selection | Misfit:
    if selection is None:
        wanted, labels = list(range(len(names))), list(names)
    else:
        if isinstance(selection, str):
            queries = {selection: selection}
        elif isinstance(selection, Mapping):
            queries = dict(selection)
        else:
            queries = {query: query for query in selection}
        wanted, labels = [], list(queries)
        for query in queries.values():
            hits = matching(query, names)
            if len(hits) != 1:
                what = f"ambiguous: {[names[i] for i in hits]}" if hits else "not a leaf of this loop"
                return Misfit(path, tuple(names), f"{query!r} is {what}")
            wanted.append(hits[0])
    usable = [i for i in range(len(wanted)) if not _compat.is_ref(avals[wanted[i]])]
    wanted, labels = [wanted[i] for i in usable], [labels[i] for i in usable]
    rebuild = first if isinstance(selection, str) else _AsDict(tuple(labels))
    return _pick(wanted, labels, rebuild, avals)


def _by_reducer(
    reducer: Callable[..., Any],
    names: Sequence[str],
    avals: Sequence[Any],
    path: str,
    given: Callable[[list[Any]], Any] = list,
) -> Selection | Misfit:
    """What ``reducer`` makes of the values, which it is given as ``given`` says."""
    keywords = {"path": path} if takes_path(reducer) else {}
    box: list[Any] = []

    def reduce(leaves: Sequence[Any]) -> list[Any]:
        flat, tree = jax.tree.flatten(reducer(given(list(leaves)), **keywords))
        if not box:
            box.append(tree)
        return flat

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            selection = _prepare(reduce, (), first, avals)
    except Exception as error:
        text = str(error).strip().splitlines()
        return Misfit(path, tuple(names), f"select raised {type(error).__name__}: {text[0] if text else ''}")
    tree = box[0]
    keyed, _ = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(tree, range(tree.num_leaves)))
    labels = [_label(keys) for keys, _ in keyed]
    return replace(selection, names=tuple(labels), rebuild=Unflatten(tree))


def _label(keys: Any) -> str:
    return jax.tree_util.keystr(keys, simple=True, separator=".") or "value"


def select_leaves(selection: Any, names: Sequence[str], avals: Sequence[Any], path: str) -> Selection | Misfit:
    """The user's ``select`` (``None``, names, a dict, a reducer) made ready for the leaves of one loop."""
    with _compat.set_current_trace(_compat.eval_trace):
        if callable(selection):
            return _by_reducer(selection, names, avals, path)
        return _by_name(selection, names, avals, path)


def select_values(tap: Tap, name: str, avals: Sequence[Any], path: str) -> Selection | None:
    """What ``tap`` takes of the outputs of a primitive called ``name``; ``None`` where there is nothing to take.

    Raises:
        LensError: the primitive has no such output.
    """
    kept = [i for i, aval in enumerate(avals) if hasattr(aval, "shape") and not _compat.is_ref(aval)]
    if tap.output is not None:
        if tap.output >= len(avals) and tap.primitives != "*":
            count = f"{len(avals)} output" + ("s, numbered from 0" if len(avals) != 1 else ", number 0")
            raise LensError(f"{path}: {name} has {count}, but a tap asks for its output {tap.output}")
        kept = [i for i in kept if i == tap.output]
    if not kept:
        return None
    names = ["value"] if len(kept) == 1 else [f"out[{i}]" for i in kept]
    with _compat.set_current_trace(_compat.eval_trace):
        if tap.select is not None:
            given = list if tap.output is None else first
            chosen = _by_reducer(tap.select, names, [avals[i] for i in kept], path, given)
            if isinstance(chosen, Misfit):
                warn(f"{path}: the tap's select does not fit: {chosen.reason}")
                return None
            reduce = chosen.reduce
            return replace(chosen, reduce=lambda outs: reduce([outs[i] for i in kept]))
        rebuild = first if len(kept) == 1 else tuple
        return _pick(kept, names, rebuild, avals)
