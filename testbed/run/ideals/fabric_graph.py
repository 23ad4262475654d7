"""The lab as oracles see it: its links at lab rates, its NIC ports as endpoints, and the next hops BGP has decided.

`workload.oracles` knows neither labs nor plans; here they are turned into its graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Interface

from testbed.lab.core.model import BACKEND, End, Lab, Link, LinkKind, NodeKind, Role
from testbed.lab.core.plan.lab_plan import ExpectedRoute, LabPlan, PortPlan
from testbed.workload.oracles.fabric_graph import DirectedLink, FabricGraph, shortest_path_graph

_TIERS = {Role.RAIL: "", Role.LEAF: "", Role.SPINE: "spine-", Role.SUPER_SPINE: "super-spine-"}


_latest: list[tuple[Lab, LabPlan, bool, FabricGraph]] = []
"""The lab that was asked for last: a run asks several times for its own, which of thousands of NICs takes seconds."""


def fabric_graph(lab: Lab, plan: LabPlan, *, by_gateway: bool = False) -> FabricGraph:
    """Return the graph of a lab as it is planned.

    Endpoints and links are named "node:interface": a link by the port that sends into it.

    A NIC of a host that speaks BGP is one endpoint, that of the port which has its address, and so is the aggregate of
    a link group; all its ports' links are the endpoint's. So is the port of a router outside. Nothing is meant to go
    over peer links of pairs of leaves.

    Tiers: `access` into the fabric, `delivery` out of it; `uplink` and `downlink` of rail switches, `spine-uplink` and
    `spine-downlink` of spines. Where BGP has more equally good paths than `Routing.ecmp` it installs, the first of them
    by interface are taken; which ones a switch takes is not planned. Without planned routes, shortest paths serve, as
    many of them.

    The next hops of a route are in the order in which the kernel's group has them, and hashes choose among them: zebra
    sorts them by weight and gateway, here the link-local address that the neighbour's port has by its MAC. One with a
    weight stands there as often. Without planned routes they are in the order of the links, or in the kernel's with
    `by_gateway`.
    """
    if _latest and _latest[0][0] is lab and _latest[0][1] is plan and _latest[0][2] is by_gateway:
        return _latest[0][3]
    found = _make_graph(lab, plan, by_gateway=by_gateway)
    _latest[:] = [(lab, plan, by_gateway, found)]
    return found


def _make_graph(lab: Lab, plan: LabPlan, *, by_gateway: bool) -> FabricGraph:
    ports = {(port.node, port.name): port for port in plan.ports}
    hosts = {node.name for node in lab.nodes if node.kind is not NodeKind.SWITCH}
    roles = {node.name: node.role for node in lab.nodes}
    several = [nic for host in plan.hosts for nic in host.nics if nic.nic_ports > 1]
    joined = {(nic.node, nic.network): nic for nic in several}
    endpoints = [
        _graph_node(lab, end, link, hosts, joined)
        for link in lab.links
        for end in (link.a, link.b)
        if end.node in hosts
    ]
    links = [
        DirectedLink(
            source=_graph_node(lab, near, link, hosts, joined),
            destination=_graph_node(lab, far, link, hosts, joined),
            capacity_bps=float(ports[near.node, near.interface].rate_bps),
            name=str(near),
            tier=_tier(link, near, hosts, roles),
        )
        for link in lab.links
        if link.kind is not LinkKind.PEER
        for near, far in ((link.a, link.b), (link.b, link.a))
    ]
    routed = any(plan.expected_routes.values())
    if by_gateway and not routed:
        mac = {(port.node, port.name): port.mac for port in plan.ports}
        peers = {f"{port.node}:{port.name}": port.peer.partition(":") for port in plan.ports}
        links.sort(key=lambda link: (mac.get((peers[link.name][0], peers[link.name][2]), ""), link.name))
    graph = shortest_path_graph(links, list(dict.fromkeys(endpoints)), most={} if routed else _widths(lab, links))
    ports |= {(nic.node, nic.name): nic for nic in several}
    return _as_routed(graph, plan, ports, joined) if routed else graph


def _widths(lab: Lab, links: Iterable[DirectedLink]) -> dict[str, int]:
    """The most next hops that each switch installs, where none are planned."""
    views = [lab.on_switches_of(name) for name in lab.switched_networks]
    of_switch = {node.name: view.routing.ecmp for view in views for node in view.switches}
    nodes = dict.fromkeys(link.source for link in links)
    return {node: most for node in nodes if (most := of_switch.get(node.partition(" ")[0])) is not None}


_Joined = Mapping[tuple[str, str], PortPlan]
"""The port that stands for a NIC of several ports with one address, by host and network."""


def _graph_node(lab: Lab, end: End, link: Link, hosts: Iterable[str], joined: _Joined) -> str:
    if end.node in hosts:
        if link.kind is LinkKind.HOMED:
            return f"{end.node}:{joined[end.node, link.network].name}"
        return str(link.nic) if link.kind is LinkKind.MEMBER else str(end)
    # A switch that does not route between its rails is one switch for each.
    isolated = lab.isolated_rails and link.kind is LinkKind.ACCESS and link.network == BACKEND
    return f"{end.node} rail {link.rail}" if isolated else end.node


def _tier(link: Link, near: End, hosts: Iterable[str], roles: Mapping[str, Role | None]) -> str:
    if near.node in hosts:
        return "access"
    if link.kind is not LinkKind.FABRIC:
        return "delivery"
    role = roles[link.a.node]  # the lower end
    return "fabric" if role is None else _TIERS[role] + ("uplink" if near == link.a else "downlink")


def _as_routed(
    graph: FabricGraph, plan: LabPlan, ports: Mapping[tuple[str, str], PortPlan], joined: _Joined
) -> FabricGraph:
    """Return the graph with the planned routes; an endpoint without an address keeps its shortest paths.

    Switches send what is for a tenant's NIC to the VTEP that it is behind, whose route is the way.
    """
    numbers = {link.name: number for number, link in enumerate(graph.links)}
    mac = {f"{port.node}:{port.name}": port.mac for port in plan.ports}
    gateway = {place: mac.get(port.peer, "") for place, port in ports.items()}
    tables = {switch.node: _Table(plan.expected_routes.get(switch.node, ())) for switch in plan.switches}
    vteps = {vrf.switch: IPv4Interface(vrf.vtep) for vrf in plan.overlay.vrfs} if plan.overlay is not None else {}
    routes: dict[str, dict[str, tuple[int, ...]]] = {}
    group_of = dict(graph.group_of)
    for endpoint, switch in graph.group_of.items():
        node, _, interface = endpoint.partition(":")
        nic = ports[node, interface]
        address = vteps[nic.peer.partition(":")[0]] if nic.tenant else nic.address
        several = (node, nic.network) in joined and nic.address is not None
        if address is None or (switch == endpoint and not several):
            continue
        group = f"{switch} {address.network}"  # the NICs to which the same routes lead
        group_of[endpoint] = group
        if group not in routes:
            routes[group] = {
                name: tuple(
                    numbers[f"{name}:{interface}"]
                    for weight, _, interface in sorted(
                        (weight, gateway[name, interface], interface) for interface, weight in hops
                    )
                    for _ in range(weight)
                )
                for name, table in tables.items()
                if (hops := table.next_hops(address.ip))
            }
            if several:  # no other NIC has this group; its leaves have the route to it, or its subnet
                beside = {name: graph.next_hops(name, endpoint) for name in tables if name not in routes[group]}
                routes[group] |= {name: hops for name, hops in beside.items() if hops}
                continue
            # Where the subnet is, packets are delivered; a route there is that of an aggregate.
            routes[group][switch] = ()
        routes[group][switch] += graph.next_hops(switch, endpoint)
    as_before = dict.fromkeys(group for group in group_of.values() if group not in routes)
    routes |= {group: dict(graph.routes[group]) for group in as_before}
    return FabricGraph(links=graph.links, routes=routes, group_of=group_of)


class _Table:
    """A switch's planned routes, by longest prefix."""

    def __init__(self, routes: Sequence[ExpectedRoute]) -> None:
        self._by_length: defaultdict[int, dict[int, ExpectedRoute]] = defaultdict(dict)
        for route in routes:
            self._by_length[route.prefix.prefixlen][int(route.prefix.network_address)] = route
        self._lengths = sorted(self._by_length, reverse=True)

    def next_hops(self, address: IPv4Address) -> list[tuple[str, int]]:
        """The interfaces to an address, each with its weight."""
        for length in self._lengths:
            mask = (1 << 32) - (1 << (32 - length))
            route = self._by_length[length].get(int(address) & mask)
            if route is not None:
                interfaces = route.interfaces[: route.next_hops]
                weights = route.weights[: route.next_hops] or (1,) * len(interfaces)
                return list(zip(interfaces, weights, strict=True))
        return []
