"""The packets that a change drops because it makes their queues anew: how many bytes wait there at this moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from testbed.base.linux.counters import read_queues
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.plan.operations import CreateVeth, InstallPort, Operation, ShapePort, place_of


def waiting_bytes(lab: str, taken: Iterable[Operation]) -> int:
    """Return how much waits in the queues of ports and links that are taken away first, to be made anew.

    Needs root where there are any.
    """
    queues: defaultdict[str, set[int]] = defaultdict(set)
    for item in taken:
        match item:
            case InstallPort() | ShapePort():
                queues[place_of(item)].add(item.ifindex)
            case CreateVeth():
                for end in (item.a, item.b):
                    queues[end.node].add(end.ifindex)
    seen = ask_inside(lab, queues, RouteSocket, lambda _, item: read_queues(item))
    return sum(
        queue.waiting_bytes for place, found in seen.items() for index, queue in found.items() if index in queues[place]
    )
