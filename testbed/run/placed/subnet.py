"""The HCAs that ranks have in an InfiniBand subnet: LIDs, partitions of pairs, and the lab's names of ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from testbed.base.errors import ScenarioError
from testbed.base.linux.port_counters import PortCounters
from testbed.lab.core.model import InfinibandFabric
from testbed.lab.core.model.end import End
from testbed.lab.core.model.infiniband import port_numbers, subnet_names
from testbed.protocols.infiniband.data_path import PortCounts
from testbed.protocols.infiniband.local_routing import DEFAULT_PKEY
from testbed.protocols.infiniband.subnet import Channel, Subnet
from testbed.protocols.infiniband.tables import FULL_MEMBER


def require_lids(subnet: Subnet, hcas: Iterable[str]) -> None:
    """Raise `ScenarioError` where the subnet manager has found one of these HCAs nowhere."""
    for name in hcas:
        if name not in subnet.nodes or not subnet.nodes[name].lid:
            raise ScenarioError(
                f"{name} is no HCA of the subnet whose manager is at {subnet.sm or 'no HCA'}",
                hint="one plane whose rails are joined by spines, and NICs without link groups",
            )


def pkey_between(subnet: Subnet, source: str, destination: str) -> int:
    """Return the P_Key of packets from one HCA to another: that of the first partition that both are in.

    Raises `ScenarioError` where there is none.
    """
    if not subnet.partitions:
        return DEFAULT_PKEY
    for one in subnet.partitions:
        if source in one.members and destination in one.members:
            return FULL_MEMBER | one.pkey
    raise ScenarioError(
        f"{source} and {destination} are in no partition together, and the workload has one send to the other",
        hint="ranks of one partition, or fabric.infiniband.partitions with both",
    )


def port_counters(readings: Sequence[PortCounts], ends: Mapping[Channel, End]) -> dict[tuple[str, str], PortCounters]:
    """Return what each port has sent, and discarded, by the lab's names."""
    found = {}
    for one in readings:
        end = ends.get((one.node, one.port))
        if end is not None:
            found[end.node, end.interface] = PortCounters(
                tx_bytes=sum(lane["xmit_bytes"] for lane in one.lanes.values()),
                tx_packets=one.counters["xmit_pkts"],
                tx_dropped=one.counters["xmit_discards"],
            )
    return found


def ends_of(fabric: InfinibandFabric) -> Mapping[Channel, End]:
    """Return the port of the lab that each port of the subnet is."""
    names, numbers = subnet_names(fabric), port_numbers(fabric)
    return {(names[end], numbers[end]): end for link in fabric.links for end in (link.a, link.b)}
