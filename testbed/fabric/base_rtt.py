"""The base RTT of a lab, modelled: what a frame and its answer take over the longest way while nothing else is sent.

It is what bandwidth-delay products are made of: delays of the links there and back, and on the way there a full frame
received whole and sent on at each hop (store and forward, like our switches), on the way back a frame of 64 bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from testbed.fabric.queue_depths import frame_bytes
from testbed.model import DelayBy, Lab, Link, NodeKind
from testbed.units import Duration

ANSWER_BYTES = 64
"""An acknowledgement: the smallest Ethernet frame (IEEE 802.3 clause 4.4.2, minFrameSize)."""


def model_base_rtt(lab: Lab) -> Duration:
    """In real time. NICs send over a way with the fewest hops, the slowest of them where there are several.

    Without two NICs, switches stand for them; 0 for a lab without links.
    """
    hosts = {node.name for node in lab.nodes if node.kind is NodeKind.HOST}
    access: dict[str, list[int]] = defaultdict(list)
    neighbors: dict[str, dict[str, int]] = defaultdict(dict)
    longest_ps = 0
    for link in lab.links:
        cost_ps = _link_ps(link)
        a, b = link.a.node, link.b.node
        match a in hosts, b in hosts:
            case True, False:
                access[b].append(cost_ps)
            case False, True:
                access[a].append(cost_ps)
            case True, True:
                longest_ps = max(longest_ps, cost_ps)
            case _:
                neighbors[a][b] = neighbors[b][a] = max(cost_ps, neighbors[a].get(b, 0))
    # Of a switch's NICs only the two slowest can be ends of the longest way.
    slowest = {switch: sorted(costs, reverse=True)[:2] for switch, costs in access.items()}
    if not slowest:
        slowest = {switch: [0] for switch in neighbors}
    longest_ps = max(longest_ps, _longest_ps(slowest, neighbors))
    if not longest_ps:
        longest_ps = max((costs[0] for costs in slowest.values()), default=0)
    return Duration(-(-longest_ps // 1000))


def _link_ps(link: Link) -> int:
    """Both directions of a link, in ps: whole numbers, so that the order of adding does not matter."""
    delay_ns = 0 if link.delay is None or link.delay.by is DelayBy.IGNORE else link.delay.value.ns
    bits = 8 * (frame_bytes(link.mtu_bytes) + ANSWER_BYTES)
    return 2000 * delay_ns + -(-bits * 10**12 // link.rate.bps)


def _longest_ps(ends: Mapping[str, list[int]], neighbors: Mapping[str, Mapping[str, int]]) -> int:
    """The slowest of the ways between two of `ends` (switches, with the cost of their slowest NICs)."""
    longest = max((sum(costs) for costs in ends.values() if len(costs) > 1), default=0)
    seen_from: set[tuple[int, frozenset[tuple[str, int]]]] = set()
    for start, costs in ends.items():
        around = neighbors.get(start)
        if not around:
            continue
        # Switches with the same neighbours (the rails of a segment) are equally far from everything else.
        alike = costs[0], frozenset(around.items())
        if alike in seen_from:
            continue
        seen_from.add(alike)
        seen = {start}
        frontier = {start: 0}
        while frontier:
            reached: dict[str, int] = {}
            for node, cost in frontier.items():
                for other, step in neighbors[node].items():
                    if other not in seen:
                        reached[other] = max(cost + step, reached.get(other, 0))
            for node, cost in reached.items():
                if node in ends:
                    longest = max(longest, costs[0] + cost + ends[node][0])
            seen |= reached.keys()
            frontier = reached
    return longest
