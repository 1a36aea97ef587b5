"""The entry forms of the lens, side by side, for tests that hold of each of them."""

import jax
import numpy as np

import jaxtap_core as tap

ENTRIES = ("block", "block_inline", "block_live", "wrapped", "wrapped_live", "verbose")


def seen(entry, f, *args, select=None, **options):
    """Call ``f(*args)`` under the lens, entered as ``entry`` says; gives (result, carry events)."""
    heard = []
    if entry.endswith("live"):
        options["on_step"] = heard.append
    if entry.startswith("block"):
        options["identity"] = "inline" if entry == "block_inline" else "auto"
        with tap.record(select=select, **options) as rec:
            result = f(*args)
    elif entry.startswith("wrapped"):
        g, rec = tap.record(f, select=select, **options)
        result = g(*args)
    else:
        g = tap.verbose(f, select=select, on_step=heard.append, **options)
        return g(*args), heard
    if entry.endswith("live"):
        assert len(heard) == len(rec.events)
    return result, list(rec.events)


def places(events):
    """``{path: sorted step vectors}`` of events."""
    found = {}
    for event in events:
        found.setdefault(event.path, []).append(event.steps)
    return {path: sorted(steps) for path, steps in found.items()}


def steps(*lengths):
    """All step vectors of loops of these lengths inside one another, in canonical order."""
    return [tuple(map(int, index)) for index in np.ndindex(*lengths)]


def ragged(trips):
    """Step vectors of an inner loop that makes ``trips[i]`` steps in step ``i`` of the outer one."""
    return [(i, j) for i, n in enumerate(trips) for j in range(n)]


def on_host(x):
    """A result as NumPy: key data for typed keys."""
    if hasattr(x, "dtype") and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(x))
    return np.asarray(x)


def assert_same_bits(a, b):
    """Two pytrees agree in structure, dtypes, shapes and every bit."""
    left, right = jax.tree.leaves(a), jax.tree.leaves(b)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(left, right, strict=True):
        x, y = on_host(x), on_host(y)
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert x.tobytes() == y.tobytes()
