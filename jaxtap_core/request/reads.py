"""What a function reads, told from its code: the names in it, and what belongs to a library and is not followed.

Globals and attributes are not told apart: a name counts as both, so that nothing that is read is missed.
"""

from __future__ import annotations

import functools
import os
import sys
from types import CodeType
from typing import Any

import jax
import jaxlib
import numpy as np

_OURS = sys.modules[__name__.partition(".")[0]]
_MODULES = frozenset({"jax", "jaxlib", "numpy", "ml_dtypes", _OURS.__name__, *sys.stdlib_module_names})
_LONGEST_NAME = 64

HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE, in the flags of a class: it was made by a class statement, or as if


def _folder(module: Any) -> str:
    return os.path.dirname(os.path.abspath(module.__file__)) + os.sep


_LIBRARIES = tuple(_folder(module) for module in (jax, jaxlib, np, _OURS))
_STANDARD = _folder(os)


@functools.lru_cache(maxsize=4096)
def names_of(code: CodeType) -> tuple[str, ...]:
    """The names that ``code`` reads, those of the functions inside it among them, sorted.

    Strings that could be names count too: ``getattr(x, "scale")`` reads one.

    Example:
        >>> names_of((lambda leaves: scale * getattr(np, "mean")(leaves)).__code__)
        ('getattr', 'mean', 'np', 'scale')
    """
    names: set[str] = set()
    todo: list[Any] = [code]
    while todo:
        one = todo.pop()
        if isinstance(one, CodeType):
            names.update(one.co_names)
            todo += one.co_consts
        elif isinstance(one, tuple | frozenset):
            todo += one
        elif isinstance(one, str) and len(one) <= _LONGEST_NAME and one.isidentifier():
            names.add(one)
    return tuple(sorted(names))


@functools.lru_cache(maxsize=4096)
def file_of_library(file: str) -> bool:
    """Whether code in ``file`` is Python's, NumPy's, JAX's or our own: it does not change under a program."""
    if file.startswith(("<frozen ", *_LIBRARIES)):
        return True
    return file.startswith(_STANDARD) and not file_is_installed(file)


def file_is_installed(file: str) -> bool:
    """Whether code in ``file`` belongs to an installed package."""
    return "site-packages" in file or "dist-packages" in file


def class_of_library(cls: type) -> bool:
    """Whether a class is one of Python's, NumPy's, JAX's or our own."""
    name = str(cls.__module__)
    if name == "builtins":  # as one says that is made by ``exec``, in no module
        return not cls.__flags__ & HEAP
    if name.partition(".")[0] not in _MODULES:
        return False
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return file is None or file_of_library(file)
