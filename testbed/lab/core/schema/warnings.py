"""Warnings of topology files: what is valid, and works less well than the file looks. Each names its key.

A fabric wider than its ECMP, next hops that are not worth the same, links that are too narrow for what hosts send, and
planes that share switches.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.base.errors import Problem
from testbed.base.units import Rate
from testbed.base.validation.engine import in_file_order
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.core.fabric.bisection import Bisection, measure_bisection
from testbed.lab.core.fabric.forwarding.links import LargestPacket, narrow_links, shared_by_planes
from testbed.lab.core.fabric.forwarding.next_hops import MAX_ECMP, UnevenHops, find_faults
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.fabric.sizing import seen_for_sizing
from testbed.lab.core.model import BACKEND, OUT_OF_BAND, Lab, Link


def find_warnings(document: Document, lab: Lab) -> list[Problem]:
    """The warnings of a file, in its order. `lab` is what it describes."""
    found: list[Problem] = []
    for network in () if lab.design == OUT_OF_BAND else lab.data_networks:
        if lab.carrier_of(network) == network:
            found += _Network(document, seen_for_sizing(lab, network), network).warnings()
    return in_file_order(found)


class _Network:
    """One network of a lab, with the links of those that it carries."""

    def __init__(self, document: Document, lab: Lab, network: str) -> None:
        self._document = document
        self._lab = lab
        self._graph = LabGraph(lab)
        self._section: Path = ("fabric",) if network == BACKEND else ("networks", network)

    def warnings(self) -> Iterator[Problem]:
        faults = find_faults(self._graph.switches, self._graph.nics, self._lab.routing.ecmp)
        bisection = measure_bisection(self._lab, self._graph) if faults else None
        if faults.wide:
            yield self._too_wide(faults.wide, bisection)
        if faults.uneven and not self._lab.routing.weighted:
            worst = min(faults.uneven.values(), key=lambda hops: hops.evenly_bps / hops.all_bps)
            yield self._uneven(worst, len(faults.uneven) - 1, bisection)
        places: dict[Path, list[LargestPacket]] = {}
        for item in narrow_links(self._lab, self._graph):
            places.setdefault(self._place(item.link, "mtu"), []).append(item)
        for place, (item, *others) in places.items():
            more = f" (as {len(others)} more link{'' if len(others) == 1 else 's'})" if others else ""
            message = (
                f"the link {_ends(item.link)}{more} has an MTU of {item.link.mtu_bytes} bytes, and {item.sender} sends"
                f" packets of up to {item.sent_bytes}: those are lost on every path over it"
            )
            yield self._problem("narrow-link", place, message, f"mtu: {item.sent_bytes}")
        if (shared := shared_by_planes(self._lab, self._graph)) is not None:
            node, planes = shared
            message = (
                f"the ports of a NIC are on {planes} planes of leaves that share their {node.role} switches"
                f" ({node.name} and others): traffic of all planes meets there, and so do its failures"
            )
            hint = f"planes: {planes} beside nic gives each plane switches of its own above the leaves, too"
            yield self._problem("shared-planes", (*self._section, "nic", "ports"), message, hint)

    def _too_wide(self, wide: dict[str, int], bisection: Bisection | None) -> Problem:
        switch, width = max(wide.items(), key=lambda item: item[1])
        ecmp = self._lab.routing.ecmp
        message = (
            f"{switch}{_and_more(len(wide) - 1)} has {width} equally short ways and installs {ecmp} of them:"
            f" the others carry nothing{self._left(bisection)}"
        )
        hint = f"routing: {{ecmp: {min(width, MAX_ECMP)}}}"
        if width > MAX_ECMP:
            hint += f" is the most that FRR can do; {width - MAX_ECMP} stay idle"
        return self._problem("wider-than-ecmp", (*self._section, "routing", "ecmp"), message, hint)

    def _uneven(self, hops: UnevenHops, more: int, bisection: Bisection | None) -> Problem:
        slowest = hops.slowest
        message = (
            f"the next hops of {hops.switch} to {hops.destination}{_and_more(more)} carry"
            f" {Rate(round(hops.evenly_bps))} of {Rate(round(hops.all_bps))}: plain ECMP gives each an equal share, so"
            f" the slowest way sets what all carry, that over {_ends(slowest)}{self._left(bisection)}"
        )
        hint = (
            "routing: {weighted: true}, or links of one rate from each switch to the tier above it, as many everywhere"
        )
        return self._problem("uneven-ecmp", self._place(slowest, "rate"), message, hint)

    def _place(self, link: Link, key: str) -> Path:
        """Return the place where a key of a link is written, or would stand: at the link, or for all links."""
        wanted = {str(link.a), str(link.b)}
        for section in (("topology",), ("networks", link.network)):
            for number, entry in enumerate(self._document.get((*section, "links")) or ()):
                ends = entry.get("endpoints") if isinstance(entry, dict) else None
                if isinstance(ends, list) and {str(end) for end in ends} == wanted:
                    return (*section, "links", number, key)
        return (*self._section, *(("uplink", "rate") if key == "rate" else (key,)))

    def _left(self, bisection: Bisection | None) -> str:
        """Return in words how much of the bisection is left; "" where nothing of it is lost, or that is not known."""
        if bisection is None or bisection.ecmp_bps is None or bisection.ecmp_bps >= bisection.bandwidth_bps:
            return ""
        assert bisection.ecmp_share is not None
        railed = self._section == ("fabric",) and any(link.rail for link in self._lab.links)
        traffic = " for rail traffic" if railed else ""
        return (
            f"; the bisection between {bisection.between}{traffic} is {bisection.share:.0%} of what the NICs of one"
            f" half can send by the links, {bisection.ecmp_share:.0%} by {bisection.balancing}"
        )

    def _problem(self, code: str, path: Path, message: str, hint: str) -> Problem:
        return self._document.problem(code, path, message, hint=hint)


def _ends(link: Link) -> str:
    return f"{link.a} - {link.b}"


def _and_more(others: int) -> str:
    return "" if not others else f" (and those of {others} more switch{'' if others == 1 else 'es'})"
