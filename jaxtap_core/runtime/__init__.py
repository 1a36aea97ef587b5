"""Programs under a lens, from the moment that JAX hands one over until it is judged.

A `session` is one block. It finds the `program` in the `cache` (planned and rewritten once), decides by its `policy`
whether production runs beside it, opens a run (`runs`) to which the emissions of that program find their way
(`receiver`), and lets it wait (`pending`) so that dispatch stays asynchronous; then it is collected, certified, judged.
`stop` raises for trip budgets and first alerts, `traced` observes inside an outer transformation, `progress` runs
programs ahead for a live line, `context` knows which blocks are on.
To add something that happens to every program: `session`; what decides whether it happens: `policy`.
Sharp edges: results must be production's bits wherever the policy says so; nothing here may hold a program's arrays
longer than its verdict.
"""
