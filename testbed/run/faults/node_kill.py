"""`node-kill`: a switch loses power; what comes back is the switch with its routing started anew."""

from __future__ import annotations

from testbed.base.linux.processes import freeze, kill_processes
from testbed.lab.core.deploy.links.changes import LinkChange
from testbed.lab.core.deploy.routing import running_daemons, start_routing
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault


class NodeKill(LabFault):
    """All ports of a switch lose their carrier, and its routing daemons get SIGKILL.

    Ports go one after the other, and a switch without power says nothing meanwhile: its daemons stand still before.
    """

    kind = "node-kill"
    place = FaultPlace.NODE
    of_bridges = True

    def do(self, site: FaultSite) -> None:
        daemons = running_daemons(site.lab, self.target)
        freeze(daemons)
        for port in self._ports(site):
            site.links.set(port, LinkChange(up=False))
        kill_processes(daemons)

    def undo(self, site: FaultSite) -> None:
        """All ports are tried, whichever of them refuses, and the routing is started in any case."""
        errors: list[Exception] = []
        for port in self._ports(site):
            try:
                site.links.set(port, LinkChange(up=True))
            except Exception as error:
                errors.append(error)
        start_routing(site.lab, self.target)
        if errors:
            raise errors[0]

    @property
    def may_lose(self) -> bool:
        return True

    def _ports(self, site: FaultSite) -> list[str]:
        return [f"{port.node}:{port.name}" for port in site.lab.plan.ports if port.node == self.target]
