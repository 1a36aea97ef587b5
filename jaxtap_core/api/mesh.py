"""``jax.set_mesh`` inside a block: JAX takes the lens for a trace in progress and would refuse.

While at least one lens is on in the process, setting a mesh happens under the evaluation trace. With no lens active
nothing is patched.
"""

from __future__ import annotations

import threading
from typing import Any

from jaxtap_core import _compat

_lock = threading.RLock()  # a thread that ends may release while another one of its locks is held
_depth = 0
_original: Any = None


def acquire() -> None:
    """One more lens is on."""
    global _depth, _original
    with _lock:
        _depth += 1
        if _depth > 1:
            return
        setter = _compat.mesh_setter()
        _original = setter.__init__  # type: ignore[misc]
        original = _original

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            if not getattr(_compat.current_trace(), "is_lens", False):
                original(self, *args, **kwargs)
                return
            with _compat.set_current_trace(_compat.eval_trace):
                original(self, *args, **kwargs)

        setter.__init__ = init  # type: ignore[misc]


def release() -> None:
    """One lens fewer is on."""
    global _depth
    with _lock:
        _depth -= 1
        if not _depth:
            _compat.mesh_setter().__init__ = _original  # type: ignore[misc]
