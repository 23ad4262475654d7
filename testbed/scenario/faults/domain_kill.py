"""`domain-kill`: the process that switches for a scale-up domain gets SIGKILL, and is started again."""

from __future__ import annotations

from testbed.scenario.faults.lab_fault import FaultPlace, FaultSite, LabFault


class DomainKill(LabFault):
    """All links of the domain fall silent. The switch that is started again has its links as they are declared."""

    kind = "domain-kill"
    place = FaultPlace.DOMAIN

    def do(self, site: FaultSite) -> None:
        site.links.planes.kill_switch(self.target)

    def undo(self, site: FaultSite) -> None:
        site.links.planes.start_switch(self.target)

    @property
    def may_lose(self) -> bool:
        return False
