"""A lab as a file of another tool: its text, files that it names, and what of the lab is not in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from testbed.base.units import Duration, Rate
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind

HOST_IMAGE = "ghcr.io/srl-labs/network-multitool"
"""The image of a host that names none: tools of networks, as containerlab's own labs have it."""
FRR_VERSION = "10.2.1"
SWITCH_IMAGE = f"quay.io/frrouting/frr:{FRR_VERSION}"
"""The image of a switch that names none."""
NODE_KINDS = (NodeKind.HOST, NodeKind.SWITCH, NodeKind.STORAGE, NodeKind.ROUTER)
"""Nodes that are written: the switch and server of an out-of-band network are what the other tool has itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """The text of a file, files beside it by their relative paths, and sentences about what is not in it."""

    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def written_nodes(lab: Lab) -> list[Node]:
    """Return the nodes of a lab that another tool is given."""
    return [node for node in lab.nodes if node.kind in NODE_KINDS]


def written_links(lab: Lab) -> list[tuple[End, End, Link]]:
    """Return the links of a lab between such nodes, the lower end first."""
    names = {node.name for node in written_nodes(lab)}
    return [(link.a, link.b, link) for link in lab.links if link.a.node in names and link.b.node in names]


def left_out(lab: Lab) -> Iterator[str]:
    """Say in a sentence each what of a lab no file of another tool has."""
    if lab.policies:
        yield "qos: traffic classes, marking, pausing and buffers"
    if lab.scale_up.stated:
        yield "fabric.scale_up: scale-up domains"
    if lab.overlay is not None:
        yield "overlay and tenants: VRFs, VXLAN and EVPN"
    if any(link.kind in (LinkKind.MEMBER, LinkKind.PEER) for link in lab.links):
        yield "homing: mlag: link groups of hosts"
    if lab.out_of_band is not None:
        yield "the out-of-band network: the other tool has a management network of its own"
    if lab.targets:
        yield "storage targets: they are hosts there, and serve nothing"
    if any(node.rdma for node in lab.nodes):
        yield "rdma: soft RoCEv2 devices"
    if any(guards.kinds for guards in (lab.guards, *(network.guards for network in lab.networks))):
        yield "guards of access ports"


def rate_text(rate: Rate) -> str:
    """Return a rate as our files write it, without a rest."""
    for unit, factor in (("T", 10**12), ("G", 10**9), ("M", 10**6)):
        if rate.bps % factor == 0:
            return f"{rate.bps // factor}{unit}"
    return f"{rate.bps}bps"


def time_text(time: Duration) -> str:
    """Return a duration as our files write it, without a rest."""
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if time.ns % factor == 0:
            return f"{time.ns // factor}{unit}"
    return f"{time.ns}ns"
