"""Programs whose bodies are executed a known number of times, and what every entry form must see of them."""

import jax.numpy as jnp
from jax import lax
from lenses import assert_same_bits, seen


def into(cases):
    """A decorator that registers programs in ``cases``: ``@case(expected)``, see `check_in_every_entry_form`."""

    def case(expected):
        def register(make):
            cases[make.__name__] = (make, expected)
            return make

        return register

    return case


def check_in_every_entry_form(make, expected):
    """A program is seen as often as its bodies are executed, and gives what it gives unseen.

    Args:
        make: gives the function and its arguments.
        expected: step vectors by path; a path ends in ``@`` for each program that had used it before.
    """
    f, args = make()
    plain = f(*args)
    for entry in ("block", "wrapped", "verbose"):  # tests of values enter in every other form as well
        result, events = seen(entry, f, *args)
        got = programs_apart(events)
        assert {p.rstrip("@") + "@" * p.count("@"): s for p, s in got.items()} == got
        # which of two programs comes first is a matter of names; the numbers of steps are not
        by_path = lambda d: sorted((path.rstrip("@"), at) for path, at in d.items())
        assert by_path(got) == by_path(expected), entry
        assert_same_bits(result, plain)
        assert {e.kind for e in events} <= {"carry"}
        assert all((e.time is not None) == (entry == "verbose" or entry.endswith("live")) for e in events)


def programs_apart(events):
    """Like `places`, with a ``@`` for each program that had used the path before."""
    marks, found = {}, {}
    for event in events:
        programs = marks.setdefault(event.path, [])
        if (event.program, event.call) not in programs:
            programs.append((event.program, event.call))
        mark = "@" * programs.index((event.program, event.call))
        found.setdefault(event.path + mark, []).append(event.steps)
    return {path: sorted(at) for path, at in found.items()}


def collatz(n):
    """Number of steps from ``n`` to 1, in plain Python."""
    count = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    return count


def collatz_loop(n):
    return lax.while_loop(lambda s: s != 1, lambda s: jnp.where(s % 2 == 0, s // 2, 3 * s + 1), n)


def halve(c, x):
    return c * 0.5 + x, c - x


def nest(lengths, c):
    if not lengths:
        return c * 0.5 + 1
    n, *rest = lengths
    return lax.scan(lambda c, _: (nest(rest, c), None), c, None, length=n)[0]
