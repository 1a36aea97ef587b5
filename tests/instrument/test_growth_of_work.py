"""How the work of rewriting grows: counted in walks through programs, not by the clock."""

import jax
import pytest
from jax import lax

import jaxtap_core as tap
from jaxtap_core.instrument.interpreter import Interpreter


def nested(depth):
    if depth == 0:
        return lambda c: c * 1.01
    inner = nested(depth - 1)
    return lambda c: lax.scan(lambda c, _: (inner(c), None), c, None, length=1)[0]


@pytest.mark.parametrize("options", [{"gate": "escape"}, {"gate": "carry"}, {"gate": "born"}, {}], ids=str)
def test_loops_in_loops_are_gone_through_once_for_each_level(monkeypatch, options):
    walks = []
    walk = Interpreter.walk
    monkeypatch.setattr(Interpreter, "walk", lambda *args: (walks.append(1), walk(*args))[1])

    def counted(depth):
        walks.clear()
        with tap.record(fail_fast=True, **options):
            jax.jit(nested(depth))(1.0)
        return len(walks)

    two, four, eight = counted(2), counted(4), counted(8)
    assert two <= four <= eight
    assert eight - four <= 2.5 * max(four - two, 1)  # it doubled with every level
