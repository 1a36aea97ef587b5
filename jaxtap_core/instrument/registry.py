"""Which rule rebuilds which kind of equation under observation.

A rule has the signature ``rule(interpreter, eqn, plan, values) -> outputs``. It evaluates the inner programs of ``eqn``
with ``interpreter.evaluate`` (the inside of a call with ``interpreter.walk``) and threads the interpreter's states
through whatever control flow it rebuilds. A new kind of primitive is one new file in `rules`, that registers itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[[Any, Any, Any, list[Any]], list[Any]]

_RULES: dict[str, Rule] = {}


def rule(kind: str) -> Callable[[Rule], Rule]:
    """Registers the function below it as the rule of ``kind``: the name of a primitive, or ``"call"`` for all calls."""

    def register(function: Rule) -> Rule:
        _RULES[kind] = function
        return function

    return register


def rule_of(kind: str) -> Rule:
    """The rule of a kind of equation that has inner programs."""
    return _RULES[kind]
