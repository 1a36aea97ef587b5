"""What is traced and compiled while something runs."""

from contextlib import contextmanager

import jax

TRACE = "/jax/core/compile/jaxpr_trace_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"


@contextmanager
def watching():
    """Yields a list of (what, name of the function) of every trace and compilation meanwhile."""
    happened = []

    def listen(event, duration, **more):
        if event in (TRACE, COMPILE):
            happened.append(("trace" if event == TRACE else "compile", more.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield happened
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
