"""`link-down`: the carrier goes at one end of a link, and comes back."""

from __future__ import annotations

from testbed.lab.core.deploy.links.changes import LinkChange
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault


class LinkDown(LabFault):
    """The port's carrier goes, and with it its peer's."""

    kind = "link-down"
    place = FaultPlace.LINK

    @property
    def links(self) -> str:
        """The links that it happens to, as `testbed link` names them."""
        return self.target

    def do(self, site: FaultSite) -> None:
        site.links.set(self.links, LinkChange(up=False))

    def undo(self, site: FaultSite) -> None:
        site.links.set(self.links, LinkChange(up=True))

    @property
    def may_lose(self) -> bool:
        return not self.of_scale_up
