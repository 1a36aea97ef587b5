"""Reading programs: what jaxprs and their equations are, for whoever plans, rewrites, replays or judges.

What comes in is a jaxpr, or one equation of it; what leaves is plain data: nothing here changes or runs a program.
`structure` knows the kinds of primitive, the programs inside an equation and the roles of its operands and results;
`visit` is the way through a program, by address or at every depth; `address` names segments, phases and source lines;
`leaves` gives the user's names of a loop's carries and outputs; `liveness` says what production computes; `equations`
answers what a plan asks of single equations, `values` and `sharding` what a value can hold and where it lies.
To add a primitive that wraps a program: one line of `CALLS` in `structure`. A loop: one function there, entered in
`LOOPS`, and one rule in `instrument/rules`. Whoever asks for a primitive's name outside of these has missed a kind.
Sharp edges: jaxprs of both supported ends of jax come in, closed and open ones; only `_compat` knows how they differ.
An inner program is shared by all its uses: what is found out about it belongs to its place, not to the object.
"""
