"""What stands for a lens where programs are kept: one object for all lenses that do the same on the device.

Compiled programs are kept under it as long as it lives, and it lives as long as an equal lens can come: when an object
is gone that the lens was known by, or too many others came after it, it is forgotten, and its programs with it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from typing import Any

from jaxtap_core.request.equality import identities

MOST_LENSES = 512  # that can be found again; the least recently used is forgotten first


class Lens:
    """One way of looking: equal lenses have the same."""

    def __init__(self) -> None:
        self.watched: list[Any] = []


class Lenses:
    """Finds the `Lens` of a key (see `equality`)."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._lenses: dict[int, Lens] = {}
        self._next = 0
        self._lock = threading.RLock()

    def of(self, read: Hashable, plain: Hashable) -> Lens:
        """The lens of all that ask the same: what their functions read (see `key_of`), and the rest."""
        key = read, plain
        with self._lock:
            number = self._numbers.pop(key, -1)
            lens = self._lenses.get(number)
            if lens is None:
                number, self._next = self._next, self._next + 1
                lens = self._lenses[number] = self._new(number, read)
                self._forget()
            self._numbers[key] = number  # the last one, now
            return lens

    def _new(self, number: int, read: Hashable) -> Lens:
        lens = Lens()
        # whatever is done when an object goes is done at any moment: no lock, no key is looked at
        gone = lambda _, lenses=self._lenses: lenses.pop(number, None)
        lens.watched = [weakref.ref(one, gone) for one in identities(read)]
        return lens

    def _forget(self) -> None:
        if len(self._numbers) < MOST_LENSES:
            return
        for key, number in list(self._numbers.items()):
            if number not in self._lenses or len(self._numbers) >= MOST_LENSES:
                del self._numbers[key]
                self._lenses.pop(number, None)


LENSES = Lenses()
