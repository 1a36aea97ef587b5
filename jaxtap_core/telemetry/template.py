"""The form of a selected value as text: it stands for the pytree where that cannot go, in files and other processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtap_core.telemetry.codec import decode, encode


@dataclass(frozen=True, slots=True)
class Template:
    """Puts the leaves of an event back into their pytree; two of equal form are equal.

    Attributes:
        form: JSON of the pytree with the numbers of the leaves in their places.
    """

    form: str

    def __call__(self, leaves: Sequence[Any]) -> Any:
        return _planted(decode(json.loads(self.form)), leaves)

    @classmethod
    def of(cls, names: Sequence[str], rebuild: Callable[[Sequence[Any]], Any]) -> Template:
        """The template of a stream whose leaves have these names. Containers that JSON cannot name become tuples."""
        numbers = list(range(len(names)))
        try:
            return cls(json.dumps(encode(rebuild(numbers))))
        except Exception:  # a pytree node of the user's that refuses leaves which are no arrays
            return cls(json.dumps(encode(tuple(numbers) if len(numbers) != 1 else 0)))


def _planted(form: Any, leaves: Sequence[Any]) -> Any:
    if isinstance(form, int):
        return leaves[form]
    if isinstance(form, dict):
        return {key: _planted(item, leaves) for key, item in form.items()}
    if isinstance(form, list | tuple):
        return type(form)(_planted(item, leaves) for item in form)
    return form
