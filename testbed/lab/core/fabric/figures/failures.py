"""Failure domains: whose bandwidth is lost, and how much of it, when one switch, link or plane dies.

A NIC that is on a dead switch loses the share of its rate that its ports there have. What dies further up takes a share
of the ways up: of all that NICs below can send beyond the tier where it happens, the part whose way leads over it, in
proportion to the rates of links. So a dead spine of four takes a quarter of what the NICs of its pod send to other
leaves, and nothing of what stays on a leaf; a dead super-spine takes a part of what goes to other pods.

It is the capacity that is lost. How soon routing leaves a dead way, and how flows are then spread over the others, a
scenario with `faults:` measures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from testbed.base.names import plane_letter
from testbed.lab.core.fabric.forwarding.links import islands
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import BACKEND, Lab, Link, Role

NIC_LINK = "NIC link"
"""The name of a link from a NIC to its switch."""
PLANE = "plane"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDomain:
    """The worst that one element of a kind (`what`: "rail switch", "rail to spine link", "plane") does when it dies.

    `affected` GPUs (hosts, in a network beside the back end) lose `share` of their bandwidth on average, which is the
    bandwidth beyond the tier where it happens. `elements` is how many of the kind there are, `worst` the name of one.
    """

    what: str
    elements: int
    worst: str
    affected: int
    unit: str
    share: float

    @property
    def lost(self) -> float:
        """The loss in bandwidths of one GPU or host."""
        return self.affected * self.share


def find_failure_domains(lab: Lab, graph: LabGraph, network: str = BACKEND) -> tuple[FailureDomain, ...]:
    """The failure domains of a network, from NIC links up, planes last; () where no host is on a switch.

    `lab` is seen in this network. NICs of others that it carries do not count.
    """
    nics = _Nics(lab, graph, network)
    if not nics.ports:
        return ()
    roles = {node.name: node.role or Role.RAIL for node in lab.switches}
    losses = _Losses(graph, nics, roles)
    found = [_worst(NIC_LINK, nics.link_losses())]
    found += [
        _worst(f"{role} switch", [losses.of_switch(name) for name, its_role in roles.items() if its_role is role])
        for role in Role
        if role in roles.values()
    ]
    found += _worst_links(losses, roles)
    if planes := nics.plane_losses(lab, graph):
        found.append(_worst(PLANE, planes))
    unit = "GPUs" if network == BACKEND else "hosts"
    return tuple(
        FailureDomain(
            what=one.what,
            elements=one.elements,
            worst=one.loss.of if isinstance(one.loss.of, str) else f"{one.loss.of.a} - {one.loss.of.b}",
            affected=round(one.loss.nics * nics.gpus_per_nic),
            unit=unit,
            share=one.loss.share,
        )
        for one in found
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """A switch, plane or link whose death takes `lost` rates of a NIC from `nics` of them."""

    of: str | Link
    nics: float
    lost: float

    @property
    def share(self) -> float:
        return self.lost / self.nics if self.nics else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worst:
    """The worst of several losses of one kind."""

    what: str
    elements: int
    loss: _Loss


def _worst(what: str, losses: Sequence[_Loss]) -> _Worst:
    return _Worst(what=what, elements=len(losses), loss=max(losses, key=lambda loss: loss.lost))


def _worst_links(losses: _Losses, roles: Mapping[str, Role]) -> Iterator[_Worst]:
    """The worst links between each two tiers."""
    found: dict[tuple[Role, Role], _Worst] = {}
    for tail, head, number, loss in losses.of_links():
        tiers = roles[tail], roles[head]
        known = found.get(tiers, _Worst(what=f"{tiers[0]} to {tiers[1]} link", elements=0, loss=loss))
        worse = max(known.loss, loss, key=lambda one: one.lost)
        found[tiers] = replace(known, elements=known.elements + number, loss=worse)
    order = list(Role)
    yield from (found[tiers] for tiers in sorted(found, key=lambda pair: [order.index(role) for role in pair]))


class _Nics:
    """The NICs of a network's hosts, and on which switches their ports are.

    In the back end a NIC is what has one rail, or each interface where none has any; in another network, the host's.
    """

    def __init__(self, lab: Lab, graph: LabGraph, network: str) -> None:
        hosts = {node.name for node in lab.hosts}
        railed = network == BACKEND and any(link.rail for attached in graph.nics.values() for _, link in attached)
        self.ports: dict[Hashable, list[tuple[str, Link]]] = defaultdict(list)
        """NIC -> the switch and the link of each of its ports."""
        for switch, attached in graph.nics.items():
            for end, link in attached:
                if end.node in hosts and link.network == network and (link.rail or not railed):
                    nic = (end.node, link.rail or end.interface) if network == BACKEND else end.node
                    self.ports[nic].append((switch, link))
        self.gpus_per_nic = lab.gpus_per_nic if network == BACKEND else 1
        self.rates = {nic: sum(link.rate.bps for _, link in ports) for nic, ports in self.ports.items()}

    def shares(self) -> Iterator[tuple[Hashable, str, Link, float]]:
        """Every port with its NIC, its switch and its share of the NIC's rate."""
        for nic, ports in self.ports.items():
            for switch, link in ports:
                yield nic, switch, link, link.rate.bps / self.rates[nic]

    def link_losses(self) -> list[_Loss]:
        """The loss of each port's link."""
        return [_Loss(of=link, nics=1, lost=share) for _, _, link, share in self.shares()]

    def plane_losses(self, lab: Lab, graph: LabGraph) -> list[_Loss]:
        """The loss of each plane of leaves, or of switches that are not joined with others; [] where there is one."""
        planes = {
            node.name: f"plane {plane_letter(node.place.plane)}"
            for node in lab.switches
            if node.place is not None and node.place.plane
        }
        if not planes:
            planes = {name: f"plane of {island[0]}" for island in islands(graph) for name in island}
            if not any(len({planes[switch] for switch, _ in ports}) > 1 for ports in self.ports.values()):
                return []
        lost: dict[str, dict[Hashable, float]] = defaultdict(lambda: defaultdict(float))
        for nic, switch, _, share in self.shares():
            if switch in planes:
                lost[planes[switch]][nic] += share
        return [_Loss(of=name, nics=len(nics), lost=sum(nics.values())) for name, nics in lost.items()]


