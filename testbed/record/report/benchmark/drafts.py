"""The drafts that a results sheet follows, by name and version, and the three places where a value may be observed.

They are individual Internet-Drafts: no working group of the IETF has adopted them, and none of them says what is good.
"""

from __future__ import annotations

from enum import StrEnum

TRAINING = "draft-calabria-bmwg-ai-fabric-training-bench, editors' copy of 1 October 2026, after version 04"
"""Its chapter 13 has what version 05 of the draft on inference refers to: observation points, and an account of trials.
"""
INFERENCE = "draft-calabria-bmwg-ai-fabric-inference-bench-05 of 8 October 2026"
TERMINOLOGY = "draft-calabria-bmwg-ai-fabric-terminology-05 of 8 October 2026"
STATUS = "individual Internet-Drafts, work in progress, which set no limits to pass"
NOT_MEASURED = "not measured"


class ObservationPoint(StrEnum):
    """The place at which a value is obtained (terminology, table 1). Values of different points are never combined."""

    BOUNDARY = "(a) Fabric DUT Boundary"
    """The NIC's Ethernet port."""
    DUT = "(b) DUT-reported"
    """Counters and queues of the switches themselves."""
    ENDPOINT = "(c) endpoint software"
    """A program posts here, or sees complete, what it sends."""
