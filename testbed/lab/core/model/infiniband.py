"""An InfiniBand back end, as the file asks for it: its switches and links, and what its subnet manager is told.

A lab whose `fabric.link_layer` is infiniband has its hosts as any other, and no Ethernet between them in the back end:
what a design generates of it, or a file lists, is here, and the lab's own links and switches are those of its other
networks. `whole_lab` puts both together again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from testbed.base.units import Duration
from testbed.lab.core.model.end import End

if TYPE_CHECKING:
    from testbed.lab.core.model.lab import InfinibandFabric, Lab

DEFAULT_ROUTING = ("ftree", "updn")
DEFAULT_SWEEP = Duration(10 * 10**9)
LANE_ENGINES = frozenset({"lash", "dfsssp", "nue"})
"""The routing engines of OpenSM that put paths on several service levels, against deadlock."""
SERVICE_LEVELS = 16
DROPPED = 15
"""The lane of a service level whose packets are dropped: that of management, which no data may take (IBTA 7.6.6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinibandPartition:
    """A partition: its name, the service level of its paths, and the hosts that are in it with all their HCAs."""

    name: str
    sl: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CongestionSettings:
    """The words of the congestion manager to switches and HCAs (IBTA annex A10.4.3).

    `threshold` is 0 (never) to 15, by sixteenths of a buffer from its top: above it switches mark. Each mark raises an
    HCA's index into its table of delays by `increase`, and every `timer` units of 1.024 us it falls by one.
    """

    threshold: int
    increase: int
    timer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinibandSettings:
    """The settings that the subnet manager is told.

    `routing` are OpenSM's engines, in the order in which they are tried. `sl2vl` has the virtual lane of each of the 16
    service levels, and `DROPPED` for one whose packets are dropped. `vl_high` and `vl_low` are tables of VL
    arbitration, as (VL, weight in 64 bytes), and `vl_high_limit` says for how many 4 KiB the high one may keep the low
    one waiting: 255 without end (IBTA section 7.6.9). `sm_hosts` are the hosts whose first HCA has a subnet manager,
    the first of which is to be the master; `sweep` is the time between two looks at all switches.
    """

    routing: tuple[str, ...] = DEFAULT_ROUTING
    vls: int = 1
    sl2vl: tuple[int, ...] = (0,) * SERVICE_LEVELS
    vl_high: tuple[tuple[int, int], ...] = ()
    vl_low: tuple[tuple[int, int], ...] = ()
    vl_high_limit: int = 0
    partitions: tuple[InfinibandPartition, ...] = ()
    sm_hosts: tuple[str, ...] = ()
    sweep: Duration = DEFAULT_SWEEP
    voq: bool = False
    """Switches have a queue for each output and lane at an input; else one for each lane, whose first frame may hold up
    all behind it. This and the next two concern runs in virtual time."""
    adaptive_routing: bool = False
    """A frame takes the least loaded of a switch's ports to the tier above, where its table names one of them. It is
    this project's: vendors' adaptive routing is not public."""
    congestion_control: CongestionSettings | None = None

    @property
    def has_lanes(self) -> bool:
        """Tell whether the manager sets lanes up. With one for all it leaves tables of lanes alone: they are a datagram
        for each pair of a switch's ports, most of the time that a large subnet would take to come up."""
        return self.vls > 1


def port_numbers(fabric: InfinibandFabric) -> Mapping[End, int]:
    """Return the number of every port of a fabric, from 1: an HCA has one, a switch counts them in the order of its
    links."""
    switches = {node.name for node in fabric.switches}
    counted: Counter[str] = Counter()
    found: dict[End, int] = {}
    for link in fabric.links:
        for end in (link.a, link.b):
            counted[end.node] += end.node in switches
            found[end] = counted[end.node] if end.node in switches else 1
    return found


def hca_ends(fabric: InfinibandFabric) -> tuple[End, ...]:
    """Return the HCAs of a fabric, a port of a host's NIC each, in the order of their links."""
    switches = {node.name for node in fabric.switches}
    ends = (end for link in fabric.links for end in (link.a, link.b))
    return tuple(dict.fromkeys(end for end in ends if end.node not in switches))


def subnet_names(fabric: InfinibandFabric) -> Mapping[End, str]:
    """Return what the node of each port is called in the subnet: HOST:INTERFACE where it is an HCA, or the switch's
    name."""
    switches = {node.name for node in fabric.switches}
    ends = (end for link in fabric.links for end in (link.a, link.b))
    return {end: end.node if end.node in switches else str(end) for end in ends}


def whole_lab(lab: Lab) -> Lab:
    """Return the lab with the switches, links and rails of its InfiniBand back end in place, as if they were any
    other's; the lab itself where it has none."""
    fabric = lab.infiniband
    if fabric is None:
        return lab
    return replace(
        lab,
        nodes=(*lab.nodes, *fabric.switches),
        links=(*fabric.links, *lab.links),
        rail_subnets=(*fabric.rail_subnets, *lab.rail_subnets),
        infiniband=None,
    )
