"""`plan_lab`: a resolved lab becomes numbers and a list of operations. Pure and deterministic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from testbed.errors import PlanError
from testbed.model import BACKEND, DelayBy, End, Lab, Link, LinkKind, Node, NodeKind, Protocol, RailSubnet, Role
from testbed.plan.addressing import (
    Net,
    check_overlap,
    guest_addresses,
    host_address,
    leaf_network,
    loopback_addresses,
    network_loopbacks,
    rail_aggregate,
    rail_network,
    routed_networks,
)
from testbed.plan.asn import as_numbers, cluster_id, network_as_numbers
from testbed.plan.guards import guard_switches
from testbed.plan.hosts import MAX_NICS, host_routes
from testbed.plan.interfaces import (
    FIRST_BRIDGE,
    LOOPBACK_IFINDEX,
    MAX_SLOTS,
    bridge_name,
    check_unique_names,
    interface_indexes,
    mac_addresses,
    natural_key,
)
from testbed.plan.link_delays import check_losses, mechanism
from testbed.plan.operations import (
    PLAIN_QUEUE_PACKETS,
    AddAddress,
    AddRoute,
    AddRule,
    CreateBridge,
    CreateNode,
    CreateVeth,
    ExpectedRoute,
    HostPlan,
    LabPlan,
    Neighbor,
    Operation,
    PortPlan,
    SetSysctl,
    SetUp,
    StartContainer,
    StartRouting,
    SwitchPlan,
    VethEnd,
)
from testbed.plan.overlay.planner import OverlayPlanner, overlay_macs
from testbed.plan.qos import DEFAULT_REACTION_NS, QUEUE_PACKETS, QueuePlanner
from testbed.plan.rdma import rdma_devices
from testbed.plan.routes import PlannedSession, Speaker, expect_routes
from testbed.plan.stable import SLOTS, stable_hash
from testbed.plan.sysctls import failover_sysctls, host_sysctls, open_ipv6, switch_sysctls

_NO_ADDRESS: tuple[None, None] = (None, None)
TIERS = {Role.RAIL: 0, Role.LEAF: 0, Role.SPINE: 1, Role.SUPER_SPINE: 2}


def plan_lab(
    lab: Lab,
    *,
    slot: int = 0,
    k: float,
    auto_delay: DelayBy = DelayBy.ENDPOINT,
    reaction_ns: int = DEFAULT_REACTION_NS,
) -> LabPlan:
    """Decide every number of `lab` for time scale `k` and one slot (0..511) of the machine.

    `auto_delay` is what `delay: {by: auto}` means there (`testbed.plan.link_delays.decide_delay`).

    `reaction_ns` is the reaction to a pause, in lab time, that headroom is computed from.

    Raises `PlanError` where the lab does not fit the address space, the AS numbers, the names or the buffers.
    """
    if not 0 <= slot < SLOTS:
        raise PlanError(f"a slot is 0..{SLOTS - 1}, not {slot}", code="slot")
    if not k > 0:
        raise PlanError(f"the time scale must be positive, not {k}", field="scale.time", code="scale")
    check_losses(lab)
    return _Planner(lab, slot, k, auto_delay, reaction_ns).plan()


def check_addresses(lab: Lab) -> None:
    """Raise `PlanError` where the lab's addresses, names or AS numbers do not fit, whatever the time scale."""
    _Planner(
        replace(lab, qos=None, networks=tuple(replace(each, qos=None) for each in lab.networks)),
        0,
        1,
        DelayBy.ENDPOINT,
        DEFAULT_REACTION_NS,
    )


@dataclass(slots=True)
class _Rail:
    """A rail on a switch that has ports: its subnet, and the bridge if it has more than one of them."""

    subnet: RailSubnet
    net: Net
    network: IPv4Network
    gateway: IPv4Address
    links: list[Link]
    bridge_ifindex: int = 0


