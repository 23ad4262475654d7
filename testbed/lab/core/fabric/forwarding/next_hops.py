"""Next hops as plain ECMP uses them: a switch installs at most `Routing.ecmp`, and divides evenly over those.

Where a switch has more equally short ways, the others carry nothing. Which ones it takes is not planned; here, as in
the oracles of scenarios, it is the first by the names of their interfaces. An equal share for each next hop means that
the slowest one of a group sets what all of them carry: that of its link, or its part of what is behind it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.lab.core.fabric.graph import Graph
from testbed.lab.core.model import Link

MAX_ECMP = 224
"""The most next hops of a route. FRR as Debian builds it (`--enable-multipath=256`) takes 256, but a route over IPv6
link-local addresses is in the kernel up to 232 next hops alone: more do not fit zebra's netlink messages (measured with
FRR 8.4.4). Some are left for routes that say more, such as those of VRFs."""
Hop = tuple[str, Link]
"""A neighbour, and one of the links to it."""
Arrivals = Sequence[tuple[str, Sequence[Link]]]
_EQUAL = 1 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenHops:
    """The next hops of `switch` towards `destination` are not worth the same.

    `slowest` is the link that sets what all carry, here or further on. `evenly_bps` is what they carry together with
    equal shares, `all_bps` what they could carry.
    """

    switch: str
    destination: str
    slowest: Link
    evenly_bps: float
    all_bps: float


@dataclass(slots=True, kw_only=True)
class NextHopFaults:
    """The places where routing makes less of a fabric than its links: `wide` is the number of equally short ways of
    each switch that has more than it installs, `uneven` the worst group of each switch that has any."""

    wide: dict[str, int] = field(default_factory=dict)
    uneven: dict[str, UnevenHops] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.wide or self.uneven)


def installed(switch: str, arrivals: Arrivals, ecmp: int) -> list[Hop]:
    """The next hops that `switch` uses of those that lead on."""
    hops = [(neighbour, link) for neighbour, links in arrivals for link in links]
    return hops if len(hops) <= ecmp else sorted(hops, key=lambda hop: _interface(switch, hop[1]))[:ecmp]


def _interface(switch: str, link: Link) -> str:
    return link.a.interface if link.a.node == switch else link.b.interface


def destinations(switches: Graph[Link], attached: Mapping[str, object]) -> Iterator[str]:
    """One switch of each family of `attached` ones that have links of the same rates to the same neighbours.

    What leads to one of them leads to the others alike.
    """
    seen = set()
    for switch in attached:
        around = switches.neighbours[switch]
        family = frozenset(
            (neighbour, tuple(sorted(link.rate.bps for link in links))) for neighbour, links in around.items()
        )
        if family not in seen or not family:
            seen.add(family)
            yield switch


def find_faults(switches: Graph[Link], attached: Mapping[str, object], ecmp: int) -> NextHopFaults:
    """Look at the next hops of all switches towards those that NICs are attached to."""
    faults = NextHopFaults()
    for destination in destinations(switches, attached):
        carried = _Carried(destination, ecmp)
        for wave in switches.waves(destination):
            for switch, arrivals in wave.items():
                carried.add(switch, arrivals, faults)
    return faults


class _Carried:
    """The rates that switches carry to a destination, from the nearest on: with equal shares (`evenly`), set by which
    link (`slowest`), and at most (`ideally`)."""

    def __init__(self, destination: str, ecmp: int) -> None:
        self._destination = destination
        self._ecmp = ecmp
        self._evenly: dict[str, float] = {destination: math.inf}
        self._ideally: dict[str, float] = {destination: math.inf}
        self._slowest: dict[str, Link] = {}

    def add(self, switch: str, arrivals: Arrivals, faults: NextHopFaults) -> None:
        """Add a switch, the ones that it sends to being there, and what is wrong with its next hops."""
        width = sum(len(links) for _, links in arrivals)
        if width > self._ecmp:
            faults.wide[switch] = max(width, faults.wide.get(switch, 0))
        hops = installed(switch, arrivals, self._ecmp)
        shared = Counter(neighbour for neighbour, _ in hops)
        worth = [min(link.rate.bps, self._evenly[neighbour] / shared[neighbour]) for neighbour, link in hops]
        least = min(worth)
        neighbour, link = hops[worth.index(least)]
        self._slowest[switch] = link if link.rate.bps <= least else self._slowest[neighbour]
        self._evenly[switch] = len(hops) * least
        self._ideally[switch] = sum(
            min(sum(one.rate.bps for one in links), self._ideally[on]) for on, links in arrivals
        )
        if max(worth) <= least * _EQUAL:
            return
        found = UnevenHops(
            switch=switch,
            destination=self._destination,
            slowest=self._slowest[switch],
            evenly_bps=self._evenly[switch],
            all_bps=self._ideally[switch],
        )
        known = faults.uneven.get(switch)
        if known is None or found.evenly_bps * known.all_bps < known.evenly_bps * found.all_bps:
            faults.uneven[switch] = found
