"""The settings of a lab's UET endpoints (`testbed.protocols.uet.config.UetConfig`), one for each NIC."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.link_delays import WirePaths
from testbed.lab.core.plan.user_space.marks import control_dscp, data_dscp, port_profile
from testbed.lab.core.plan.user_space.times import EndpointTimes

RTO_RTTS = 16
"""A packet may wait in its own NIC for 1.5 BDP, at each switch for one, and be trimmed and sent again: with less, an
incast ends in time-outs that nothing was lost for."""
MAX_RTO_RETX = 12
"""More than the specification's 5: a hold timer of BGP (9 s) or a busy machine is no reason to give a peer up, since
whoever waits has a time limit of his own, and with time-outs that double this is half a minute."""
HEADER_BYTES = 12 + 44
"""RUD request and standard SES header (UE Specification 1.0, tables 3-30 and 3-8)."""
PACKETS_PER_ENTROPY = 1
"""Each packet draws its path, and peers take turns by the packet, as in NICs. A burst of one value would be for the
kernel to join, which no port of a lab does."""
LARGEST_PAYLOAD = 4096
ETHERNET_BYTES, IPV4_BYTES, IPV6_BYTES, UDP_BYTES = 14, 20, 40, 8
"""A shaped port of the lab counts Ethernet headers and no gap."""
FRAMING_BYTES = HEADER_BYTES + ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
"""Bytes that a port counts of a packet beside its payload."""


def largest_payload_bytes(mtu_bytes: int, ip_bytes: int = IPV4_BYTES) -> int:
    """Return the payload of a full packet on a link of this MTU."""
    return min(LARGEST_PAYLOAD, mtu_bytes - ip_bytes - UDP_BYTES - HEADER_BYTES)


def uet_config(
    nic: PortPlan, base_rtt_ns: int, k: float, *, trimming: bool, packets_per_entropy: int = PACKETS_PER_ENTROPY
) -> dict[str, bool | int | float]:
    """Return the fields of `UetConfig` that follow from the lab, for the endpoint of a NIC."""
    ip_bytes = IPV4_BYTES if nic.address is not None else IPV6_BYTES
    return {
        "link_rate_bps": nic.rate_bps,
        "base_rtt_ns": base_rtt_ns,
        "rto_min_ns": RTO_RTTS * base_rtt_ns,
        "time_scale": k,
        "payload_bytes": largest_payload_bytes(nic.mtu_bytes, ip_bytes),
        "trimming": trimming,
        "max_rto_retx": MAX_RTO_RETX,
        "packets_per_entropy": packets_per_entropy,
    }


class UetEndpointSettings:
    """The settings of the UET endpoints of a lab's NICs, for whoever runs some beside a scenario."""

    def __init__(self, model: Lab, plan: LabPlan) -> None:
        self._plan = plan
        self._profile = port_profile(plan)
        self.times = EndpointTimes(model, plan.k)
        self.dscp = data_dscp(self._profile)
        """The DSCP of data packets."""
        self.control_dscp = control_dscp(self._profile)
        """That of acknowledgements, and the like."""

    @property
    def tick_ns(self) -> int:
        """The least time between two turns of the process that has the endpoints; 0: it need not wait."""
        return self.times.tick_ns()

    def config(self, nic: PortPlan) -> dict[str, bool | int | float]:
        """Return the fields of `UetConfig` for the endpoint of a NIC."""
        trimming = self._profile is not None and self._profile.trimming
        return uet_config(nic, self.times.base_rtt_ns, self._plan.k, trimming=trimming)

    def delays_ns(self, nic: PortPlan, peers: Sequence[PortPlan]) -> dict[str, int]:
        """Return how long the endpoint of `nic` holds what arrives from each of `peers`, by their addresses.

        Peers on its own host are left out: nothing between them is a wire. Raises `PlanError` where no path leads.
        """
        found: dict[str, int] = {}
        for peer in peers:
            if peer.node == nic.node:
                continue
            if held_ns := self.times.held_ns(self._wire.path(peer.wire, nic.wire)):
                found |= dict.fromkeys(map(str, peer.addresses), held_ns)
        return found

    def least_rtts_ns(self, nic: PortPlan, peers: Sequence[PortPlan]) -> dict[str, int]:
        """Return the time of a full packet to each of `peers` and its answer through the idle fabric, by address.

        Raises `PlanError` where no path leads.
        """
        frame_bytes = int(self.config(nic)["payload_bytes"]) + FRAMING_BYTES
        found: dict[str, int] = {}
        for peer in peers:
            if peer.node == nic.node:
                continue
            there, back = self._wire.path(nic.wire, peer.wire), self._wire.path(peer.wire, nic.wire)
            found |= dict.fromkeys(map(str, peer.addresses), self.times.least_rtt_ns(there, back, frame_bytes))
        return found

    @cached_property
    def _wire(self) -> WirePaths:
        return WirePaths.of(self._plan)
