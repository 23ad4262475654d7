"""The generator of networks beside the back end: leaves and spines of their own, to hosts that are there.

Leaves stand in groups, one leaf for each port of a NIC, so that a host loses one port with a leaf. Hosts go to groups
in their order, in equal blocks, as racks do; storage targets go to one group after the other, behind its hosts. Leaf n
(from 1) has the n-th subnet of the network's prefix. Where hosts speak BGP (`homing: routed`), leaves have no subnets:
a host's ports are routed links, and it has one address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network
from itertools import pairwise
from types import MappingProxyType

from testbed.base.errors import FabricError
from testbed.base.names import MAX_INTERFACE_NAME
from testbed.base.units import Rate
from testbed.lab.core.fabric.bfd import resolve_routing
from testbed.lab.core.fabric.params import UplinkParams
from testbed.lab.core.fabric.ports import parallel_links
from testbed.lab.core.model import (
    NO_GUARDS,
    End,
    Guards,
    LagBy,
    Link,
    LinkKind,
    Network,
    Node,
    NodeKind,
    Place,
    RailSubnet,
    Role,
    Routing,
)
from testbed.lab.core.model.storage import StorageTarget

MAX_NETWORKS = 4
"""Beside the back end: what the plan of AS numbers has room for."""
MAX_LEAVES = 254
MAX_SPINES = 64
MAX_PODS = 64
"""The pods of a hand-written network with super-spines."""
SUBNET_LENGTH = 24
"""The prefix length of a leaf's subnet: 253 hosts and the gateway."""
DEFAULT_PREFIXES = tuple(IPv4Network("192.168.0.0/16").subnets(new_prefix=18))
"""The prefixes of the first network, the second, ... (RFC 1918)."""
SHORT_NAMES: Mapping[str, str] = MappingProxyType({"frontend": "fe", "storage": "st", "management": "mg"})
"""The beginnings of names of a network's switches and NICs, where the file does not say."""
NETWORK_DESIGNS: Mapping[str, str] = MappingProxyType(
    {
        "leaf-spine": "leaves, one for each port of a NIC in every group of hosts, and spines above them",
        "single-switch": "one switch for all hosts",
    }
)
HAND_WRITTEN = "hand-written"
"""The design of a network whose switches and links are written out instead of generated."""
CARRIED = "carried"
"""The design of a network that goes over another one's switches (`testbed.lab.core.fabric.carried`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetParams:
    """A storage target of a network. Its ports have the rate of hosts' where `rate` is None."""

    name: str
    target: StorageTarget
    rate: Rate | None = None
    key: str = ""
    """Its name in the file, without a number."""
    rails: tuple[int, ...] = ()
    """The rails of the back end that it has a NIC on; (): all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkParams:
    """An entry of `networks:`. None means "not written"."""

    name: str
    number: int
    design: str = "leaf-spine"
    short: str | None = None
    leaves: int | None = None
    spines: int | None = None
    ports: int = 1
    """The ports of a host's NIC."""
    rate: Rate = field(default_factory=lambda: Rate.parse("100G"))
    hosts: tuple[str, ...] = ()
    """The hosts that attach, in order."""
    targets: tuple[TargetParams, ...] = ()
    """Storage targets of this network alone, spread over the groups of leaves."""
    uplink: UplinkParams = field(default_factory=UplinkParams)
    prefix: IPv4Network | None = None
    routing: Routing = field(default_factory=Routing)
    switch_radix: int | None = None
    mtu: int = 1500
    guards: Guards = NO_GUARDS
    routed_hosts: bool = False
    """Hosts speak BGP over their ports, instead of having a subnet on each."""
    link_groups: bool = False
    """A host's two ports are members of one link group, whose partner two leaves are together."""
    carrier: str = ""
    """The network over whose switches this one goes; "": over its own."""
    server: str = ""
    """The server of a network that has services; "": it has none."""
    lag_by: LagBy = LagBy.AUTO
    """Who realises the link groups of hosts."""

    @property
    def short_name(self) -> str:
        return self.short or SHORT_NAMES.get(self.name, self.name)

    @property
    def leaf_count(self) -> int:
        if self.design == "single-switch":
            return 1
        return self.leaves if self.leaves is not None else 2 * self.ports if len(self.hosts) > 8 else max(2, self.ports)

    @property
    def spine_count(self) -> int:
        return 0 if self.design == "single-switch" else 2 if self.spines is None else self.spines

    @property
    def addresses(self) -> IPv4Network:
        return self.prefix or DEFAULT_PREFIXES[self.number - 1]


