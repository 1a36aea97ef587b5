"""What one block of observation saw, and how it is read and kept.

In come streams (`telemetry.stream`), alerts, findings; a `Recording` keeps them by column and shows them as events, as
a `dataframe`, as JSON Lines (written by `jsonl`, read by `stored`); `sinks` write events to files while a program runs.
To add a sink: one class here with ``write(event)`` and ``close()`` (see `request.sink`), and its public name in
`jaxtap_core`.
Sharp edges: events arrive in any order, what is shown is in canonical order; sinks are called from within a running
program and must not touch JAX.
"""
