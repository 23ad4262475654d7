"""What passes between tenants as one nftables table in each VRF: sets of addresses and of services by wire.

A packet meets it where it comes in from another tenant's VRF. The rules have no state: the answer of a TCP service is a
segment with ACK from its port, that of a UDP service any datagram from its port, that of an echo request a reply.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.drivers.netlink import nftables as nft
from testbed.drivers.netlink.nftables import NetfilterSocket, Table
from testbed.model import Service, ServiceProtocol
from testbed.plan.overlay.policy_operations import PolicyPort, SetPolicy

TABLE = "testbed-policy"
_IPV4 = struct.pack("!H", 0x0800)
_NUMBERS = {ServiceProtocol.ICMP: b"\x01", ServiceProtocol.TCP: b"\x06", ServiceProtocol.UDP: b"\x11"}
_ECHO_REPLY, _UNREACHABLE, _ECHO_REQUEST, _TIME_EXCEEDED = b"\0", b"\3", b"\x08", b"\x0b"
_TCP_FLAGS, _ACK = 13, b"\x10"
_SOURCE_PORT, _TARGET_PORT = 0, 2
_DENIED = "denied_"
_ACCEPT, _DROP = nft.verdict(nft.ACCEPT), nft.verdict(nft.DROP)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedCounter:
    """This is what a policy has not let in from the wire `interface` since the deploy."""

    interface: str
    packets: int
    bytes: int


def policy_messages(operation: SetPolicy) -> list[bytes]:
    """The messages of the transaction that puts the policy of a VRF in force."""
    table = Table(TABLE)
    ports = operation.ports
    for port in ports:
        table.counter(_counter(port))
    table.objects("count-denied", nft.COUNTER, [(_index(port), _counter(port)) for port in ports])
    by_wire = (nft.INTERFACE, nft.IPV4_ADDRESS)
    table.set("sources", by_wire, [_index(port) + item.packed for port in ports for item in port.sources])
    table.set("targets", by_wire, [_index(port) + item.packed for port in ports for item in port.targets])
    table.set("open", (nft.INTERFACE,), [_index(port) for port in ports if port.everything])
    table.chain("denied")
    table.rule("denied", nft.load_meta(nft.META_IIF), nft.by_object("count-denied"), _DROP)
    table.chain("wire")
    wire = nft.load_meta(nft.META_IIF)
    for name, offset in (("sources", 12), ("targets", 16)):
        address = nft.load_field(nft.NETWORK, offset, 4, nft.REGISTER + 1)
        table.rule("wire", wire, address, nft.is_in(name, inverted=True), nft.jump("denied"))
    table.rule("wire", wire, nft.is_in("open"), _ACCEPT)
    for protocol in (ServiceProtocol.TCP, ServiceProtocol.UDP):
        spoken = (nft.load_meta(nft.META_L4PROTO), nft.equal(_NUMBERS[protocol]))
        answers: tuple[bytes, ...] = spoken
        if protocol is ServiceProtocol.TCP:
            flags = nft.load_field(nft.TRANSPORT, _TCP_FLAGS, 1)
            answers = (*spoken, flags, nft.mask(_ACK), nft.equal(_ACK))
        _set_of_ports(table, protocol, spoken, _TARGET_PORT, ports, lambda port: port.services)
        _set_of_ports(table, f"{protocol}-answers", answers, _SOURCE_PORT, ports, lambda port: port.answers)
    icmp = (nft.load_meta(nft.META_L4PROTO), nft.equal(_NUMBERS[ServiceProtocol.ICMP]))
    kind = nft.load_field(nft.TRANSPORT, 0, 1)
    echo = Service(protocol=ServiceProtocol.ICMP)
    table.set("echo", (nft.INTERFACE,), [_index(port) for port in ports if echo in port.services])
    table.set("echo-answers", (nft.INTERFACE,), [_index(port) for port in ports if echo in port.answers])
    for value, name in ((_ECHO_REQUEST, "echo"), (_ECHO_REPLY, "echo-answers")):
        table.rule("wire", *icmp, kind, nft.equal(value), wire, nft.is_in(name), _ACCEPT)
    for value in (_UNREACHABLE, _TIME_EXCEEDED):
        table.rule("wire", *icmp, kind, nft.equal(value), _ACCEPT)
    table.rule("wire", nft.jump("denied"))
    names = [port.name for port in ports]
    for number, start in enumerate(range(0, len(names), nft.DEVICES_AT_ONCE), 1):
        table.hook(f"in{number}", names[start : start + nft.DEVICES_AT_ONCE])
        table.rule(f"in{number}", nft.load_meta(nft.META_PROTOCOL), nft.equal(_IPV4), nft.jump("wire"))
        table.rule(f"in{number}", _DROP)
    return table.messages


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
    table.rule("wire", *match, nft.load_meta(nft.META_IIF), number, nft.is_in(name), _ACCEPT)


def read_denied(socket: NetfilterSocket) -> list[DeniedCounter]:
    """The counters of the VRF in whose namespace the socket is; none for one that no other talks to."""
    return [
        DeniedCounter(interface=name.removeprefix(_DENIED), packets=packets, bytes=size)
        for name, packets, size in socket.counters(TABLE)
    ]


def _counter(port: PolicyPort) -> str:
    return f"{_DENIED}{port.name}"


def _index(port: PolicyPort) -> bytes:
    return struct.pack("=I", port.ifindex)
