"""The base RTT of a lab, modelled: what a frame and its answer take over the longest way while nothing else is sent.

It is what bandwidth-delay products are made of: delays of the links there and back, and on the way there a full frame
received whole and sent on at each hop (store and forward, like our switches), on the way back a frame of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.base.units import Duration
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.fabric.queue_depths import frame_bytes
from testbed.lab.core.model import Lab, Link

ANSWER_BYTES = 64
"""An acknowledgement: the smallest Ethernet frame (IEEE 802.3 clause 4.4.2, minFrameSize)."""


def declared_base_rtt(lab: Lab) -> Duration | None:
    """Return what `qos.base_rtt` says, in real time: the longest, where parts of a fabric have their own."""
    declared = [profile.base_rtt for profile in lab.qos.profiles if profile.base_rtt] if lab.qos is not None else []
    return max(declared, key=lambda item: item.ns, default=None)


def model_base_rtt(lab: Lab) -> Duration:
    """Return the base RTT in real time. NICs send over a way with the fewest hops, the slowest of them where there are
    several.

    Without two NICs, switches stand for them; 0 for a lab without links.
    """
    graph = LabGraph(lab)
    cost_ps = {id(link): _link_ps(link) for link in lab.links}
    longest_ps = max((cost_ps[id(link)] for link in graph.direct), default=0)
    # Of a switch's NICs only the two slowest can be ends of the longest way.
    slowest = {
        switch: sorted((cost_ps[id(link)] for _, link in nics), reverse=True)[:2] for switch, nics in graph.nics.items()
    }
    if not slowest:
        slowest = {switch: [0] for switch, around in graph.switches.neighbours.items() if around}
    longest_ps = max(longest_ps, _longest_ps(slowest, graph, cost_ps))
    if not longest_ps:
        longest_ps = max((costs[0] for costs in slowest.values()), default=0)
    return Duration(-(-longest_ps // 1000))


def _link_ps(link: Link) -> int:
    """Both directions of a link, in ps: whole numbers, so that the order of adding does not matter."""
    bits = 8 * (frame_bytes(link.mtu_bytes) + ANSWER_BYTES)
    return 2000 * link.delay_ns + -(-bits * 10**12 // link.rate.bps)


def _longest_ps(ends: Mapping[str, list[int]], graph: LabGraph, cost_ps: Mapping[int, int]) -> int:
    """The slowest of the ways between two of `ends` (switches, with the cost of their slowest NICs)."""
    steps = {
        node: {other: max(cost_ps[id(link)] for link in links) for other, links in around.items()}
        for node, around in graph.switches.neighbours.items()
    }
    longest = max((sum(costs) for costs in ends.values() if len(costs) > 1), default=0)
    seen_from: set[tuple[int, frozenset[tuple[str, int]]]] = set()
    for start, costs in ends.items():
        # Switches with the same neighbours (the rails of a segment) are equally far from everything else.
        alike = costs[0], frozenset(steps[start].items())
        if alike in seen_from:
            continue
        seen_from.add(alike)
        reached = {start: 0}
        for wave in graph.switches.waves(start):
            for node, arrivals in wave.items():
                reached[node] = cost = max(reached[before] + steps[before][node] for before, _ in arrivals)
                if node in ends:
                    longest = max(longest, costs[0] + cost + ends[node][0])
    return longest