@dataclass(slots=True, kw_only=True)
class _Below:
    """The NICs below a switch: how many there are, and which part of what they send up leads over it."""

    nics: float = 0.0
    parts: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Up:
    """The links of a switch to the tier above, by neighbour, and the sum of their rates."""

    links: dict[str, list[Link]] = field(default_factory=dict)
    bps: int = 0


class _Losses:
    """The losses with which switches and the links between them die.

    Ways up are walked once for all leaves that have the same links up, and NICs that are on the same such leaves are
    counted together.
    """

    def __init__(self, graph: LabGraph, nics: _Nics, roles: Mapping[str, Role]) -> None:
        self._ups = {switch: _up(switch, around, roles) for switch, around in graph.switches.neighbours.items()}
        self._on: dict[str, _Below] = defaultdict(_Below)
        """Leaf -> the NICs that have a port on it, with the share of each that is there."""
        self._below: dict[str, _Below] = defaultdict(_Below)
        family = self._families(nics)
        alike: Counter[frozenset[tuple[str, float]]] = Counter()
        for nic, ports in nics.ports.items():
            shares: dict[str, float] = defaultdict(float)
            here: dict[str, float] = defaultdict(float)
            for switch, link in ports:
                share = link.rate.bps / nics.rates[nic]
                here[switch] += share
                shares[family[switch]] += share
            for switch, share in here.items():
                self._on[switch].nics += 1
                self._on[switch].parts += share
            alike[frozenset(shares.items())] += 1
        walked = {leaf: self._walk(leaf) for leaf in set(family.values())}
        for shares_of_one, number in alike.items():
            parts: dict[str, float] = defaultdict(float)
            for leaf, share in shares_of_one:
                for switch, part in walked[leaf].items():
                    parts[switch] += share * part
            for switch, part in parts.items():
                self._below[switch].nics += number
                self._below[switch].parts += number * part

    def of_switch(self, name: str) -> _Loss:
        """The loss of a switch: the NICs on it, and those below it."""
        on, below = self._on.get(name, _Below()), self._below.get(name, _Below())
        return _Loss(of=name, nics=on.nics + below.nics, lost=on.parts + below.parts)

    def of_links(self) -> Iterator[tuple[str, str, int, _Loss]]:
        """The links from each switch to one above it: both switches, their number, and the loss of the fastest."""
        for switch, up in self._ups.items():
            whole = self.of_switch(switch)
            for neighbour, links in up.links.items():
                fastest = max(links, key=lambda link: link.rate)
                lost = whole.lost * fastest.rate.bps / up.bps
                yield switch, neighbour, len(links), _Loss(of=fastest, nics=whole.nics, lost=lost)

    def _families(self, nics: _Nics) -> dict[str, str]:
        """Each leaf -> the first one that has links up of the same rates to the same switches."""
        first: dict[Hashable, str] = {}
        found = {}
        for leaf in {switch for ports in nics.ports.values() for switch, _ in ports}:
            links = self._ups[leaf].links
            rates = frozenset((name, tuple(sorted(link.rate.bps for link in ones))) for name, ones in links.items())
            found[leaf] = first.setdefault(rates, leaf) if rates else leaf
        return found

    def _walk(self, leaf: str) -> dict[str, float]:
        """The part of what a leaf sends up that leads over each switch above it."""
        parts: dict[str, float] = {}
        here = {leaf: 1.0}
        while here:
            above: dict[str, float] = defaultdict(float)
            for switch, part in here.items():
                up = self._ups[switch]
                for neighbour, links in up.links.items():
                    above[neighbour] += part * sum(link.rate.bps for link in links) / up.bps
            for switch, part in above.items():
                parts[switch] = parts.get(switch, 0.0) + part
            here = above
        return parts


def _up(switch: str, around: Mapping[str, list[Link]], roles: Mapping[str, Role]) -> _Up:
    higher = {name: links for name, links in around.items() if roles[name].tier > roles[switch].tier}
    return _Up(links=higher, bps=sum(link.rate.bps for links in higher.values() for link in links))