@dataclass(frozen=True, slots=True)
class GeneratedNetwork:
    """The nodes and links that a network adds to a lab, whether it is generated or written out."""

    network: Network
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    rail_subnets: tuple[RailSubnet, ...]


def check_network(params: NetworkParams) -> tuple[FabricError, ...]:
    """Every fault of an entry of `networks:`, with the key in it that is at fault; empty if it can be built."""
    return tuple(_faults(params))


def _faults(params: NetworkParams) -> Iterator[FabricError]:
    leaves, ports = params.leaf_count, params.ports
    if params.design == "single-switch":
        for key, value in (("leaves", params.leaves), ("spines", params.spines)):
            if value is not None:
                yield FabricError(
                    f"design single-switch fixes {key} at {1 if key == 'leaves' else 0}", field=key, code="design-fixes"
                )
        if ports > 1:
            message = f"design single-switch has one switch for a NIC's {ports} ports"
            yield FabricError(message, field="nic.ports", code="design-fixes", hint="design: leaf-spine")
            return
    if leaves % ports:
        message = f"{leaves} leaves are no whole number of groups of {ports}, one leaf for each port of a NIC"
        yield FabricError(message, field="leaves", code="design", hint=f"leaves: {-(-leaves // ports) * ports}")
        return
    longest = max((len(f"{params.short_name}{number}") for number in (ports, 1)), default=0)
    if longest > MAX_INTERFACE_NAME:
        message = f"NICs called {params.short_name}1 have names longer than {MAX_INTERFACE_NAME}"
        yield FabricError(message, field="short", code="bad-name", hint="short: a shorter name for its NICs")
    if not params.hosts:
        yield FabricError("no host attaches to it", field="hosts", code="no-hosts")
        return
    groups = leaves // ports
    if groups > len(params.hosts):
        message = f"{groups} groups of leaves are more than the {len(params.hosts)} hosts that attach"
        yield FabricError(message, field="leaves", code="design", hint=f"leaves: {len(params.hosts) * ports} or fewer")
        return
    most = max(len(block) for block in _attached(params, groups))
    room = (1 << (32 - SUBNET_LENGTH)) - 3
    if most > room:
        message = f"a leaf has {most} hosts and targets, and its subnet (a /{SUBNET_LENGTH}) room for {room}"
        yield FabricError(message, field="leaves", code="address-space", hint="more leaves")
    prefix = params.addresses
    subnets = 1 << max(0, SUBNET_LENGTH - prefix.prefixlen)
    if leaves >= subnets:  # the first is that of loopbacks
        message = f"{prefix} has room for {max(0, subnets - 1)} leaves, and there are {leaves}"
        yield FabricError(message, field="prefix", code="address-space", hint="a shorter prefix, such as 10.200.0.0/16")


def _blocks(hosts: Sequence[str], groups: int) -> list[Sequence[str]]:
    """The hosts of each group: equal blocks, the first ones longer by one where they do not come out even."""
    size, more = divmod(len(hosts), groups)
    starts = [number * size + min(number, more) for number in range(groups + 1)]
    return [hosts[start:stop] for start, stop in pairwise(starts)]


def _attached(params: NetworkParams, groups: int) -> list[list[tuple[str, Rate]]]:
    """The hosts and targets of each group, with the rate of their ports."""
    attached = [[(host, params.rate) for host in block] for block in _blocks(params.hosts, groups)]
    for number, target in enumerate(params.targets):
        attached[number % groups].append((target.name, target.rate or params.rate))
    return attached


