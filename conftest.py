"""Tests of the plugin run pytest inside pytest.

JAX must be there before the first inner session, or the second aborts; and so must all of the lens, since pytester
forgets what an inner session imported, and the next would get a second lens beside the first.
"""

import importlib
import pkgutil

import jax  # noqa: F401
import pytest

import jaxtap_core

for module in pkgutil.walk_packages(jaxtap_core.__path__, "jaxtap_core."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

pytest_plugins = ["pytester"]
pytest.register_assert_rewrite("counted", "lenses")
