"""The link bandwidths that BGP tells with `routing: {weighted: true}`: paths have shares by what is behind them.

Source: RFC 10005 (the extended community), draft-ietf-bess-ebgp-dmz (its use in a Clos), and the FRR user guide,
"Weighted ECMP using BGP link bandwidth". A leaf announces its own prefixes with the bandwidth of the link that it
announces them over; whoever has several paths to them announces their sum, which bgpd does by itself. So a spine that
has lost one of two links to a leaf tells half, and others send it half as much.

What a switch is told knows nothing of the link that it is told over. Where its own links upwards are not alike, it
takes their bandwidth in the place of what it is told over them. Bandwidths are counted in the largest unit of which all
links of the network are multiples: shares alone matter, and bgpd takes whole numbers up to 25,600.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import gcd

from testbed.base.errors import PlanError
from testbed.lab.core.model import End, Lab, Link, LinkKind, Protocol, Role

MOST = 25_600
"""The largest bandwidth that bgpd takes (`set extcommunity bandwidth`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBandwidths:
    """`unit_bps` 0: nothing is told."""

    unit_bps: int = 0
    tellers: Collection[str] = frozenset()
    """The switches that announce what is theirs with a bandwidth: those that hosts are on."""
    uneven: Collection[str] = frozenset()
    """The switches whose links upwards are not alike."""

    def told(self, link: Link, end: End) -> int:
        """Return what the switch at this end of a link announces its own prefixes over it with, and whatever else it
        does; 0: nothing."""
        return self._of(link) if end.node in self.tellers and end == link.a else 0

    def taken(self, link: Link, end: End) -> int:
        """Return what the switch at this end takes in the place of what it is told over a link; 0: what it is told."""
        return self._of(link) if end.node in self.uneven and end == link.a else 0

    def _of(self, link: Link) -> int:
        return max(1, min(MOST, round(link.rate.bps / self.unit_bps))) if self.unit_bps else 0


def link_bandwidths(view: Lab) -> LinkBandwidths:
    """Return what is told in a network; the lower end of a link is its first. Raises `PlanError` with iBGP."""
    links = [link for link in view.links if link.kind is LinkKind.FABRIC]
    if not view.routing.weighted or not links:
        return LinkBandwidths()
    if view.routing.protocol is Protocol.IBGP:
        raise PlanError(
            "weighted paths are those of eBGP: reflectors hand on one path, and not the sum of several",
            field="fabric.routing.weighted",
            code="not-built",
            hint="routing: {protocol: ebgp}, or remove weighted",
        )
    rates: dict[str, set[int]] = {}
    for link in links:
        rates.setdefault(link.a.node, set()).add(link.rate.bps)
    unit = gcd(*(link.rate.bps for link in links))
    most = max(link.rate.bps for link in links)
    return LinkBandwidths(
        unit_bps=max(unit, most // MOST),
        tellers={node.name for node in view.switches if node.role in (Role.RAIL, Role.LEAF, None)},
        uneven={node for node, found in rates.items() if len(found) > 1},
    )
