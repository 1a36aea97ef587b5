"""As many events as bodies were executed, in every entry form: derivatives."""

import jax
import jax.numpy as jnp
import pytest
from counted import check_in_every_entry_form, into
from jax import lax
from lenses import ENTRIES, places, seen, steps

CASES = {}
case = into(CASES)


def loss(x):
    return lax.scan(lambda c, _: (jnp.sin(c) * x, None), x, None, length=4)[0]


@case({"scan[0]": steps(4), "scan[1]": steps(4)})
def gradient_jitted():
    return jax.jit(jax.grad(loss)), (1.1,)


@case({"scan[0]": steps(4), "scan[0]@": steps(4)})
def gradient_in_the_block():
    return lambda x: jax.grad(loss)(x), (1.1,)


@case({"scan[0]": steps(4), "scan[0]@": steps(4)})
def gradient_of_a_jitted_function_in_the_block():
    return lambda x: jax.grad(jax.jit(loss))(x), (1.1,)


@case({"scan[0]": steps(4), "scan[1]": steps(4)})
def gradient_through_a_checkpointed_body():
    f = lambda x: lax.scan(jax.checkpoint(lambda c, _: (jnp.sin(c) * x, None)), x, None, length=4)[0]
    return jax.jit(jax.grad(f)), (1.1,)


@case({"scan[0]": steps(4), "scan[1]": steps(4), "scan[2]": steps(4)})
def gradient_through_a_checkpointed_loop():
    # forward; then recomputed; then backward
    return jax.jit(jax.grad(lambda x: jnp.sin(jax.checkpoint(loss)(x)))), (1.1,)


@case({"scan[0]": steps(4)})
def forward_mode():
    return jax.jit(lambda x: jax.jvp(loss, (x,), (1.0,))), (1.1,)


@case(
    {
        "scan[0]": steps(3),
        "scan[0]/scan[0]": steps(3, 2),
        "scan[1]": steps(3),
        "scan[1]/scan[0]": steps(3, 2),
    }
)
def gradient_of_nested_scans():
    f = lambda x: lax.scan(lambda c, _: (lax.scan(lambda d, _: (jnp.sin(d), None), c, None, 2)[0], None), x, None, 3)[0]
    return jax.jit(jax.grad(f)), (1.1,)


@pytest.mark.parametrize("name", CASES)
def test_events_are_body_executions_in_every_entry_form(name):
    check_in_every_entry_form(*CASES[name])


def test_phases_of_a_gradient():
    f = jax.jit(jax.grad(lambda x: jnp.sin(jax.checkpoint(loss)(x))))
    for entry in ENTRIES:
        _, events = seen(entry, f, 1.1)
        phases = {path: {e.phase for e in events if e.path == path} for path in places(events)}
        assert phases == {"scan[0]": {"forward"}, "scan[1]": {"recompute"}, "scan[2]": {"backward"}}


def test_backward_pass_of_a_gradient_taken_in_the_block():
    for entry in ENTRIES:
        _, events = seen(entry, jax.grad(loss), 1.1)
        assert sorted((e.phase, e.steps) for e in events) == [
            (phase, (i,)) for phase in ("backward", "forward") for i in range(4)
        ]
