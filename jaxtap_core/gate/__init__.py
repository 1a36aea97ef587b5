"""What is judged once a program has run: NaN findings, and certificates of identity.

In comes an `executed` program: inputs, results, and the states that its observed twin brought back.
`judge` reads the gate's verdicts and has a `look` at results, asks `decide` what is excused or
masked and `provenance` where a bad value was born, and gives findings. `suspects` lets bad results
of eager code wait for what becomes of them, `raised` finds what a program raised for. `certify`
compares the twin's results with production's; `reproduce` keeps what runs a failing program again.
To add something to judge: what must be known goes into `executed`, how it is told into
`records.story`.
Sharp edges: only transitions count; nothing here runs while a program runs; a finding holds its
inputs, so letting go of it frees them.
"""
