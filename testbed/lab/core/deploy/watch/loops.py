"""The ways that packets take by the routes that switches have now: loops, and buffers that wait for each other.

A switch whose next queue is full holds what it has for it, and so, with lossless classes, the switch before. Where such
dependencies are a cycle, all of it may stop for ever (Dally and Seitz, "Deadlock-Free Message Routing", IEEE
Transactions on Computers, 1987; Hu et al., HotNets 2016). Up-down routes, which never go up again once they went down,
have none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from testbed.base.errors import DriverError
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.routes import TableRoute, table_routes
from testbed.base.linux.rtnetlink import RT_TABLE_MAIN, RouteSocket
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.plan.lab_plan import PortPlan

Ports = Mapping[tuple[str, int], PortPlan]
"""The ports of switches that lead to other switches, by node and interface index."""
DEFAULT_TTL = 64
"""The time to live that Linux gives to what a host sends (net.ipv4.ip_default_ttl)."""
TTL_KEY = Path("/proc/sys/net/ipv4/ip_default_ttl")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTrace:
    """The ways to one destination: by switch, the ports by which packets for it may leave. `sources` have NICs that
    send to it."""

    destination: IPv4Address
    of: str
    """The NIC that has it, as "node:interface"."""
    sources: tuple[str, ...]
    hops: Mapping[str, tuple[PortPlan, ...]]

    def loops(self) -> Iterator[str]:
        """Return a line for each way that comes to a switch again: one for each switch at which that is noticed."""
        for cycle in _cycles(self.sources, {name: map(_peer, ports) for name, ports in self.hops.items()}):
            yield f"{self.of} ({self.destination}) is never reached: {' > '.join([*cycle, cycle[0]])}"

    def dependencies(self) -> Iterator[tuple[str, str]]:
        """Return each pair of ports of which the first may have to wait for the second, as "node:interface"."""
        left, seen = list(self.sources), set(self.sources)
        while left:
            for port in self.hops.get(left.pop(), ()):
                yield from ((_name(port), _name(onward)) for onward in self.hops.get(_peer(port), ()))
                if _peer(port) not in seen:
                    seen.add(_peer(port))
                    left.append(_peer(port))


def _peer(port: PortPlan) -> str:
    return port.peer.partition(":")[0]


def _name(port: PortPlan) -> str:
    return f"{port.node}:{port.name}"


def buffer_dependencies(traces: Iterable[RouteTrace]) -> dict[str, set[str]]:
    """Return, by port, the ports that it may have to wait for, whatever the destination."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for trace in traces:
        for near, far in trace.dependencies():
            found[near].add(far)
    return dict(found)


