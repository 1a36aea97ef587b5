"""PYTEST_DONT_REWRITE

Content that a page holds packed until somebody looks at it; ``page.js`` unpacks it.
"""

from __future__ import annotations

import base64
import gzip


def pack(text: str) -> str:
    """``text`` compressed, in letters that may stand anywhere in HTML."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


def unpack(packed: str) -> str:
    """What `pack` packed."""
    return gzip.decompress(base64.b64decode(packed)).decode()
