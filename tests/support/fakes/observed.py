"""What a kernel has of the nodes of a lab. The real one is read by pyroute2, which knows nothing of our packer."""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Any

from testbed.base.datapath.abi import LINE_CLASS
from testbed.base.linux.iproute import converse
from testbed.base.linux.rtnetlink import IFF_UP
from testbed.base.names import namespace_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedInterface:
    """An interface as the kernel has it. `peer_ifindex` is 0 for none; `rate_bps` 0 for unshaped."""

    name: str
    ifindex: int
    mac: str
    mtu_bytes: int
    up: bool
    master: int
    addresses: tuple[str, ...]
    rate_bps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNode:
    """A node as the kernel has it; interfaces by name, without `lo` unless it carries an address of ours."""

    interfaces: Mapping[str, ObservedInterface]
    rules: int
    """Source rules that the plan added."""


def observe(lab: str, nodes: Iterable[str]) -> dict[str, ObservedNode]:
    """The nodes as this machine's kernel has them, in published namespaces. Raises `DriverError`."""
    return {node: converse(namespace_name(lab, node), _observe) for node in nodes}


def _observe(route: Any) -> ObservedNode:
    addresses = _addresses(route)
    interfaces = {}
    for link in route.get_links():
        name, ifindex = link.get("ifname"), link["index"]
        if name == "lo" and ifindex not in addresses:
            continue
        interfaces[name] = ObservedInterface(
            name=name,
            ifindex=ifindex,
            mac=link.get("address") or "",
            mtu_bytes=link.get("mtu"),
            up=bool(link["flags"] & IFF_UP),
            master=link.get("master") or 0,
            addresses=tuple(sorted(addresses.get(ifindex, ()))),
            rate_bps=_line_rate_bps(route, ifindex),
        )
    rules = sum(rule["src_len"] > 0 for rule in route.get_rules(family=socket.AF_UNSPEC))
    return ObservedNode(interfaces=interfaces, rules=rules)


def _addresses(route: Any) -> dict[int, list[str]]:
    """Those that nodes are given: neither of the loopback interface by itself nor link-local ones of IPv6."""
    found: dict[int, list[str]] = {}
    for item in route.get_addr():
        text = item.get("local") or item.get("address")
        address = ip_interface(f"{text}/{item['prefixlen']}")
        if not address.is_loopback and not (address.version == 6 and address.is_link_local):
            found.setdefault(item["index"], []).append(str(address))
    return found


def _line_rate_bps(route: Any, ifindex: int) -> int:
    for item in route.get_classes(index=ifindex):
        if item["handle"] == LINE_CLASS:
            options = item.get_attr("TCA_OPTIONS")
            return 8 * (options.get_attr("TCA_HTB_RATE64") or options.get_attr("TCA_HTB_PARMS")["rate"])
    return 0