def find_cycle(waits: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a cycle of what waits for what, in order, each once; nothing where there is none."""
    return next(_cycles(sorted(waits), {name: sorted(others) for name, others in waits.items()}), [])


def _cycles(begins: Iterable[str], onward: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Yield the cycles that a search in depth from `begins` closes, each by its members in order."""
    done: set[str] = set()
    for begin in begins:
        if begin in done:
            continue
        path, left = [begin], [iter(onward.get(begin, ()))]
        places = {begin: 0}
        while left:
            following = next(left[-1], None)
            if following is None:
                left.pop()
                done.add(name := path.pop())
                del places[name]
            elif following in places:
                yield path[places[following] :]
            elif following not in done:
                places[following] = len(path)
                path.append(following)
                left.append(iter(onward.get(following, ())))


class RouteTable:
    """The routes of a switch, found by the longest prefix, then the least metric."""

    def __init__(self, routes: Iterable[TableRoute]) -> None:
        self._by_length: defaultdict[int, dict[int, TableRoute]] = defaultdict(dict)
        for route in routes:
            known = self._by_length[route.prefix.prefixlen]
            key = int(route.prefix.network_address)
            if key not in known or route.metric < known[key].metric:
                known[key] = route
        self._lengths = sorted(self._by_length, reverse=True)

    def longest(self, address: IPv4Address) -> TableRoute | None:
        """Return the route that a packet for an address takes; None without one."""
        value = int(address)
        for length in self._lengths:
            shift = 32 - length
            if (found := self._by_length[length].get(value >> shift << shift)) is not None:
                return found
        return None

    def prefixes(self) -> Iterator[tuple[int, int]]:
        """Yield the length and the address of each prefix that it has a route for."""
        for length, routes in self._by_length.items():
            yield from ((length, address) for address in routes)


def trace_routes(lab: RunningLab) -> list[RouteTrace]:
    """Read the main tables of all switches, and return the ways to the NICs of each subnet: to one of them, and to each
    that a switch has a narrower route for. NICs of tenants are left out, whose packets go in others."""
    switches = [switch.node for switch in lab.plan.speakers]
    tables = ask_inside(
        lab.name,
        switches,
        RouteSocket,
        lambda _, route: RouteTable(one for one in table_routes(route) if one.table == RT_TABLE_MAIN),
    )
    known = set(switches)
    ports = {
        (port.node, port.ifindex): port
        for port in lab.plan.ports
        if port.node in known and not port.vrf and _peer(port) in known
    }
    nics = [nic for host in lab.plan.hosts for nic in host.nics if nic.address is not None and not nic.tenant]
    return trace_tables(tables, ports, nics)


def trace_tables(tables: Mapping[str, RouteTable], ports: Ports, nics: Sequence[PortPlan]) -> list[RouteTrace]:
    """Return the ways to these NICs by these tables."""
    sources = tuple(dict.fromkeys(_peer(nic) for nic in nics if _peer(nic) in tables))
    by_subnet: defaultdict[IPv4Network, list[PortPlan]] = defaultdict(list)
    for nic in nics:
        assert nic.address is not None
        by_subnet[nic.address.network].append(nic)
    found = []
    narrower = _narrower_prefixes({pair for table in tables.values() for pair in table.prefixes()}, by_subnet)
    for subnet, members in by_subnet.items():
        for number, nic in enumerate(members):
            assert nic.address is not None
            address = nic.address.ip
            inside = narrower[subnet].items()
            if number and not any(int(address) >> (32 - length) in values for length, values in inside):
                continue
            hops = {
                name: () if name == nic.node else _onward(name, table.longest(address), ports)
                for name, table in tables.items()
            }  # a host that speaks BGP keeps what is for itself, whatever its main table says
            found.append(RouteTrace(destination=address, of=_name(nic), sources=sources, hops=hops))
    return found


def _narrower_prefixes(
    prefixes: Iterable[tuple[int, int]], subnets: Collection[IPv4Network]
) -> Mapping[IPv4Network, Mapping[int, set[int]]]:
    """Return, by subnet, the leading bits of the prefixes inside of it that are not the subnet itself, by length."""
    lengths = sorted({subnet.prefixlen for subnet in subnets})
    known = {(one.prefixlen, int(one.network_address) >> (32 - one.prefixlen)): one for one in subnets}
    found: dict[IPv4Network, defaultdict[int, set[int]]] = {subnet: defaultdict(set) for subnet in subnets}
    for length, address in prefixes:
        for shorter in lengths:
            if shorter < length and (subnet := known.get((shorter, address >> (32 - shorter)))) is not None:
                found[subnet][length].add(address >> (32 - length))
    return found


def short_lived(lab: RunningLab) -> list[str]:
    """Return a line for each host whose packets pass fewer routers than those of Linux do: the fault of a routing loop
    has it so, and one that was killed leaves it. That a host is gone is told by others."""
    found = []
    for host in lab.plan.hosts:
        ttl = DEFAULT_TTL
        with suppress(DriverError, OSError):
            ttl = int(in_namespace(namespace_name(lab.name, host.node), TTL_KEY.read_text))
        if ttl < DEFAULT_TTL:
            found.append(f"{host.node} sends with a time to live of {ttl}, not {DEFAULT_TTL}, as for a routing loop")
    return found


def _onward(switch: str, route: TableRoute | None, ports: Ports) -> tuple[PortPlan, ...]:
    """Return the ports of a route that lead to other switches."""
    indexes = () if route is None else route.interfaces
    return tuple(ports[switch, index] for index in indexes if (switch, index) in ports)
