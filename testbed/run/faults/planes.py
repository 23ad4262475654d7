"""Faults of a plane of the back end: all links of its switches at once, as when a bad roll-out takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.base.errors import Finding
from testbed.base.names import PLANE_LETTERS, plane_letter, plane_of_switch
from testbed.lab.core.deploy.links.changes import LinkChange
from testbed.lab.core.fabric.forwarding.links import planes_apart
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault, carriers


class FabricPlaneDown(LabFault):
    """All links of a plane of the fabric lose their carrier: those of NICs, and those between its switches."""

    kind = "fabric-plane-down"
    place = FaultPlace.FABRIC_PLANE

    def place_findings(self, lab: Lab) -> Iterator[Finding]:
        if not 1 <= PLANE_LETTERS.find(self.target) + 1 <= (lab.planes if lab.planes > 1 else 0):
            there = f"its planes are a to {plane_letter(lab.planes)}" if lab.planes > 1 else "fabric: {planes: 2}"
            yield Finding(
                code="unknown-plane",
                keys=(self.place.value,),
                message=f"{lab.name} has no plane {self.target}",
                hint=there,
            )

    def holds(self, lab: Lab) -> Mapping[str, str]:
        mine = links_of_plane(lab, self.target)
        return carriers(lab, lambda link: str(link.b) in mine)

    def prepare(self, site: FaultSite) -> None:
        for port in links_of_plane(site.lab.whole.model, self.target):
            site.links.prepare(port)

    def do(self, site: FaultSite) -> None:
        for port in links_of_plane(site.lab.whole.model, self.target):
            site.links.set(port, LinkChange(up=False))

    def undo(self, site: FaultSite) -> None:
        """All links are tried, whichever of them refuses."""
        errors: list[Exception] = []
        for port in links_of_plane(site.lab.whole.model, self.target):
            try:
                site.links.set(port, LinkChange(up=True))
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    @property
    def may_lose(self) -> bool:
        return True

    def disturbs(self, port: PortPlan) -> bool:
        return self.target in (plane_of_switch(port.node), plane_of_switch(port.peer.partition(":")[0]))


def links_of_plane(lab: Lab, letter: str) -> list[str]:
    """The links of a plane's switches, each by the port of its upper end, as "node:interface"; NICs' come first."""
    planes, number = planes_apart(lab), PLANE_LETTERS.index(letter) + 1
    return [str(link.b) for link in lab.links if planes.get(link.b.node) == number]
