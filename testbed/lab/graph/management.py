"""The out-of-band network in a picture.

Beside other networks its box has the switch and the server, and lines to hosts alone: a line from every switch of the
lab would cross all others and say one thing, which the box says in words. Drawn alone, every node is on its switch. The
server of one in band is drawn as a host is, and switches have no lines to the leaves that they have a port on.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.lab.core.model import OUT_OF_BAND, Lab, LinkKind, Node, NodeKind
from testbed.lab.graph.scale_up import PLANE_NAME, SCALE_UP

BRIDGE_NAME = "management switch"
SERVER_NAME = "management server"
TARGET_NAME = "storage target"
_MANAGED = tuple(kind for kind in NodeKind if kind not in (NodeKind.BRIDGE, NodeKind.SERVER))
"""As their management switch sees them."""


def pictured(lab: Lab) -> Lab:
    """The lab as a picture shows it: itself, where nobody manages it."""
    lab = sized(lab)
    there, switches = {node.name for node in lab.nodes}, {node.name for node in lab.switches}
    network = lab.management
    in_band = network.name if network is not None and not network.is_out_of_band else ""
    links = tuple(
        link for link in lab.links if link.a.node in there and (link.network != in_band or link.a.node not in switches)
    )
    nodes = tuple(_as_host(node, NodeKind.SERVER) for node in lab.nodes) if in_band else lab.nodes
    return replace(lab, nodes=nodes, links=links)


def sized(lab: Lab) -> Lab:
    """The lab as a picture counts it: itself, where it has no out-of-band network."""
    if lab.design == OUT_OF_BAND:
        return replace(lab, nodes=tuple(_as_host(node, *_MANAGED) for node in lab.nodes))
    network = lab.out_of_band
    if network is None:
        return lab
    switches = {node.name for node in lab.switches}
    links = (link for link in lab.links if link.kind is not LinkKind.MANAGEMENT or link.a.node not in switches)
    return replace(lab, links=tuple(links))


def _as_host(node: Node, *kinds: NodeKind) -> Node:
    """A node in the row of hosts, where it is of one of these kinds."""
    return replace(node, kind=NodeKind.HOST, role=None) if node.kind in kinds else node


def special_names(lab: Lab) -> dict[str, str]:
    """The titles of the storage targets, of the planes of scale-up domains, and of the nodes of the out-of-band
    network, by node."""
    names = {NodeKind.BRIDGE: BRIDGE_NAME, NodeKind.SERVER: SERVER_NAME, NodeKind.STORAGE: TARGET_NAME}
    planes = {node.name: PLANE_NAME for node in lab.nodes if node.network == SCALE_UP}
    return planes | {node.name: names[node.kind] for node in lab.nodes if node.kind in names}
