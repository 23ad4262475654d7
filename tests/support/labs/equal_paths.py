"""How many equal-cost paths there are between two NICs, which sizing, plans and oracles are held against."""

from __future__ import annotations

from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.fabric.paths import count_paths
from testbed.lab.core.model import End, Lab


def equal_cost_paths(lab: Lab, a: End, b: End) -> int:
    """The number of shortest paths between the host interfaces `a` and `b`; 0 where no path exists."""
    far = {end: other for link in lab.links for end, other in ((link.a, link.b), (link.b, link.a))}
    if far[a] == b:
        return 1
    hosts = {node.name for node in lab.hosts}
    if far[a].node in hosts or far[b].node in hosts:
        return 0
    return count_paths(LabGraph(lab).switches, far[b].node, lab.routing.ecmp).get(far[a].node, 0)
