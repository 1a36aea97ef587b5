"""How each kind of primitive with inner programs is rebuilt: one rule a file, registered where it stands.

What comes in is an equation, its plan and its operands; what leaves are its outputs, bit for bit those of production,
with the states of what is observed inside threaded through. The contract of a rule is told in `registry`.
To add a kind: a file here whose function is marked ``@rule("name")``, one line in `RULES` below, and what
`jaxpr.structure` needs to know of the primitive.
Sharp edges: a predicate or body is evaluated as often as in production (its debug callbacks run as often), and what
an outer transformation still needs, such as a custom rule, stays.
"""

from jaxtap_core.instrument.rules import call, cond, scan, shard_map, while_loop

RULES = (call, cond, scan, shard_map, while_loop)
