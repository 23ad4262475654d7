"""Faults of a scenario that last at once and change one thing: the first to end would give it back for both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from testbed.base.errors import Finding
from testbed.lab.core.model import Lab
from testbed.run.faults.lab_fault import LabFault
from testbed.run.schema.model import AtStep, Fault

_Span = tuple[type, float, float]


def find_overlaps(faults: Sequence[LabFault], lab: Lab) -> Iterator[tuple[int, Finding]]:
    """Yield each fault that cannot last while one before it in the file does, with its place."""
    holders: dict[str, list[tuple[int, str]]] = {}
    for index, fault in enumerate(faults):
        held = fault.holds(lab)
        clashes = (
            (index, _finding(what, to, other, other_to))
            for what, to in held.items()
            for other, other_to in holders.get(what, [])
            if _last_at_once(fault.fault, faults[other].fault)
            if (to != other_to if to else not _end_together(fault.fault, faults[other].fault))
        )
        yield from islice(clashes, 1)
        for what, to in held.items():
            holders.setdefault(what, []).append((index, to))


def _last_at_once(one: Fault, other: Fault) -> bool:
    """Tell whether two faults last at once; False where one has times and the other steps, which nobody can compare."""
    (kind, begin, end), (other_kind, other_begin, other_end) = _span(one), _span(other)
    return kind is other_kind and begin < other_end and other_begin < end


def _end_together(one: Fault, other: Fault) -> bool:
    """Tell whether nothing of two faults is given back before both end."""
    return _span(one)[2] == _span(other)[2] and one.period is None and other.period is None


def _span(fault: Fault) -> _Span:
    """When a fault begins and ends, in ns or in steps; infinity where the run's end is its own."""
    if isinstance(fault.at, AtStep):
        return AtStep, fault.at.step, fault.until.step if isinstance(fault.until, AtStep) else math.inf
    until = fault.until
    return int, fault.at.ns, math.inf if until is None or isinstance(until, AtStep) else until.ns


def _finding(what: str, to: str, other: int, other_to: str) -> Finding:
    """Say what a fault and one before it both change, and how to write it."""
    if to:
        message = f"{what} is by {to}, and by {other_to} in faults[{other}], which lasts at the same time"
        hint = "one after the other, or another NIC"
    else:
        message = f"it lasts while faults[{other}] does, and the first to end gives {what} back for both"
        hint = "let both end at once, or one begin when the other has ended"
    return Finding(code="contradiction", keys=(), message=message, hint=hint)
