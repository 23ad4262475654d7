"""The numbers of a lab in its picture: AS numbers, and the addresses of ports, loopbacks and of the bridges of rails,
which are a switch's VLANs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from testbed.lab.core.model import Lab, Node
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddAddress

Captions = Mapping[str, Mapping[str, str]]
"""Lines below the names of nodes: names of numbers with their values."""


def captions_of(plan: LabPlan) -> Captions:
    """Return the AS number and the addresses of each node that has any, by the interfaces that they are on."""
    found: dict[str, dict[str, str]] = {}
    for speaker in plan.speakers:
        found.setdefault(speaker.node, {})["AS"] = str(speaker.asn)
    for operation in plan.operations:
        if isinstance(operation, AddAddress):
            on = found.setdefault(operation.node, {})
            before = on.get(operation.name)
            on[operation.name] = f"{before}, {operation.address}" if before else str(operation.address)
    return found


def with_captions(lab: Lab, captions: Captions) -> Lab:
    """Return the lab with these captions before the labels of its nodes, which a page shows."""

    def captioned(node: Node) -> Node:
        return replace(node, labels={**captions[node.name], **node.labels}) if node.name in captions else node

    return replace(lab, nodes=tuple(map(captioned, lab.nodes)))


def caption_lines(name: str, captions: Captions) -> list[str]:
    """Return the lines below the name of a node."""
    return [f"{key} {value}" for key, value in captions.get(name, {}).items()]