def generate_network(params: NetworkParams) -> GeneratedNetwork:
    """Return the network that `params` describes. Pure. Raises the first `FabricError` that `check_network` reports."""
    for fault in check_network(params):
        raise fault
    short, name = params.short_name, params.name
    leaves = [f"{short}-leaf{number}" for number in range(1, params.leaf_count + 1)]
    spines = [f"{short}-spine{number}" for number in range(1, params.spine_count + 1)]
    nodes = [_switch(leaf, Role.LEAF, number, name) for number, leaf in enumerate(leaves, 1)]
    nodes += [_switch(spine, Role.SPINE, number, name) for number, spine in enumerate(spines, 1)]
    nodes += [Node(name=each.name, kind=NodeKind.STORAGE, network=name, target=each.target) for each in params.targets]
    uplinks = tuple(_uplinks(params, leaves, spines))
    return GeneratedNetwork(
        network=describe_network(params, len(uplinks)),
        nodes=tuple(nodes),
        links=(*_access_links(params, leaves), *_peer_links(params, leaves), *uplinks),
        rail_subnets=()
        if params.routed_hosts or params.link_groups
        else tuple(
            RailSubnet(
                switch=leaf,
                rail=number % params.ports + 1,
                slot=0,
                prefix_length=SUBNET_LENGTH,
                aggregate_length=SUBNET_LENGTH,
            )
            for number, leaf in enumerate(leaves)
        ),
    )


def describe_network(params: NetworkParams, sessions: int) -> Network:
    """The network itself, which has `sessions` links between switches, with a BGP session each."""
    return Network(
        name=params.name,
        number=params.number,
        prefix=params.addresses,
        design=params.design,
        routing=resolve_routing(params.routing, sessions),
        switch_radix=params.switch_radix,
        guards=params.guards,
        carrier=params.carrier,
        lag_by=params.lag_by,
    )


def _switch(name: str, role: Role, number: int, network: str) -> Node:
    return Node(name=name, kind=NodeKind.SWITCH, role=role, place=Place(index=number), network=network)


def _access_links(params: NetworkParams, leaves: Sequence[str]) -> Iterator[Link]:
    """Port p of every host and target to leaf p of its group, in order of hosts."""
    kind = LinkKind.HOMED if params.routed_hosts else LinkKind.MEMBER if params.link_groups else LinkKind.ACCESS
    for group, attached in enumerate(_attached(params, len(leaves) // params.ports)):
        for number, (node, rate) in enumerate(attached, 1):
            for port in range(params.ports):
                yield Link(
                    a=End(node=node, interface=f"{params.short_name}{port + 1}"),
                    b=End(node=leaves[group * params.ports + port], interface=f"down{number}"),
                    kind=kind,
                    rate=rate,
                    mtu_bytes=params.mtu,
                    rail=port + 1,
                    network=params.name,
                    host_number=number,
                )


def _peer_links(params: NetworkParams, leaves: Sequence[str]) -> Iterator[Link]:
    """Between the leaves of each pair, where hosts have link groups.

    The ports have different names, and so different interface indexes: the kernel may wait for a second before it tells
    that a veth has lost its carrier whose other end has the same one (net/core/link_watch.c, linkwatch_urgent_event).
    """
    for first, second in zip(leaves[::2], leaves[1::2], strict=False) if params.link_groups else ():
        yield Link(
            a=End(node=first, interface="peer2"),
            b=End(node=second, interface="peer1"),
            kind=LinkKind.PEER,
            rate=params.uplink.rate or params.rate,
            mtu_bytes=params.mtu,
            network=params.name,
        )


def _uplinks(params: NetworkParams, leaves: Sequence[str], spines: Sequence[str]) -> Iterator[Link]:
    uplink = params.uplink
    rate, mtu_bytes = uplink.rate or params.rate, params.mtu
    link = partial(Link, rate=rate, mtu_bytes=mtu_bytes, delay=uplink.delay, network=params.name)
    for position, leaf in enumerate(leaves):
        yield from parallel_links(leaf, position, spines, uplink.count or 1, link)
