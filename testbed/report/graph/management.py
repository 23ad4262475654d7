"""The out-of-band network in a picture.

Beside other networks its box has the switch and the server, and lines to hosts alone: a line from every switch of the
lab would cross all others and say one thing, which the box says in words. Drawn alone, every node is on its switch.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.model import OUT_OF_BAND, Lab, LinkKind, Node, NodeKind

BRIDGE_NAME = "management switch"
SERVER_NAME = "management server"
TARGET_NAME = "storage target"


def pictured(lab: Lab) -> Lab:
    """The lab as a picture shows it: itself, where it has no out-of-band network."""
    if lab.design == OUT_OF_BAND:
        return replace(lab, nodes=tuple(_as_host(node) for node in lab.nodes))
    network = lab.out_of_band
    if network is None:
        return lab
    switches = {node.name for node in lab.switches}
    links = (link for link in lab.links if link.kind is not LinkKind.MANAGEMENT or link.a.node not in switches)
    return replace(lab, links=tuple(links))


def _as_host(node: Node) -> Node:
    """A node as its management switch sees it."""
    return node if node.kind in (NodeKind.BRIDGE, NodeKind.SERVER) else replace(node, kind=NodeKind.HOST, role=None)


def special_names(lab: Lab) -> dict[str, str]:
    """What the storage targets, and the nodes of the out-of-band network, are called, by node."""
    names = {NodeKind.BRIDGE: BRIDGE_NAME, NodeKind.SERVER: SERVER_NAME, NodeKind.STORAGE: TARGET_NAME}
    return {node.name: names[node.kind] for node in lab.nodes if node.kind in names}
