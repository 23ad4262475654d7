"""Hosts with a link group to two leaves that are one LACP partner (`homing: mlag`).

A pair of leaves has one subnet, on a bridge of each: with the same gateway address and the same MAC, so that a host
need not know which of them a frame comes to. Both announce the subnet, and the fabric uses both. The peer link joins
the two bridges, for what a leaf cannot deliver itself (`testbed.daemons.lag`).

The host's ports are members of an aggregate, its NIC for the network: fe0 of fe1 and fe2. It is a bond of the kernel,
or one end of a pair of interfaces whose other end, the inner one, hands frames to an eBPF program. The subnet is that
of the first leaf (`testbed.lab.core.plan.addressing`).

Under an overlay the two are one VTEP as well (anycast): one address of both, which both announce, and one MAC of their
routers. Ports of hosts in tenants are then ports of the bridges of L2VNIs, which the peer link joins, too
(`testbed.lab.features.mlag.plan.trunks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface

from testbed.base.errors import PlanError
from testbed.daemons.keeper.entries import EntryKind, ExpectedEntry
from testbed.daemons.lag.groups import (
    AggregatePlan,
    CreateBond,
    LinkGroupPlan,
    MemberPlan,
    PairedBridgePlan,
    PairedLeafPlan,
)
from testbed.lab.core.model import BACKEND, End, Lab, LagBy, Link, LinkKind, Node
from testbed.lab.core.plan.addressing import Net, host_address, pair_vteps, rail_network, whole_leaf_network
from testbed.lab.core.plan.interfaces import FIRST_BRIDGE, LOOPBACK_IFINDEX, MAX_SLOTS
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.operations import (
    PLAIN_QUEUE_PACKETS,
    AddAddress,
    CreateBridge,
    CreateVeth,
    Operation,
    SetBridgePort,
    SetSysctl,
    SetUp,
    VethEnd,
)
from testbed.lab.core.plan.overlay_plan import OverlayPlan
from testbed.lab.core.plan.qos.planner import QUEUE_PACKETS
from testbed.lab.core.plan.tenancy import ROUTER, Tenancy
from testbed.lab.features.mlag.plan.trunks import (
    Trunk,
    make_trunks,
    open_trunks,
    plan_trunks,
    route_to_borders,
    trunk_ends,
)

BRIDGE = "br-lag"
HOST_LENGTH = 32
BRIDGE_IFINDEX = FIRST_BRIDGE + MAX_SLOTS - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Two leaves, the primary first, with the peer link between them, and the links of each host to them in order."""

    leaves: tuple[str, str]
    peer: Link
    subnet: IPv4Network
    gateway: IPv4Interface
    hosts: Mapping[str, tuple[Link, Link]]
    addresses: Mapping[str, IPv4Interface]


