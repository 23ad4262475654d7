"""`plane-flap`: a switch chip of a scale-up domain goes and comes again and again, half of each period without it."""

from __future__ import annotations

from testbed.run.faults.lab_fault import FaultPlace
from testbed.run.faults.link_flap import LinkFlap


class PlaneFlap(LinkFlap):
    """The links of all GPUs to the chip go every `period` for half of it, and are back for good at `until`."""

    kind = "plane-flap"
    place = FaultPlace.PLANE
