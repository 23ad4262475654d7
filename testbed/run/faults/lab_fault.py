"""The class that every kind of fault derives from, which is all that the rest of the testbed knows of one.

A `Fault` (`testbed.run.schema.model`) is what a scenario says: when, where, of which kind, with which settings. A
`LabFault` is what that means for a lab. A new kind of fault is a subclass in a module of its own, a line in `registry`,
and its words in the scenario file (`testbed.run.schema.faults`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from testbed.base.errors import Finding
from testbed.base.names import known_names_hint
from testbed.base.units import Duration
from testbed.lab.core.deploy.links.changes import LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.model import Lab, Link, NodeKind
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.features.scale_up.links import NoSuchScaleUpLink, find_links, names_gpu_link
from testbed.run.schema.model import AtStep, Fault

if TYPE_CHECKING:
    from testbed.run.faults.subnet import SubnetSite

_KIND_TEXTS = {NodeKind.SWITCH: "switch", NodeKind.HOST: "host", NodeKind.STORAGE: "storage target"}
"""Kinds of nodes in the words of messages; others are called by their names."""


class FaultPlace(StrEnum):
    """The kind of thing that a fault happens to. The value is the key of a scenario file that names it."""

    LINK = "link"
    """A port, as "node:interface", and its link; or a link of a scale-up domain, as "h1.gpu1:plane2"."""
    NODE = "node"
    """A switch, of whatever network."""
    AGENT = "agent"
    """The worker of a host or a storage target, the process that moves its data."""
    PLANE = "plane"
    """The links of all GPUs of a scale-up domain to one of its switch chips."""
    FABRIC_PLANE = "fabric_plane"
    """A plane of the back end, as "b": the links of all its switches."""
    TRAY = "tray"
    """All links of all GPUs of a host within their scale-up domain."""
    DOMAIN = "domain"
    """The process that switches for a scale-up domain."""
    MANAGER = "manager"
    """The subnet manager at a host of an InfiniBand back end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSite:
    """The things that a fault may lay hands on. `links` belongs to the thread that does the faults."""

    lab: RunningLab
    links: LinkControl
    kill_worker: Callable[[str], None]
    """Ends the worker of a host at once. Raises `ScenarioError` where the host has none."""
    subnet: SubnetSite | None = None
    """The InfiniBand back end of the lab; None: it is Ethernet."""
    lasting: list[LabFault] = field(default_factory=list)
    """The faults that last at the moment and change what others of their kind change, too; the latest is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpan:
    """The span for which a fault lasts, in ns from the begin of the traffic or, where they are given, in steps of a
    program. An end that is None: until the run ends."""

    begin_ns: int = 0
    end_ns: int | None = None
    begin_step: int | None = None
    end_step: int | None = None


class LabFault(ABC):
    """One fault of a scenario, as something to be checked against a lab, done to it and undone."""

    kind: ClassVar[str]
    """The name that scenarios, records and events have for it."""
    place: ClassVar[FaultPlace]
    is_undone: ClassVar[bool] = True
    """False: nothing is left that could be undone, because the next run brings back what the fault took away."""

    of_bridges: ClassVar[bool] = False
    """It may happen to the switch of the out-of-band network, too, which runs no daemons."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    @property
    def target(self) -> str:
        """The port, switch or host that it happens to."""
        return self.fault.target

    @property
    def of_scale_up(self) -> bool:
        """Tell whether it happens to a scale-up domain: nothing of it is seen in the fabric."""
        if self.place is FaultPlace.LINK:
            return names_gpu_link(self.target)
        return self.place in (FaultPlace.PLANE, FaultPlace.TRAY, FaultPlace.DOMAIN)

    # --- before ------------------------------------------------------------------------------------------

    def check(self, lab: Lab) -> Iterator[Finding]:
        """Return what the fault asks of a lab that its topology does not have: by default, that its target is there."""
        yield from self.place_findings(lab)

    def place_findings(self, lab: Lab) -> Iterator[Finding]:
        """Tell whether the fault's port, switch or host is in the topology."""
        match self.place:
            case FaultPlace.LINK:
                if self.of_scale_up:
                    yield from scale_up_findings(lab, self.place, self.target)
                else:
                    yield from _port_findings(lab, self.target)
            case FaultPlace.PLANE:
                yield from scale_up_findings(lab, self.place, self.target)
            case FaultPlace.TRAY | FaultPlace.DOMAIN:
                yield from scale_up_findings(lab, self.place, f"{self.target}:planes")
            case FaultPlace.NODE:
                bridges = [node.name for node in lab.nodes if node.kind is NodeKind.BRIDGE]
                if not (self.target in bridges and self.of_bridges):
                    yield from _node_findings(lab, self.place, self.target, (NodeKind.SWITCH,))
            case FaultPlace.AGENT:
                yield from _node_findings(lab, self.place, self.target, (NodeKind.HOST, NodeKind.STORAGE))

    def prepare(self, site: FaultSite) -> None:
        """Make ready before the traffic begins, so that the fault itself takes no longer than it must.

        Raises `NoSuchNode`, and `ScenarioError` for what the running lab does not have.
        """
        if self.of_scale_up:
            site.links.prepare(f"{self.target}:planes" if self.place in _WHOLE else self.target)
        elif site.subnet is not None and (site.subnet.has_port(self.target) or site.subnet.has_switch(self.target)):
            site.subnet.prepare()
        elif self.place is FaultPlace.LINK:
            site.links.prepare(self.target)
        else:
            site.lab.node(self.target)

    def spans(self) -> list[FaultSpan]:
        """Return when it is done and undone: by default once, from `at` until `until`."""
        at, until = self.fault.at, self.fault.until
        if isinstance(at, AtStep):
            return [FaultSpan(begin_step=at.step, end_step=until.step if isinstance(until, AtStep) else None)]
        return [FaultSpan(begin_ns=at.ns, end_ns=until.ns if isinstance(until, Duration) else None)]

    def holds(self, lab: Lab) -> Mapping[str, str]:
        """Return what it changes and its end gives back, in the words of messages, each with what it is changed to.

        Two faults that last at once cannot hold the same thing, because the first to end would give it back for both;
        unless they end together, or what they change it to has a word here and is the same. By default it holds itself.
        """
        return {f"{self.kind} of {self.target}": ""} if self.is_undone else {}

    # --- during ------------------------------------------------------------------------------------------

    @abstractmethod
    def do(self, site: FaultSite) -> None:
        """Do it. Whatever is raised means that it did not happen; returning without effect is not allowed."""

    @abstractmethod
    def undo(self, site: FaultSite) -> None:
        """Bring back what the topology declares. Also called for a fault whose `do` has failed half-way."""

    # --- what it explains --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def may_lose(self) -> bool:
        """Tell whether it may by itself lose packets of the fabric, or move flows to other paths. Probes then time what
        is lost."""

    @property
    def keeps_order(self) -> bool:
        """Tell whether no packet can overtake another of its flow because of it: by default, where it loses none."""
        return not self.may_lose

    def disturbs(self, port: PortPlan) -> bool:
        """Tell whether a port cannot be held to its rate because of it: by default both ends of its link, or all links
        of its node."""
        ends = {f"{port.node}:{port.name}", port.peer, port.node, port.peer.partition(":")[0]}
        return self.target in ends


