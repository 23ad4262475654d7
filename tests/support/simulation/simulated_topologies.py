"""Shapes of simulated networks that transports are tested on, and what became of the datagrams in them.

Lines are named `from->to`; `overrides` replace the settings of single lines: a degraded uplink, a dead or lossy one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from testbed.base.datapath.markers import MarkAt
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.simulation import (
    Endpoint,
    FabricNetwork,
    FabricPortSettings,
    Frame,
    Line,
    LinkSettings,
    SwitchSettings,
)

Overrides = Mapping[str, LinkSettings]
LOW, MEDIUM, HIGH = 0, 1, 6
"""Classes of a port: data, what was trimmed, and control packets."""
QUANTUM_BYTES = 4222
TRIM_BYTES = 64


def plane_port(
    plane_bytes: int, *, trimming: bool = True, drop_planes: float = 5, medium_planes: float = 1
) -> FabricPortSettings:
    """Return what section 3.6.17 of the UE Specification 1.0 advises; `plane_bytes` is Plane_BDP, the lowest link rate
    times config_base_rtt.

    ECN from 0.2 to 0.8 Plane_BDP. With trimming data is trimmed at 1 Plane_BDP, without it is dropped at `drop_planes`,
    2 to 5. `medium_planes` is not the specification's: where a hundred hosts send to one, the headers of their first
    windows are more than 1 Plane_BDP, and each one that is dropped costs a time-out.
    """
    low = ClassPlan(
        priority=LOW,
        quantum_bytes=QUANTUM_BYTES,
        limit_bytes=plane_bytes if trimming else int(plane_bytes * drop_planes),
        kmin_bytes=plane_bytes * 2 // 10,
        kmax_bytes=plane_bytes * 8 // 10,
        mark_at=MarkAt.DEQUEUE,
    )
    medium = ClassPlan(priority=MEDIUM, quantum_bytes=3 * QUANTUM_BYTES, limit_bytes=int(plane_bytes * medium_planes))
    return FabricPortSettings(
        classes=(low, medium, ClassPlan(priority=HIGH, strict=True, limit_bytes=plane_bytes)),
        priority_of=(LOW, LOW, HIGH, HIGH, MEDIUM),
        trimming=trimming,
        trim_bytes=TRIM_BYTES,
    )


ROOMY = plane_port(1 << 40, trimming=False)


class Topology:
    """A network under construction: links in both directions between ports with the same classes."""

    def __init__(
        self, endpoints: Sequence[Endpoint], *, port: FabricPortSettings, overrides: Overrides | None, seed: int
    ) -> None:
        self.network = FabricNetwork(endpoints, seed=seed)
        self._port = port
        self._overrides = overrides or {}

    def switch(self, name: str) -> str:
        seed = Random(f"{self.network.seed} {name}").getrandbits(32)
        self.network.add_fabric_switch(name, SwitchSettings(seed=seed))
        return name

    def link(self, one: str, other: str, link: LinkSettings) -> None:
        for source, target in ((one, other), (other, one)):
            name = f"{source}->{target}"
            # A NIC's queue has no bound and marks nothing: its endpoint is asked as the line becomes free.
            out = ROOMY if source in self.network.nics else self._port
            self.network.connect(name, source, target, self._overrides.get(name, link), out=out, into=self._port)

    def route(self, switch: str, destination: str, next_hops: Sequence[str]) -> None:
        self.network.route(switch, destination, [f"{switch}->{hop}" for hop in next_hops])


def point_to_point(
    one: Endpoint, other: Endpoint, *, link: LinkSettings, overrides: Overrides | None = None, seed: int = 0
) -> FabricNetwork:
    """Two hosts and a cable."""
    topology = Topology([one, other], port=ROOMY, overrides=overrides, seed=seed)
    topology.link(one.address, other.address, link)
    return topology.network


def star(
    endpoints: Sequence[Endpoint],
    *,
    link: LinkSettings,
    port: FabricPortSettings = ROOMY,
    overrides: Overrides | None = None,
    seed: int = 0,
) -> FabricNetwork:
    """All hosts at one switch, `switch`: incast."""
    topology = Topology(endpoints, port=port, overrides=overrides, seed=seed)
    topology.switch("switch")
    for address in topology.network.nics:
        topology.link(address, "switch", link)
        topology.route("switch", address, [address])
    return topology.network


def leaf_spine(
    endpoints: Sequence[Endpoint],
    leaves: int,
    spines: int,
    *,
    link: LinkSettings,
    fabric_link: LinkSettings | None = None,
    port: FabricPortSettings = ROOMY,
    overrides: Overrides | None = None,
    seed: int = 0,
) -> FabricNetwork:
    """Two stages, `leaf0` .. and `spine0` ..; all leaves have as many hosts, one leaf's behind each other, and spread
    flows over all spines. `fabric_link` is between leaves and spines.
    """
    topology = Topology(endpoints, port=port, overrides=overrides, seed=seed)
    leaf_names = [topology.switch(f"leaf{index}") for index in range(leaves)]
    spine_names = [topology.switch(f"spine{index}") for index in range(spines)]
    for leaf in leaf_names:
        for spine in spine_names:
            topology.link(leaf, spine, fabric_link or link)
    for index, address in enumerate(topology.network.nics):
        home = leaf_names[index * leaves // len(endpoints)]
        topology.link(address, home, link)
        for leaf in leaf_names:
            topology.route(leaf, address, [address] if leaf == home else spine_names)
        for spine in spine_names:
            topology.route(spine, address, [home])
    return topology.network


def path(network: FabricNetwork, source: str, destination: str, entropy: int) -> list[Line]:
    """Return the lines that a datagram takes, whether they are up or not."""
    numbers = {address: number for number, address in enumerate(network.nics)}
    frame = Frame(numbers[source], numbers[destination], entropy, 0, b"")
    port = network.nics[source].port
    lines = [port.line]
    while (node := lines[-1].name.split("->")[1]) != destination:
        switch = network.fabric_switches[node]
        ports = switch.ports_to(frame)
        lines.append(ports[switch.choose(frame, len(ports))].line)
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Datagrams since the start: sent + duplicated = delivered + refused + unroutable + lost + blackholed + dropped +
    in_flight. `in_flight` is counted on the lines and in the queues, not derived from the others.
    """

    sent: int
    delivered: int
    refused: int
    unroutable: int
    lost: int
    blackholed: int
    dropped: int
    in_flight: int
    duplicated: int
    corrupted: int
    reordered: int
    marked: int
    trimmed: int
    hops: int

    @property
    def is_balanced(self) -> bool:
        gone = self.lost + self.blackholed + self.dropped + self.unroutable + self.refused
        return self.sent + self.duplicated == self.delivered + gone + self.in_flight


def totals(network: FabricNetwork) -> Totals:
    """Return what became of all datagrams so far."""
    nics, lines = network.nics.values(), network.lines.values()
    impairers = [impairer for line in lines for impairer in line.impairers]
    queues = [queue for port in network.outputs.values() for queue in port.queues]
    return Totals(
        sent=sum(nic.sent for nic in nics),
        delivered=sum(nic.delivered for nic in nics),
        refused=sum(nic.refused for nic in nics),
        unroutable=sum(nic.unroutable for nic in nics),
        lost=sum(line.lost_frames for line in lines),
        blackholed=sum(line.blackholed for line in lines),
        dropped=sum(sum(queue.drops_packets) + queue.wred_packets for queue in queues),
        in_flight=network.in_flight(),
        duplicated=sum(impairer.duplicated for impairer in impairers),
        corrupted=sum(impairer.corrupted for impairer in impairers),
        reordered=sum(impairer.reordered for impairer in impairers),
        marked=sum(queue.ce_packets for queue in queues),
        trimmed=sum(queue.trimmed_packets for queue in queues),
        hops=network.hops,
    )
