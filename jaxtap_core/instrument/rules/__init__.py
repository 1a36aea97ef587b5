"""How each kind of primitive is rebuilt under observation: one rule a kind, one registry.

A rule has the signature ``rule(observer, eqn, plan, values) -> outputs``. It evaluates the inner programs of ``eqn``
with ``observer.evaluate`` (the inside of a call with ``observer.walk``) and threads the observer's states through
whatever control flow it rebuilds. A new kind of primitive is one new rule, registered here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxtap_core.instrument.rules.call import call_rule
from jaxtap_core.instrument.rules.cond import branch_rule
from jaxtap_core.instrument.rules.scan import scan_rule
from jaxtap_core.instrument.rules.shard_map import shard_rule
from jaxtap_core.instrument.rules.while_loop import while_rule

if TYPE_CHECKING:
    from jaxtap_core.instrument.interpreter import Observer
    from jaxtap_core.instrument.plan import EqnPlan

    Rule = Callable[[Observer, Any, EqnPlan, list[Any]], list[Any]]

RULES: dict[str, Rule] = {
    "call": call_rule,
    "cond": branch_rule,
    "scan": scan_rule,
    "shard_map": shard_rule,
    "while": while_rule,
}
