"""The wires of a subnet that is up: what they are told of a fabric, and what is told of a change of its links.

A subnet of at most `MOST_HCAS` has them. They have a time scale of their own, by which all HCAs together send no more
frames than one process carries, and at least that of the lab.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from testbed.daemons.subnetd.client import SubnetWires
from testbed.daemons.subnetd.description import WiresDescription
from testbed.lab.core.model import InfinibandFabric, Role
from testbed.lab.core.model.infiniband import hca_ends, port_numbers, subnet_names
from testbed.lab.features.infiniband.configuration import PlannedSubnet
from testbed.lab.features.infiniband.plane import Plane
from testbed.protocols.infiniband.data_path import PathLink
from testbed.protocols.infiniband.subnet import Channel, Subnet

MOST_HCAS: Final = 64
FRAMES_PER_S: Final = 10_000
"""So many frames of 4,096 bytes a process of Python carries in a second, from HCA to HCA, in less than a core."""
_FRAME_BITS: Final = 8 * (4096 + 34)
_LEVELS: Final = {Role.LEAF: 0, Role.SPINE: 1, Role.SUPER_SPINE: 2}
DIRECTORY_NAME: Final = "wires"


def has_wires(fabric: InfinibandFabric) -> bool:
    """Tell whether a subnet is small enough for wires."""
    return len(hca_ends(fabric)) <= MOST_HCAS


def wires_of(plane: Plane) -> SubnetWires:
    """Return the wires of a plane, running or not."""
    return SubnetWires(run_directory=plane.directory / DIRECTORY_NAME)


def wires_time_scale(planned: PlannedSubnet, k: float) -> int:
    """Return how many times slower than the fabric the wires of a subnet are, in a lab of the time scale `k`."""
    hcas = {node.name for node in planned.hcas}
    rate_bps = sum(link.rate_bps for link in planned.links if {link.a, link.b} & hcas)
    return max(1, ceil(k), ceil(rate_bps / _FRAME_BITS / FRAMES_PER_S))


def wires_settings(fabric: InfinibandFabric, planned: PlannedSubnet, k: float) -> WiresDescription:
    """Describe the wires of a subnet by what its file says, without the ports by which adaptive routing leads up."""
    settings = fabric.settings
    delays = dict(link_delays_ns(fabric))
    return WiresDescription(
        time_scale=wires_time_scale(planned, k),
        links=[
            PathLink(
                a=link.a,
                a_port=link.a_port,
                b=link.b,
                b_port=link.b_port,
                rate_bps=link.rate_bps,
                delay_ns=delays.get((link.a, link.a_port), 0),
            )
            for link in planned.links
        ],
        voq=settings.voq,
        threshold=0 if settings.congestion_control is None else settings.congestion_control.threshold,
    )


def describe_wires(fabric: InfinibandFabric, planned: PlannedSubnet, subnet: Subnet, k: float) -> WiresDescription:
    """Describe the wires of a subnet, whatever links of it are down."""
    up = {node.name: up_ports(fabric, subnet, node.name) for node in subnet.switches}
    return replace(wires_settings(fabric, planned, k), up_ports=up if fabric.settings.adaptive_routing else {})


def link_delays_ns(fabric: InfinibandFabric) -> Iterator[tuple[Channel, int]]:
    """Yield the delay of the link at each port, in the time of the real fabric."""
    names, numbers = subnet_names(fabric), port_numbers(fabric)
    for link in fabric.links:
        for end in (link.a, link.b):
            yield (names[end], numbers[end]), link.delay_ns


def up_ports(fabric: InfinibandFabric, subnet: Subnet, switch: str) -> Sequence[int]:
    """Return the ports of a switch that lead to switches of a higher tier."""
    levels: Mapping[str, int] = {
        node.name: _LEVELS.get(node.role, 0) for node in fabric.switches if node.role is not None
    }
    found = []
    for port in range(1, subnet.nodes[switch].ports + 1):
        peer = subnet.peer(switch, port)
        if peer is not None and levels.get(peer[0], -1) > levels.get(switch, 0):
            found.append(port)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reroute:
    """The way from a link that went down or came back to new tables: `manager_s` is the time until the subnet manager
    had written them, `lab_s` that until frames went by them. Both are this machine's; the fabric's clock went on by
    `time_scale` times less."""

    manager_s: float
    lab_s: float
    time_scale: int

    @property
    def sentence(self) -> str:
        """Say it in both scales."""
        return (
            f"new tables after {_time(self.manager_s)} of the subnet manager, and frames by them after "
            f"{_time(self.lab_s)}: {_time(self.lab_s / self.time_scale)} of a fabric that the lab is "
            f"{self.time_scale:,} times slower than"
        )


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e12:.3g} ps"
