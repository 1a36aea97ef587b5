"""Addresses inside a program: which segment of a path each loop, branch and primitive gets.

Loops and branches of one level are numbered together, in program order, so an address does not move when a filter
changes. Calls (``jit``, ``checkpoint``, custom rules) are transparent: the numbering goes on through them. Loops that
JAX's own library code builds are numbered apart as ``jax:scan[0]``, since their number differs between releases.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax

from jaxtap_core import _compat
from jaxtap_core.records.kinds import Phase

_JAX_ROOT = os.path.dirname(jax.__file__) + os.sep
_JAX_SRC = os.path.join(_JAX_ROOT, "_src") + os.sep

# Files of JAX through which every loop goes on its way from whoever asked for it; they ask for none themselves.
_MACHINERY = tuple(
    os.path.join(_JAX_SRC, part)
    for part in (
        "ad_checkpoint.py",
        "api.py",
        "api_util.py",
        "core.py",
        "custom_",
        "interpreters" + os.sep,
        os.path.join("lax", "control_flow") + os.sep,
        "linear_util.py",
        "pjit.py",
        "profiler.py",
        "source_info_util.py",
        "traceback_util.py",
        "util.py",
    )
)

# Folders of JAX whose functions compute something of their own from what they are given.
_COMPUTING = tuple(os.path.join(_JAX_SRC, part) + os.sep for part in ("scipy", "nn", "image"))


class Numbering:
    """Hands out the segments of one level of a program, in program order."""

    def __init__(self) -> None:
        self._structures: Counter[str] = Counter()
        self._primitives: Counter[str] = Counter()

    def structure(self, name: str, library: bool) -> str:
        """Segment of the next loop or branch, e.g. ``scan[0]`` or ``jax:while[0]``."""
        prefix = "jax:" if library else ""
        number = self._structures[prefix]
        self._structures[prefix] += 1
        return f"{prefix}{name}[{number}]"

    def primitive(self, name: str) -> str:
        """Segment of the next primitive of that name, e.g. ``cholesky[0]``."""
        number = self._primitives[name]
        self._primitives[name] += 1
        return f"{name}[{number}]"


def join(prefix: str, segment: str) -> str:
    """The address of ``segment`` inside ``prefix``."""
    return f"{prefix}/{segment}" if prefix else segment


def built_by_jax(source_info: Any) -> bool:
    """Whether JAX's own library code asked for the loop, rather than the user (or a library of theirs)."""
    for file, _ in _compat.raw_files(source_info):
        if not file.startswith(_MACHINERY):
            return file.startswith(_JAX_ROOT)
    return False


def written_by_jax(jaxpr: Any) -> bool:
    """Whether a program is the inside of a function of JAX's library, such as ``jnp.var``."""
    file = _compat.traced_from(jaxpr)
    return file.startswith(_JAX_ROOT) and not file.startswith(_MACHINERY)


def function_of_jax(jaxpr: Any) -> str:
    """Name of the function of JAX's library that a program is the inside of, empty where it is none that computes."""
    name = _compat.traced_function(jaxpr) if written_by_jax(jaxpr) else ""
    return "" if name in _PASSING else name.lstrip("_")


def called_of_jax(source_info: Any) -> str:
    """Name of the function of JAX that was called for an equation, empty where it only passes on what it is given."""
    asked = [function for file, function in _own_frames(source_info) if not file.startswith(_MACHINERY)]
    return "" if not asked or asked[-1] in _PASSING else asked[-1].lstrip("_")


def in_backward_rule(source_info: Any) -> bool:
    """Whether an equation is part of the backward rule of a ``custom_vjp``: JAX gives it the line of the call."""
    return any("custom_vjp" in function for _, function in _own_frames(source_info))


def computed_by_jax(source_info: Any) -> bool:
    """Whether the user called a function that computes, such as a density of ``jax.scipy``, and JAX's code the rest.

    Other functions of JAX (``where``, ``full``, ``x.at[...].set``) pass on what they are given.
    """
    frames = library_frames(source_info)
    return bool(frames) and frames[-1][0].startswith(_COMPUTING)


# Functions that leave NaN out of what they compute; what they make of nothing but NaN is no birth.
_IGNORING_NAMES = """
nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum
nanvar _nanmean _nanstd _nanvar
"""
_IGNORING = frozenset(_IGNORING_NAMES.split())

# Functions that pass on the values they are given, a NaN of the user's among them.
_PASSING_NAMES = """
array asarray broadcast_to full full_like nan_to_num pad piecewise select set where _full _where
"""
_PASSING = frozenset(_PASSING_NAMES.split())


def ignores_nan(source_info: Any) -> bool:
    """Whether an equation is part of a function of JAX that ignores NaN, such as ``jnp.nanmean``."""
    return any(file.startswith(_JAX_ROOT) and function in _IGNORING for file, function in _own_frames(source_info))


def passes_on(source_info: Any) -> bool:
    """Whether the function of JAX that was called only passes on what it is given, such as ``jnp.full_like``."""
    asked = [function for file, function in _own_frames(source_info) if not file.startswith(_MACHINERY)]
    return bool(asked) and asked[-1] in _PASSING


def _own_frames(source_info: Any) -> Iterator[tuple[str, str]]:
    """The frames of JAX between an equation and whoever called it, innermost first."""
    return itertools.takewhile(lambda frame: frame[0].startswith(_JAX_ROOT), _compat.raw_files(source_info))


def is_fori(source_info: Any) -> bool:
    """Whether the loop was built by ``fori_loop``, which adds a hidden counter (and limit) to the carry."""
    return any(function == "fori_loop" for _, function in library_frames(source_info))


def library_frames(source_info: Any) -> list[tuple[str, str]]:
    """(file, function) of JAX's frames in which an equation was built, innermost first: the user called the last."""
    return list(itertools.takewhile(lambda frame: frame[0].startswith(_JAX_ROOT), _compat.raw_files(source_info)))


def phase_of(source_info: Any, outer: Phase = "forward") -> Phase:
    """Which pass of a differentiated program an equation belongs to; inside a loop, ``outer`` is the loop's pass."""
    return _phase(_compat.name_stack_of(source_info), outer)


def current_phase() -> Phase:
    """Which pass of a differentiated function the program that is executed right now belongs to."""
    return _phase(_compat.current_scopes(), "forward")


def _phase(scopes: str, outer: Phase) -> Phase:
    if "rematted_computation" in scopes:
        return "recompute"
    return "backward" if "transpose(" in scopes else outer


def source_of(source_info: Any, default: str = "") -> str:
    """``file.py:line (function)`` of the user's line, or ``default`` where JAX kept none.

    A file of an installed library is told with its package: ``optax/…/transform.py:300 (update_fn)``.
    """
    frame = _compat.user_frame(source_info)
    if frame is None:
        return default
    function = frame.function.rpartition("<locals>.")[2]
    return f"{_file_for_people(frame.file)}:{frame.line} ({function})"


# Folders that hold installed libraries, the standard one left out.
_INSTALLED = ("site-packages", "dist-packages")


@functools.lru_cache(maxsize=1024)
def _file_for_people(file: str) -> str:
    """The name of a file, with its package where it is one of an installed library."""
    parts = file.replace(os.sep, "/").split("/")
    last = max((i for i, part in enumerate(parts[:-1]) if part in _INSTALLED), default=None)
    inside = parts[-1:] if last is None else parts[last + 1 :]
    return "/".join(inside if len(inside) < 3 else (inside[0], "…", inside[-1]))
