"""Why an equation made a NaN or an infinity of good operands: one function for each primitive or family.

What comes in is a `Birth`: the primitive, its parameters, its operands and outputs as NumPy arrays, which elements
count, and what stands behind a zero or an infinity among them. What leaves is a `Why`: one line that says the reason,
with the numbers, and one that says what usually helps. `base` holds both, `explain`, and the helpers for telling
numbers; `numbers`, `special` and `arrays` hold the reasons.
To add one: a function from `Birth` to ``Why | None`` in the file of its family, entered in `REASONS` by the name of its
primitive on the line below it; a new file is one more name in `FAMILIES`.
Sharp edges: a reason that is not sure answers ``None``, and the facts alone are told. Numbers are looked at in float64;
subnormal ones count as zero, as on the device. Operands looked at apart may be rounded otherwise than in the program.
"""

from jaxtap_core.provenance.reasons import arrays, numbers, special

FAMILIES = (numbers, special, arrays)
