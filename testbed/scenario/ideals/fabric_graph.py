"""The lab as oracles see it: its links at lab rates, its NIC ports as endpoints, and the next hops BGP has decided.

`workload.oracles` knows neither labs nor plans; here they are turned into its graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address

from testbed.model import BACKEND, End, Lab, Link, LinkKind, Role
from testbed.plan.operations import ExpectedRoute, LabPlan, PortPlan
from testbed.workload.oracles.fabric_graph import DirectedLink, FabricGraph, shortest_path_graph

_TIERS = {Role.RAIL: "", Role.LEAF: "", Role.SPINE: "spine-", Role.SUPER_SPINE: "super-spine-"}


def fabric_graph(lab: Lab, plan: LabPlan) -> FabricGraph:
    """Endpoints and links are named "node:interface": a link by the port that sends into it.

    Tiers: `access` into the fabric, `delivery` out of it; `uplink` and `downlink` of rail switches, `spine-uplink` and
    `spine-downlink` of spines. Where BGP has more equally good paths than `Routing.ecmp` it installs, the first of them
    by interface are taken; which ones a switch takes is not planned. Without planned routes, shortest paths serve.

    The next hops of a route are in the order in which the kernel's group has them, and hashes choose among them: zebra
    sorts them by gateway, here the link-local address that the neighbour's port has by its MAC.
    """
    ports = {(port.node, port.name): port for port in plan.ports}
    hosts = {node.name for node in lab.hosts}
    roles = {node.name: node.role for node in lab.nodes}
    endpoints = [str(end) for link in lab.links for end in (link.a, link.b) if end.node in hosts]
    links = [
        DirectedLink(
            source=_graph_node(lab, near, link, hosts),
            destination=_graph_node(lab, far, link, hosts),
            capacity_bps=float(ports[near.node, near.interface].rate_bps),
            name=str(near),
            tier=_tier(link, near, hosts, roles),
        )
        for link in lab.links
        for near, far in ((link.a, link.b), (link.b, link.a))
    ]
    graph = shortest_path_graph(links, endpoints)
    return _as_routed(graph, plan, ports) if any(plan.expected_routes.values()) else graph


def _graph_node(lab: Lab, end: End, link: Link, hosts: Iterable[str]) -> str:
    if end.node in hosts:
        return str(end)
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


def _as_routed(graph: FabricGraph, plan: LabPlan, ports: Mapping[tuple[str, str], PortPlan]) -> FabricGraph:
    """The same graph with the planned routes; an endpoint without an address keeps its shortest paths."""
    numbers = {link.name: number for number, link in enumerate(graph.links)}
    mac = {f"{port.node}:{port.name}": port.mac for port in plan.ports}
    gateway = {place: mac.get(port.peer, "") for place, port in ports.items()}
    tables = {switch: _Table(routes) for switch, routes in plan.expected_routes.items()}
    routes: dict[str, dict[str, tuple[int, ...]]] = {group: dict(table) for group, table in graph.routes.items()}
    group_of = dict(graph.group_of)
    for endpoint, switch in graph.group_of.items():
        node, _, interface = endpoint.partition(":")
        address = ports[node, interface].address
        if address is None or switch == endpoint:
            continue
        group = f"{switch} {address.network}"  # the NICs to which the same routes lead
        group_of[endpoint] = group
        if group not in routes:
            routes[group] = {
                name: tuple(
                    numbers[f"{name}:{interface}"]
                    for _, interface in sorted((gateway[name, interface], interface) for interface in interfaces)
                )
                for name, table in tables.items()
                if (interfaces := table.next_hops(address.ip))
            }
            # Where the subnet is, packets are delivered; a route there is that of an aggregate.
            routes[group][switch] = ()
        routes[group][switch] += graph.next_hops(switch, endpoint)
    return FabricGraph(links=graph.links, routes=routes, group_of=group_of)


class _Table:
    """A switch's planned routes, by longest prefix."""

    def __init__(self, routes: Sequence[ExpectedRoute]) -> None:
        self._by_length: defaultdict[int, dict[int, ExpectedRoute]] = defaultdict(dict)
        for route in routes:
            self._by_length[route.prefix.prefixlen][int(route.prefix.network_address)] = route
        self._lengths = sorted(self._by_length, reverse=True)

    def next_hops(self, address: IPv4Address) -> tuple[str, ...]:
        for length in self._lengths:
            mask = (1 << 32) - (1 << (32 - length))
            route = self._by_length[length].get(int(address) & mask)
            if route is not None:
                return route.interfaces[: route.next_hops]
        return ()
