"""PYTEST_DONT_REWRITE

The pytest plugin: turns what the lens saw into test results.

In come pytest's hooks (`plugin`: hooks and fixtures and nothing but), the options (`options`) and the marker
(`markers`). `observe` runs the body of a test under the lens and fails it for what was seen, `live` speaks while it
runs, `snapshot` compares with what was stored, `report` tells of it all. Each room knows only those before it in
this order: options, markers, stash; live and observe; report; snapshot; plugin.

A new option of the lens is a field of `options.Options`, a line in `options.declare` and one in `options.read`; a new
report declares its own, see `report`.

Sharp edges: importing the plugin imports neither jax nor numpy, which only a test under the lens pays for; so what
needs them is imported where it is used, and `tests/plugin` lists every module that an idle session loads. The first
line of every docstring keeps pytest from rewriting our assertions.
"""

from pytest_jaxtap.observe.failure import JaxtapFailure

__all__ = ["JaxtapFailure"]
