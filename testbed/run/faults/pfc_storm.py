"""`pfc-storm`: a port sends pause frames without a reason, and its peer's lossless class stands still.

Source: IEEE 802.1Qbb for the frames; Guo et al., "RDMA over Commodity Ethernet at Scale", SIGCOMM 2016, section 4.3,
for storms.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.base.errors import Finding
from testbed.base.units import Duration
from testbed.lab.core.model import Lab
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault

LONGEST = Duration.parse("1h")
"""How long a storm lasts at most that has no `until`: it is undone when the run ends."""
_ENDED_NS = 1
"""The length of the pause that ends a storm."""


class PfcStorm(LabFault):
    """The port asks its peer to pause the priority that `settings` names."""

    kind = "pfc-storm"
    place = FaultPlace.LINK

    def check(self, lab: Lab) -> Iterator[Finding]:
        yield from self.place_findings(lab)
        node, _, interface = self.target.partition(":")
        policy = lab.policy_of(self.target)
        classes = () if policy is None else policy.of(node, interface).classes
        lossless = {item.priority: item.name for item in classes if item.lossless}
        if self._priority in lossless:
            return
        known = ", ".join(f"{priority} ({name})" for priority, name in sorted(lossless.items()))
        without = "add `qos: {preset: dcqcn}`: storms pause lossless classes alone"
        yield Finding(
            code="unknown-priority",
            keys=("storm", "priority"),
            message=f"{self.target} has no lossless class of priority {self._priority}",
            hint=f"lossless there: {known}" if known else without,
        )

    def do(self, site: FaultSite) -> None:
        until = self.fault.until
        self._pause(site, LONGEST.ns if until is None else until.ns - self.fault.at.ns)

    def undo(self, site: FaultSite) -> None:
        self._pause(site, _ENDED_NS)

    @property
    def may_lose(self) -> bool:
        return False

    @property
    def _priority(self) -> int:
        return int(self.fault.settings["priority"])

    def _pause(self, site: FaultSite, duration_ns: int) -> None:
        numbers = site.lab.plan.port_numbers
        site.lab.pause_agent.storm(site.lab.name, numbers[self.target], self._priority, duration_ns)