class _Planner:
    """The tables a plan is made from. Each is filled once, in the order of `__init__`."""

    def __init__(self, lab: Lab, slot: int, k: float, auto_delay: DelayBy, reaction_ns: int) -> None:
        self.lab = lab
        self.slot = slot
        self.k = k
        self.auto_delay = auto_delay
        self.nodes: dict[str, Node] = {node.name: node for node in lab.nodes}
        if len(self.nodes) != len(lab.nodes):
            raise PlanError("two nodes have the same name", field="topology.nodes", code="duplicate-node")
        self.by_kind: dict[LinkKind, list[Link]] = {kind: [] for kind in LinkKind}
        for link in lab.links:
            self.by_kind[link.kind].append(link)
        self.networks_beside = {network.name: network for network in lab.networks}
        self.views = {name: lab.of_network(name) for name in (BACKEND, *self.networks_beside)}
        self.rails = self._rails()
        self.indexes = self._indexes()
        self.addresses: dict[tuple[str, str], tuple[IPv4Interface, IPv4Address | None]] = {}
        self.networks: dict[str, list[IPv4Network]] = defaultdict(list)
        self.loopbacks = loopback_addresses(self.views[BACKEND].switches)
        self.asns = as_numbers(self.views[BACKEND].switches, protocol=lab.routing.protocol, slot=slot)
        for network in lab.networks:
            switches = self.views[network.name].switches
            self.loopbacks |= network_loopbacks(network, switches)
            self.asns |= network_as_numbers(network, switches, slot=slot)
        self._address_rails()
        self._address_routed()
        ports = [key for names in self.indexes.items() for key in _pairs(names)]
        self.macs = mac_addresses([*ports, *overlay_macs(lab)], slot)
        self.overlay = OverlayPlanner(lab, self.loopbacks, self.macs)
        self.addresses = self.overlay.with_addresses(self.addresses)
        self._rates: dict[int, int] = {}
        self.queues = QueuePlanner(self.views, k, reaction_ns)

    # ------------------------------------------------------------------ tables

    def _node(self, end: End) -> Node:
        node = self.nodes.get(end.node)
        if node is None:
            raise PlanError(f"a link names {end}, but there is no node {end.node}", field="links", code="unknown-node")
        return node

    def _rails(self) -> dict[tuple[str, int], _Rail]:
        """The rails that have ports, by switch and rail. A rail nobody is on needs no address."""
        links: dict[tuple[str, int], list[Link]] = defaultdict(list)
        for link in self.by_kind[LinkKind.ACCESS]:
            links[link.b.node, link.rail].append(link)
        rails: dict[tuple[str, int], _Rail] = {}
        for subnet in self.lab.rail_subnets:
            ports = links.pop((subnet.switch, subnet.rail), None)
            if ports is None:
                continue
            node = self.nodes.get(subnet.switch)
            if node is None or node.place is None:
                raise PlanError(f"{subnet.switch} has rails, but no place in the fabric", code="place")
            network = self.networks_beside.get(node.network)
            net = rail_network(node.place, subnet) if network is None else leaf_network(network, node.place, subnet)
            rails[subnet.switch, subnet.rail] = _Rail(subnet, net, net.network(), IPv4Address(net.first), ports)
        if links:
            (switch, rail), ports = next(iter(links.items()))
            raise PlanError(f"{ports[0].a} is on rail {rail} of {switch}, which has no subnet", code="rail")
        return rails

    def _indexes(self) -> dict[str, dict[str, int]]:
        """Interface indexes by node and name, bridges included."""
        names: dict[str, list[str]] = {name: [] for name in self.nodes}
        for link in self.lab.links:
            self._node(link.a)
            self._node(link.b)
            names[link.a.node].append(link.a.interface)
            names[link.b.node].append(link.b.interface)
        indexes = {node: interface_indexes(ports, node) for node, ports in names.items()}
        for (switch, rail), entry in self.rails.items():
            if len(entry.links) == 1:
                continue  # a rail with a single port is routed directly
            if entry.subnet.slot >= MAX_SLOTS:
                raise PlanError(f"{switch}: at most {MAX_SLOTS} rails on a switch", field="fabric.rails", code="rail")
            entry.bridge_ifindex = FIRST_BRIDGE + entry.subnet.slot
            names[switch].append(bridge_name(rail))
            indexes[switch][bridge_name(rail)] = entry.bridge_ifindex
        for node, ports in names.items():
            check_unique_names(node, ports)
        return indexes

    def _address_rails(self) -> None:
        nets: list[Net] = []
        for (switch, _), rail in self.rails.items():
            nets.append(rail.net)
            self.networks[switch].append(rail.network)
            taken: dict[int, str] = {}
            guests: dict[str, End] = {}
            addresses: dict[End, int] = {}
            for link in rail.links:
                node = self._node(link.a)
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
            for end, address in addresses.items():
                self.addresses[end.node, end.interface] = (IPv4Interface((address, rail.net.length)), rail.gateway)
            if not rail.bridge_ifindex:
                port = rail.links[0].b
                self.addresses[port.node, port.interface] = (IPv4Interface((rail.net.first, rail.net.length)), None)
        check_overlap(nets)

    def _address_routed(self) -> None:
        links = self.by_kind[LinkKind.ROUTED]
        if not links:
            return
        kinds = {name: node.kind for name, node in self.nodes.items()}
        nets = [rail.net for rail in self.rails.values()]
        nets += [Net(address, 32, f"loopback of {name}") for name, address in self.loopbacks.items()]
        for link, net in zip(links, routed_networks(links, kinds), strict=True):
            nets.append(net.net)
            network = net.net.network()
            for end, address, other, other_address in (
                (link.a, net.a, link.b, net.b),
                (link.b, net.b, link.a, net.a),
            ):
                switch = kinds[end.node] is NodeKind.SWITCH
                if switch:
                    self.networks[end.node].append(network)
                gateway = IPv4Address(other_address) if not switch and kinds[other.node] is NodeKind.SWITCH else None
                self.addresses[end.node, end.interface] = (IPv4Interface((address, net.net.length)), gateway)
        check_overlap(nets)

    # ------------------------------------------------------------------ plan

    def plan(self) -> LabPlan:
        ports = [
            self._port(link, end, peer) for link in self.lab.links for end, peer in ((link.a, link.b), (link.b, link.a))
        ]
        ports_of: dict[str, list[PortPlan]] = {name: [] for name in self.nodes}
        for port in ports:
            ports_of[port.node].append(port)
        hosts = tuple(HostPlan(node=node.name, nics=self._nics(ports_of[node.name])) for node in self.lab.hosts)
        switches, expected = self._switches()
        return LabPlan(
            lab=self.lab.name,
            slot=self.slot,
            k=self.k,
            operations=tuple(self._operations(ports, hosts, switches)),
            ports=tuple(ports),
            switches=switches,
            hosts=hosts,
            expected_routes=expected,
            overlay=self.overlay.plan(expected, self.indexes),
            qos=self.queues.plans.get(BACKEND),
            qos_beside={name: plan for name, plan in self.queues.plans.items() if name != BACKEND},
            tables=self.queues.tables,
        )

    def _port(self, link: Link, end: End, peer: End) -> PortPlan:
        node, name = end.node, end.interface
        address, gateway = self.addresses.get((node, name), _NO_ADDRESS)
        delay = link.delay
        delay_by = mechanism(delay, self.auto_delay)
        if delay_by is DelayBy.IGNORE:
            delay = None
        return PortPlan(
            node=node,
            name=name,
            ifindex=self.indexes[node][name],
            mac=self.macs[node, name],
            mtu_bytes=link.mtu_bytes,
            peer=str(peer),
            rate_bps=self._rate_bps(link),
            line_rate_bps=link.rate.bps,
            delay_ns=0 if delay is None else delay.value.scaled(self.k).ns,
            jitter_ns=0 if delay is None else delay.jitter.scaled(self.k).ns,
            delay_by=delay_by,
            loss=link.loss,
            address=address,
            gateway=gateway,
            rail=link.rail,
            network=link.network,
            tenant=self.overlay.tenant_of(end),
            vrf=self.overlay.vrf_of(end),
        )

    def _rate_bps(self, link: Link) -> int:
        """The link's rate in lab time."""
        rate_bps = self._rates.get(link.rate.bps)
        if rate_bps is None:
            rate_bps = self._rates[link.rate.bps] = link.rate.scaled(self.k).bps
        return rate_bps

    def _nics(self, ports: Sequence[PortPlan]) -> tuple[PortPlan, ...]:
        """A host's ports by network, in rail order, those outside of a rail last."""
        if len(ports) > MAX_NICS:
            raise PlanError(f"{ports[0].node}: at most {MAX_NICS} NIC ports on a host", code="host")
        order = {name: number for number, name in enumerate(self.views)}
        return tuple(
            sorted(ports, key=lambda port: (order[port.network], port.rail or 1 << 30, natural_key(port.name)))
        )

    # ------------------------------------------------------------------ routing

    def _switches(self) -> tuple[tuple[SwitchPlan, ...], dict[str, tuple[ExpectedRoute, ...]]]:
        plans: list[SwitchPlan] = []
        expected: dict[str, tuple[ExpectedRoute, ...]] = {}
        for name, view in self.views.items():
            more, routes = self._switches_of(name, view)
            plans += more
            expected |= routes
        return tuple(plans), expected

    def _switches_of(self, network: str, view: Lab) -> tuple[list[SwitchPlan], dict[str, tuple[ExpectedRoute, ...]]]:
        """The switches of one network and the routes that BGP brings them."""
        routing = view.routing
        ibgp = routing.protocol is Protocol.IBGP
        neighbors, sessions = self._sessions(view, ibgp)
        plans: list[SwitchPlan] = []
        speakers: list[Speaker] = []
        for node in view.switches:
            loopback = IPv4Interface((self.loopbacks[node.name], 32))
            role = node.role or Role.RAIL
            mine = sorted(neighbors[node.name], key=lambda neighbor: natural_key(neighbor.interface))
            cluster = cluster_id(node) if ibgp else None
            networks = sorted([loopback.network, *self.networks[node.name]])
            aggregates = self._aggregates(node, view)
            announced = [net for net in networks if not any(net.subnet_of(whole) for whole in aggregates)]
            plans.append(
                SwitchPlan(
                    node=node.name,
                    role=role,
                    asn=self.asns[node.name],
                    router_id=loopback.ip,
                    loopback=loopback,
                    neighbors=tuple(mine),
                    networks=tuple(networks),
                    aggregates=aggregates,
                    protocol=routing.protocol,
                    ecmp=routing.ecmp,
                    bfd=routing.bfd,
                    cluster_id=cluster,
                    reflector_client_interfaces=tuple(
                        neighbor.interface for neighbor in mine if TIERS[neighbor.remote_role] < TIERS[role]
                    )
                    if cluster is not None
                    else (),
                    network=network,
                    evpn=self.overlay.evpn(node.name),
                )
            )
            group = self.asns[node.name] if not ibgp else int(cluster) if cluster is not None else None
            speakers.append(Speaker(node.name, int(loopback.ip), group, (*announced, *aggregates), aggregates))
        expected, pinned = expect_routes(speakers, sessions, ecmp=routing.ecmp, reflection=ibgp)
        return (
            [replace(plan, compare_router_id=True) if plan.node in pinned else plan for plan in plans],
            expected,
        )

    def _sessions(self, view: Lab, ibgp: bool) -> tuple[Mapping[str, list[Neighbor]], list[PlannedSession]]:
        """The BGP neighbours of every switch of a network and both directions of every session."""
        neighbors: dict[str, list[Neighbor]] = defaultdict(list)
        sessions: list[PlannedSession] = []
        for link in view.links:
            if link.kind is not LinkKind.FABRIC:
                continue
            a, b = self._node(link.a), self._node(link.b)
            if a.kind is not NodeKind.SWITCH or b.kind is not NodeKind.SWITCH:
                raise PlanError(f"{link.a} to {link.b} is a fabric link, but not between switches", code="link")
            if not ibgp and self.asns[a.name] == self.asns[b.name]:
                raise PlanError(
                    f"{link.a} to {link.b} joins two switches of AS {self.asns[a.name]}: no eBGP session is possible",
                    field=f"topology.nodes.{a.name}.asn",
                    code="same-asn",
                    hint="switches of one tier and pod share an AS: give one an `asn` of its own, or another role",
                )
            for end, node, other, remote in ((link.a, a, link.b, b), (link.b, b, link.a, a)):
                role, remote_role = node.role or Role.RAIL, remote.role or Role.RAIL
                neighbors[node.name].append(
                    Neighbor(
                        interface=end.interface,
                        remote=remote.name,
                        remote_role=remote_role,
                        remote_asn=self.asns[remote.name],
                        remote_interface=other.interface,
                    )
                )
                sessions.append(
                    PlannedSession(
                        sender=node.name,
                        receiver=remote.name,
                        interface=other.interface,
                        sender_mac=self.macs[end.node, end.interface],
                        to_client=TIERS[remote_role] < TIERS[role],
                        from_client=TIERS[role] < TIERS[remote_role],
                    )
                )
        return neighbors, sessions

    def _aggregates(self, node: Node, view: Lab) -> tuple[IPv4Network, ...]:
        if not view.routing.aggregate or node.place is None:
            return ()
        lengths = {rail.subnet.aggregate_length for (switch, _), rail in self.rails.items() if switch == node.name}
        return tuple(rail_aggregate(node.place, node.name, length).network() for length in sorted(lengths))

    # ------------------------------------------------------------------ operations

    def _operations(
        self, ports: Sequence[PortPlan], hosts: Sequence[HostPlan], switches: Sequence[SwitchPlan]
    ) -> list[Operation]:
        rails_on: dict[str, int] = defaultdict(int)
        for switch, _ in self.rails:
            rails_on[switch] += 1
        operations: list[Operation] = [
            CreateNode(node=node.name, cpu_slot=_cpu_slot(node)) for node in self.lab.nodes if node.container is None
        ]
        operations += [
            StartContainer(
                node=node.name,
                kind=node.kind,
                cpu_slot=_cpu_slot(node),
                container=node.container,
                env=tuple(node.env.items()),
            )
            for node in self.lab.nodes
            if node.container is not None
        ]
        operations += self.overlay.creations({node.name: _cpu_slot(node) for node in self.lab.switches})
        opening: list[SetSysctl] = []
        for node in self.lab.nodes:
            if node.kind is NodeKind.HOST:
                operations += host_sysctls(node.name)
            else:
                view = self.views[node.network]
                isolated = view.isolated_rails and rails_on[node.name] > 1
                balancing = None if view.qos is None else view.qos.of(node.name).load_balancing
                operations += switch_sysctls(node.name, forward=not isolated, balancing=balancing)
                opening.append(open_ipv6(node.name))
        bridges = [self._bridge(rail) for rail in self.rails.values() if rail.bridge_ifindex]
        operations += bridges
        operations += self.overlay.before_links()
        for kind in (LinkKind.ACCESS, LinkKind.TENANT, LinkKind.ROUTED):
            operations += [self._veth(link) for link in self.by_kind[kind]]
        operations += opening
        operations += [item for host in hosts for item in failover_sysctls(host.nics)]
        operations += [self._veth(link) for link in self.by_kind[LinkKind.FABRIC]]
        operations += self.overlay.placed(self.queues.operations(ports))
        operations += guard_switches(self.lab, ports, operations, switches)
        operations += [SetUp(node=bridge.node, name=bridge.name, ifindex=bridge.ifindex) for bridge in bridges]
        operations += [SetUp(node=port.node, name=port.name, ifindex=port.ifindex, vrf=port.vrf) for port in ports]
        operations += self.overlay.after_links()
        operations += [SetUp(node=node.name, name="lo", ifindex=LOOPBACK_IFINDEX) for node in self.lab.nodes]
        operations += self._addressing(ports, switches)
        routes: list[AddRoute] = []
        rules: list[AddRule] = []
        for host in hosts:
            more_routes, more_rules = host_routes(host.nics, isolated=self.lab.isolated_rails, beside=self.lab.networks)
            routes += [*more_routes, *self.overlay.host_routes(host.nics)]
            rules += more_rules
        operations += routes
        operations += rules
        operations += rdma_devices(self.lab, hosts)
        operations += [
            StartRouting(
                node=switch.node,
                daemons=("zebra", "bgpd", "bfdd") if switch.bfd is not None and switch.neighbors else ("zebra", "bgpd"),
            )
            for switch in switches
        ]
        return operations

    def _bridge(self, rail: _Rail) -> CreateBridge:
        switch, name = rail.subnet.switch, bridge_name(rail.subnet.rail)
        return CreateBridge(
            node=switch,
            name=name,
            ifindex=rail.bridge_ifindex,
            mac=self.macs[switch, name],
            mtu_bytes=min(link.mtu_bytes for link in rail.links),
        )

    def _veth(self, link: Link) -> CreateVeth:
        master = self.rails[link.b.node, link.rail].bridge_ifindex if link.kind is LinkKind.ACCESS else 0
        fabric = link.kind is LinkKind.FABRIC
        if link.kind is LinkKind.TENANT:
            master = self.overlay.master(link.b)
        return CreateVeth(
            a=self._veth_end(link.a, 0, fabric),
            b=self._veth_end(link.b, master, fabric),
            mtu_bytes=link.mtu_bytes,
            queue_packets=QUEUE_PACKETS if self.views[link.network].qos is not None else PLAIN_QUEUE_PACKETS,
        )

    def _veth_end(self, end: End, master: int, ipv6: bool) -> VethEnd:
        return VethEnd(
            node=self.overlay.vrf_of(end) or end.node,
            name=end.interface,
            ifindex=self.indexes[end.node][end.interface],
            mac=self.macs[end.node, end.interface],
            master=master,
            ipv6=ipv6,
        )

    def _addressing(self, ports: Sequence[PortPlan], switches: Sequence[SwitchPlan]) -> list[Operation]:
        operations: list[Operation] = [
            AddAddress(node=switch.node, name="lo", ifindex=LOOPBACK_IFINDEX, address=switch.loopback)
            for switch in switches
        ]
        operations += [
            AddAddress(
                node=rail.subnet.switch,
                name=bridge_name(rail.subnet.rail),
                ifindex=rail.bridge_ifindex,
                address=IPv4Interface((rail.net.first, rail.net.length)),
            )
            for rail in self.rails.values()
            if rail.bridge_ifindex
        ]
        operations += [
            AddAddress(node=port.node, name=port.name, ifindex=port.ifindex, address=port.address)
            for port in ports
            if port.address is not None
        ]
        return operations


def _pairs(entry: tuple[str, Mapping[str, int]]) -> list[tuple[str, str]]:
    node, names = entry
    return [(node, name) for name in names]


def _cpu_slot(node: Node) -> int:
    """Neighbours by number land on different CPUs; what has no number is hashed."""
    if node.place is None:
        return stable_hash(f"cpu {node.name}", 16)
    return node.place.pod + node.place.segment + node.place.index + node.place.plane
