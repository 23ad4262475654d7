"""The shares that switches give their next hops: the same for each, or by the bandwidth behind it.

With `routing: {weighted: true}` they are what the routers of a plan install (`plan.routes`): percent of the bandwidths
that they are told, rounded down as bgpd does. Here they are known of links alone, before anything is planned.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.lab.core.fabric.forwarding.link_bandwidths import LinkBandwidths, link_bandwidths
from testbed.lab.core.fabric.forwarding.next_hops import Arrivals, Hop, destinations, installed
from testbed.lab.core.fabric.graph import Graph
from testbed.lab.core.model import End, Lab, Link, Protocol

Shares = list[tuple[Hop, int]]
"""The next hops that a switch installs, each with its weight."""


def told_bandwidths(lab: Lab) -> LinkBandwidths:
    """Return what is told in a network; nothing with iBGP, which a plan refuses to weigh."""
    return LinkBandwidths() if lab.routing.protocol is Protocol.IBGP else link_bandwidths(lab)


class HopShares:
    """The shares of the next hops to one destination. Switches are added from the nearest to it on."""

    def __init__(self, bandwidths: LinkBandwidths, ecmp: int) -> None:
        self._bandwidths = bandwidths
        self._ecmp = ecmp
        self._told: dict[str, int] = {}
        """The bandwidth that each switch tells others, unless its own links say theirs; 0: nothing."""

    def add(self, switch: str, arrivals: Arrivals) -> Shares:
        """Return the shares of a switch, the ones that it sends to being there."""
        hops = installed(switch, arrivals, self._ecmp)
        if not self._bandwidths.unit_bps:
            return [(hop, 1) for hop in hops]
        values = [self._value(switch, *hop) for hop in hops]
        told = self._told[switch] = sum(values) if all(values) else 0
        if not told or len(set(values)) == 1:
            return [(hop, 1) for hop in hops]
        return [(hop, max(1, 100 * value // told)) for hop, value in zip(hops, values, strict=True)]

    def _value(self, switch: str, neighbour: str, link: Link) -> int:
        own, other = (link.a, link.b) if link.a.node == switch else (link.b, link.a)
        return self._by_link(link, own, other) or self._told.get(neighbour, 0)

    def _by_link(self, link: Link, own: End, other: End) -> int:
        return self._bandwidths.taken(link, own) or self._bandwidths.told(link, other)


def weights_differ(
    switches: Graph[Link], attached: Mapping[str, object], bandwidths: LinkBandwidths, ecmp: int
) -> bool:
    """Tell whether a switch gives its next hops to one that NICs are attached to different shares."""
    if not bandwidths.unit_bps:
        return False
    for destination in destinations(switches, attached):
        shares = HopShares(bandwidths, ecmp)
        for wave in switches.waves(destination):
            for switch, arrivals in wave.items():
                if len({weight for _, weight in shares.add(switch, arrivals)}) > 1:
                    return True
    return False
