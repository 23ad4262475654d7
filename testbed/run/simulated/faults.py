"""Faults on the simulator: what each kind does to lines, sessions and domains, and the acts of a run on its clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Address
from itertools import product

from testbed.base.errors import ScenarioError
from testbed.base.names import plane_of_switch
from testbed.lab.core.deploy.links.changes import LinkChange
from testbed.lab.core.model import Lab, LinkKind
from testbed.protocols.simulation import OutputPort
from testbed.protocols.simulation.faults import Impairments
from testbed.record.samples import RunEvent
from testbed.run.faults.acts import Act, plan_acts
from testbed.run.faults.kills import AgentKill, DaemonKill, ManagerKill, NodeKill
from testbed.run.faults.lab_fault import LabFault
from testbed.run.faults.links import LinkDown, LinkSet, PfcStorm, link_change
from testbed.run.faults.loops import RoutingLoop, ttl_of
from testbed.run.faults.outcome import FaultOutcome
from testbed.run.faults.planes import FabricPlaneDown
from testbed.run.faults.registry import lab_fault
from testbed.run.faults.subnet import CreditLeak
from testbed.run.scale_up.faults import DomainKill
from testbed.run.scale_up.simulated import SimulatedDomains
from testbed.run.schema.model import AtStep, Fault
from testbed.run.simulated.fabric import SimulatedFabric
from testbed.run.simulated.faulty_links import FaultyLinks

INSTEAD = "leave --backend out: emulation can"
PAUSE_QUANTA = 65_535
"""The longest pause that a frame asks for, in times of 512 bits (IEEE 802.3, annex 31B)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSite:
    """The things that a fault may lay hands on."""

    fabric: SimulatedFabric
    links: FaultyLinks
    domains: SimulatedDomains
    lasting: list[LabFault] = field(default_factory=list)
    """As in `FaultSite`."""


def check_fault(fault: Fault, lab: Lab) -> None:
    """Raise `ScenarioError` for a fault that cannot be simulated."""
    found = lab_fault(fault)
    if isinstance(found, AgentKill):
        raise ScenarioError(
            f"--backend simulation has no workers, and that of {fault.target} is to be killed", hint=INSTEAD
        )
    if isinstance(found, CreditLeak | ManagerKill):
        raise ScenarioError(
            f"{fault.kind} of {fault.target} happens to InfiniBand, and this traffic goes over Ethernet's switches",
            hint="transport: {kind: ib}",
        )
    if isinstance(fault.at, AtStep):
        raise ScenarioError(
            f"--backend simulation runs no program whose steps a fault could wait for, as {fault.kind} of"
            f" {fault.target} does",
            hint=f"at: 2s, or {INSTEAD}",
        )
    if "jitter" in fault.settings:
        raise ScenarioError(
            f"--backend simulation has links of a constant delay, and that of {fault.target} is to vary",
            hint=f"a link-set without jitter, or {INSTEAD}",
        )
    if _needs_peer_link(found, lab):
        raise ScenarioError(
            f"--backend simulation has no peer links and no LACP, by which a pair of leaves goes on after {fault.kind}"
            f" of {fault.target}",
            hint=f"node: LEAF, kill: true, or {INSTEAD}",
        )


def _needs_peer_link(found: LabFault, lab: Lab) -> bool:
    """Tell whether a leaf of a pair lives on with hosts of link groups, but without a link to one or without routes."""
    if isinstance(found, DaemonKill):
        pairs = {end.node for link in lab.links if link.kind is LinkKind.PEER for end in (link.a, link.b)}
        return found.fault.settings.get("daemon") == "bgpd" and found.target in pairs
    return _is_cut_off(found, lab, LinkKind.MEMBER, LinkKind.PEER)


def _is_cut_off(found: LabFault, lab: Lab, *kinds: LinkKind) -> bool:
    """Tell whether a fault takes a link of one of these kinds away, or all that it carries."""
    if not isinstance(found, LinkDown) and not (isinstance(found, LinkSet) and found.fault.settings.get("silent")):
        return False
    links = (link for link in lab.links if link.kind in kinds)
    return any(found.target in (str(link.a), str(link.b)) for link in links)


