"""PYTEST_DONT_REWRITE

HTML that cannot be broken into: whatever is not `Markup` is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"br", "input", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(name: str, *children: object, **attributes: object) -> Markup:
    """One element with its children; ``None`` children and attributes are left out.

    Args:
        name: of the element.
        children: `Markup`, or text to be escaped.
        attributes: ``class_`` is ``class``, ``aria_label`` is ``aria-label``; ``True`` stands for an
            attribute without a value, ``False`` for none.

    Example:
        >>> el("p", "1 < 2", el("b", "!"), class_="x")
        '<p class="x">1 &lt; 2<b>!</b></p>'
    """
    words = [name, *(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))]
    start = f"<{' '.join(words)}>"
    return Markup(start if name in _VOID else f"{start}{each(children)}</{name}>")


def each(children: Iterable[object]) -> Markup:
    """Children one after the other."""
    return Markup("".join(_safe(child) for child in children if child is not None))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    return name if value is True else f'{name}="{escape(str(value))}"'


def _safe(child: object) -> str:
    return child if isinstance(child, Markup) else escape(str(child))
