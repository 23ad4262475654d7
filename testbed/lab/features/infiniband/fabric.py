"""A resolved lab whose back end is InfiniBand: what speaks against that, and the lab without Ethernet there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from testbed.base.errors import Problem
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.core.model import BACKEND, InfinibandFabric, Lab, LinkKind, NodeKind
from testbed.lab.core.model.infiniband import InfinibandSettings, hca_ends, subnet_names
from testbed.lab.features.infiniband.schema import InfinibandSpec, LinkLayer, resolve_infiniband

MOST_LIDS = 0xBFFF
"""Unicast LIDs are 1 to 0xBFFF (IBTA section 4.1.3), and every node has one."""
MOST_PORTS = 254
"""An entry of a forwarding table has 8 bits, and 255 is no port."""
_ETHERNET = {
    ("qos",): "QoS of Ethernet (ECN, PFC, queues)",
    ("fabric", "routing"): "BGP",
    ("fabric", "overlay"): "VXLAN",
    ("fabric", "guards"): "guards of Ethernet ports",
    ("fabric", "targets"): "storage targets over Ethernet",
    ("fabric", "mtu"): "the MTU of Ethernet",
    ("fabric", "nic", "multihoming"): "link groups",
    ("fabric", "nic", "rdma"): "RoCE",
}
_INSTEAD = {
    ("qos",): "fabric: {infiniband: {vls: 4, sl2vl: {0: 0, 1: 1}}} has lanes; networks beside the fabric have qos, too",
    ("fabric", "routing"): "infiniband: {routing: [ftree, updn]}",
    ("fabric", "overlay"): "infiniband: {partitions: {red: [p1-s1-*]}}",
}
_KINDS = frozenset({LinkKind.ACCESS, LinkKind.FABRIC, LinkKind.ROUTED})


def resolve_back_end(
    document: Document, link_layer: str | None, spec: InfinibandSpec | None, lab: Lab
) -> tuple[Lab, list[Problem]]:
    """Return the lab with the back end that its file asks for, and what is wrong with it.

    Its switches are none of the lab's nodes, so that they have no port of management. With a problem, what is returned
    first is of no use.
    """
    if link_layer != LinkLayer.INFINIBAND:
        if spec is None:
            return lab, []
        message = "the keys of infiniband have a meaning with link_layer: infiniband alone"
        hint = "add link_layer: infiniband, or remove this section"
        return lab, [document.problem("contradiction", ("fabric", "infiniband"), message, hint=hint, key=True)]
    problems = [*_ethernet_keys(document), *_unbuilt(document, lab)]
    hosts = [node.name for node in lab.nodes if node.kind is NodeKind.HOST]
    settings, more = resolve_infiniband(document, spec or InfinibandSpec(), hosts)
    problems += more
    fabric = _fabric_of(lab, settings)
    if spec is None or not spec.sm.nodes:  # the first host may have no NIC there
        attached = {end.node for end in hca_ends(fabric)}
        first = tuple(host for host in hosts if host in attached)[:1]
        fabric = replace(fabric, settings=replace(settings, sm_hosts=first))
    problems += _misfits(document, fabric, spec, hosts)
    switches = {node.name for node in fabric.switches}
    return (
        replace(
            lab,
            nodes=tuple(node for node in lab.nodes if node.name not in switches),
            links=tuple(
                link
                for link in lab.links
                if link.network != BACKEND and not (link.kind is LinkKind.MANAGEMENT and link.a.node in switches)
            ),
            rail_subnets=tuple(subnet for subnet in lab.rail_subnets if subnet.switch not in switches),
            infiniband=fabric,
        ),
        problems,
    )


def _fabric_of(lab: Lab, settings: InfinibandSettings) -> InfinibandFabric:
    switches = tuple(node for node in lab.nodes if node.kind is NodeKind.SWITCH and node.network == BACKEND)
    names = {node.name for node in switches}
    return InfinibandFabric(
        settings=settings,
        switches=switches,
        links=tuple(link for link in lab.links if link.network == BACKEND),
        rail_subnets=tuple(subnet for subnet in lab.rail_subnets if subnet.switch in names),
    )


def _ethernet_keys(document: Document) -> Iterator[Problem]:
    """Keys that only an Ethernet back end obeys."""
    for path, what in _ETHERNET.items():
        if document.has(path):
            message = f"{what}: an InfiniBand back end has none"
            hint = _INSTEAD.get(path, "remove the key, or link_layer: infiniband")
            yield document.problem("not-of-infiniband", path, message, hint=hint, key=True)


def _unbuilt(document: Document, lab: Lab) -> Iterator[Problem]:
    """Find parts of a lab that are not built beside an InfiniBand back end."""
    contained = next((node.name for node in lab.nodes if node.container is not None and node.network == BACKEND), None)
    if contained is not None:
        message = f"{contained} is a container, and hosts and switches of an InfiniBand back end are none"
        yield document.problem("contradiction", ("fabric", "link_layer"), message, hint="remove its image")
    if document.get("fabric.scale_up.by") == "packets":
        message = "scale-up domains by packets are not built beside an InfiniBand back end"
        yield document.problem("contradiction", ("fabric", "scale_up", "by"), message, hint="by: time")
    switches = {node.name for node in lab.nodes if node.kind is NodeKind.SWITCH and node.network == BACKEND}
    carried = [link for link in lab.links if link.network != BACKEND and link.kind is not LinkKind.MANAGEMENT]
    if at := next((end.node for link in carried for end in (link.a, link.b) if end.node in switches), None):
        message = f"{at} is a switch of InfiniBand, and would carry a network of Ethernet"
        yield document.problem("contradiction", ("fabric", "link_layer"), message, hint="give the network its own")
    if any(link.network == BACKEND and link.kind not in _KINDS for link in lab.links):
        message = "links of tenants, routers or link groups are no links of InfiniBand"
        yield document.problem("contradiction", ("fabric", "link_layer"), message)


def _misfits(
    document: Document, fabric: InfinibandFabric, spec: InfinibandSpec | None, hosts: Sequence[str]
) -> Iterator[Problem]:
    """Find what makes it no subnet: more nodes than LIDs, more ports than tables tell apart, loose parts."""
    place: Path = ("fabric", "link_layer")
    hcas = hca_ends(fabric)
    if not hcas:
        yield document.problem("no-hosts", place, "no host has a NIC in the back end: a subnet manager runs on one")
        return
    nodes = len(hcas) + len(fabric.switches)
    if nodes > MOST_LIDS:
        message = f"{len(hcas)} HCAs and {len(fabric.switches)} switches need {nodes} LIDs, and there are {MOST_LIDS}"
        yield document.problem(
            "lids", place, message, hint="fewer hosts, GPUs or pods: a larger system has several subnets"
        )
    ports = Counter(end.node for link in fabric.links for end in (link.a, link.b))
    switches = {node.name for node in fabric.switches}
    for name, count in ports.items():
        if name in switches and count > MOST_PORTS:
            message = f"the switch {name} has {count} links, and forwarding tables tell {MOST_PORTS} ports apart"
            yield document.problem("switch-ports", place, message)
            break
    parts = _parts(fabric)
    if len(parts) > 1:
        first, second = (min(part) for part in sorted(parts, key=len, reverse=True)[:2])
        message = f"{first} and {second} are not joined by any links: the back end would be {len(parts)} subnets"
        yield document.problem("subnets", place, message, hint="one plane, and spines between the rails")
    with_hca = {end.node for end in hcas}
    without = [host for host in fabric.settings.sm_hosts if host in hosts and host not in with_hca]
    if without and spec is not None and spec.sm.nodes:
        message = f"{without[0]} has no NIC in the back end, so that no subnet manager can be there"
        index = spec.sm.nodes.index(without[0])
        yield document.problem("unknown-host", ("fabric", "infiniband", "sm", "nodes", index), message)


def _parts(fabric: InfinibandFabric) -> list[set[str]]:
    """The nodes that are joined by links, part by part."""
    neighbours: dict[str, set[str]] = {node.name: set() for node in fabric.switches}
    names = subnet_names(fabric)
    for link in fabric.links:
        a, b = names[link.a], names[link.b]
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    return list(_components(neighbours))


def _components(neighbours: dict[str, set[str]]) -> Iterable[set[str]]:
    left = dict.fromkeys(neighbours)
    while left:
        part: set[str] = set()
        under_way = [next(iter(left))]
        while under_way:
            name = under_way.pop()
            if name not in part:
                part.add(name)
                left.pop(name, None)
                under_way += neighbours[name] - part
        yield part
