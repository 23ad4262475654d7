"""Hosts that speak BGP with their leaves (`homing: routed`): one address of a host, and every port a routed link.

A host has an address of its own, a /32 that stands on its loopback interface and is announced over each of its ports;
its leaves tell it the prefix of the network and nothing else. So hosts and fabric both have ECMP over its ports, and
go on by what is left of them as soon as a link or a leaf is gone. The prefix comes from the spines: a leaf that has
lost all of them has nothing to tell its hosts, and they send by the others.

Nobody believes a host more than that: a leaf takes the host's own /32 from it alone (RFC 7454 section 6.1.4), and a
host announces no other route and forwards nothing.

Addresses are those that the first ports would have in subnets of their leaves (`testbed.lab.core.plan.addressing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from testbed.base.errors import PlanError
from testbed.lab.core.model import End, Lab, Link, LinkKind, Network, Node
from testbed.lab.core.plan.addressing import host_address, whole_leaf_network
from testbed.lab.core.plan.asn import host_as_numbers
from testbed.lab.core.plan.hosts import FIRST_PRIORITY, FIRST_REFUSAL, MAIN_TABLE
from testbed.lab.core.plan.lab_plan import Neighbor, PortPlan, SwitchPlan
from testbed.lab.core.plan.operations import AddRule
from testbed.lab.core.plan.routes import PlannedSession, Speaker


@dataclass(frozen=True, slots=True, kw_only=True)
class HomedNic:
    """A host's NIC in a network whose hosts speak BGP: its links in the order of its ports, its address and AS."""

    host: str
    network: str
    links: tuple[Link, ...]
    address: IPv4Address
    asn: int

    @property
    def own(self) -> IPv4Network:
        """The prefix that the host announces: its address alone."""
        return IPv4Network(self.address)

    @property
    def first(self) -> End:
        """The port that stands for the NIC where one is asked for."""
        return self.links[0].a


class Homing:
    """The NICs of a lab whose hosts speak BGP, and what the plan needs to know of them."""

    def __init__(self, lab: Lab, nodes: Mapping[str, Node], macs: Mapping[tuple[str, str], str]) -> None:
        """Raises `PlanError` where an address or an AS number does not fit, or a host would be in two such networks."""
        self._networks = {network.name: network for network in lab.networks}
        self._macs = macs
        links: dict[str, list[Link]] = {}
        for link in lab.links:
            if link.kind is LinkKind.HOMED:
                links.setdefault(link.a.node, []).append(link)
        asns = host_as_numbers(links)
        self.nics = {
            host: _nic(host, sorted(ports, key=lambda link: link.rail), self._networks, nodes, asns[host])
            for host, ports in links.items()
        }

    def prefixes(self, network: str) -> tuple[IPv4Network, ...]:
        """Return the prefixes that the spines of a network announce for its hosts; none where they do not speak BGP."""
        homed = any(nic.network == network for nic in self.nics.values())
        return (self._networks[network].prefix,) if homed else ()

    @property
    def addresses(self) -> dict[tuple[str, str], tuple[IPv4Interface, IPv4Address | None]]:
        """The address of each such NIC, at its first port, and the gateway that it does not have."""
        return {(nic.host, nic.first.interface): (IPv4Interface((nic.address, 32)), None) for nic in self.nics.values()}

    def ports_behind(self, end: End) -> int:
        """Return the number of ports of a NIC that a port stands for; 1 for any other port."""
        nic = self.nics.get(end.node)
        return len(nic.links) if nic is not None and nic.first == end else 1

    def leaf_sessions(self, network: str) -> tuple[list[tuple[str, Neighbor]], list[PlannedSession]]:
        """The hosts as neighbours of leaves, each with its leaf, and both directions of the sessions."""
        neighbors: list[tuple[str, Neighbor]] = []
        sessions: list[PlannedSession] = []
        for nic in self._of(network):
            for link in nic.links:
                host, leaf = link.a, link.b
                neighbor = Neighbor(
                    interface=leaf.interface,
                    remote=host.node,
                    remote_role=None,
                    remote_asn=nic.asn,
                    remote_interface=host.interface,
                    accepts=(nic.own,),
                    told=self.prefixes(network),
                    bfd=False,
                )
                neighbors.append((leaf.node, neighbor))
                for near, far in ((host, leaf), (leaf, host)):
                    mac = self._macs[near.node, near.interface]
                    sessions.append(PlannedSession(near.node, far.node, far.interface, mac))
        return neighbors, sessions

    def speakers(self, network: str) -> list[Speaker]:
        """The hosts of a network as BGP speakers, which take the network's prefix and hand nothing on."""
        return [
            Speaker(nic.host, int(nic.address), nic.asn, (nic.own,), accepts=self.prefixes(network))
            for nic in self._of(network)
        ]

    def plans(self, view: Lab, network: str, leaves: Mapping[str, SwitchPlan]) -> list[SwitchPlan]:
        """The routing of the hosts of a network. `leaves` has the plans of its switches by name."""
        return [
            SwitchPlan(
                node=nic.host,
                role=None,
                asn=nic.asn,
                router_id=nic.address,
                loopback=IPv4Interface((nic.address, 32)),
                neighbors=tuple(
                    Neighbor(
                        interface=link.a.interface,
                        remote=link.b.node,
                        remote_role=leaves[link.b.node].role,
                        remote_asn=leaves[link.b.node].asn,
                        remote_interface=link.b.interface,
                        accepts=self.prefixes(network),
                        told=(nic.own,),
                        bfd=False,
                    )
                    for link in nic.links
                ),
                networks=(nic.own,),
                aggregates=(),
                protocol=view.routing.protocol,
                ecmp=view.routing.ecmp,
                bfd=None,
                network=network,
            )
            for nic in self._of(network)
        ]

    def rules(self, nics: Sequence[PortPlan]) -> list[AddRule]:
        """The rules of a host with these NICs: what it sends from its address goes into the network, or nowhere."""
        rules: list[AddRule] = []
        for number, port in enumerate(nics, 1):
            nic = self.nics.get(port.node)
            if nic is None or nic.first != End(node=port.node, interface=port.name):
                continue
            rules += (
                AddRule(
                    node=port.node,
                    source=nic.address,
                    table=MAIN_TABLE,
                    priority=FIRST_PRIORITY + number,
                    destination=self._networks[nic.network].prefix,
                ),
                AddRule(node=port.node, source=nic.address, table=0, priority=FIRST_REFUSAL + number),
            )
        return rules

    def _of(self, network: str) -> Iterable[HomedNic]:
        return (nic for nic in self.nics.values() if nic.network == network)


def _nic(
    host: str, links: Sequence[Link], networks: Mapping[str, Network], nodes: Mapping[str, Node], asn: int
) -> HomedNic:
    first = links[0]
    if any(link.network != first.network for link in links):
        raise PlanError(f"{host} would speak BGP in two networks", code="homing")
    subnet = whole_leaf_network(networks[first.network], nodes[first.b.node])
    address = host_address(subnet, first.host_number, host)
    return HomedNic(host=host, network=first.network, links=tuple(links), address=IPv4Address(address), asn=asn)