class LinkGroups:
    """The link groups of a lab, and what the plan needs to know of them. A lab without any has empty ones."""

    def __init__(self, lab: Lab, nodes: Mapping[str, Node], auto: LagBy) -> None:
        """`auto` is what link groups are where it is left to the machine. Raises `PlanError` where the addresses of a
        pair do not fit."""
        self._lab = lab
        self._bonded = bonded_networks(lab, auto)
        networks = {network.name: network for network in lab.networks}
        self._queue_packets = {
            name: PLAIN_QUEUE_PACKETS if lab.qos_of(name) is None else QUEUE_PACKETS for name in (BACKEND, *networks)
        }
        by_nic: dict[End, list[Link]] = {}
        for link in lab.links:
            if link.kind is LinkKind.MEMBER:
                by_nic.setdefault(link.nic, []).append(link)
        of_leaves: dict[tuple[str, str], list[tuple[Link, Link]]] = {}
        for links in by_nic.values():
            first, second = sorted(links, key=lambda link: link.rail)
            of_leaves.setdefault((first.b.node, second.b.node), []).append((first, second))
        peers = [link for link in lab.links if link.kind is LinkKind.PEER]
        self._pairs = [_pair(lab, link, of_leaves.get((link.a.node, link.b.node), ()), nodes) for link in peers]
        self.vteps: dict[str, int] = {}
        """The address of each leaf that is one VTEP with its peer."""
        for name in () if lab.overlay is None else lab.overlay.mtu_bytes:
            pairs = [(nodes[a], nodes[b]) for a, b in lab.leaf_pairs if nodes[a].network == name]
            if pairs:
                self.vteps |= pair_vteps(networks[name], pairs)
        self.trunk_ends = trunk_ends(lab)
        self._trunks: tuple[Trunk, ...] = ()
        self._to_borders: list[Operation] = []
        self._overlay: Tenancy | None = None

    @property
    def aggregates(self) -> list[End]:
        """The aggregates of hosts, each with its inner end if it has one: interfaces beside those of links."""
        return [
            End(node=host, interface=name)
            for pair in self._pairs
            for host, links in pair.hosts.items()
            for name in _names(links)[: 1 if self._is_bonded(pair) else 2]
        ]

    def _is_bonded(self, pair: _Pair) -> bool:
        return pair.peer.network in self._bonded

    @property
    def bridges(self) -> list[str]:
        """The leaves, which have a bridge each."""
        return [leaf for pair in self._pairs for leaf in pair.leaves]

    def subnets(self, switch: str) -> tuple[IPv4Network, ...]:
        """Return the prefixes that a leaf announces as its peer does."""
        vtep = (IPv4Network(self.vteps[switch]),) if switch in self.vteps else ()
        return (*vtep, *(pair.subnet for pair in self._pairs if switch in pair.leaves))

    @property
    def addresses(self) -> dict[tuple[str, str], tuple[IPv4Interface, IPv4Address | None]]:
        """The address and the gateway of each aggregate that is in no tenant."""
        return {
            (host, _names(links)[0]): (pair.addresses[host], pair.gateway.ip)
            for pair in self._pairs
            for host, links in pair.hosts.items()
            if not self._vrf(links[0].b)
        }

    def share_macs(self, macs: dict[tuple[str, str], str]) -> None:
        """Give both gateways of a pair one MAC, and both routers one of a VTEP."""
        for pair in self._pairs:
            first, second = pair.leaves
            for what in (BRIDGE, ROUTER):
                if (first, what) in macs:
                    macs[second, what] = macs[first, what]

    def join(self, lab: Lab, overlay: Tenancy) -> None:
        """Take note of the overlay: what is in its tenants is no part of a pair's own subnet."""
        self._overlay = overlay
        self._trunks = plan_trunks(lab, overlay.vrfs)

    def before_links(
        self, indexes: Mapping[str, Mapping[str, int]], macs: Mapping[tuple[str, str], str]
    ) -> list[Operation]:
        """The bridges and bonds, before their ports are made."""
        bonds = [
            CreateBond(
                node=host,
                name=(name := _names(links)[0]),
                ifindex=indexes[host][name],
                mac=macs[host, name],
                mtu_bytes=min(link.mtu_bytes for link in links),
            )
            for pair in self._pairs
            if self._is_bonded(pair)
            for host, links in pair.hosts.items()
        ]
        bridges = [
            CreateBridge(
                node=leaf,
                name=BRIDGE,
                ifindex=BRIDGE_IFINDEX,
                mac=macs[leaf, BRIDGE],
                mtu_bytes=min(
                    (link.mtu_bytes for links in pair.hosts.values() for link in links if not self._vrf(link.b)),
                    default=pair.peer.mtu_bytes,
                ),
            )
            for pair in self._pairs
            for leaf in pair.leaves
        ]
        return [*bridges, *bonds]

    def _vrf(self, port: End) -> str:
        """The VRF that a leaf's port is in; "" for the pair's own subnet."""
        return "" if self._overlay is None else self._overlay.vrf_of(port)

    def links(self, indexes: Mapping[str, Mapping[str, int]], macs: Mapping[tuple[str, str], str]) -> list[Operation]:
        """The members and peer links as ports of bridges, and the aggregates."""

        def end(of: End, master: int) -> VethEnd:
            ifindex, mac = indexes[of.node][of.interface], macs[of.node, of.interface]
            if master and self._overlay is not None and (vrf := self._vrf(of)):
                master = self._overlay.master(of)
                return VethEnd(node=vrf, name=of.interface, ifindex=ifindex, mac=mac, master=master)
            return VethEnd(node=of.node, name=of.interface, ifindex=ifindex, mac=mac, master=master)

        made: list[Operation] = []
        for pair in self._pairs:
            peer = pair.peer
            ends = end(peer.a, BRIDGE_IFINDEX), end(peer.b, BRIDGE_IFINDEX)
            queue = self._queue_packets[peer.network]
            made.append(CreateVeth(a=ends[0], b=ends[1], mtu_bytes=peer.mtu_bytes, queue_packets=queue))
            for host, links in pair.hosts.items():
                bond = indexes[host][_names(links)[0]] if self._is_bonded(pair) else 0
                for link in links:
                    ends = end(link.a, bond), end(link.b, BRIDGE_IFINDEX)
                    made.append(CreateVeth(a=ends[0], b=ends[1], mtu_bytes=link.mtu_bytes, queue_packets=queue))
                if bond:
                    continue
                outer, inner = (end(End(node=host, interface=name), 0) for name in _names(links))
                made.append(CreateVeth(a=outer, b=inner, mtu_bytes=links[0].mtu_bytes))
        self._to_borders = route_to_borders(self._lab, self._trunks, macs)
        return made + make_trunks(self._trunks, macs)

    def after_links(
        self,
        indexes: Mapping[str, Mapping[str, int]],
        addresses: Mapping[tuple[str, str], tuple[IPv4Interface, IPv4Address | None]],
    ) -> list[Operation]:
        """Return the operations that follow once the ports are there. Answers may come to the other leaf, and make a
        neighbour there.

        `addresses` has the address and the gateway of each aggregate.
        """
        made: list[Operation] = []
        for pair in self._pairs:
            for leaf, name in zip(pair.leaves, (pair.peer.a.interface, pair.peer.b.interface), strict=True):
                made += (
                    SetSysctl(node=leaf, key=f"net/ipv4/conf/{BRIDGE}/arp_accept", value="1"),
                    SetBridgePort(
                        node=leaf,
                        name=name,
                        ifindex=indexes[leaf][name],
                        learning=False,
                        neighbour_suppression=False,
                    ),
                    SetUp(node=leaf, name=BRIDGE, ifindex=BRIDGE_IFINDEX),
                    AddAddress(node=leaf, name=BRIDGE, ifindex=BRIDGE_IFINDEX, address=pair.gateway),
                )
            for host, links in pair.hosts.items():
                outer = _names(links)[0]
                ifindex = indexes[host][outer]
                made.append(SetUp(node=host, name=outer, ifindex=ifindex))
                made += [
                    AddAddress(node=host, name=outer, ifindex=ifindex, address=address)
                    for address in (addresses[host, outer][0], self._ipv6_of(links)[0])
                    if address is not None
                ]
        return [*made, *open_trunks(self._trunks), *self._to_borders]

    def _ipv6_of(self, links: Sequence[Link]) -> tuple[IPv6Interface | None, IPv6Address | None]:
        """The IPv6 address and gateway of a host's aggregate; None where it has none."""
        return (None, None) if self._overlay is None else self._overlay.ipv6_of(links[0].nic)

    def vtep_addresses(self) -> list[Operation]:
        """Give leaves their addresses as VTEPs: after their loopbacks, which what they send themselves comes from."""
        return [
            AddAddress(node=leaf, name="lo", ifindex=LOOPBACK_IFINDEX, address=IPv4Interface((vtep, 32)))
            for leaf, vtep in self.vteps.items()
        ]

    def nics(
        self,
        ports: Sequence[PortPlan],
        indexes: Mapping[str, Mapping[str, int]],
        macs: Mapping[tuple[str, str], str],
        addresses: Mapping[tuple[str, str], tuple[IPv4Interface, IPv4Address | None]],
    ) -> list[PortPlan]:
        """The aggregates as NICs of their hosts. `ports` are the plans of all ends of links; `addresses` as above."""
        found = []
        members = {(port.node, port.name): port for port in ports} if self._pairs else {}
        for pair in self._pairs:
            for host, links in pair.hosts.items():
                name = _names(links)[0]
                address, gateway = addresses[host, name]
                address6, gateway6 = self._ipv6_of(links)
                ours = [members[link.a.node, link.a.interface] for link in links]
                found.append(
                    PortPlan(
                        node=host,
                        name=name,
                        ifindex=indexes[host][name],
                        mac=macs[host, name],
                        mtu_bytes=min(port.mtu_bytes for port in ours),
                        peer=ours[0].peer,
                        rate_bps=ours[0].rate_bps,
                        line_rate_bps=ours[0].line_rate_bps,
                        address=address,
                        gateway=gateway,
                        rail=links[0].rail if links[0].network == BACKEND else 1,
                        tenant="" if self._overlay is None else self._overlay.tenant_of(links[0].nic),
                        nic_ports=len(ours),
                        member=ours[0].name,
                        network=links[0].network,
                        address6=address6,
                        gateway6=gateway6,
                    )
                )
        return found

    def plan(
        self,
        indexes: Mapping[str, Mapping[str, int]],
        macs: Mapping[tuple[str, str], str],
        overlay: OverlayPlan | None,
    ) -> LinkGroupPlan | None:
        """The whole, above an overlay if there is one; None for a lab without link groups."""
        hosts: list[AggregatePlan] = []
        leaves: list[PairedLeafPlan] = []
        for pair in self._pairs:
            for host, links in pair.hosts.items():
                outer, inner = _names(links)
                hosts.append(
                    AggregatePlan(
                        node=host,
                        nic=outer,
                        ifindex=indexes[host][outer],
                        inner_ifindex=0 if self._is_bonded(pair) else indexes[host][inner],
                        mac=macs[host, outer],
                        members=tuple(_member(link.a, host, indexes) for link in links),
                    )
                )
            for number, end in enumerate((pair.peer.a, pair.peer.b)):
                leaf = pair.leaves[number]
                leaves.append(
                    PairedLeafPlan(
                        node=leaf,
                        peer=pair.leaves[1 - number],
                        primary=number == 0,
                        system=macs[pair.leaves[0], BRIDGE],
                        peer_interface=end.interface,
                        peer_ifindex=indexes[leaf][end.interface],
                        bridges=tuple(self._bridges(pair, number, indexes, overlay)),
                        vtep=IPv4Address(self.vteps[leaf]) if leaf in self.vteps else None,
                    )
                )
        return LinkGroupPlan(hosts=tuple(hosts), leaves=tuple(leaves)) if leaves else None

    def _bridges(
        self, pair: _Pair, number: int, indexes: Mapping[str, Mapping[str, int]], overlay: OverlayPlan | None
    ) -> Iterator[PairedBridgePlan]:
        """The bridges of a pair's first (0) or second leaf (1): that of its own subnet, then those of L2VNIs."""
        leaf, peer = pair.leaves[number], (pair.peer.a, pair.peer.b)[number]
        members: dict[tuple[str, int], list[MemberPlan]] = {}
        for host, links in pair.hosts.items():
            port = links[number].b
            vrf = self._vrf(port)
            master = self._overlay.master(port) if self._overlay is not None and vrf else BRIDGE_IFINDEX
            members.setdefault((vrf or leaf, master), []).append(_member(port, host, indexes))
        yield PairedBridgePlan(
            node=leaf,
            ifindex=BRIDGE_IFINDEX,
            peer_ifindex=indexes[leaf][peer.interface],
            members=tuple(members.get((leaf, BRIDGE_IFINDEX), ())),
        )
        for trunk in self._trunks:
            if trunk.leaf == leaf and overlay is not None:
                yield PairedBridgePlan(
                    node=trunk.vrf,
                    ifindex=trunk.bridge_ifindex,
                    peer_ifindex=trunk.ifindex,
                    members=tuple(members.get((trunk.vrf, trunk.bridge_ifindex), ())),
                    vlan=trunk.vlan,
                    tail_ifindex=trunk.tail_ifindex,
                    vxlan_ifindex=trunk.vxlan_ifindex,
                    entries=sum(map(_comes_without_hosts, overlay.expected[trunk.vrf])),
                )


