"""Rewriting: from a program and what is asked of the lens to the program that brings the answer along.

In comes a jaxpr with `request.Settings`; the `planner` turns it into a `plan` (plain data: sites, checks, budgets,
by equation), and the `interpreter` evaluates the program under that plan, so that tracing the evaluation gives the
observed program. Out go its outputs, production's, and states: buffers of events, verdicts of the gate, a stop flag.
`rules` rebuild control flow, `emission` takes values off the device, `nonfinite` tests for NaN, `shadow_step` looks
at values inside a step without disturbing it.
To add a kind of primitive: a rule in `rules`, and what `jaxpr.structure` needs to know of it. To add something that
travels: a state in `interpreter`, with its number in the plan, so that loops and branches thread it through.
Sharp edges: whatever shares a kernel changes how it is rounded, so values are taken where they lie in memory anyway
(carries), or from a copy; nothing here may call JAX on the host while a program runs.
"""

from jaxtap_core.instrument import rules  # they register themselves

__all__ = ["rules"]
