"""What is asked of a lens: its arguments, checked once, and when two lenses ask the same.

In come the keyword arguments that all entry forms share; out goes `Settings`, immutable, whose ``lens`` stands for what
happens on the device: equal lenses share compiled programs. `equality` writes down what the user's functions do, by
their code and by what it `reads`; `lens` finds equal ones again; `loan` lends a program the functions of whichever lens
is on, so that nothing of the user's is kept. `taps` makes primitive taps, `where` filters of loops, `levels` reads
levels of the NaN gate, `reducers` checks functions for the device, `sink` is what a sink must be.
To add an argument: a field of `Settings` with its check, and its part of ``lens`` if the device notices it.
Sharp edges: host callbacks never count for equality; a function counts by what it does, so what it reads counts too.
"""
