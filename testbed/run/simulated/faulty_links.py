"""The links of a simulated fabric while faults befall them: carrier, silence, and who notices what, when.

A link that goes down loses what is sent into it from then on. The kernels at its ends see the carrier go a little later
and use it no more, and the session over it is down. A silent link keeps its carrier: each end that hears nothing takes
its neighbour for lost by BFD or the hold timer, and tells the other end, if that one can still hear it. Whatever comes
back before it was missed was never gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random

from testbed.lab.core.model import BACKEND
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.protocols.simulation.faults import Impairments
from testbed.protocols.simulation.routing import FabricRouting
from testbed.protocols.simulation.weighted_routing import WeightedRouting
from testbed.record.samples import RunEvent
from testbed.run.simulated.convergence import Convergence
from testbed.run.simulated.fabric import SimulatedFabric

CARRIER = "carrier"


class FaultyLinks:
    """The links of a whole lab; of those that no packet of the run can come by, events tell alone.

    Ports are named "node:interface", and so is the line that a port sends into. Times are of the network's clock;
    `begin_ns` is when the traffic began, from which events count.
    """

    def __init__(
        self, fabric: SimulatedFabric, plan: LabPlan, convergence: Convergence, *, seed: int, begin_ns: int = 0
    ) -> None:
        self.events: list[RunEvent] = []
        self.convergence = convergence
        self.begin_ns = begin_ns
        self.ports = {f"{port.node}:{port.name}": port for port in plan.ports}
        self.impairments: dict[str, Impairments] = {}
        """By line, what faults have made of it: of several at once, each changes what it names."""
        self._network = fabric.network
        self.random = Random(f"{seed} faults")
        self._sessions = {
            f"{switch.node}:{neighbour.interface}" for switch in plan.speakers for neighbour in switch.neighbors
        }
        planned = fabric.planned()
        announced = [str(port.address.ip) for port in plan.ports if port.address is not None and port.nic_ports > 1]
        bandwidths = _bandwidths(plan)
        times = {"reaction_ns": convergence.process_ns, "install_ns": convergence.process_ns + convergence.install_ns}
        self.routing: FabricRouting = (
            WeightedRouting(fabric.network, planned, fabric.ends, bandwidths, **times, announced=announced)
            if bandwidths
            else FabricRouting(fabric.network, planned, fabric.ends, **times, announced=announced)
        )
        self._down: set[str] = set()
        self._silent: dict[str, int] = {}
        """Ports whose packets are lost, and the change of their link since when."""
        self._without_bgp: set[str] = set()
        """Nodes whose bgpd has ended: none of their sessions comes back."""
        self._waiting: dict[frozenset[str], None] = {}
        """Links whose sessions would have come back, had both ends a bgpd."""
        self._lost: set[str] = set()
        """Ports whose session is down."""
        self._gone: set[str] = set()
        """Ports of hosts that go on by another one of theirs."""
        self._together = _ports_together(plan)
        self._changes: defaultdict[frozenset[str], int] = defaultdict(int)
        """By link, how often it has changed: what was to follow from a change before the last one does not."""

    def peer(self, name: str) -> str:
        return self.ports[name].peer

    def of_node(self, node: str) -> list[str]:
        """Return the ports of a node, in the order of the plan."""
        return [name for name, port in self.ports.items() if port.node == node]

    def has_session(self, name: str) -> bool:
        """Tell whether a port has a BGP session."""
        return name in self._sessions

    def note(self, now: int, kind: str, node: str, detail: str = "") -> None:
        """Record what was done or seen."""
        self.events.append(RunEvent(at_s=round((now - self.begin_ns) / 1e9, 6), kind=kind, target=node, detail=detail))

    # --- carrier -----------------------------------------------------------------------------------------

    def down(self, now: int, name: str) -> None:
        """The link of a port loses its carrier."""
        ends = self._ends(name)
        self._down |= set(ends)
        self._set_up(ends)
        change = self._change(ends)

        def notice(seen: int) -> None:
            if self._changes[frozenset(ends)] != change:
                return
            for end in ends:
                if (port := self.ports.get(end)) is None:
                    continue
                self.note(seen, "carrier-lost", port.node, port.name)
                self._end_pauses(seen, end)
                self._use(end, usable=False)
            self.end_sessions(seen, ends, CARRIER)

        self._network.at(now + self.convergence.carrier_ns, notice)

    def up(self, now: int, name: str, *, later_ns: int = 0) -> None:
        """It is back. Sessions take `later_ns` more than they would."""
        ends = self._ends(name)
        self._down -= set(ends)
        self._set_up(ends)
        self._change(ends)
        change = self._changes[frozenset(ends)]

        def notice(_: int) -> None:
            if self._changes[frozenset(ends)] == change:
                for end in ends:
                    if not self.has_session(end):
                        self._use(end, usable=True)

        # A leaf that starts takes part in link groups when it has its routes.
        ready_ns = later_ns + self.convergence.establish_ns if later_ns else 0
        self._network.at(now + self.convergence.carrier_ns + ready_ns, notice)
        self.begin_sessions(now + self.convergence.carrier_ns + later_ns, ends)

    # --- silence -----------------------------------------------------------------------------------------

    def silence(self, now: int, names: Iterable[str]) -> None:
        """Lose all that these ports send from now on, and tell nobody."""
        for name in names:
            if name in self._silent:
                continue
            change = self._silent[name] = self._change(self._ends(name))
            self._set_up([name])
            due = self.convergence.silence_ns(now - self.begin_ns, self.random) + self.begin_ns
            if self.has_session(name):
                self._network.at(max(now, due), self._missed(name, change))

    def _missed(self, name: str, change: int) -> Callable[[int], None]:
        """Return what happens when the port at the other end of a silent one misses it."""

        def miss(now: int) -> None:
            if self._silent.get(name) != change:
                return
            hears = self.peer(name)
            self.end_sessions(now, [hears], self.convergence.silence_words)
            if hears not in self._silent and hears not in self._down:  # its notification arrives
                told = now + int(self._network.lines[hears].delay_ns) if hears in self._network.lines else now
                self._network.at(told, lambda at: self.end_sessions(at, [name], "notification"))

        return miss

    def speak(self, now: int, names: Iterable[str]) -> None:
        """Let what these ports send arrive again."""
        for name in names:
            if name in self._silent:
                del self._silent[name]
                self._set_up([name])
                self._change(self._ends(name))
                self.begin_sessions(now, self._ends(name))

    # --- sessions ----------------------------------------------------------------------------------------

    def end_sessions(self, now: int, ends: Iterable[str], why: str) -> None:
        """The sessions of these ports are down, and what was learnt by them is used no more."""
        for end in ends:
            if end in self._lost or not self.has_session(end):
                continue
            self._lost.add(end)
            port = self.ports[end]
            times = self.convergence
            heard = now + times.reaction_ns

            def lose(at: int, end: str = end, port: PortPlan = port) -> None:
                if end in self._lost:
                    self.note(at, "detected", port.node, f"{port.name} {why}")
                    self.routing.lose(end, at_once=why == CARRIER)

            def leave(_: int, end: str = end) -> None:
                if end in self._lost:
                    self._use(end, usable=False)

            self._network.at(heard, lose)
            if why != CARRIER:  # a host that speaks BGP goes by its other ports when its table is another one
                self._network.at(heard + times.process_ns + times.install_ns, leave)

    def end_bgp(self, node: str) -> None:
        """The bgpd of a node ends: its sessions do not come back before it runs again."""
        self._without_bgp.add(node)

    def begin_bgp(self, when: int, node: str) -> None:
        """The bgpd of a node runs again from a time on."""

        def begin(now: int) -> None:
            self._without_bgp.discard(node)
            for key in [key for key in self._waiting if node in _nodes(key)]:
                del self._waiting[key]
                self.begin_sessions(now, sorted(key))

        self._network.at(when, begin)

    def begin_sessions_of(self, now: int, names: Iterable[str]) -> None:
        """The sessions of these ports, and of those at the other ends of their links, come back."""
        for name in names:
            self.begin_sessions(now, self._ends(name))

    def begin_sessions(self, now: int, ends: Iterable[str]) -> None:
        """The sessions of these ports come back, if nothing goes wrong with their links meanwhile."""
        wanted = [end for end in ends if end in self._lost]
        if not wanted:
            return
        key = frozenset(self._ends(wanted[0]))
        change = self._changes[key]

        def establish(_: int) -> None:
            if self._changes[key] != change or key & (self._down | self._silent.keys()):
                return
            if self._without_bgp & _nodes(key):
                self._waiting[key] = None
                return
            for end in wanted:
                self._lost.discard(end)
                self.routing.regain(end)
                self._use(end, usable=True)

        self._network.at(now + self.convergence.establish_ns, establish)

    # --- lines -------------------------------------------------------------------------------------------

    def _ends(self, name: str) -> list[str]:
        return [name, self.peer(name)]

    def _change(self, ends: Iterable[str]) -> int:
        key = frozenset(ends)
        self._changes[key] += 1
        return self._changes[key]

    def _set_up(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._network.lines:
                self._network.set_up(name, up=name not in self._down and name not in self._silent)

    def _use(self, name: str, *, usable: bool) -> None:
        """Have a host with several ports use this one, or no more; and a leaf the port to such a host, where no session
        tells of it."""
        port, peer = self._network.outputs.get(name), self._network.outputs.get(self.peer(name))
        if port is not None and port.host is not None and len(port.host.ports) > 1:
            port.host.use(port, usable)
        elif name in self._together:
            self._fail_over(name, usable=usable)
        if peer is not None and peer.host is not None and len(peer.host.ports) > 1 and not self.has_session(name):
            if usable:
                self.routing.regain(name)
            else:
                self.routing.lose(name)

    def _fail_over(self, name: str, *, usable: bool) -> None:
        """Have a host with a subnet for each port send what has the address of this one by its next port, as long as
        this one has no carrier. What comes for the address is lost, so that no connection goes on."""
        (self._gone.discard if usable else self._gone.add)(name)
        ports = {one: port for one in self._together[name] if (port := self._network.outputs.get(one)) is not None}
        left = [port for one, port in ports.items() if one not in self._gone]
        for one, port in ports.items():
            if port.host is not None:
                port.host.send_by(left[0] if one in self._gone and left else None)

    def _end_pauses(self, now: int, name: str) -> None:
        """A port that has no carrier obeys no pause that came before."""
        if (port := self._network.outputs.get(name)) is not None:
            for queue in port.queues:
                port.resume(now, int(queue.priority))


def _nodes(ends: Iterable[str]) -> set[str]:
    return {end.partition(":")[0] for end in ends}


def _ports_together(plan: LabPlan) -> dict[str, list[str]]:
    """Return, by each port of a host with several subnets in a network, all of them: there the kernel does not count
    routes of a port whose link is down (`ignore_routes_with_linkdown`, ip-sysctl.rst)."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for port in plan.ports:
        if port.gateway is not None and port.network != BACKEND and port.nic_ports == 1:
            found[port.node, port.network].append(f"{port.node}:{port.name}")
    return {name: names for names in found.values() if len(names) > 1 for name in names}


def _bandwidths(plan: LabPlan) -> dict[str, tuple[int, int]]:
    """Return what is told and taken of link bandwidths over each line; nothing where paths are not weighted."""
    peers = {f"{port.node}:{port.name}": port.peer for port in plan.ports}
    sessions = {
        f"{switch.node}:{neighbour.interface}": neighbour
        for switch in plan.switches
        for neighbour in switch.neighbors
        if neighbour.tells_bandwidth or neighbour.takes_bandwidth
    }
    if not sessions:
        return {}
    found = {}
    for line, peer in peers.items():
        told = sessions[peer].tells_bandwidth if peer in sessions else 0
        taken = sessions[line].takes_bandwidth if line in sessions else 0
        found[line] = (told, taken)
    return found
