"""The settings of a lab's RoCEv2 endpoints (`testbed.protocols.roce.config.RoceConfig`), one for each NIC."""

from __future__ import annotations

from math import ceil, log2

from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.protocols.roce.config import LONGEST_TIMEOUT, TIMEOUT_UNIT_NS, RoceConfig

TIMEOUT_RTTS = 32
"""Base round trips in which a peer has to answer where nothing is said of it. NICs are set to milliseconds
and more, hundreds of round trips, which a run in lab time would wait for with every lost tail."""
TIMEOUT_ANSWERS = 16
"""And so many times what it takes to send as many packets as one acknowledgement stands for: queue pairs share a NIC,
and wait in its queue."""


def roce_config(nic: PortPlan, base_rtt_ns: int, k: float, *, mtu: int) -> dict[str, int | float]:
    """Return the fields of `RoceConfig` that follow from the lab, for the endpoint of a NIC with this path MTU."""
    answer_ns = RoceConfig().ack_packets * 8e9 * mtu / nic.rate_bps
    wanted_ns = max(TIMEOUT_RTTS * base_rtt_ns, TIMEOUT_ANSWERS * answer_ns) / k
    return {
        "link_rate_bps": nic.rate_bps,
        "base_rtt_ns": base_rtt_ns,
        "time_scale": k,
        "mtu": mtu,
        "timeout": min(LONGEST_TIMEOUT, max(1, ceil(log2(wanted_ns / TIMEOUT_UNIT_NS)))),
    }
