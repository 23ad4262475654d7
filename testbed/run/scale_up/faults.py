"""Faults of a scale-up domain: many of its links at once, as when a switch chip or a tray fails, or its switch ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.base.errors import Finding
from testbed.base.names import known_names_hint
from testbed.lab.core.model import Lab
from testbed.lab.features.scale_up.links import find_links
from testbed.lab.features.scale_up.planes import PlaneControl
from testbed.lab.features.scale_up.sizing import find_domains
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault
from testbed.run.faults.links import LinkDown, LinkFlap, LinkSet


class PlaneDown(LinkDown):
    """All GPUs of the domain lose their links to one switch chip."""

    kind = "plane-down"
    place = FaultPlace.PLANE


class TrayDown(LinkDown):
    """All GPUs of a host lose all links within their domain."""

    kind = "tray-down"
    place = FaultPlace.TRAY

    @property
    def links(self) -> str:
        return f"{self.target}:planes"


class PlaneFlap(LinkFlap):
    """The links of all GPUs to the chip go every `period` for half of it, and are back for good at `until`."""

    kind = "plane-flap"
    place = FaultPlace.PLANE


class PlaneSet(LinkSet):
    """The settings of the links of all GPUs to the chip change, in both directions."""

    kind = "plane-set"
    place = FaultPlace.PLANE


class DomainKill(LabFault):
    """All links of the domain fall silent. The switch that is started again has its links as they are declared."""

    kind = "domain-kill"
    place = FaultPlace.DOMAIN

    def check(self, lab: Lab) -> Iterator[Finding]:
        yield from self.place_findings(lab)
        known = [domain.name for domain in find_domains(lab)]
        if self.target not in known and self.target in [node.name for node in lab.hosts]:
            message = f"{self.target} is a host, and its GPUs are in a larger domain"
            hint = known_names_hint(self.target, known)
            yield Finding(code="unknown-scale-up-link", keys=("domain",), message=message, hint=hint)

    def holds(self, lab: Lab) -> Mapping[str, str]:
        links = find_links(lab, f"{self.target}:planes")
        return {f"the {what} of {link.name}": "" for link in links for what in ("carrier", "settings")}

    def do(self, site: FaultSite) -> None:
        PlaneControl(site.lab).kill_switch(self.target)

    def undo(self, site: FaultSite) -> None:
        PlaneControl(site.lab).start_switch(self.target)

    @property
    def may_lose(self) -> bool:
        return False
