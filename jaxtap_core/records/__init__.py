"""What the lens reports, as plain data: events, alerts, findings, origins, certificates.

Immutable, comparable, picklable; nothing here knows of JAX. `kinds` has the few words they are told apart by, `bits`
says when two values are the same, `text` shows values to people and turns them into plain Python, `story` tells a
finding in at most twelve lines.
To add a record: a frozen dataclass in `events` that derives from ``_Record``; its name in `telemetry.codec`, so that it
can be written, and in `jaxtap_core`.
Sharp edges: a field marked as not told is a handle of this process: it is neither written nor pickled.
"""
