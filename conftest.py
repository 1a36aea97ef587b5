"""Tests of the plugin run pytest inside pytest: JAX must be there before the first inner session, or the second aborts."""

import jax  # noqa: F401

pytest_plugins = ["pytester"]
