"""Depths of queues in bytes, at the edges."""

from __future__ import annotations

from testbed.base.units import Duration
from testbed.lab.core.fabric.qos_presets import QOS_PRESETS
from testbed.lab.core.fabric.queue_depths import PortShape, pause_depths
from testbed.lab.core.model import Depth, DepthUnit, PfcThresholds, TrafficClass


def test_a_small_part_of_a_small_bdp_still_pauses_and_resumes() -> None:
    """An XOFF that rounds to no bytes would never let the sender go on: its XON could not lie below."""
    port = PortShape(
        profile=QOS_PRESETS["sonic"],
        line_rate_bps=100_000_000_000,
        mtu_bytes=4500,
        flight_bytes=0,
        base_rtt=Duration(1),
    )
    thresholds = PfcThresholds(xoff=Depth(0.03125, DepthUnit.BDP))
    depths = pause_depths(TrafficClass(name="rdma", priority=3, lossless=True, pfc=thresholds), port)
    assert (depths.xoff, depths.xon) == (1, 0)
