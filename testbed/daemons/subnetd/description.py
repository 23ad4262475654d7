"""The description that the wires of a subnet are started from: its nodes, links, tables and time scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.base.cleanup import on_failure
from testbed.protocols.infiniband.data_path import Congestion, PathLink, PathNode, SubnetDataPath
from testbed.protocols.infiniband.subnet import Subnet
from testbed.protocols.infiniband.tables import set_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class WiresDescription:
    """A subnet and how its wires carry it: `time_scale` times slower than the real one."""

    time_scale: int
    links: Sequence[PathLink]
    """All links, up or not, with the rates and delays of the real fabric."""
    voq: bool = False
    threshold: int = 0
    """When switches mark frames (`Congestion`); 0: never."""
    up_ports: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The ports of a switch of which frames may take the least loaded one, where routing is adaptive."""

    def __post_init__(self) -> None:
        if self.time_scale < 1:
            raise ValueError(f"a time scale of {self.time_scale}: 1 or more")

    @property
    def longest_step_ns(self) -> int:
        """Return how long a full frame and the credit for the next one are under way, on the slowest link."""
        return max((3 * link.spacing_ns + 2 * link.delay_ns for link in map(self._scaled, self.links)), default=0)

    def build(self, subnet: Subnet) -> SubnetDataPath:
        """Return the data path, with the tables of `subnet` in force and its links that are down cut. Raises
        `UsageError`."""
        path = SubnetDataPath(
            [
                PathNode(name=node.name, ports=node.ports, lid=node.lid, is_switch=node.is_switch)
                for node in subnet.nodes.values()
            ],
            [self._scaled(link) for link in self.links],
            vls=subnet.vls,
            voq=self.voq,
        )
        with on_failure(path.close):
            set_tables(path, subnet)
            for switch in subnet.switches:
                path.set_congestion(switch.name, Congestion(threshold=self.threshold))
                path.set_up_ports(switch.name, self.up_ports.get(switch.name, ()))
            for link in self.links:
                path.set_link(link.a, link.a_port, (link.a, link.a_port) in subnet.peers)
        return path

    def _scaled(self, link: PathLink) -> PathLink:
        return PathLink(
            a=link.a,
            a_port=link.a_port,
            b=link.b,
            b_port=link.b_port,
            rate_bps=max(1, link.rate_bps // self.time_scale),
            delay_ns=link.delay_ns * self.time_scale,
        )
