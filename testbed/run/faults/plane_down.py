"""`plane-down` and `tray-down`: many links of a scale-up domain at once, as when a switch chip or a tray fails."""

from __future__ import annotations

from testbed.run.faults.lab_fault import FaultPlace
from testbed.run.faults.link_down import LinkDown


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
