"""What is asked of a lens: its arguments, checked once, and when two lenses ask the same.

In come the keyword arguments that all entry forms share; out goes `Settings`, immutable, whose ``device_key`` says what
happens on the device: lenses with equal keys share compiled programs (`equality`). `taps` makes primitive taps,
`levels` reads levels of the NaN gate, `sink` is what a sink must be.
To add an argument: a field of `Settings` with its check, and its part of ``device_key`` if the device notices it.
Sharp edges: host callbacks never count for equality; a function counts by what it does, so what it reads counts too.
"""