def _comes_without_hosts(entry: ExpectedEntry) -> bool:
    """Tell whether EVPN brings an entry of a VRF whatever hosts the other leaves have heard."""
    prefix = entry.kind is EntryKind.ROUTE and entry.prefix is not None and entry.prefix.prefixlen < HOST_LENGTH
    return prefix or entry.kind is EntryKind.FLOOD


def _member(end: End, host: str, indexes: Mapping[str, Mapping[str, int]]) -> MemberPlan:
    return MemberPlan(name=end.interface, ifindex=indexes[end.node][end.interface], group=host)


def _names(links: Sequence[Link]) -> tuple[str, str]:
    """The names of a host's aggregate and of its inner end."""
    name = links[0].nic.interface
    return name, f"{name}-lag"


def _pair(lab: Lab, peer: Link, groups: Sequence[tuple[Link, Link]], nodes: Mapping[str, Node]) -> _Pair:
    leaves = peer.a.node, peer.b.node
    hosts = {links[0].a.node: links for links in groups}
    net = _subnet_of(lab, nodes[leaves[0]])
    addresses = {
        host: IPv4Interface((host_address(net, _number(links[0], nodes[host]), host), net.length))
        for host, links in hosts.items()
    }
    gateway = IPv4Interface((net.first, net.length))
    return _Pair(leaves=leaves, peer=peer, subnet=net.network(), gateway=gateway, hosts=hosts, addresses=addresses)