def carriers(lab: Lab, of: Callable[[Link], bool]) -> dict[str, str]:
    """Return the carriers of some links of the fabric, as `LabFault.holds` names them."""
    return {f"the carrier of {link.a}": "" for link in lab.links if of(link)}


def _node_findings(lab: Lab, place: FaultPlace, name: str, kinds: Sequence[NodeKind]) -> Iterator[Finding]:
    """Check the name of a node that is to be of one of `kinds`, the first of which is the usual one."""
    found = next((node for node in lab.nodes if node.name == name), None)
    there = [kind for kind in kinds if any(node.kind is kind for node in lab.nodes)] or kinds[:1]
    code, wanted = f"unknown-{kinds[0]}", " or ".join(_KIND_TEXTS[kind] for kind in there)
    if found is None:
        names = [node.name for node in lab.nodes if node.kind in kinds]
        yield _unknown(code, place, f"{lab.name} has no {wanted}", name, names)
    elif found.kind not in kinds:
        hint = f"node: {name}, kill: true takes its power" if found.kind is NodeKind.SWITCH else None
        if found.kind in (NodeKind.HOST, NodeKind.STORAGE):
            ended = "moves its traffic" if found.kind is NodeKind.HOST else "serves it"
            hint = f"agent: {name}, kill: true ends what {ended}; link: {name}:PORT, down: true cuts it off"
        yield Finding(
            code=code,
            keys=(place.value,),
            message=f"{name} is a {_KIND_TEXTS.get(found.kind, found.kind.value)}, not a {wanted}",
            hint=hint,
        )


def _port_findings(lab: Lab, target: str) -> Iterator[Finding]:
    node, _, interface = target.partition(":")
    ends = [one for link in lab.links for one in (link.a, link.b)]
    if any((end.node, end.interface) == (node, interface) for end in ends):
        return
    names = [one.name for one in lab.nodes]
    if node not in names:
        yield _unknown("unknown-node", FaultPlace.LINK, f"{lab.name} has no node", node, names)
        return
    ports = [end.interface for end in ends if end.node == node]
    yield _unknown("unknown-port", FaultPlace.LINK, f"{node} has no port", interface, ports)


def scale_up_findings(lab: Lab, place: FaultPlace, target: str) -> Iterator[Finding]:
    """Tell whether a lab has the links of scale-up domains that `target` names."""
    try:
        find_links(lab, target)
    except NoSuchScaleUpLink as error:
        yield Finding(code="unknown-scale-up-link", keys=(place.value,), message=error.message, hint=error.hint)


_WHOLE = (FaultPlace.TRAY, FaultPlace.DOMAIN)


def _unknown(code: str, place: FaultPlace, message: str, name: str, known: Iterable[str]) -> Finding:
    return Finding(
        code=code, keys=(place.value,), message=f"{message} {name!r}", hint=known_names_hint(name, list(known))
    )
