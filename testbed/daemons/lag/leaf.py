"""A leaf of a pair that is one LACP partner: its link groups, what it tells its peer, and what its bridge does."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path

from testbed.base.datapath.lag import LagPrograms
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.traffic_control import CLSACT_EGRESS, CLSACT_INGRESS
from testbed.daemons.lag.bridge import BridgeTables
from testbed.daemons.lag.configuration import PairedLeaf
from testbed.daemons.lag.kernel import CarrierChange, Kernel, NeighbourChange, RoutesChange, StationChange
from testbed.daemons.lag.node import GroupNode, GroupStatus, LagNodeStatus
from testbed.daemons.lag.ports import GroupPorts
from testbed.protocols.lacp.lacp import Aggregator, decode_lacpdu
from testbed.protocols.lacp.pair import Pair

QUESTION_PORT = 20_785
"""UDP, between the loopbacks of two leaves: whether the peer lives, asked when the peer link is dead."""
RESTORED_AFTER_S = 3.0
"""A leaf that has a route again, but not all of them, goes by those it has after so long: others may be down."""
_LOOPBACK_IFINDEX = 1
_HOST_LENGTH = 32
_LONGEST = 2048
_NEVER = float("inf")


class LeafNode(GroupNode):
    """Each host's group has one port here, and one at the peer, which has the same system and key."""

    def __init__(self, leaf: PairedLeaf, directory: Path) -> None:
        """Raises `CapabilityError`, `DriverError`, `OSError`."""
        names = {group.member.ifindex: group.member.name for group in leaf.groups}
        kernels, ports = _open(leaf)
        super().__init__(leaf.node, directory, kernels[leaf.namespace], ports)
        self._leaf = leaf
        self._group_of = {group.member.ifindex: group.name for group in leaf.groups}
        self._port_of = {group.name: group.member.ifindex for group in leaf.groups}
        self._aggregators = {
            group.name: Aggregator(system=leaf.system, key=group.key, members={group.member.name: group.member.number})
            for group in leaf.groups
        }
        self._names = names
        self._pair = Pair(
            name=leaf.node,
            peer=leaf.peer,
            primary=leaf.primary,
            groups=list(self._aggregators),
            secret=bytes.fromhex(leaf.secret),
        )
        self._peer_port = GroupPorts.peer(leaf.peer_ifindex, leaf.peer_interface)
        self._questions = _question_socket(leaf.loopback)
        for descriptor in (*self._peer_port.descriptors(), self._questions.fileno()):
            self.listen(descriptor)
        self._vrf_kernels = {
            kernel.fileno(): kernel for namespace, kernel in kernels.items() if namespace != leaf.namespace
        }
        for descriptor in self._vrf_kernels:
            self.listen(descriptor)
        self._tables = {bridge.ifindex: BridgeTables(bridge, kernels[bridge.namespace]) for bridge in leaf.bridges}
        self._table_of_port = {
            group.member.ifindex: self._tables[bridge.ifindex] for bridge in leaf.bridges for group in bridge.groups
        }
        self._programs = LagPrograms()
        self._put_programs()
        self._uplinks: dict[int, bool] = {}
        self._routes = 0
        self._routed_since = _NEVER
        """Since when BGP has brought a route."""
        self._vrfs_whole = False
        self._vrfs_changed = True
        self._serving: bool | None = None
        """True while the gateways are up and the VTEP is there; None: not set yet."""
        for kernel in kernels.values():
            for change in kernel.everything():
                self._take(change, 0.0)

    def _put_programs(self) -> None:
        leaf, programs = self._leaf, self._programs
        programs.fix(leaf.peer_ifindex)
        for tables in self._tables.values():
            bridge, kernel = tables.bridge, tables.kernel
            programs.mark_peer(bridge.peer_port)
            kept = [group.member.ifindex for group in bridge.groups]
            if bridge.vlan:
                programs.add_trunk(bridge.tail, bridge.vlan)
                self.kernel.put_programs(bridge.tail, {CLSACT_INGRESS: programs.named("to_trunk")})
                kept.append(bridge.vxlan)
            for ifindex in kept:
                kernel.put_programs(ifindex, {CLSACT_EGRESS: programs.named("split_horizon")})
        if leaf.vtep:
            trunk = {CLSACT_INGRESS: programs.named("from_trunk"), CLSACT_EGRESS: programs.named("trunk_only")}
            self.kernel.put_programs(leaf.peer_ifindex, trunk)

    # ------------------------------------------------------------------ what happens

    def arrived(self, ifindex: int, payload: bytes, now: float) -> None:
        if (pdu := decode_lacpdu(payload)) is not None:
            self._aggregators[self._group_of[ifindex]].received(self._names[ifindex], pdu, now)

    def readable(self, descriptor: int, now: float) -> None:
        if (kernel := self._vrf_kernels.get(descriptor)) is not None:
            self._vrfs_changed = True
            for change in kernel.changes():
                if not isinstance(change, RoutesChange):
                    self._take(change, now)
            return
        if descriptor == self._questions.fileno():
            with contextlib.suppress(BlockingIOError):
                while True:
                    data, (address, _) = self._questions.recvfrom(_LONGEST)
                    if address == self._leaf.peer_loopback:
                        self._hear(data, now, over_fabric=True)
            return
        for payload in self._peer_port.received(self._leaf.peer_ifindex):
            self._hear(payload, now, over_fabric=False)

    def _hear(self, data: bytes, now: float, *, over_fabric: bool) -> None:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):  # signed by the peer, but no message
            self._pair.received(data, now, over_fabric=over_fabric)

    def changed(self, now: float) -> None:
        for change in self.kernel.changes():
            self._take(change, now)

    def _take(self, change: object, now: float) -> None:
        if isinstance(change, CarrierChange) and change.ifindex not in self._leaf.uplinks:
            for tables in self._tables.values():
                tables.flushed()  # the kernel forgets what is behind a port that goes down
        match change:
            case CarrierChange(ifindex, up) if ifindex in self._group_of:
                self._aggregators[self._group_of[ifindex]].carrier(self._names[ifindex], up, now)
            case CarrierChange(ifindex, up) if ifindex == self._leaf.peer_ifindex:
                self._pair.peer_link(up, now)
            case CarrierChange(ifindex, up) if ifindex in self._leaf.uplinks:
                self._uplinks[ifindex] = up
                self._count_routes(now)  # nothing is told of the IPv4 routes that go with a link
            case RoutesChange():
                self._count_routes(now)
            case StationChange(ifindex, mac, known) if ifindex in self._group_of:
                tables = self._table_of_port[ifindex]
                if known:
                    tables.learned(mac, ifindex)
                    self._pair.heard_station(tables.key(mac), self._group_of[ifindex], now)
                elif tables.unlearned(mac, ifindex):
                    self._pair.heard_station(tables.key(mac), None, now)
            case NeighbourChange(ifindex, address, mac) if ifindex in self._tables:
                tables = self._tables[ifindex]
                tables.heard_neighbour(address)
                self._pair.heard_neighbour(tables.key(address), mac, now)

    def _count_routes(self, now: float) -> None:
        prefixes = self.kernel.bgp_prefixes()
        self._routes = len(prefixes)
        if (int(IPv4Address(self._leaf.peer_loopback)), _HOST_LENGTH) not in prefixes:
            self._pair.lost_over_fabric()
        self._routed_since = min(self._routed_since, now) if self._routes else _NEVER

    # ------------------------------------------------------------------ what follows

    def act(self, now: float) -> float:
        pair = self._pair
        for aggregator in self._aggregators.values():
            aggregator.time_out(now)
        pair.time_out(now)
        pair.fabric(self._reaches_fabric(now), now)
        left = bool(pair.leaving(now))
        for group, aggregator in self._aggregators.items():
            aggregator.hold([self._names[self._port_of[group]]] if left else [])
        pair.in_sync([group for group, aggregator in self._aggregators.items() if aggregator.heard], now)
        self._set_bridge(now)
        for group, aggregator in self._aggregators.items():
            for _, pdu in aggregator.pdus(now):
                self.ports.send(self._port_of[group], pdu)
        over_link, over_fabric = pair.messages(now)
        for data in over_link:
            self._peer_port.send(self._leaf.peer_ifindex, data)
        for data in over_fabric:
            with contextlib.suppress(OSError):  # no route to the peer
                self._questions.sendto(data, (self._leaf.peer_loopback, QUESTION_PORT))
        restored = self._routed_since + RESTORED_AFTER_S
        return min(
            [
                pair.next_due(),
                restored if restored > now else _NEVER,
                *(aggregator.next_due() for aggregator in self._aggregators.values()),
            ]
        )

    def _reaches_fabric(self, now: float) -> bool:
        """Tell whether traffic of hosts gets into the fabric. A leaf that comes back waits until it has its routes."""
        if not self._leaf.uplinks:
            return True
        if not self._routes or not any(self._uplinks.values()):
            return False
        if self._pair.reaches_fabric or now >= self._routed_since + RESTORED_AFTER_S:
            return True
        return self._routes >= self._leaf.routes and self._vrfs_are_whole()

    def _vrfs_are_whole(self) -> bool:
        """Tell whether EVPN has brought each VRF all that it has in a whole network."""
        if self._vrfs_changed:
            self._vrfs_changed = False
            wanted = {tables.kernel: tables.bridge.entries for tables in self._tables.values() if tables.bridge.vlan}
            self._vrfs_whole = all(kernel.count_evpn_entries() >= entries for kernel, entries in wanted.items())
        return self._vrfs_whole

    def _set_bridge(self, now: float) -> None:
        pair, leaf = self._pair, self._leaf
        vxlans = {bridge.vxlan for bridge in leaf.bridges if bridge.vlan}
        self._programs.list_ports({self._port_of[group] for group in pair.blocked(now)} | vxlans)
        if (serving := not pair.split_brain(now)) != self._serving:
            self._serve(serving)
        if not serving:
            return
        detoured = pair.detoured(now)
        stations, neighbours = _by_vlan(pair.stations()), _by_vlan(pair.neighbours())
        for tables in self._tables.values():
            vlan = str(tables.bridge.vlan)
            tables.set_stations(
                {
                    mac: tables.bridge.peer_port if group in detoured else self._port_of[group]
                    for mac, group in stations.get(vlan, {}).items()
                    if self._table_of_port[self._port_of[group]] is tables
                }
            )
            tables.set_neighbours(neighbours.get(vlan, {}))

    def _serve(self, serving: bool) -> None:
        """Take the gateways of the pair's own subnet, and the VTEP, down or up again."""
        for tables in self._tables.values():
            if not tables.bridge.vlan and self._serving is not None:
                tables.kernel.set_link(tables.bridge.ifindex, serving)
                tables.taken_down()
        if self._leaf.vtep:
            self.kernel.set_address(_LOOPBACK_IFINDEX, IPv4Address(self._leaf.vtep), there=serving)
        self._serving = serving

    def status(self, now: float) -> LagNodeStatus:
        groups = tuple(
            GroupStatus(name=group, members=tuple(aggregator.status()))
            for group, aggregator in self._aggregators.items()
        )
        return LagNodeStatus(node=self.node, groups=groups, pair=self._pair.status(now))


