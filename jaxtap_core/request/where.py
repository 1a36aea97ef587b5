"""Which loops emit: what ``where=`` may be, checked when it is given.

A function of the loop's address, which may ask for its program and for the user's line too; a pattern of addresses, in
which ``*`` stands for anything; or a place in the user's code, as events tell it.

    >>> where = Where("scan[0]/*")
    >>> where.fits("scan[0]/while[1]", "train", ""), where.fits("scan[0]", "train", "")
    (True, False)
    >>> Where("model.py:31").fits("scan[0]", "train", "model.py:31 (step)")
    True
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from typing import Any

from jaxtap_core.errors import LensError

_SEGMENT = re.compile(r"(jax:)?(scan|while|cond)\[\d+\]|b\d+|pred|(?=.*\*)[a-z_:\d\[\]*]+")
_PLACE = re.compile(r"([^\[\]*]+):(\d+)")
_ASKED = ("program", "source")
_MEANT = (
    'a function f(path) or f(path, *, program, source) that says True or False, addresses such as "scan[0]/*", or a '
    'place in your code such as "model.py:31"'
)


class Where:
    """One filter of loops.

    Args:
        where: a function, a pattern of addresses, or a place.

    Raises:
        TypeError: neither a function nor a string, or a function that cannot be called so.
        ValueError: a string that can be neither an address nor a place.
    """

    def __init__(self, where: Any) -> None:
        self.given = where
        if isinstance(where, str):
            self._fits = _of_text(where)
        elif callable(where):
            self._fits = _of_function(where)
        else:
            raise TypeError(f"where must be {_MEANT}, not {where!r}")

    def fits(self, path: str, program: str, source: str) -> bool:
        """Whether the loop at ``path`` of ``program``, built at ``source`` (``file.py:line (function)``), emits.

        Raises:
            LensError: the user's function raised.
        """
        try:
            return bool(self._fits(path, program, source))
        except Exception as error:
            name = getattr(self.given, "__qualname__", repr(self.given))
            raise LensError(
                f"the path filter where={name} raised {error!r} for the path {path!r}; it is called as f(path) or "
                "f(path, *, program, source) for each loop and says True or False"
            ) from error


_Fits = Callable[[str, str, str], Any]


def _of_text(text: str) -> _Fits:
    if place := _PLACE.fullmatch(text):
        line = f"{os.path.basename(place[1])}:{place[2]}"
        return lambda path, program, source: source.rpartition(" (")[0] == line
    if not all(_SEGMENT.fullmatch(segment) for segment in text.split("/")):
        raise ValueError(f"where={text!r} can match no loop: where must be {_MEANT}")
    pattern = re.compile(".*".join(map(re.escape, text.split("*"))))
    return lambda path, program, source: pattern.fullmatch(path)


def _of_function(function: Callable[..., Any]) -> _Fits:
    asked = _asked(function)
    return lambda path, program, source: function(
        path, **{name: value for name, value in (("program", program), ("source", source)) if name in asked}
    )


def _asked(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # one that Python cannot look into
        return ()
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    asked = tuple(name for name in _ASKED if kinds.get(name) is inspect.Parameter.KEYWORD_ONLY)
    if inspect.Parameter.VAR_KEYWORD in kinds.values():
        asked = _ASKED
    try:
        signature.bind("", **dict.fromkeys(asked, ""))
    except TypeError as error:
        raise TypeError(f"where must be {_MEANT}, but {error}") from None
    return asked
