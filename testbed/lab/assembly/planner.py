"""The planner of a lab: what the core decides and what features add, in the order in which it is made.

`testbed.lab.core.plan.lab` asks it. Where two features meet in a plan (guards know tenants, leaves that are one LACP
partner are one VTEP), they are handed to each other here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface

from testbed.base.errors import PlanError
from testbed.lab.core.fabric.forwarding.link_bandwidths import link_bandwidths
from testbed.lab.core.model import BACKEND, DelayBy, End, Lab, Link, LinkKind, Node, NodeKind, Protocol, Role
from testbed.lab.core.plan.addressing import Net, check_overlap, loopback_addresses, network_loopbacks, routed_networks
from testbed.lab.core.plan.asn import check_as_numbers, cluster_id, lab_as_numbers, refuse_same_as
from testbed.lab.core.plan.hosts import MAX_NICS, host_routes, rdma_devices
from testbed.lab.core.plan.interfaces import (
    FIRST_BRIDGE,
    LOOPBACK_IFINDEX,
    check_unique_names,
    interface_indexes,
    mac_addresses,
    natural_key,
    same_names,
)
from testbed.lab.core.plan.lab import PlanBasis
from testbed.lab.core.plan.lab_plan import ExpectedRoute, HostPlan, LabPlan, Neighbor, PortPlan, SwitchPlan
from testbed.lab.core.plan.link_delays import mechanism
from testbed.lab.core.plan.operations import (
    PLAIN_QUEUE_PACKETS,
    AddAddress,
    AddRoute,
    AddRule,
    CreateNode,
    CreateVeth,
    Operation,
    SetSysctl,
    SetUp,
    StartContainer,
    StartRouting,
    VethEnd,
)
from testbed.lab.core.plan.qos.path_tables import with_paths
from testbed.lab.core.plan.qos.planner import QUEUE_PACKETS, QueuePlanner
from testbed.lab.core.plan.rails import Rails
from testbed.lab.core.plan.routes import PlannedSession, Speaker, expect_routes
from testbed.lab.core.plan.stable import stable_hash
from testbed.lab.core.plan.sysctls import (
    FABRIC_WITH_IPV6,
    HOMED,
    OPEN_HOMED,
    failover_sysctls,
    host_sysctls,
    settings,
    switch_sysctls,
    tcp_sysctls,
)
from testbed.lab.features.guards.plan import guard_switches
from testbed.lab.features.infiniband.planning import create_plane, plan_infiniband, plane_sysctls
from testbed.lab.features.management.plan.planner import ManagementPlanner
from testbed.lab.features.management.plan.services import monitoring_station, plan_services
from testbed.lab.features.mlag.homing import Homing
from testbed.lab.features.mlag.plan.planner import BRIDGE, BRIDGE_IFINDEX, LinkGroups
from testbed.lab.features.overlay.plan.planner import OverlayPlanner, overlay_macs
from testbed.lab.features.scale_up.plan.domains import (
    DomainPlanner,
    create_switches,
    domain_sysctls,
    set_wires_up,
    wire_veths,
)

_NO_ADDRESS: tuple[None, None] = (None, None)


class LabPlanner:
    """The tables a plan is made from. Each is filled once, in the order of `__init__`."""

    def __init__(self, lab: Lab, basis: PlanBasis) -> None:
        self.lab = lab
        self.slot = slot = basis.slot
        self.k = k = basis.k
        self.auto_delay = basis.auto_delay
        self.nodes: dict[str, Node] = {node.name: node for node in lab.nodes}
        self.by_kind: dict[LinkKind, list[Link]] = {kind: [] for kind in LinkKind}
        for link in lab.links:
            self.by_kind[link.kind].append(link)
        self.networks_beside = {network.name: network for network in lab.networks}
        self.views = {name: lab.on_switches_of(name) for name in lab.switched_networks}
        self.rails = Rails(lab, self.nodes)
        self.link_groups = LinkGroups(lab, self.nodes, basis.auto_lag)
        self.management = ManagementPlanner(lab)
        self.scale_up = DomainPlanner(lab, k)
        self.infiniband = plan_infiniband(lab)
        self.indexes = self._indexes()
        self.addresses = self.rails.addresses() | self.management.addresses
        self.networks = self.rails.networks_by_switch()
        self.loopbacks = loopback_addresses(self.views[BACKEND].switches)
        for name, network in self.networks_beside.items():
            if name in self.views:
                self.loopbacks |= network_loopbacks(network, self.views[name].switches)
        check_as_numbers(lab)
        self.asns = lab_as_numbers(lab)
        self._address_routed()
        ports = [(node, name) for node, names in self.indexes.items() for name in names]
        ports += [*overlay_macs(lab), *self.link_groups.trunk_ends, *self.scale_up.interfaces]
        self.macs = mac_addresses(ports, slot)
        self.domains = self.scale_up.plans(self.macs)
        self.link_groups.share_macs(self.macs)
        self.homing = Homing(lab, self.nodes, self.macs)
        self.addresses |= self.homing.addresses
        self.overlay = OverlayPlanner(lab, self.loopbacks, self.link_groups.vteps, self.macs, basis.auto_vrf)
        self.link_groups.join(lab, self.overlay)
        self.addresses |= self.link_groups.addresses
        self.overlay.externals.check_as_numbers(self.asns)
        self.addresses = self.overlay.with_addresses(self.addresses)
        self.management.join(self.addresses)
        self._rates: dict[int, int] = {}
        self.queues = QueuePlanner(self.views, k, basis.reaction_ns, any_size=basis.any_size)

    # ------------------------------------------------------------------ tables

    def _indexes(self) -> dict[str, dict[str, int]]:
        """Interface indexes by node and name, bridges included."""
        names: dict[str, list[str]] = {name: [] for name in self.nodes}
        ends = [end for link in self.lab.links for end in (link.a, link.b)]
        for end in (*ends, *self.link_groups.aggregates):
            names[end.node].append(end.interface)
        pairs = (((link.a.node, link.a.interface), (link.b.node, link.b.interface)) for link in self.lab.links)
        apart = same_names(pairs)
        indexes = {node: interface_indexes(ports, node, apart.get(node, ())) for node, ports in names.items()}
        for switch, bridge in self.management.bridges.items():
            names[switch].append(bridge)
            indexes[switch][bridge] = FIRST_BRIDGE
        for leaf in self.link_groups.bridges:
            names[leaf].append(BRIDGE)
            indexes[leaf][BRIDGE] = BRIDGE_IFINDEX
        for rail in self.rails.number_bridges():
            names[rail.switch].append(rail.name)
            indexes[rail.switch][rail.name] = rail.bridge_ifindex
        for node, ports in names.items():
            check_unique_names(node, [*ports, *self.scale_up.host_interfaces(node)])
        return indexes

    def _address_routed(self) -> None:
        links = self.by_kind[LinkKind.ROUTED]
        if not links:
            return
        kinds = {name: node.kind for name, node in self.nodes.items()}
        nets = self.rails.nets + self.management.nets
        nets += [Net(address, 32, f"loopback of {name}") for name, address in self.loopbacks.items()]
        for link, net in zip(links, routed_networks(links, kinds), strict=True):
            nets.append(net.net)
            network = net.net.network()
            for end, address, other, other_address in ((link.a, net.a, link.b, net.b), (link.b, net.b, link.a, net.a)):
                switch = kinds[end.node] is NodeKind.SWITCH
                if switch:
                    self.networks[end.node].append(network)
                gateway = IPv4Address(other_address) if not switch and kinds[other.node] is NodeKind.SWITCH else None
                self.addresses[end.node, end.interface] = (IPv4Interface((address, net.net.length)), gateway)
        check_overlap(nets)

    # ------------------------------------------------------------------ plan

    def outline(self) -> LabPlan:
        """Make a plan of ports, hosts and queues alone: enough to place ranks and to follow the shortest paths.

        Where paths have weights, which BGP makes, it has the routes of all switches, too.
        """
        ports, hosts = self._ports_and_hosts()
        weighted = any(view.routing.weighted for view in self.views.values())
        switches, _, expected = self._speakers() if weighted else ((), (), {})
        tables = self.queues.tables
        return LabPlan(
            lab=self.lab.name,
            slot=self.slot,
            k=self.k,
            operations=(),
            ports=tuple(ports),
            switches=switches,
            hosts=hosts,
            expected_routes=expected,
            qos=self.queues.plans.get(BACKEND),
            qos_beside={name: plan for name, plan in self.queues.plans.items() if name != BACKEND},
            tables=None if tables is None else with_paths(tables, hosts, ()),
        )

    def _ports_and_hosts(self) -> tuple[list[PortPlan], tuple[HostPlan, ...]]:
        ports = [
            self._port(link, end, peer) for link in self.lab.links for end, peer in ((link.a, link.b), (link.b, link.a))
        ]
        ports_of: dict[str, list[PortPlan]] = {name: [] for name in self.nodes}
        for port in ports:
            if not self.management.has(port.network):
                ports_of[port.node].append(port)
        for nic in self.link_groups.nics(ports, self.indexes, self.macs, self.addresses):
            ports_of[nic.node].append(nic)
        hosts = tuple(HostPlan(node=node.name, nics=self._nics(ports_of[node.name])) for node in self.lab.endpoints)
        return ports, hosts

    def plan(self) -> LabPlan:
        ports, hosts = self._ports_and_hosts()
        switches, routed_hosts, expected = self._speakers()
        routers, of_routers = self.overlay.externals.routers(self.asns)
        overlay = self.overlay.plan(expected, self.indexes)
        operations = tuple(self._operations(ports, hosts, switches, (*routed_hosts, *routers)))
        tables = self.queues.tables
        return LabPlan(
            lab=self.lab.name,
            slot=self.slot,
            k=self.k,
            operations=operations,
            ports=tuple(ports),
            switches=switches,
            routed_hosts=routed_hosts,
            routers=routers,
            hosts=hosts,
            expected_routes=expected | of_routers,
            overlay=overlay,
            qos=self.queues.plans.get(BACKEND),
            qos_beside={name: plan for name, plan in self.queues.plans.items() if name != BACKEND},
            tables=None if tables is None else with_paths(tables, hosts, operations),
            link_groups=self.link_groups.plan(self.indexes, self.macs, overlay),
            management=self.management.plan,
            carriers={network.name: network.carrier for network in self.lab.networks if network.carrier},
            scale_up_domains=self.domains,
            infiniband=self.infiniband,
        )

    def _port(self, link: Link, end: End, peer: End) -> PortPlan:
        node, name = end.node, end.interface
        address, gateway = self.addresses.get((node, name), _NO_ADDRESS)
        address6, gateway6 = self.overlay.ipv6_of(end)
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
            nic_ports=self.homing.ports_behind(end),
            out_of_band=link.kind is LinkKind.MANAGEMENT,
            address6=address6,
            gateway6=gateway6,
        )

    def _rate_bps(self, link: Link) -> int:
        """The link's rate in lab time; that of management is not scaled
        (`testbed.lab.features.management.plan.planner`)."""
        if link.kind is LinkKind.MANAGEMENT:
            return link.rate.bps
        rate_bps = self._rates.get(link.rate.bps)
        if rate_bps is None:
            rate_bps = self._rates[link.rate.bps] = link.rate.scaled(self.k).bps
        return rate_bps

    def _nics(self, ports: Sequence[PortPlan]) -> tuple[PortPlan, ...]:
        """A host's ports by network, in rail order, those outside of a rail last."""
        if len(ports) > MAX_NICS:
            raise PlanError(f"{ports[0].node}: at most {MAX_NICS} NIC ports on a host", code="host")
        order = {name: number for number, name in enumerate((BACKEND, *self.networks_beside))}
        return tuple(
            sorted(ports, key=lambda port: (order[port.network], port.rail or 1 << 30, natural_key(port.name)))
        )

    # ------------------------------------------------------------------ routing

    def _speakers(self) -> tuple[tuple[SwitchPlan, ...], tuple[SwitchPlan, ...], dict[str, tuple[ExpectedRoute, ...]]]:
        """The routing of all switches, that of the hosts that speak BGP, and the routes that BGP brings them."""
        switches: list[SwitchPlan] = []
        hosts: list[SwitchPlan] = []
        expected: dict[str, tuple[ExpectedRoute, ...]] = {}
        for name, view in self.views.items():
            more, routes = self._switches_of(name, view)
            switches += more
            hosts += self.homing.plans(view, name, {plan.node: plan for plan in more})
            expected |= routes
        own = {node.name: node.startup for node in self.lab.nodes}
        return (
            tuple(replace(plan, startup=own[plan.node]) for plan in switches),
            tuple(replace(plan, startup=own[plan.node]) for plan in hosts),
            expected,
        )

    def _switches_of(self, network: str, view: Lab) -> tuple[list[SwitchPlan], dict[str, tuple[ExpectedRoute, ...]]]:
        """The switches of one network, and the routes that BGP brings them and the hosts that speak it."""
        routing = view.routing
        ibgp = routing.protocol is Protocol.IBGP
        neighbors, sessions = self._sessions(view, ibgp)
        hosts, with_hosts = self.homing.leaf_sessions(network)
        for leaf, neighbor in hosts:
            neighbors[leaf].append(neighbor)
        plans: list[SwitchPlan] = []
        speakers = self.homing.speakers(network)
        for node in view.switches:
            loopback = IPv4Interface((self.loopbacks[node.name], 32))
            role = node.role or Role.RAIL
            mine = sorted(neighbors[node.name], key=lambda neighbor: natural_key(neighbor.interface))
            cluster = cluster_id(node) if ibgp else None
            paired = self.link_groups.subnets(node.name)
            networks = sorted([loopback.network, *self.networks[node.name], *paired])
            aggregates = self.rails.aggregates(node) if view.routing.aggregate else ()
            shared = self.homing.prefixes(network) if role is Role.SPINE else ()
            announced = [
                net for net in networks if net not in paired and not any(net.subnet_of(whole) for whole in aggregates)
            ]
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
                        neighbor.interface
                        for neighbor in mine
                        if neighbor.remote_role is not None and neighbor.remote_role.tier < role.tier
                    )
                    if cluster is not None
                    else (),
                    network=network,
                    evpn=self.overlay.evpn(node.name),
                    password=routing.password,
                    ttl_security=routing.ttl_security,
                    asks_kernel=view.qos is not None and view.qos.of(node.name).load_balancing.asks_kernel,
                    originates=shared,
                    monitoring=monitoring_station(self.lab, self.management.plan, node.name),
                )
            )
            group = self.asns[node.name] if not ibgp else int(cluster) if cluster is not None else None
            own = (*announced, *aggregates)
            speakers.append(Speaker(node.name, int(loopback.ip), group, own, aggregates, shares=(*shared, *paired)))
        expected, pinned = expect_routes(speakers, [*sessions, *with_hosts], ecmp=routing.ecmp, reflection=ibgp)
        return ([replace(plan, compare_router_id=True) if plan.node in pinned else plan for plan in plans], expected)

    def _sessions(self, view: Lab, ibgp: bool) -> tuple[Mapping[str, list[Neighbor]], list[PlannedSession]]:
        """The BGP neighbours of every switch of a network and both directions of every session."""
        neighbors: dict[str, list[Neighbor]] = defaultdict(list)
        sessions: list[PlannedSession] = []
        bandwidths = link_bandwidths(view)
        for link in view.links:
            if link.kind is not LinkKind.FABRIC:
                continue
            a, b = self.nodes[link.a.node], self.nodes[link.b.node]
            if not ibgp:
                refuse_same_as(link, a, b, self.asns)
            for end, node, other, remote in ((link.a, a, link.b, b), (link.b, b, link.a, a)):
                role, remote_role = node.role or Role.RAIL, remote.role or Role.RAIL
                neighbors[node.name].append(
                    Neighbor(
                        interface=end.interface,
                        remote=remote.name,
                        remote_role=remote_role,
                        remote_asn=self.asns[remote.name],
                        remote_interface=other.interface,
                        tells_bandwidth=bandwidths.told(link, end),
                        takes_bandwidth=bandwidths.taken(link, end),
                    )
                )
                sessions.append(
                    PlannedSession(
                        sender=node.name,
                        receiver=remote.name,
                        interface=other.interface,
                        sender_mac=self.macs[end.node, end.interface],
                        to_client=remote_role.tier < role.tier,
                        from_client=role.tier < remote_role.tier,
                        told_bandwidth=bandwidths.told(link, end),
                        taken_bandwidth=bandwidths.taken(link, other),
                    )
                )
        return neighbors, sessions

    # ------------------------------------------------------------------ operations

    def _operations(
        self,
        ports: Sequence[PortPlan],
        hosts: Sequence[HostPlan],
        switches: Sequence[SwitchPlan],
        others: Sequence[SwitchPlan],
    ) -> list[Operation]:
        speakers = (*switches, *others)
        rails_on = self.rails.count_by_switch()
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
        slots = {node.name: _cpu_slot(node) for node in self.lab.switches}
        operations += [*self.overlay.creations(slots), *create_switches(self.domains), *create_plane(self.infiniband)]
        opening: list[SetSysctl] = []
        for node in self.lab.nodes:
            if node.kind in (NodeKind.HOST, NodeKind.STORAGE):
                operations += host_sysctls(node.name)
                if node.name in self.homing.nics:
                    operations += settings(node.name, HOMED)
                    opening += settings(node.name, OPEN_HOMED)
            elif node.kind in (NodeKind.SWITCH, NodeKind.ROUTER):
                view = self.views[node.network]
                isolated = view.isolated_rails and rails_on.get(node.name, 0) > 1
                balancing = None if view.qos is None else view.qos.of(node.name).load_balancing
                operations += switch_sysctls(node.name, forward=not isolated, balancing=balancing)
                opening += settings(node.name, FABRIC_WITH_IPV6)
            if node.kind is NodeKind.ROUTER:
                operations += tcp_sysctls(node.name)
            operations += self.management.node_sysctls(node)
        bridges = self.rails.bridges(self.macs)
        operations += [*domain_sysctls(self.domains), *plane_sysctls(self.infiniband), *bridges]
        operations += [
            *self.management.before_links(self.macs),
            *self.overlay.before_links(),
            *self.link_groups.before_links(self.indexes, self.macs),
        ]
        for kind in (LinkKind.ACCESS, LinkKind.TENANT, LinkKind.ROUTED, LinkKind.MANAGEMENT):
            operations += [self._veth(link) for link in self.by_kind[kind]]
        operations += wire_veths(self.domains)
        operations += self.link_groups.links(self.indexes, self.macs)
        operations += opening + self.overlay.externals.opening() + self.management.port_sysctls()
        operations += [item for host in hosts for item in failover_sysctls(host.nics)]
        for kind in (LinkKind.FABRIC, LinkKind.HOMED, LinkKind.EXTERNAL):
            operations += [self._veth(link) for link in self.by_kind[kind]]
        operations += self.overlay.externals.borders()
        operations += self.overlay.placed(self.queues.operations(ports))
        operations += guard_switches(self.lab, ports, hosts, operations, switches, self.overlay, self.link_groups.vteps)
        operations += self.management.guards(self.indexes, self.macs)
        operations += [SetUp(node=bridge.node, name=bridge.name, ifindex=bridge.ifindex) for bridge in bridges]
        operations += self.management.set_up()
        operations += [SetUp(node=port.node, name=port.name, ifindex=port.ifindex, vrf=port.vrf) for port in ports]
        operations += set_wires_up(self.domains)
        operations += [*self.overlay.after_links(), *self.link_groups.after_links(self.indexes, self.addresses)]
        operations += [SetUp(node=node.name, name="lo", ifindex=LOOPBACK_IFINDEX) for node in self.lab.nodes]
        operations += self._addressing(ports, speakers)
        routes: list[AddRoute] = []
        rules: list[AddRule] = []
        for host in hosts:
            more_routes, more_rules = host_routes(host.nics, isolated=self.lab.isolated_rails, beside=self.lab.networks)
            routes += [*more_routes, *self.overlay.host_routes(host.nics)]
            rules += [*more_rules, *self.homing.rules(host.nics)]
        operations += routes
        operations += rules
        operations += rdma_devices(self.lab, hosts)
        operations += [
            StartRouting(
                node=switch.node,
                daemons=("zebra", "bgpd", "bfdd") if switch.bfd is not None and switch.neighbors else ("zebra", "bgpd"),
            )
            for switch in speakers
        ]
        return [*operations, *plan_services(self.lab, self.management.plan)]

    def _veth(self, link: Link) -> CreateVeth:
        master = self.rails.master_of(link) if link.kind is LinkKind.ACCESS else self.management.master(link)
        fabric = link.kind in (LinkKind.FABRIC, LinkKind.HOMED, LinkKind.EXTERNAL)
        if link.kind is LinkKind.TENANT:
            master = self.overlay.master(link.b)
        elif link.kind is LinkKind.EXTERNAL:
            master = self.overlay.externals.master(link.b)
        return CreateVeth(
            a=self._veth_end(link.a, 0, fabric),
            b=self._veth_end(link.b, master, fabric),
            mtu_bytes=link.mtu_bytes,
            queue_packets=QUEUE_PACKETS if self.lab.qos_of(link.network) is not None else PLAIN_QUEUE_PACKETS,
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

    def _addressing(self, ports: Sequence[PortPlan], speakers: Sequence[SwitchPlan]) -> list[Operation]:
        operations: list[Operation] = [
            AddAddress(node=speaker.node, name="lo", ifindex=LOOPBACK_IFINDEX, address=speaker.loopback)
            for speaker in speakers
        ]
        operations += [*self.link_groups.vtep_addresses(), *self.rails.bridge_addresses()]
        operations += [
            AddAddress(node=port.node, name=port.name, ifindex=port.ifindex, address=port.address)
            for port in ports
            if port.address is not None and (port.node, port.name) not in self.homing.addresses
        ]
        operations += [
            AddAddress(node=port.node, name=port.name, ifindex=port.ifindex, address=port.address6)
            for port in ports
            if port.address6 is not None
        ]
        return operations + self.overlay.externals.addresses()


def _cpu_slot(node: Node) -> int:
    """Neighbours by number land on different CPUs; what has no number is hashed."""
    if node.place is None:
        return stable_hash(f"cpu {node.name}", 16)
    return node.place.pod + node.place.segment + node.place.index + node.place.plane
