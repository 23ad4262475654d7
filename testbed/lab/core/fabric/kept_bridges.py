"""The bridges of rails of a lab that is up, kept by a changed file that leaves a rail to one port.

A rail with several ports on its switch is a bridge, and one with a single port is routed directly. To take a port out
of a bridge, and the gateway from one to the other, costs the host that stays its packets. So a rail that has a bridge
keeps it as long as its lab is up and anybody is on it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from testbed.lab.core.model import Lab, LinkKind


def keep_bridges(old: Lab, new: Lab) -> Lab:
    """Return `new` with a bridge for each rail of one port that has one in `old`, the lab of its name that is up."""
    there = bridged_rails(old)
    counts = _ports(new)
    subnets = tuple(
        replace(subnet, bridged=True)
        if counts[subnet.switch, subnet.rail] == 1 and (subnet.switch, subnet.rail) in there
        else subnet
        for subnet in new.rail_subnets
    )
    return new if subnets == new.rail_subnets else replace(new, rail_subnets=subnets)


def bridged_rails(lab: Lab) -> set[tuple[str, int]]:
    """The rails that are bridges on their switch, by its name and their number."""
    counts = _ports(lab)
    return {
        (subnet.switch, subnet.rail)
        for subnet in lab.rail_subnets
        if counts[subnet.switch, subnet.rail] > 1 or (subnet.bridged and counts[subnet.switch, subnet.rail])
    }


def _ports(lab: Lab) -> Counter[tuple[str, int]]:
    return Counter((link.b.node, link.rail) for link in lab.links if link.kind is LinkKind.ACCESS)
