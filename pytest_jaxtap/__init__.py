"""PYTEST_DONT_REWRITE

The pytest plugin: turns what the lens saw into test results. Importing it imports neither jax nor
    numpy.
"""

from pytest_jaxtap.observe.failure import JaxtapFailure

__all__ = ["JaxtapFailure"]