def _subnet_of(lab: Lab, leaf: Node) -> Net:
    """The subnet of a pair by its first leaf: that of its rail in the back end. Raises `PlanError`."""
    network = next((network for network in lab.networks if network.name == leaf.network), None)
    if network is not None:
        return whole_leaf_network(network, leaf)
    subnet = next((subnet for subnet in lab.rail_subnets if subnet.switch == leaf.name), None)
    if subnet is None or leaf.place is None:
        raise PlanError(f"{leaf.name} has hosts with link groups, and no rail", code="rail")
    return rail_network(leaf.place, subnet)


def _number(link: Link, host: Node) -> int:
    """The number of a host among those of its leaves, from 1."""
    return link.host_number or (0 if host.place is None else host.place.index)


def bonded_networks(lab: Lab, auto: LagBy) -> frozenset[str]:
    """The networks whose link groups are bonds. `auto` is what they are where it is left to the machine."""
    chosen = {network.name: auto if network.lag_by is LagBy.AUTO else network.lag_by for network in lab.networks}
    chosen[BACKEND] = auto
    return frozenset(name for name, by in chosen.items() if by is LagBy.BOND)


def lag_text(groups: LinkGroupPlan | None) -> str:
    """Return by which mechanism hosts have link groups, as a sentence; "" for none."""
    sentences = {
        frozenset(): "",
        frozenset({True}): "link groups of hosts by bond (the kernel's, which speaks LACP)",
        frozenset({False}): "link groups of hosts by ebpf (with a process that speaks LACP)",
        frozenset({True, False}): "link groups of hosts by bond in some networks and by ebpf in others",
    }
    return sentences[frozenset(host.is_bond for host in groups.hosts) if groups is not None else frozenset()]
