"""A leaf of a pair that is one LACP partner: its link groups, what it tells its peer, and what its bridge does."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

from testbed.base.datapath.lag import LagPrograms
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.traffic_control import CLSACT_EGRESS, CLSACT_INGRESS
from testbed.daemons.lag.bridge import BridgeTables
from testbed.daemons.lag.configuration import LeafGroup, NodeConfiguration, PairedBridge, PairedLeaf
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
_ON_PEER_LINK = {CLSACT_INGRESS: "from_trunk", CLSACT_EGRESS: "trunk_only"}


class LeafNode(GroupNode):
    """Each host's group has one port here, and one at the peer, which has the same system and key."""

    def __init__(self, leaf: PairedLeaf, directory: Path) -> None:
        """Raises `CapabilityError`, `DriverError`, `OSError`."""
        super().__init__(leaf.node, directory, Kernel(bridging=True), GroupPorts.slow_protocols({}))
        self._leaf = replace(leaf, bridges=())
        self._kernels = {leaf.namespace: self.kernel}
        """The kernels of the leaf's own network namespace and of its VRFs, by the namespace."""
        self._vrf_kernels: dict[int, Kernel] = {}
        self._group_of: dict[int, str] = {}
        self._port_of: dict[str, int] = {}
        self._aggregators: dict[str, Aggregator] = {}
        self._names: dict[int, str] = {}
        self._pair = Pair(
            name=leaf.node,
            peer=leaf.peer,
            primary=leaf.primary,
            groups=[],
            secret=bytes.fromhex(leaf.secret),
        )
        self._peer_port = GroupPorts.peer(leaf.peer_ifindex, leaf.peer_interface)
        self._questions = _question_socket(leaf.loopback)
        for descriptor in (*self._peer_port.descriptors(), self._questions.fileno()):
            self.listen(descriptor)
        self._tables: dict[int, BridgeTables] = {}
        self._table_of_port: dict[int, BridgeTables] = {}
        self._programs = LagPrograms()
        self._programs.fix(leaf.peer_ifindex)
        if leaf.vtep:
            trunk = {way: self._programs.named(name) for way, name in _ON_PEER_LINK.items()}
            self.kernel.put_programs(leaf.peer_ifindex, trunk)
        self._uplinks: dict[int, bool] = {}
        self._routes = 0
        self._routed_since = _NEVER
        """Since when BGP has brought a route."""
        self._vrfs_whole = False
        self._vrfs_changed = True
        self._serving: bool | None = None
        """True while the gateways are up and the VTEP is there; None: not set yet."""
        self.become(leaf, 0.0)

    # ------------------------------------------------------------------ what it serves

    def become(self, configuration: NodeConfiguration, now: float) -> None:
        """Serve other groups and bridges, and wait for other routes; all of the pair itself is as it was."""
        before, leaf = self._leaf, configuration
        if not isinstance(leaf, PairedLeaf) or leaf.pair != before.pair:
            raise ValueError(f"{before.node} is of another pair")
        self._leaf = leaf
        bridges = {bridge.ifindex: bridge for bridge in leaf.bridges}
        groups = {group.name: (group, bridge) for bridge in leaf.bridges for group in bridge.groups}
        for bridge in before.bridges:
            for group in bridge.groups:
                wanted, place = groups.get(group.name, (None, bridge))
                if (wanted, place.ifindex) != (group, bridge.ifindex):
                    self._drop_group(group, now)  # gone, or its port is made anew in another bridge
        for bridge in before.bridges:
            if bridge.ifindex not in bridges:
                self._drop_bridge(bridge)
        for bridge in leaf.bridges:
            if (tables := self._tables.get(bridge.ifindex)) is None:
                self._add_bridge(bridge)
            else:
                tables.bridge = bridge
        for group, bridge in groups.values():
            if group.name not in self._aggregators:
                self._add_group(group, self._tables[bridge.ifindex])
        self._pair.serve(list(self._aggregators), now)
        self._vrfs_changed = True
        for kernel in self._kernels.values():
            for change in kernel.everything():
                self._take(kernel, change, now)

    def _add_bridge(self, bridge: PairedBridge) -> None:
        kernel, programs = self._kernel_of(bridge.namespace), self._programs
        self._tables[bridge.ifindex] = BridgeTables(bridge, kernel)
        programs.mark_peer(bridge.peer_port)
        if bridge.vlan:
            programs.add_trunk(bridge.tail, bridge.vlan)
            self.kernel.put_programs(bridge.tail, {CLSACT_INGRESS: programs.named("to_trunk")})
            kernel.put_programs(bridge.vxlan, {CLSACT_EGRESS: programs.named("split_horizon")})

    def _drop_bridge(self, bridge: PairedBridge) -> None:
        """Know nothing of a bridge any more, which may be gone already."""
        del self._tables[bridge.ifindex]
        self._programs.forget(bridge.peer_port, tail=bridge.tail, vlan=bridge.vlan)
        if bridge.vlan:
            self._programs.forget(bridge.vxlan)
        if not any(tables.bridge.namespace == bridge.namespace for tables in self._tables.values()):
            kernel = self._kernels.pop(bridge.namespace)
            del self._vrf_kernels[kernel.fileno()]
            kernel.close()

    def _kernel_of(self, namespace: str) -> Kernel:
        """The kernel of a network namespace, which is heard from now on."""
        if (kernel := self._kernels.get(namespace)) is None:
            with self._inside(namespace):
                kernel = self._kernels[namespace] = Kernel(bridging=True)
            self._vrf_kernels[kernel.fileno()] = kernel
            self.listen(kernel.fileno())
        return kernel

    def _add_group(self, group: LeafGroup, tables: BridgeTables) -> None:
        port = group.member
        with self._inside(tables.bridge.namespace):
            self.add_ports(GroupPorts.slow_protocols({port.ifindex: port.name}))
        tables.kernel.put_programs(port.ifindex, {CLSACT_EGRESS: self._programs.named("split_horizon")})
        self._group_of[port.ifindex], self._port_of[group.name] = group.name, port.ifindex
        self._names[port.ifindex] = port.name
        self._table_of_port[port.ifindex] = tables
        members = {port.name: port.number}
        self._aggregators[group.name] = Aggregator(system=self._leaf.system, key=group.key, members=members)

    def _drop_group(self, group: LeafGroup, now: float) -> None:
        """Know nothing of a host's group any more; its port may be gone already."""
        ifindex = self._port_of.pop(group.name)
        tables = self._table_of_port[ifindex]
        for mac in tables.dropped(ifindex):
            self._pair.heard_station(tables.key(mac), None, now)
        self.drop_port(ifindex)
        self._programs.forget(ifindex)
        for table in (self._group_of, self._names, self._table_of_port):
            del table[ifindex]
        del self._aggregators[group.name]

    @contextlib.contextmanager
    def _inside(self, namespace: str) -> Iterator[None]:
        """Be in another network namespace for a moment."""
        enter_namespace(namespace)
        try:
            yield
        finally:
            enter_namespace(self._leaf.namespace)

    # ------------------------------------------------------------------ what happens

    def arrived(self, ifindex: int, payload: bytes, now: float) -> None:
        if (pdu := decode_lacpdu(payload)) is not None:
            self._aggregators[self._group_of[ifindex]].received(self._names[ifindex], pdu, now)

    def readable(self, descriptor: int, now: float) -> None:
        if (kernel := self._vrf_kernels.get(descriptor)) is not None:
            self._vrfs_changed = True
            for change in kernel.changes():
                if not isinstance(change, RoutesChange):
                    self._take(kernel, change, now)
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
            self._take(self.kernel, change, now)

    def _take(self, kernel: Kernel, change: object, now: float) -> None:
        """Take what a kernel tells of its own network namespace: a port that is made anew in another one keeps its
        index, and the news that it is gone from the old one may be read after those that it is there."""
        if isinstance(change, CarrierChange) and change.ifindex not in self._leaf.uplinks:
            for tables in self._tables.values():
                tables.flushed()  # the kernel forgets what is behind a port that goes down
        if isinstance(change, CarrierChange | StationChange | NeighbourChange):
            owner = self._table_of_port.get(change.ifindex) or self._tables.get(change.ifindex)
            if kernel is not (self.kernel if owner is None else owner.kernel):
                return
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
                if mac:
                    tables.heard_neighbour(address)
                    self._pair.heard_neighbour(tables.key(address), mac, now)
                else:
                    tables.forgot_neighbour(address, now)

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
                *(tables.next_due() for tables in self._tables.values() if self._serving),
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
            tables.set_neighbours(neighbours.get(vlan, {}), now)

    def _serve(self, serving: bool) -> None:
        """Take the gateways of the pair's own subnet, and the VTEP, down or up again; at first as well: a process that
        was killed may have left them either way."""
        for tables in self._tables.values():
            if not tables.bridge.vlan:
                tables.kernel.set_link(tables.bridge.ifindex, serving)
                if self._serving is not None:
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
