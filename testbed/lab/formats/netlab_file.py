"""Writes a lab as a topology of netlab: switches are FRR, hosts are Linux, both containers, with eBGP between switches.

netlab plans addresses itself. AS numbers are those of our plan, ports have the names that they have here, rates stand
in `bandwidth` (kbit/s), delays and losses in `tc`.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from testbed.lab.assembly.write import flow_yaml
from testbed.lab.core.model import BACKEND, End, Lab, Link, Node, NodeKind, Protocol
from testbed.lab.core.plan.asn import lab_as_numbers
from testbed.lab.core.schema.fabric import DEFAULT_MTU
from testbed.lab.formats.exported import ExportedFile, left_out, written_links, written_nodes

_LONGEST_NAME = 16
"""Letters of the name of a topology, and of a node where the file does not say otherwise."""
_NODE_IDS = 150
"""Nodes that netlab numbers where the file does not say otherwise."""
_ADDRESSES = "addresses: netlab plans its own"
_ROLES = "tiers of switches: netlab has none; names of switches tell them"


def write_netlab(lab: Lab) -> ExportedFile:
    """Write a lab. Raises `PlanError` where its AS numbers cannot be planned."""
    nodes = written_nodes(lab)
    numbers = lab_as_numbers(lab)
    lines = [
        f"# {lab.name}, exported from testbed.",
        f"name: {flow_yaml(re.sub('[^a-z0-9]', '_', lab.name)[:_LONGEST_NAME])}",
        "provider: clab",
        "defaults:",
        "  device: frr",
        f"  interfaces: {flow_yaml({'mtu': _common_mtu(lab)})}",
    ]
    longest = max((len(node.name) for node in nodes), default=0)
    limits = {"MAX_NODE_ID_LENGTH": longest} if longest > _LONGEST_NAME else {}
    limits |= {"MAX_NODE_ID": len(nodes)} if len(nodes) > _NODE_IDS else {}
    if limits:
        lines.append(f"  const: {flow_yaml(limits)}")
    lines.append("nodes:")
    lines += [f"  {flow_yaml(node.name)}: {flow_yaml(_node(node, numbers.get(node.name)))}" for node in nodes]
    lines.append("links:")
    common = _common_mtu(lab)
    lines += [f"  - {flow_yaml(_link(a, b, link, common))}" for a, b, link in written_links(lab)]
    missing = [*left_out(lab), _ADDRESSES, _ROLES]
    if lab.routing.protocol is Protocol.IBGP:
        missing.append("protocol: ibgp: netlab needs an IGP below it; add `module: [ospf, bgp]`")
    return ExportedFile(text="\n".join([*lines, ""]), left_out=tuple(missing))


def _common_mtu(lab: Lab) -> int:
    """Return the MTU that most links have."""
    found = [link.mtu_bytes for link in lab.links if link.network == BACKEND] or [DEFAULT_MTU]
    return max(set(found), key=found.count)


def _node(node: Node, asn: int | None) -> dict[str, Any]:
    is_switch = node.kind in (NodeKind.SWITCH, NodeKind.ROUTER)
    found: dict[str, Any] = {"device": "frr" if is_switch else "linux"}
    if asn is not None:
        found |= {"module": ["bgp"], "bgp": {"as": asn}}
    clab: dict[str, Any] = {}
    if (container := node.container) is not None:
        if not container.image.startswith("testbed/"):
            clab["image"] = container.image
        binds = [f"{bind.source}:{bind.target}{':ro' if bind.read_only else ''}" for bind in container.binds]
        clab |= {"binds": binds} if binds else {}
        clab |= {"cmd": shlex.join(container.command)} if container.command is not None else {}
    clab |= {"env": dict(node.env)} if node.env else {}
    clab |= {"exec": [shlex.join(command) for command in node.exec]} if node.exec else {}
    return found | ({"clab": clab} if clab else {})


def _link(a: End, b: End, link: Link, common_mtu: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "interfaces": [{"node": end.node, "ifname": end.interface} for end in (a, b)],
        "bandwidth": max(1, link.rate.bps // 1000),
    }
    if link.mtu_bytes != common_mtu:
        found["mtu"] = link.mtu_bytes
    if link.prefix is not None:
        found["prefix"] = str(link.prefix)
    impaired: dict[str, Any] = {}
    if link.delay is not None:
        impaired["delay"] = link.delay.value.ns / 10**6
        impaired |= {"jitter": link.delay.jitter.ns / 10**6} if link.delay.jitter else {}
    if link.loss:
        impaired["loss"] = 100 * link.loss
    return found | ({"tc": impaired} if impaired else {})
