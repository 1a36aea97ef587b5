"""PYTEST_DONT_REWRITE

One test under the lens: what is asked of it, what was seen, and whether it fails for that.

In come a test with its marker and the options of the session. `policy` makes of them a `Demand`, `body` puts the lens
on round the body of the test and raises a `JaxtapFailure` at its end, `fixtures` does what a test asks for by name.
All that was seen meanwhile is in the `Watch` of the test (`watch`), which says what of it counts against the test;
`running` finds it. `failure` has pytest show the words and no traceback through our lines. The watch goes to `report`.

A new argument of the marker is a field of `markers.Mark`, one of `policy.Demand`, and, if a test can fail for it, a
source of objections in `Watch.objections`.

Sharp edges: Hypothesis calls the body once an example, so a watch starts anew with each (`Watch.add_body`), and code
that runs only for failing examples would be in its explanations. What the body itself raises is never replaced.
"""
