"""The acts of a run's faults: each begin and each end, in the order in which they are due. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.base.units import Duration
from testbed.run.faults.lab_fault import LabFault

LATEST_S = 0.1
"""The time by which an act may begin too late; where a fault lasts less than twice that, half of what it lasts."""
LONGEST_S = 1.0
"""The longest time that doing a fault may take; where it lasts less than twice that, half of what it lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something to be done, or with `undo` undone, `at_ns` after the begin of the traffic, or at the step `at_step`.

    `order` is the same for an act and its undoing. `lasts_ns` is the time between the two; None: until the run ends, or
    nobody knows.
    """

    at_ns: int
    fault: LabFault
    undo: bool
    order: int
    lasts_ns: int | None = None
    at_step: int | None = None

    @property
    def latest_ns(self) -> int:
        """Return how late it may begin."""
        return self._at_most(LATEST_S)

    @property
    def longest_ns(self) -> int:
        """Return how long it may take."""
        return self._at_most(LONGEST_S)

    def _at_most(self, limit_s: float) -> int:
        limit_ns = round(limit_s * 1e9)
        return limit_ns if self.lasts_ns is None else min(limit_ns, self.lasts_ns // 2)

    @property
    def name(self) -> str:
        """Return what people call the fault."""
        return f"{self.fault.kind} of {self.fault.target}"

    @property
    def due(self) -> str:
        """Return when it is due, as people write it."""
        return str(Duration(self.at_ns)) if self.at_step is None else f"step {self.at_step}"


def plan_acts(faults: Sequence[LabFault]) -> list[Act]:
    """Every begin and end of every fault, in the order in which they are due: first those that time decides."""
    acts: list[Act] = []
    order = 0
    for fault in faults:
        for span in fault.spans():
            lasts_ns = None if span.end_ns is None else span.end_ns - span.begin_ns
            begin = Act(
                at_ns=span.begin_ns, at_step=span.begin_step, fault=fault, undo=False, order=order, lasts_ns=lasts_ns
            )
            acts.append(begin)
            if (span.end_ns is not None or span.end_step is not None) and fault.is_undone:
                acts.append(replace(begin, at_ns=span.end_ns or 0, at_step=span.end_step, undo=True))
            order += 1
    return sorted(acts, key=lambda act: (act.at_step is not None, act.at_step or act.at_ns, act.order))