def _open(leaf: PairedLeaf) -> tuple[dict[str, Kernel], GroupPorts]:
    """The kernels of the network namespaces of a leaf and its VRFs, by their names, and the ports in them.

    The process is in the leaf's own afterwards.
    """
    kernels: dict[str, Kernel] = {}
    ports = GroupPorts.slow_protocols({})
    for namespace in dict.fromkeys((*(bridge.namespace for bridge in leaf.bridges), leaf.namespace)):
        enter_namespace(namespace)
        kernels[namespace] = Kernel(bridging=True)
        groups = [group for bridge in leaf.bridges if bridge.namespace == namespace for group in bridge.groups]
        ports.take(GroupPorts.slow_protocols({group.member.ifindex: group.member.name for group in groups}))
    enter_namespace(leaf.namespace)
    return kernels, ports


def _by_vlan(table: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """A table of a pair for each bridge, which is called by its VLAN (`BridgeTables.key`)."""
    found: dict[str, dict[str, str]] = {}
    for key, value in table.items():
        vlan, _, of = key.partition("/")
        found.setdefault(vlan, {})[of] = value
    return found


def _question_socket(loopback: str) -> socket.socket:
    """A UDP socket on a leaf's loopback."""
    item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    item.bind((loopback, QUESTION_PORT))
    return item
