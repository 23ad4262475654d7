"""The rails of switches: what is one subnet, which ports are in it, and the addresses they get."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from testbed.base.errors import PlanError
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, RailSubnet
from testbed.lab.core.plan.addressing import (
    Net,
    check_overlap,
    guest_addresses,
    host_address,
    leaf_network,
    rail_aggregate,
    rail_network,
)
from testbed.lab.core.plan.interfaces import FIRST_BRIDGE, MAX_SLOTS
from testbed.lab.core.plan.operations import AddAddress, CreateBridge


@dataclass(slots=True)
class Rail:
    """A rail on a switch that has ports: its subnet, and the bridge if it has more than one of them, or has had."""

    subnet: RailSubnet
    net: Net
    network: IPv4Network
    gateway: IPv4Address
    links: list[Link]
    bridge_ifindex: int = 0

    @property
    def switch(self) -> str:
        """The switch that it is on."""
        return self.subnet.switch

    @property
    def name(self) -> str:
        """The name of its bridge."""
        return f"br-rail{self.subnet.rail}"

    @property
    def gateway_interface(self) -> IPv4Interface:
        """The gateway with the length of the subnet."""
        return IPv4Interface((self.net.first, self.net.length))


class Rails:
    """The rails of a lab that have ports, by switch and rail. A rail nobody is on needs no address.

    Raises `PlanError` where a port is on a rail that its switch has not, or a rail is on a switch without a place.
    """

    def __init__(self, lab: Lab, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        links: dict[tuple[str, int], list[Link]] = defaultdict(list)
        for link in lab.links:
            if link.kind is LinkKind.ACCESS:
                links[link.b.node, link.rail].append(link)
        beside = {network.name: network for network in lab.networks}
        self._rails: dict[tuple[str, int], Rail] = {}
        for subnet in lab.rail_subnets:
            ports = links.pop((subnet.switch, subnet.rail), None)
            if ports is None:
                continue
            node = nodes.get(subnet.switch)
            if node is None or node.place is None:
                raise PlanError(f"{subnet.switch} has rails, but no place in the fabric", code="place")
            network = beside.get(node.network)
            net = rail_network(node.place, subnet) if network is None else leaf_network(network, node.place, subnet)
            self._rails[subnet.switch, subnet.rail] = Rail(subnet, net, net.network(), IPv4Address(net.first), ports)
        if links:
            (switch, rail), ports = next(iter(links.items()))
            raise PlanError(f"{ports[0].a} is on rail {rail} of {switch}, which has no subnet", code="rail")

    @property
    def nets(self) -> list[Net]:
        """The subnets of all rails."""
        return [rail.net for rail in self._rails.values()]

    def master_of(self, link: Link) -> int:
        """The interface index of the bridge that the switch's end of an access link is a port of; 0: of none."""
        return self._rails[link.b.node, link.rail].bridge_ifindex

    def number_bridges(self) -> list[Rail]:
        """Give each rail of several ports a bridge, and each that has one already; the rails come back.

        Others are routed directly.
        """
        bridged = [rail for rail in self._rails.values() if len(rail.links) > 1 or rail.subnet.bridged]
        for rail in bridged:
            if rail.subnet.slot >= MAX_SLOTS:
                raise PlanError(
                    f"{rail.switch}: at most {MAX_SLOTS} rails on a switch", field="fabric.rails", code="rail"
                )
            rail.bridge_ifindex = FIRST_BRIDGE + rail.subnet.slot
        return bridged

    def count_by_switch(self) -> dict[str, int]:
        """The number of rails on each switch that has one."""
        counts: dict[str, int] = defaultdict(int)
        for switch, _ in self._rails:
            counts[switch] += 1
        return counts

    def networks_by_switch(self) -> dict[str, list[IPv4Network]]:
        """The subnets of each switch that has one."""
        networks: dict[str, list[IPv4Network]] = defaultdict(list)
        for rail in self._rails.values():
            networks[rail.switch].append(rail.network)
        return networks

    def aggregates(self, node: Node) -> tuple[IPv4Network, ...]:
        """Return the aggregates that a switch may announce in place of its rails' subnets."""
        if node.place is None:
            return ()
        lengths = {rail.subnet.aggregate_length for rail in self._rails.values() if rail.switch == node.name}
        return tuple(rail_aggregate(node.place, node.name, length).network() for length in sorted(lengths))

    def addresses(self) -> dict[tuple[str, str], tuple[IPv4Interface, IPv4Address | None]]:
        """The address of each port, by node and interface, and its gateway; a bridge's is in `bridge_addresses`.

        Raises `PlanError` where two ports want one, or subnets overlap.
        """
        found: dict[tuple[str, str], tuple[IPv4Interface, IPv4Address | None]] = {}
        for rail in self._rails.values():
            for end, address in self._of_hosts(rail).items():
                found[end.node, end.interface] = (IPv4Interface((address, rail.net.length)), rail.gateway)
            if not rail.bridge_ifindex:
                port = rail.links[0].b
                found[port.node, port.interface] = (rail.gateway_interface, None)
        check_overlap(self.nets)
        return found

    def _of_hosts(self, rail: Rail) -> dict[End, int]:
        taken: dict[int, str] = {}
        guests: dict[str, End] = {}
        addresses: dict[End, int] = {}
        for link in rail.links:
            node = self._nodes[link.a.node]
            number = link.host_number or (0 if node.place is None else node.place.index)
            if not number:
                guests[str(link.a)] = link.a
                continue
            address = host_address(rail.net, number, node.name)
            if address in taken:
                raise PlanError(
                    f"{link.a} and {taken[address]} want the same address on {rail.net.owner}",
                    code="duplicate-address",
                )
            taken[address] = str(link.a)
            addresses[link.a] = address
        for guest, address in guest_addresses(rail.net, guests, taken).items():
            addresses[guests[guest]] = address
        return addresses

    def bridges(self, macs: Mapping[tuple[str, str], str]) -> Sequence[CreateBridge]:
        """Create the bridges, once they are numbered."""
        return [
            CreateBridge(
                node=rail.switch,
                name=rail.name,
                ifindex=rail.bridge_ifindex,
                mac=macs[rail.switch, rail.name],
                mtu_bytes=min(link.mtu_bytes for link in rail.links),
            )
            for rail in self._rails.values()
            if rail.bridge_ifindex
        ]

    def bridge_addresses(self) -> Sequence[AddAddress]:
        """Give the bridges their gateway addresses."""
        return [
            AddAddress(node=rail.switch, name=rail.name, ifindex=rail.bridge_ifindex, address=rail.gateway_interface)
            for rail in self._rails.values()
            if rail.bridge_ifindex
        ]
