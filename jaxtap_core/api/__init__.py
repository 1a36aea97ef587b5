"""What users call: `record` and its kin, `origin` (where is my NaN from?), `identity` (does looking change a bit?).

In come the user's functions and options; out go recordings, findings, checks. `record` puts the lens on, which is one
JAX trace for all blocks (`trace`): every program that a thread executes at top level comes through it, already
differentiated and batched, and goes to the session of the innermost block. `mesh` lets ``jax.set_mesh`` work there.
To add an entry point: a file here, its public name in ``_HOME`` and ``__all__`` of `jaxtap_core`.
Sharp edges: inside ``process_primitive`` no trace is current, so one is set before anything is called; a lens entered
while JAX traces is an error, a wrapped function called there is observed live instead (`runtime.traced`).
"""
