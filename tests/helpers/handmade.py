"""Recordings made by hand: streams of known columns, without a lens."""

import numpy as np

from jaxtap_core.telemetry.stream import Stream, StreamKey

_KEY = {
    "program": "f",
    "call": 0,
    "path": "scan[0]",
    "kind": "carry",
    "total": None,
    "depth": 1,
    "phase": "forward",
    "source": "m.py:1 (f)",
    "names": ("x",),
    "rebuild": tuple,
}


def add(recording, path="scan[0]", *, dtypes=("float32",), shapes=((),), **more):
    """An empty stream of a recording; other keywords are fields of its key or options of it."""
    fields = _KEY | {"path": path} | {k: more.pop(k) for k in list(more) if k in _KEY}
    key = StreamKey(**fields, label=more.pop("label", ""))
    shapes = list(shapes) * (len(key.names) // len(shapes))
    dtypes = [np.dtype(dtype) for dtype in dtypes]
    return recording.stream(key, more.get("lanes"), lambda: Stream(key, dtypes, shapes, **more))


def fill(stream, steps, *leaves):
    """Give a stream its step vectors and the rows of its leaves."""
    steps = np.asarray(steps, np.int32).reshape(len(steps), stream.key.depth)
    stream.steps.extend(steps)
    for column, rows in zip(stream.leaves, leaves, strict=True):
        column.extend(np.asarray(rows, column.array.dtype))
    return stream