class _Fault(ABC):
    """One kind of fault as the simulator has it."""

    def __init__(self, fault: LabFault, site: SimulatedSite) -> None:
        self.fault = fault
        self.target = fault.target
        self.site = site

    @abstractmethod
    def do(self, now: int) -> None:
        """Do it."""

    @abstractmethod
    def undo(self, now: int) -> None:
        """Bring back what was there before."""


class _Down(_Fault):
    """The carrier of a link goes."""

    def do(self, now: int) -> None:
        self.site.links.down(now, self.target)

    def undo(self, now: int) -> None:
        self.site.links.up(now, self.target)


class _Set(_Fault):
    """The packets that one end of a link sends, or both, are slower, later, lost or damaged."""

    def do(self, now: int) -> None:
        change = link_change(self.fault.fault.settings)
        for name in self._names:
            self._change(name, change)
        if change.silent:
            self.site.links.silence(now, self._names)

    def undo(self, now: int) -> None:
        for name in self._names:
            line, port = self.site.fabric.network.lines.get(name), self.site.links.ports[name]
            if line is None:
                continue
            line.rate_bps, line.delay_ns = port.rate_bps, self.site.fabric.delays[name]
            declared = self.site.links.impairments[name] = Impairments(loss=port.loss)
            line.impair(declared if port.loss else None)
        self.site.links.speak(now, self._names)

    @property
    def _names(self) -> list[str]:
        both = bool(self.fault.fault.settings.get("both", False))
        return [self.target, self.site.links.peer(self.target)] if both else [self.target]

    def _change(self, name: str, change: LinkChange) -> None:
        """Change what is sent by a port, if any of the run's packets can come by it."""
        line, port = self.site.fabric.network.lines.get(name), self.site.links.ports[name]
        if line is None:
            return
        if change.rate is not None:
            line.rate_bps = max(1, change.rate.scaled(self.site.fabric.k).bps)
        if change.rate_share is not None:
            line.rate_bps = max(1, round(port.rate_bps * change.rate_share))
        if change.delay is not None:
            line.delay_ns = self.site.fabric.delays[name] + change.delay.scaled(self.site.fabric.k).ns - port.delay_ns
        before = impairments = self.site.links.impairments.get(name, Impairments(loss=port.loss))
        if change.loss is not None:
            impairments = replace(impairments, loss=change.loss)
        if change.loss_every is not None:
            impairments = replace(impairments, loss_every=change.loss_every)
        if change.corruption is not None:
            impairments = replace(impairments, corrupt=change.corruption)
        if impairments != before:
            line.impair(impairments)
            self.site.links.impairments[name] = impairments


