"""Filters between tenants as one nftables table in each VRF: sets of addresses and of services by wire.

A packet meets it where it comes in from another tenant's VRF. The rules have no state: the answer of a TCP service is a
segment with ACK from its port, that of a UDP service any datagram from its port, that of an echo request a reply.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address

from testbed.base.linux import nftables as nft
from testbed.base.linux.nftables import NetfilterSocket, Table
from testbed.lab.core.model import Service, ServiceProtocol
from testbed.lab.core.plan.overlay_operations import PolicyPort, SetBorder, SetPolicy

TABLE = "testbed-policy"
BORDER_TABLE = "testbed-border"
_IPV4 = struct.pack("!H", 0x0800)
_IPV6 = struct.pack("!H", 0x86DD)
_LINK_LOCAL, _LINK_LOCAL_MASK = b"\xfe\x80", b"\xff\xc0"
_NUMBERS = {ServiceProtocol.ICMP: b"\x01", ServiceProtocol.TCP: b"\x06", ServiceProtocol.UDP: b"\x11"}
_ECHO_REPLY, _UNREACHABLE, _ECHO_REQUEST, _TIME_EXCEEDED = b"\0", b"\3", b"\x08", b"\x0b"
_ICMPV6 = b"\x3a"
_UNREACHABLE6, _TOO_BIG6, _TIME_EXCEEDED6, _ECHO6_REQUEST, _ECHO6_REPLY = b"\1", b"\2", b"\3", b"\x80", b"\x81"
_OF_THE_LINK = b"\xff\x02"
"""Groups that are not routed (RFC 4291, section 2.7): both ends of a wire send to them themselves (MLD)."""
_TCP_FLAGS, _ACK = 13, b"\x10"
_SOURCE_PORT, _TARGET_PORT = 0, 2
_DENIED = "denied_"
_ACCEPT, _DROP = nft.verdict(nft.ACCEPT), nft.verdict(nft.DROP)


class DeniedBy(StrEnum):
    """The filter that has not let a packet in, as it is called beside the guards of access ports."""

    POLICY = "policy"
    """The filter between one tenant and another."""
    BORDER = "border"
    """The filter at the port to a router outside."""


_TABLES = {DeniedBy.POLICY: TABLE, DeniedBy.BORDER: BORDER_TABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedCounter:
    """The packets that a policy, or a border, has not let in since the deploy from `interface`: the wire of a port."""

    interface: str
    packets: int
    bytes: int
    by: DeniedBy = DeniedBy.POLICY

    def port(self, tenant: str) -> str:
        """Name the port as the leaf has it, or a wire by the tenant in whose VRF it is."""
        return self.interface if self.by is DeniedBy.BORDER else f"{tenant}:{self.interface}"


def policy_messages(operation: SetPolicy) -> Table:
    """The messages of the transaction that puts the policy of a VRF in force."""
    table = Table(_table_name(TABLE, operation))
    ports = operation.ports
    for port in ports:
        table.counter(_counter(port.wire))
    table.objects("count-denied", nft.COUNTER, [(_index(port), _counter(port.wire)) for port in ports])
    table.set("open", (nft.INTERFACE,), [_index(port) for port in ports if port.everything])
    table.chain("denied")
    table.rule("denied", nft.load_meta(nft.META_IIF), nft.by_object("count-denied"), _DROP)
    table.chain("asked")
    wire = nft.load_meta(nft.META_IIF)
    table.rule("asked", wire, nft.is_in("open"), _ACCEPT)
    for protocol in (ServiceProtocol.TCP, ServiceProtocol.UDP):
        spoken = (nft.load_meta(nft.META_L4PROTO), nft.equal(_NUMBERS[protocol]))
        answers: tuple[bytes, ...] = spoken
        if protocol is ServiceProtocol.TCP:
            flags = nft.load_field(nft.TRANSPORT, _TCP_FLAGS, 1)
            answers = (*spoken, flags, nft.mask(_ACK), nft.equal(_ACK))
        _set_of_ports(table, protocol, spoken, _TARGET_PORT, ports, lambda port: port.services)
        _set_of_ports(table, f"{protocol}-answers", answers, _SOURCE_PORT, ports, lambda port: port.answers)
    echo = Service(protocol=ServiceProtocol.ICMP)
    table.set("echo", (nft.INTERFACE,), [_index(port) for port in ports if echo in port.services])
    table.set("echo-answers", (nft.INTERFACE,), [_index(port) for port in ports if echo in port.answers])
    _add_family(table, _WIRE4, ports)
    dual = any(address.version == 6 for port in ports for address in port.sources)
    if dual:
        _add_family(table, _WIRE6, ports)
    names = [port.name for port in ports]
    for number, start in enumerate(range(0, len(names), nft.DEVICES_AT_ONCE), 1):
        table.hook(f"in{number}", names[start : start + nft.DEVICES_AT_ONCE])
        kind = nft.load_meta(nft.META_PROTOCOL)
        table.rule(f"in{number}", kind, nft.equal(_IPV4), nft.jump(_WIRE4.chain))
        if dual:
            to_link = (nft.load_field(nft.NETWORK, 24, 2), nft.equal(_OF_THE_LINK))
            table.rule(f"in{number}", kind, nft.equal(_IPV6), *to_link, _DROP)
            table.rule(f"in{number}", kind, nft.equal(_IPV6), nft.jump(_WIRE6.chain))
        table.rule(f"in{number}", _DROP)
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """The things that a version of IP has of its own: the chain and the sets of its packets, and the messages of ICMP.

    The addresses are at `source` and `target` of the header. `errors` are what a NIC says of packets that it was sent.
    """

    version: int
    chain: str
    suffix: str
    address: int
    source: int
    target: int
    icmp: bytes
    request: bytes
    reply: bytes
    errors: tuple[bytes, ...]


_WIRE4 = _Family(
    version=4,
    chain="wire",
    suffix="",
    address=nft.IPV4_ADDRESS,
    source=12,
    target=16,
    icmp=_NUMBERS[ServiceProtocol.ICMP],
    request=_ECHO_REQUEST,
    reply=_ECHO_REPLY,
    errors=(_UNREACHABLE, _TIME_EXCEEDED),
)
_WIRE6 = _Family(
    version=6,
    chain="wire6",
    suffix="6",
    address=nft.IPV6_ADDRESS,
    source=8,
    target=24,
    icmp=_ICMPV6,
    request=_ECHO6_REQUEST,
    reply=_ECHO6_REPLY,
    errors=(_UNREACHABLE6, _TOO_BIG6, _TIME_EXCEEDED6),
)


def _add_family(table: Table, family: _Family, ports: Sequence[PolicyPort]) -> None:
    """The chain of the packets of one version: between known addresses, what may be asked for, and messages of ICMP."""
    table.chain(family.chain)
    wire = nft.load_meta(nft.META_IIF)
    size = family.target - family.source  # they follow each other
    by_end: tuple[tuple[str, int, Callable[[PolicyPort], Sequence[IPv4Address | IPv6Address]]], ...] = (
        ("sources", family.source, lambda port: port.sources),
        ("targets", family.target, lambda port: port.targets),
    )
    for name, offset, of in by_end:
        known = [_index(port) + item.packed for port in ports for item in of(port) if item.version == family.version]
        table.set(name + family.suffix, (nft.INTERFACE, family.address), known)
        address = nft.load_field(nft.NETWORK, offset, size, nft.REGISTER + 1)
        foreign = nft.is_in(name + family.suffix, inverted=True)
        table.rule(family.chain, wire, address, foreign, nft.jump("denied"))
    table.rule(family.chain, nft.jump("asked"))
    icmp = (nft.load_meta(nft.META_L4PROTO), nft.equal(family.icmp))
    kind = nft.load_field(nft.TRANSPORT, 0, 1)
    for value, name in ((family.request, "echo"), (family.reply, "echo-answers")):
        table.rule(family.chain, *icmp, kind, nft.equal(value), wire, nft.is_in(name), _ACCEPT)
    for value in family.errors:
        table.rule(family.chain, *icmp, kind, nft.equal(value), _ACCEPT)
    table.rule(family.chain, nft.jump("denied"))


def border_messages(operation: SetBorder) -> Table:
    """The messages of the transaction that puts in force what a VRF takes from the router outside."""
    table = Table(_table_name(BORDER_TABLE, operation))
    table.counter(_counter(operation.name))
    table.chain("sent")
    table.chain("asked")
    for chain, offset, prefixes, then in (
        ("sent", 12, operation.sources, nft.jump("asked")),
        ("asked", 16, operation.targets, _ACCEPT),
    ):
        for prefix in prefixes:
            address = nft.load_field(nft.NETWORK, offset, 4)
            within = nft.equal(prefix.network_address.packed)
            table.rule(chain, address, nft.mask(prefix.netmask.packed), within, then)
    table.hook("in1", [operation.name])
    kind = nft.load_meta(nft.META_PROTOCOL)
    table.rule("in1", kind, nft.equal(_IPV4), nft.jump("sent"))
    source = nft.load_field(nft.NETWORK, 8, 2)
    table.rule("in1", kind, nft.equal(_IPV6), source, nft.mask(_LINK_LOCAL_MASK), nft.equal(_LINK_LOCAL), _ACCEPT)
    table.rule("in1", nft.count(_counter(operation.name)), _DROP)
    return table


def _set_of_ports(
    table: Table,
    name: str,
    match: Sequence[bytes],
    offset: int,
    ports: Sequence[PolicyPort],
    of: Callable[[PolicyPort], Sequence[Service]],
) -> None:
    protocol = ServiceProtocol(name.partition("-")[0])
    elements = [
        _index(port) + struct.pack("!Hxx", service.port)
        for port in ports
        for service in of(port)
        if service.protocol is protocol
    ]
    table.set(name, (nft.INTERFACE, nft.SERVICE_PORT), elements)
    number = nft.load_field(nft.TRANSPORT, offset, 2, nft.REGISTER + 1)
    table.rule("asked", *match, nft.load_meta(nft.META_IIF), number, nft.is_in(name), _ACCEPT)


def read_denied(socket: NetfilterSocket, tenant: str = "") -> list[DeniedCounter]:
    """The counters of the VRF in whose namespace the socket is; none where nothing is filtered.

    `tenant` tells which VRF where several share the namespace.
    """
    return [
        DeniedCounter(interface=name.removeprefix(_DENIED), packets=packets, bytes=size, by=by)
        for by, table in _TABLES.items()
        for whose, name, packets, size in socket.counters(table)
        if whose == tenant
    ]


def _table_name(name: str, operation: SetPolicy | SetBorder) -> str:
    return nft.table_name(name, operation.tenant if operation.shared else "")


def _counter(wire: str) -> str:
    return f"{_DENIED}{wire}"


def _index(port: PolicyPort) -> bytes:
    return struct.pack("=I", port.ifindex)
