"""Where a bad value came from: the program is run again, and the value followed backward to its birth.

What comes in is a jaxpr, its inputs and a `Target` (`locate`): a NaN or Inf that somebody met. What leaves is an
`Origin`: the equation that made it of good operands, at which steps and in which lane, and why.
`flat` numbers the values of a program and evaluates parts of it; `activation` is such a program at one moment, `loop`
goes through a loop to one of its steps, `devices` runs all on every shard. `backward` goes from a value to the operand
that was bad before, of which `dependence` says which elements count; `zero` does so for zeros, and `dead_branch` tells
a branch of a ``where`` that was not taken. `report` makes an `Origin` of what was found; `reasons` say why.
To add a primitive: its dependence in `dependence` (without one it is made of all elements of all operands), its reason
in `reasons`. A loop whose roles `jaxpr.structure` knows is replayed as it is; one that runs otherwise is `loop`.
Sharp edges: a replay is another compiled program, and a value that depends on how XLA fuses may not come again
(`NotReproduced`). Nothing that acts on the world is repeated, and inputs that were donated are gone (`CannotReplay`).
A program of which production did not come to the end is evaluated as far as it came.
"""
