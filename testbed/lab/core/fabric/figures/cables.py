"""Cables by kind and rate: which one a link needs, by what its file says, or else by how long it probably is.

1. The label `cable` of a link, or the key `cable` of `fabric.nic`, `uplink` and `core_uplink`, names the kind.
2. A link with a delay is as long as light goes in it: 5 ns for a metre of fibre (a refractive index of 1.47).
3. Any other link has the length that is usual for its place. A host whose NICs are on no more switches than one NIC has
   ports stands in the rack of those switches, 2 m away. One whose NICs are spread over the switches of many rails is
   20 m from them. From leaf to spine it is 50 m, from spine to super-spine and to routers outside 150 m. Two leaves of
   a pair, and two hosts that are linked with each other, are 2 m apart.

Up to 3 m a cable is passive copper (DAC), from 800G on up to 2 m, as vendors sell them (NVIDIA MCP7Y10: 400G ends, 1 to
3 m; MCP4Y10: 800G, 0.5 to 2 m). Up to 30 m it is an active optical cable (AOC), and beyond that fibre between two
transceivers (optics).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from testbed.base.units import Rate
from testbed.lab.core.model import BACKEND, Lab, Link, LinkKind, NodeKind, Role

CABLE_LABEL = "cable"
"""The label of a link that names the kind of its cable."""
NS_PER_M = 5
IN_RACK_M, IN_ROW_M, TO_SPINE_M, TO_CORE_M = 2, 20, 50, 150
COPPER_M, FAST_COPPER_M, ACTIVE_M = 3, 2, 30
FAST = Rate.parse("800G")
"""The rate from which on copper reaches less far."""


class Cable(StrEnum):
    """A kind of cable, as files write it."""

    DAC = "dac"
    """Passive copper with a plug at each end."""
    AOC = "aoc"
    """Fibre with a transceiver fixed to each end."""
    OPTICS = "optics"
    """A transceiver at each end, and fibre between them."""

    @property
    def shown(self) -> str:
        """Return its name for people."""
        return self.value if self is Cable.OPTICS else self.value.upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class CableCount:
    """The number of cables of one kind and rate."""

    cable: Cable
    rate: Rate
    count: int


def count_cables(lab: Lab) -> tuple[CableCount, ...]:
    """The cables of a lab: copper first, slow ones first. Links of management ports are left out."""
    rules = CableRules(lab)
    counted = Counter((rules.cable_of(link), link.rate) for link in lab.links if link.kind is not LinkKind.MANAGEMENT)
    kinds = list(Cable)
    return tuple(
        CableCount(cable=cable, rate=rate, count=counted[cable, rate])
        for cable, rate in sorted(counted, key=lambda one: (kinds.index(one[0]), one[1]))
    )


class CableRules:
    """The rules above, for the links of one lab."""

    def __init__(self, lab: Lab) -> None:
        self._tiers = {
            node.name: (node.role or Role.RAIL).tier if node.kind is NodeKind.SWITCH else 0 for node in lab.nodes
        }
        self._outside = {node.name for node in lab.nodes if node.kind is NodeKind.ROUTER}
        self._in_rack = _in_rack(lab, self._tiers)

    def cable_of(self, link: Link) -> Cable:
        """The kind of cable of a link."""
        said = link.labels.get(CABLE_LABEL, "").lower()
        if said in list(Cable):
            return Cable(said)
        return cable_for(self.length_m(link), link.rate)

    def length_m(self, link: Link) -> float:
        """The length of a link in metres, by its delay or by where it is."""
        if link.delay is not None:
            return link.delay.value.ns / NS_PER_M
        if link.a.node in self._outside or link.b.node in self._outside:
            return TO_CORE_M
        a, b = self._tiers.get(link.a.node, 0), self._tiers.get(link.b.node, 0)
        low, high = min(a, b), max(a, b)
        if low == high:
            return IN_RACK_M
        if low:
            return TO_CORE_M if high > 2 else TO_SPINE_M
        host = link.b.node if a else link.a.node
        return IN_RACK_M if (host, link.network) in self._in_rack else IN_ROW_M


def cable_for(length_m: float, rate: Rate) -> Cable:
    """The kind of cable for a length and a rate."""
    if length_m <= (COPPER_M if rate < FAST else FAST_COPPER_M):
        return Cable.DAC
    return Cable.AOC if length_m <= ACTIVE_M else Cable.OPTICS


def _in_rack(lab: Lab, tiers: Mapping[str, int]) -> set[tuple[str, str]]:
    """The hosts and networks whose NICs are on no more switches than one NIC has ports."""
    switches: dict[tuple[str, str], set[str]] = defaultdict(set)
    ports: dict[tuple[str, str], Counter[Hashable]] = defaultdict(Counter)
    for link in lab.links:
        for end, other in ((link.a, link.b), (link.b, link.a)):
            if not tiers.get(end.node) and tiers.get(other.node):
                switches[end.node, link.network].add(other.node)
                nic = (link.rail or end.interface) if link.network == BACKEND else ""
                ports[end.node, link.network][nic] += 1
    return {place for place, met in switches.items() if len(met) <= max(ports[place].values())}
