"""As many events as bodies were executed, in every entry form: mutable state, callbacks, flags."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counted import check_in_every_entry_form, into, nest
from jax import lax
from lenses import steps

CASES = {}
case = into(CASES)


@case({"scan[0]": steps(4)})
def scan_that_changes_a_reference():
    def f(x):
        ref = jax.new_ref(x)

        def body(c, i):
            ref[...] = ref[...] + c
            return c * 2, ref[...]

        out = lax.scan(body, 1.0, jnp.arange(4))
        return out, ref[...]

    return jax.jit(f), (1.0,)


@case({"scan[0]": steps(3)})
def with_a_debug_callback():
    def body(c, _):
        jax.debug.callback(lambda c: None, c)
        return c + 1, None

    return jax.jit(lambda c: lax.scan(body, c, None, length=3)), (1.0,)


@case({"scan[0]": steps(3)})
def with_a_pure_callback():
    def body(c, _):
        c = jax.pure_callback(lambda c: np.float32(c + 1), jax.ShapeDtypeStruct((), jnp.float32), c)
        return c, None

    return jax.jit(lambda c: lax.scan(body, c, None, length=3)), (jnp.float32(1),)


@case({"scan[0]": steps(3)})
def with_an_io_callback():
    from jax.experimental import io_callback

    def body(c, _):
        c = io_callback(lambda c: np.float32(c + 1), jax.ShapeDtypeStruct((), jnp.float32), c, ordered=True)
        return c, None

    return jax.jit(lambda c: lax.scan(body, c, None, length=3)), (jnp.float32(1),)


@case({"scan[0]": steps(3)})
def keyword_and_static_arguments():
    @partial(jax.jit, static_argnames=("n", "how"))
    def f(x, *, n, how="plain"):
        assert how == "odd"
        return nest((n,), x)

    return partial(f, n=3, how="odd"), (1.0,)


@case({"scan[0]": steps(2), "scan[0]@": steps(3)})
def a_function_that_reads_values():
    def f(x):
        y = nest((2,), x)
        return nest((3,), x) if float(y) > 0 and bool(y > 0) and int(y) >= 0 else y

    return f, (1.0,)


@case({"scan[0]": steps(2)})
def python_flags():
    return jax.jit(lambda x, flag, name: nest((2,), x) if flag and name == "a" else x, static_argnums=(1, 2)), (
        1.0,
        True,
        "a",
    )


@pytest.mark.parametrize("name", CASES)
def test_events_are_body_executions_in_every_entry_form(name):
    check_in_every_entry_form(*CASES[name])
