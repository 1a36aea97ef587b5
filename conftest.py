"""Tests of the plugin run pytest inside pytest.

An inner session forgets the modules it imported. JAX does not bear being imported twice in one
process (the second session aborts), and the lens need not be.
"""

import jax  # noqa: F401

import jaxtap_core.gate  # noqa: F401

pytest_plugins = ["pytester"]
