"""Taint: which elements of a program's values owe their NaN to something that was born in it.

In comes a program with its inputs; it is evaluated once more with a boolean beside every element of every float, true
where the element is NaN and owes it to a birth (an equation that made NaN out of none), or to a given source (what a
loop left). Selects choose among these booleans as they choose among values, so that what is selected away is seen to
be. Out goes, in `decide`, which results a birth reaches, and whether what a loop left reaches any result at all.
`rules` has how booleans move through each family of primitives: a new primitive that moves, reduces or combines
elements in a way of its own is one entry there; without one, every element is taken to depend on all.
Sharp edges: the evaluation is compiled by itself, so what depends on how XLA fuses may not come up again; a program
that acts on the outside is not evaluated again (`CannotReplay`).
"""
