"""What differs between two values, and how: bits, distances, tolerances, growth over steps.

In come arrays, pytrees, DataFrames, or anything with streams (`telemetry.stream.Streamed`); `table` makes tracks of
them, rows of values with their steps. Out go a `BitReport` (`bits`), or a `Difference` (`diff`): streams matched by
what they are, leaves compared row by row (`leaf_diff`) within a `tolerance`, and how a gap grows (`growth`).
Plain values are taken apart into columns, and types that columns cannot tell, by `values`.
To add a kind of value: there. To add a way to say how close is close enough: `tolerance`.
Sharp edges: -0.0, NaN payloads and dtypes count unless told otherwise; what cannot be compared is an error.
"""