class _Storm(_Fault):
    """A port's peer is asked for pauses, again before each one ends (IEEE 802.1Qbb)."""

    _raging = False

    def do(self, now: int) -> None:
        self._raging = True
        self._ask(now)

    def undo(self, now: int) -> None:
        self._raging = False
        if (port := self._port) is not None:
            self.site.fabric.network.at(now + int(port.line.delay_ns), self._end)

    def _ask(self, now: int) -> None:
        port = self._port
        if not self._raging or port is None:
            return
        network = self.site.fabric.network
        self.site.fabric.storms[self.target, self._priority] += 1
        network.at(now + int(port.line.delay_ns), self._pause)
        network.at(now + max(1, PAUSE_QUANTA * 512 * 10**9 // int(port.line.rate_bps) // 2), self._ask)

    def _pause(self, now: int) -> None:
        if self._raging and (port := self._port) is not None:
            port.pause(now, self._priority)

    def _end(self, now: int) -> None:
        if (port := self._port) is not None:
            port.resume(now, self._priority)

    @property
    def _port(self) -> OutputPort | None:
        return self.site.fabric.network.outputs.get(self.site.links.peer(self.target))

    @property
    def _priority(self) -> int:
        return int(self.fault.fault.settings["priority"])


class _NodeKill(_Fault):
    """All ports of a switch lose their carrier, one after the other, until it has power again."""

    _dead = False

    def do(self, now: int) -> None:
        links, times = self.site.links, self.site.links.convergence
        self._dead = True
        links.end_bgp(self.target)
        for number, name in enumerate(links.of_node(self.target)):
            first = max(0, times.power_ns - times.carrier_ns)
            self._at(now + first + number * times.next_port_ns, partial(_at_port, self._down, name))

    def _down(self, now: int, name: str) -> None:
        if self._dead:
            self.site.links.down(now, name)

    def undo(self, now: int) -> None:
        links, times = self.site.links, self.site.links.convergence
        self._dead = False
        links.begin_bgp(now + times.start_ns, self.target)
        for number, name in enumerate(links.of_node(self.target)):
            self._at(
                now + number * times.next_port_ns,
                partial(_at_port, partial(links.up, later_ns=times.start_ns), name),
            )

    def _at(self, when: int, action: Callable[[int], None]) -> None:
        self.site.fabric.network.at(when, action)


class _PlaneDown(_Fault):
    """All links of a plane's switches lose their carrier at once."""

    def do(self, now: int) -> None:
        for name in self._names:
            self.site.links.down(now, name)

    def undo(self, now: int) -> None:
        for name in self._names:
            self.site.links.up(now, name)

    @property
    def _names(self) -> list[str]:
        """Each link once, by one of its ports in the plane."""
        ports = self.site.links.ports
        mine = {name: port for name, port in ports.items() if plane_of_switch(port.node) == self.target}
        return [name for name, port in mine.items() if port.peer not in mine or name < port.peer]


class _Loop(_Fault):
    """Switches send what is for some NICs round, with the time to live that all NICs give to packets meanwhile."""

    def do(self, now: int) -> None:
        self.site.lasting.append(self._loop)
        self._divert()

    def undo(self, now: int) -> None:
        network, ends = self.site.fabric.network, self.site.fabric.ends
        self.site.lasting.remove(self._loop)
        for line, address in self._diverted(self._loop):
            network.divert(ends[line][0], address, [])
        self._divert()

    def _divert(self) -> None:
        """Have switches and NICs do as the loops that last now say; of several the one that was begun last."""
        network, ends, lasting = self.site.fabric.network, self.site.fabric.ends, self.site.lasting
        for loop in lasting:
            for line, address in self._diverted(loop):
                network.divert(ends[line][0], address, [line])
        for nic in network.nics.values():
            nic.ttl = ttl_of(lasting)

    @property
    def _loop(self) -> RoutingLoop:
        assert isinstance(self.fault, RoutingLoop)
        return self.fault

    def _diverted(self, loop: LabFault) -> Iterator[tuple[str, str]]:
        """Yield each line of a loop with each address that goes round by it; none of a network without ranks."""
        assert isinstance(loop, RoutingLoop)
        ports = self.site.links.ports.values()
        prefix = loop.prefix(ports)
        addresses = [address for address in self.site.fabric.network.nics if IPv4Address(address) in prefix]
        lines = (f"{port.node}:{port.name}" for port in loop.ways(ports))
        return product((line for line in lines if line in self.site.fabric.ends), addresses)


def _at_port(action: Callable[[int, str], None], name: str, now: int) -> None:
    action(now, name)


class _DaemonKill(_Fault):
    """A routing daemon ends. bgpd's sessions are closed by the kernel at once, and bfdd is missed as a silent link is;
    zebra leaves the kernel's routes as they are."""

    _dead = False

    def do(self, now: int) -> None:
        links = self.site.links
        self._dead = True
        links.note(now, "daemon-ended", self.target, self._daemon)
        if self._daemon == "bgpd":
            links.end_bgp(self.target)
            links.end_sessions(now, [end for name in self._ports for end in (name, links.peer(name))], "session closed")
        elif self._daemon == "bfdd":
            due = links.begin_ns + links.convergence.silence_ns(now - links.begin_ns, links.random)
            self.site.fabric.network.at(max(now, due), self._miss)

    def _miss(self, now: int) -> None:
        links = self.site.links
        if self._dead:
            for name in self._ports:
                links.end_sessions(now, [links.peer(name), name], links.convergence.silence_words)
            links.begin_sessions_of(now, self._ports)  # BGP comes back without BFD

    def undo(self, now: int) -> None:
        links = self.site.links
        self._dead = False
        links.begin_bgp(now + links.convergence.start_ns, self.target)
        links.begin_sessions_of(now + links.convergence.start_ns, self._ports)

    @property
    def _ports(self) -> list[str]:
        return [name for name in self.site.links.of_node(self.target) if self.site.links.has_session(name)]

    @property
    def _daemon(self) -> str:
        return str(self.fault.fault.settings.get("daemon", ""))


class _ScaleUpDown(_Fault):
    """Links of a scale-up domain have no signal."""

    def do(self, now: int) -> None:
        self.site.domains.change(self._links, LinkChange(up=False))

    def undo(self, now: int) -> None:
        self.site.domains.change(self._links, LinkChange(up=True))

    @property
    def _links(self) -> str:
        assert isinstance(self.fault, LinkDown)
        return self.fault.links


class _ScaleUpSet(_Fault):
    """Links of a scale-up domain are slower, lose frames or damage them."""

    def do(self, now: int) -> None:
        self.site.domains.change(self.target, link_change(self.fault.fault.settings))

    def undo(self, now: int) -> None:
        self.site.domains.change(self.target, None)


class _DomainKill(_Fault):
    """The switch of a scale-up domain ends, and another one takes its place."""

    def do(self, now: int) -> None:
        self.site.domains.kill_switch(self.target)

    def undo(self, now: int) -> None:
        self.site.domains.start_switch(self.target)


_OF_FABRIC: Sequence[tuple[type[LabFault], type[_Fault]]] = (
    (LinkDown, _Down), (LinkSet, _Set), (PfcStorm, _Storm), (NodeKill, _NodeKill), (DaemonKill, _DaemonKill),
    (FabricPlaneDown, _PlaneDown), (RoutingLoop, _Loop),
)  # fmt: skip
_OF_SCALE_UP: Sequence[tuple[type[LabFault], type[_Fault]]] = (
    (LinkDown, _ScaleUpDown), (LinkSet, _ScaleUpSet), (DomainKill, _DomainKill),
)  # fmt: skip


class SimulatedFaults:
    """The faults of one run, from before its begin to its end."""

    def __init__(self, faults: Sequence[Fault], site: SimulatedSite) -> None:
        self._site = site
        self._links = site.links
        found = [lab_fault(fault) for fault in faults]
        self._planned = len(found)
        self._acts = plan_acts(found)
        self._made: Mapping[int, _Fault] = {id(one): _make(one, site) for one in found}
        self._done = 0
        self._over = False
        self._never: dict[int, Act] = {}
        """By their order, the acts that have not begun anything."""

    def begin(self, now: int) -> None:
        """The traffic begins. What is due at once has happened when this returns."""
        for act in self._acts:
            if not act.undo:
                self._never[act.order] = act
            if act.at_ns:
                self._site.fabric.network.at(now + act.at_ns, partial(self._perform, act))
            else:
                self._perform(act, now)

    def end(self) -> None:
        """The traffic has ended: nothing more is done."""
        self._over = True

    def _perform(self, act: Act, now: int) -> None:
        if self._over:
            return
        made, fault = self._made[id(act.fault)], act.fault.fault
        detail = " ".join(f"{key}={value}" for key, value in fault.settings.items())
        self._links.note(now, f"undone-{fault.kind}" if act.undo else fault.kind, fault.target, detail)
        self._never.pop(act.order, None)
        self._done += 1
        if act.undo:
            made.undo(now)
        else:
            made.do(now)

    def events(self) -> list[RunEvent]:
        """Return what was done and seen, in order of time."""
        return sorted(self._links.events, key=lambda event: event.at_s)

    def outcome(self, lasted_s: float) -> FaultOutcome:
        """Return how far they happened in a run that lasted so long: of those that did not, each fault once."""
        missing = {id(act.fault): act for act in reversed(self._never.values())}
        return FaultOutcome(
            planned=self._planned,
            acts=self._done,
            troubles=tuple(
                f"{act.name} at {act.due} never happened: the traffic ended after {lasted_s:.3f} s"
                for act in reversed(missing.values())
            ),
        )


def _make(fault: LabFault, site: SimulatedSite) -> _Fault:
    kinds = _OF_SCALE_UP if fault.of_scale_up else _OF_FABRIC
    return next(made for kind, made in kinds if isinstance(fault, kind))(fault, site)
