"""Lines of programs, as people are told of them."""

import os

import jax
import jax.numpy as jnp
import pytest

from jaxtap_core.jaxpr.address import source_of
from jaxtap_core.jaxpr.visit import equations


def sources(path: str, name: str = "f"):
    """The sources of the equations of a function ``f(x)`` that stands in a file ``path``."""
    scope = {"jnp": jnp}
    exec(compile(f"def {name}(x):\n    return jnp.log(x)", path, "exec"), scope)
    return [source_of(eqn.source_info) for eqn in equations(jax.make_jaxpr(scope[name])(1.0))]


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (("home", "me", "project", "model.py"), "model.py"),
        (("lib", "site-packages", "optim", "src", "inner", "transform.py"), "optim/…/transform.py"),
        (("lib", "dist-packages", "optim", "src", "transform.py"), "optim/…/transform.py"),
        (("lib", "site-packages", "optim", "transform.py"), "optim/transform.py"),
        (("lib", "site-packages", "transform.py"), "transform.py"),
    ],
)
def test_a_file_of_a_library_is_told_with_its_package(parts, told):
    assert sources(os.sep + os.path.join(*parts)) == [f"{told}:2 (f)"]
