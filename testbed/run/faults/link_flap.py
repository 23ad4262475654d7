"""`link-flap`: a link goes down and comes up again and again, half of each period down."""

from __future__ import annotations

from testbed.run.faults.lab_fault import FaultSpan
from testbed.run.faults.link_down import LinkDown


class LinkFlap(LinkDown):
    """The port's carrier goes every `period` for half of it, and is back for good at `until`."""

    kind = "link-flap"

    def spans(self) -> list[FaultSpan]:
        at, until, period = self.fault.at, self.fault.until, self.fault.period
        if until is None or period is None:
            return super().spans()
        begins = range(at.ns, until.ns, period.ns)
        return [FaultSpan(begin_ns=begin, end_ns=min(begin + period.ns // 2, until.ns)) for begin in begins]
