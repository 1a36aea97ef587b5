"""The story of a finding, for people: where it was met, where it was born, why, what was before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxtap_core.records.text import short, word

if TYPE_CHECKING:
    from jaxtap_core.records.events import Finding, Origin, TapEvent

MOST_LINES = 12


def tell(finding: Finding, verbose: bool = False) -> list[str]:
    """The story of ``finding``; its first line tells the whole, the rest is indented.

    Args:
        finding: what to tell of.
        verbose: whether every operand of the equation is described too; else there are at most 12
            lines.

    Returns:
        Lines without line ends.

    Example:
        >>> from jaxtap_core.records.events import Finding, TapEvent
        >>> met = TapEvent("scan[0]", 3, 5, (3,), None, "carry", "train", 0)
        >>> tell(Finding(met, "state.x", "nan", count=1, size=8, first_index=(2,)))
        ["NaN entered scan[0] at step 3 of 5, carry leaf 'state.x', 1 of 8 elements", '  first bad element: state.x[2]']
    """
    lines = [_headline(finding)]
    if finding.origin is not None:
        lines += _birth(finding.origin, finding.event)
    if finding.last_good is not None:
        lines.append(_last_good(finding))
    if finding.first_index:
        lines.append(f"  first bad element: {finding.leaf}{list(finding.first_index)}")
    if finding.origin is not None and finding.origin.advice:
        lines.append(f"  help: {finding.origin.advice}")
    if verbose:
        return lines + _details(finding)
    return lines[:MOST_LINES]


def _headline(finding: Finding) -> str:
    event, bad = finding.event, word(finding.kind)
    if event.kind == "primitive":
        text = f"{bad} born in {event.path}{_step(finding)}"
        text += f", output {finding.leaf!r}" if finding.leaf else ""
    elif not event.path:
        program = f" of {event.program}" if event.program else ""
        program += f", call {event.call}" if event.call else ""
        text = f"{bad} in {finding.leaf or 'the result'!r}{program}"
    elif event.kind == "output":
        text = f"{bad} in per-step output {finding.leaf!r} of {event.path}{_step(finding)}"
    else:
        text = f"{bad} entered {event.path}{_step(finding)}, carry leaf {finding.leaf!r}"
    text += ", masked by select" if finding.masked else ""
    if finding.entries > 1:
        again = "entries of that loop" if event.kind != "primitive" else "runs of it"
        text += f", and in {finding.entries - 1} later {again}"
    if event.lane is not None:
        text += f", lane {','.join(map(str, event.lane))}"
    if event.device is not None:
        text += f", device {event.device}"
    if finding.count is not None and finding.size is not None and finding.size > 1:
        text += f", {finding.count} of {finding.size} elements"
    return text


def _step(finding: Finding) -> str:
    event = finding.event
    if not event.steps:
        return ""
    text = f" at step {event.steps[-1]}"
    text += f" of {event.total}" if event.total is not None else ""
    outer = event.steps[:-1]
    return text + (f" (outer {', '.join(map(str, outer))})" if outer else "")


def _birth(origin: Origin, event: TapEvent) -> list[str]:
    if not origin.reproduced:
        return [f"  born: not known: {origin.reason}"]
    if not origin.primitive:
        return [f"  born: before: {origin.reason}"]
    at = origin.source or event.source
    place = f"{origin.primitive} at {at}, {origin.path}" if at else f"{origin.primitive}, {origin.path}"
    if origin.steps and origin.steps != event.steps:
        place += f" step {', '.join(map(str, origin.steps))}"
    place += f", {origin.phase}"
    if origin.lane is not None and origin.lane != event.lane:
        place += f", lane {','.join(map(str, origin.lane))}"
    return [f"  born: {place}", f"  why:  {origin.reason}"]


def _last_good(finding: Finding) -> str:
    good: dict[str, Any] = finding.last_good or {}
    when = f"last finite step {good['step']}" if good["step"] >= 0 else "finite on entry"
    return f"  {when}: {finding.leaf} min {good['min']:.2g} max {good['max']:.2g}"


def _details(finding: Finding) -> list[str]:
    event, lines = finding.event, list[str]()
    if event.program:
        source = f", {event.source}" if event.source else ""
        lines.append(f"  program: {event.program}, call {event.call}{source}")
    for number, operand in enumerate(finding.origin.operands if finding.origin is not None else ()):
        told = ", ".join(f"{key} {short(value)}" for key, value in operand.items())
        lines.append(f"  operand {number}: {told}")
    return lines
