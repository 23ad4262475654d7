"""`plane-set`: what all links to a switch chip of a scale-up domain are like changes (rate, loss, silence)."""

from __future__ import annotations

from testbed.run.faults.lab_fault import FaultPlace
from testbed.run.faults.link_set import LinkSet


class PlaneSet(LinkSet):
    """The settings of the links of all GPUs to the chip change, in both directions."""

    kind = "plane-set"
    place = FaultPlace.PLANE
