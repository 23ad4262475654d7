"""The management network as decided, and the operations that keep it apart from data, and start what runs on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

STATION_PORT = 1790
"""The TCP port of the station, for which the RFC has none: the default of pmbmpd (pmacct's CONFIG-KEYS)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardManagement:
    """Keep the addresses of management, which are `prefix`, on the management port `name` of a node.

    Linux takes a packet to any of its addresses from any port, and routes between all of them. So what comes in by
    another port from or to the prefix is dropped, and by this one what is from or to anywhere else.
    """

    node: str
    name: str
    ifindex: int
    prefix: IPv4Network

    def __str__(self) -> str:
        return f"keep {self.prefix} on {self.node}:{self.name}, and everything else off it"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormCommunity:
    """Let hosts on the management switch speak with each other over TCP, at ports of `tcp` alone.

    They are a community of the private VLAN (RFC 5517), whose other ports stay isolated. `nodes` are the interface
    indexes of the ports of all nodes on the switch but the server, `hosts` those among them that may.
    """

    node: str
    nodes: tuple[int, ...]
    hosts: tuple[int, ...]
    tcp: tuple[range, ...]

    def __str__(self) -> str:
        ports = ", ".join(str(item.start) if len(item) == 1 else f"{item[0]}-{item[-1]}" for item in self.tcp)
        return f"let {len(self.hosts)} hosts on {self.node} speak with each other at tcp/{ports}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementPlan:
    """The management network: where each node is reached over it.

    `addresses` has that of every node that has a management port, which is called `port` everywhere: the server's
    first. `switch` is that out of band; in band there is none of its own: "".
    """

    network: str
    switch: str
    server: str
    port: str
    prefix: IPv4Network
    addresses: Mapping[str, IPv4Interface]

    @property
    def server_address(self) -> IPv4Interface:
        return self.addresses[self.server]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that the server manages."""
        return tuple(node for node in self.addresses if node != self.server)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartService:
    """Start what a service runs on a node, listening at `address` alone: the node's in the management network.

    Its files are rendered from the plan (`testbed.lab.features.management.services`), its secrets made when it is
    started.
    """

    node: str
    service: str
    address: IPv4Address

    def __str__(self) -> str:
        return f"start service {self.service} on {self.node} at {self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringStation:
    """The station on the server of the management network, and the port that a switch reaches it by."""

    name: str
    address: IPv4Address
    interface: str
    port: int = STATION_PORT
