"""How each kind of primitive is rebuilt under observation: one rule a kind, one registry.

A rule has the signature ``rule(observer, eqn, plan, values) -> outputs``. It evaluates the inner programs of ``eqn``
with ``observer.evaluate`` (the inside of a call with ``observer.walk``) and threads the observer's states through
whatever control flow it rebuilds. A new kind of primitive is one new rule, registered here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxtap_core.rules.branches import branch_rule
from jaxtap_core.rules.calls import call_rule
from jaxtap_core.rules.scan import scan_rule
from jaxtap_core.rules.shards import shard_rule
from jaxtap_core.rules.whiles import while_rule

if TYPE_CHECKING:
    from jaxtap_core.observer import Observer
    from jaxtap_core.sites import EqnPlan

    Rule = Callable[[Observer, Any, EqnPlan, list[Any]], list[Any]]

RULES: dict[str, Rule] = {
    "call": call_rule,
    "cond": branch_rule,
    "scan": scan_rule,
    "shard_map": shard_rule,
    "while": while_rule,
}
