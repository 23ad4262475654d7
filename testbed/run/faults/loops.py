"""Faults of routing: static routes of several switches that lead a prefix round, so that nothing for it arrives."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network

from testbed.base.errors import DriverError, Finding, PlanError
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.rtnetlink import RT_TABLE_MAIN, RouteSocket, link_local_address, new_route, undone
from testbed.base.names import known_names_hint, namespace_name
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.loops import DEFAULT_TTL, TTL_KEY
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.model import Lab, NodeKind
from testbed.lab.core.plan.lab import plan_addresses
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, LabFault

_GONE = (errno.ESRCH, errno.ENODEV)
"""The errors that the kernel has for a route that is not there: it goes with its link."""


class RoutingLoop(LabFault):
    """Each of some switches has a static route for a prefix to the next one, and the last of them to the first.

    Packets for it go round until their time to live is over, which `settings` gives to all that hosts send meanwhile;
    of several loops at once that of the one that was begun last.
    Source: Hu et al., "Deadlocks in Datacenter Networks: Why Do They Form, and How to Avoid Them", HotNets 2016.
    """

    kind = "routing-loop"
    place = FaultPlace.NODE

    @property
    def switches(self) -> list[str]:
        """The switches that packets pass, in their order; behind the last comes the first."""
        return [self.target, *str(self.fault.settings["through"]).split()]

    @property
    def ttl(self) -> int:
        """The time to live of what hosts send meanwhile, in routers."""
        return int(self.fault.settings["ttl"])

    def check(self, lab: Lab) -> Iterator[Finding]:
        misplaced = [*self.place_findings(lab), *self._switch_findings(lab)]
        yield from misplaced
        if misplaced:
            return
        for near, far in self._hops:
            neighbours = _neighbours(lab, near)
            if far not in neighbours:
                message = f"{near} has no link to {far}, by which packets could go round"
                hint = known_names_hint(far, sorted(neighbours)) if neighbours else None
                yield Finding(code="no-such-link", keys=("loop", "through"), message=message, hint=hint)
                return
        if self._names_nic and not any(self._to == str(end) for link in lab.links for end in (link.a, link.b)):
            message = f"{lab.name} has no port {self._to}"
            yield Finding(code="unknown-port", keys=("loop", "to"), message=message, hint="HOST:IF, or a prefix")
            return
        try:
            plan = plan_addresses(lab)
            self.prefix([*plan.ports, *(nic for host in plan.hosts for nic in host.nics)])
        except DriverError as error:
            yield Finding(code="nothing-to-lead", keys=("loop", "to"), message=error.message, hint=error.hint)
        except PlanError:
            return  # which is said of the topology

    def holds(self, lab: Lab) -> Mapping[str, str]:
        """The next hop of each of the switches: loops may have the same."""
        return {f"the route of {near} to {self._to}": far for near, far in self._hops}

    def ways(self, ports: Iterable[PortPlan]) -> list[PortPlan]:
        """Return the port by which each of the switches sends on: of parallel links the first."""
        by_ends = {(port.node, port.peer.partition(":")[0]): port for port in reversed([*ports])}
        return [by_ends[hop] for hop in self._hops]

    def prefix(self, ports: Iterable[PortPlan]) -> IPv4Network:
        """Return the prefix whose packets go round, that of one address where a NIC is named.

        Raises `DriverError` where none would: the NIC has no address, no NIC is in the prefix, or its subnet is a
        narrower one, to which switches have routes that go before.
        """
        if not self._names_nic:
            prefix = IPv4Network(self._to)
            inside = [one.address.network for one in ports if one.address is not None and one.address.ip in prefix]
            if not inside:
                raise DriverError(f"no address is in {self._to}, to be led round", operation="AddRoute")
            if (narrow := max(inside, key=lambda one: one.prefixlen)).prefixlen > prefix.prefixlen:
                message = f"routes to {narrow} go before one to {self._to}, so that nothing would be led round"
                raise DriverError(message, operation="AddRoute", hint=f"to: {narrow}, or HOST:IF")
            return prefix
        for port in ports:
            if f"{port.node}:{port.name}" == self._to and port.address is not None:
                return IPv4Network(port.address.ip)
        raise DriverError(f"{self._to} has no address that could be led round", operation="AddRoute")

    def do(self, site: FaultSite) -> None:
        routes = self._routes(site.lab)
        shared = self._shared(site)
        site.lasting.append(self)
        self._set_ttl(site.lab, self.ttl)

        def add(place: str, route: RouteSocket) -> None:
            route.expect([routes[place]], [f"{place}: static route for {self._to}"])

        ask_inside(site.lab.name, [place for place in routes if place not in shared], RouteSocket, add)

    def undo(self, site: FaultSite) -> None:
        try:
            routes = self._routes(site.lab)
        except DriverError:  # for which `do` has done nothing
            return
        if self in site.lasting:
            site.lasting.remove(self)
        shared = self._shared(site)

        def remove(place: str, route: RouteSocket) -> None:
            failures = [one for one in route.submit([undone(routes[place])]) if one.errno not in _GONE]
            if failures:
                raise DriverError(f"{place} keeps its static route for {self._to}: {failures[0].reason}")

        try:
            ask_inside(site.lab.name, [place for place in routes if place not in shared], RouteSocket, remove)
        finally:
            self._set_ttl(site.lab, ttl_of(site.lasting))

    @property
    def may_lose(self) -> bool:
        return True

    def disturbs(self, port: PortPlan) -> bool:
        return any(name in (port.node, port.peer.partition(":")[0]) for name in self.switches)

    @property
    def _hops(self) -> list[tuple[str, str]]:
        """Each switch and the one that it sends to."""
        return [*zip(self.switches, [*self.switches[1:], self.target], strict=True)]

    @property
    def _to(self) -> str:
        return str(self.fault.settings["to"])

    @property
    def _names_nic(self) -> bool:
        return ":" in self._to

    def _switch_findings(self, lab: Lab) -> Iterator[Finding]:
        known = [node.name for node in lab.nodes if node.kind is NodeKind.SWITCH]
        for name in self.switches[1:]:
            if name not in known:
                hint = known_names_hint(name, known)
                message = f"{lab.name} has no switch {name!r}"
                yield Finding(code="unknown-switch", keys=("loop", "through"), message=message, hint=hint)
        if len(set(self.switches)) < len(self.switches):
            message = "a loop comes to each switch once"
            yield Finding(code="contradiction", keys=("loop", "through"), message=message)

    def _routes(self, lab: RunningLab) -> dict[str, bytes]:
        """Return the message that makes the route of each place, a switch or a VRF of it."""
        plan = lab.whole.plan
        ports = {f"{port.node}:{port.name}": port for port in plan.ports}
        prefix = self.prefix([*ports.values(), *(nic for host in plan.hosts for nic in host.nics)])
        found = {}
        for port in self.ways(ports.values()):
            peer = ports[port.peer]
            gateway = peer.address.ip.packed if peer.address is not None else link_local_address(peer.mac)
            found[port.place] = new_route(
                prefix.network_address.packed,
                prefix.prefixlen,
                gateway,
                port.ifindex,
                table=RT_TABLE_MAIN,
                source=None,
            )
        return found

    def _shared(self, site: FaultSite) -> set[str]:
        """Return the places at which another loop that lasts has the same route."""
        mine = self._routes(site.lab).items()
        others = (one for one in site.lasting if isinstance(one, RoutingLoop) and one is not self)
        return {place for one in others for place, _ in one._routes(site.lab).items() & mine}

    @staticmethod
    def _set_ttl(lab: RunningLab, ttl: int) -> None:
        """Raise the first error once all other hosts have it."""
        failed: Exception | None = None
        for host in lab.whole.plan.hosts:
            try:
                in_namespace(namespace_name(lab.name, host.node), lambda: TTL_KEY.write_text(str(ttl)))
            except (DriverError, OSError) as error:
                failed = failed or error
        if failed is not None:
            raise failed


def ttl_of(lasting: Sequence[LabFault]) -> int:
    """Return the time to live of what hosts send while these faults last: that of the loop that was begun last."""
    return next((one.ttl for one in reversed(lasting) if isinstance(one, RoutingLoop)), DEFAULT_TTL)


def _neighbours(lab: Lab, node: str) -> set[str]:
    """Return the switches that a node has links to."""
    switches = {one.name for one in lab.nodes if one.kind is NodeKind.SWITCH}
    ends = ((one, other) for link in lab.links for one, other in ((link.a, link.b), (link.b, link.a)))
    return {other.node for one, other in ends if one.node == node and other.node in switches}
