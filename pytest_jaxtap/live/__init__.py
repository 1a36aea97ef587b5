"""PYTEST_DONT_REWRITE

What is said while a test runs: how far its loops are (`progress`), and what was running if it hangs (`hang`).

In come the name of the test and the real stderr, which pytest's capture has not taken (`stash.STDERR`); what runs is
asked of the lens (`jaxtap_core.runtime.progress`, `jaxtap_core.runtime.context`). Out goes text to that terminal, and
nothing else: no result, recording or report knows of it.

Another thing to say of a program that runs goes beside these, as a context manager round the body of a test.

Sharp edges: while a compiled program runs Python runs no signal handler, so both speak from threads of their own; and
whatever is drawn must be gone before the test's own code writes.
"""
