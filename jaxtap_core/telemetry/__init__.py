"""How values are stored: columns, streams of events, their encoding, and the environment they were made in.

In come rows of NumPy arrays, from buffers of the device or one by one as they arrive; a `stream` keeps the events of
one place by `column`, so that a million scalars take a few bytes each. `codec` writes values as JSON and back bit for
bit, `template` the form of a pytree; `ulp` measures distances, `environment` is the fingerprint of what decides bits,
`files` writes all or nothing.
To add a dtype: `ulp` and `codec`. To add what bits depend on: `environment`.
Sharp edges: arrays that a callback gets are read-only views; NumPy knows bfloat16 and its kin only through ml_dtypes.
"""
