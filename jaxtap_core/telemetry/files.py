"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable


def write_atomically(path: str, chunks: Iterable[bytes]) -> None:
    """Write ``chunks`` to ``path`` through a file beside it, so that no reader ever sees a half.

    Args:
        path: file to make or replace; its folder must exist.
        chunks: the content.

    Raises:
        OSError: the path cannot be written; the message says where and what to do.
    """
    folder = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(folder, f".jaxtap-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.writelines(chunks)
        os.replace(temporary, path)
    except OSError as error:
        _discard(temporary)
        raise unwritable(error, path) from None
    except BaseException:
        _discard(temporary)
        raise


def unwritable(error: OSError, path: str) -> OSError:
    """``error`` of the same class, saying what to do about it."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        reason = f"the folder {folder} does not exist; make it first"
    elif os.path.isdir(path):
        reason = "that is a folder; give the name of a file"
    else:
        reason = f"{error.strerror or error}; give a path that can be written"
    return type(error)(error.errno, f"cannot write: {reason}", path)


def _discard(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
