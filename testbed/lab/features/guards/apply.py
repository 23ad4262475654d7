"""The guards of a switch's access ports as one nftables table, and what they have counted.

A packet meets them where it comes in at a port, before bridge and routing, whether the port is in a bridge or routed,
and after the port's eBPF program where the lab has `qos:`. Rules are shared by all ports: what differs by port (who its
host is, its counters, its limit) stands in sets and maps, so that the work for a packet does not grow with the ports.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from testbed.base.linux import nftables as nft
from testbed.base.linux.nftables import NetfilterSocket, Table
from testbed.base.linux.rtnetlink import link_local_address, mac_bytes
from testbed.lab.core.model import Guard
from testbed.lab.core.plan.operations import GuardedPort, GuardSwitch

TABLE = "testbed-guards"
ECHO_PPS = 1000
"""ICMP echo packets a second that all hosts of a switch may send to their gateways."""
SLOW_PROTOCOLS_PPS = 20
"""Frames of slow protocols a second at a port, in real time: a station sends at most ten of each (annex 57A.3)."""
_ARP, _IPV4, _IPV6, _VLAN, _SERVICE_VLAN, _SLOW = (
    struct.pack("!H", kind) for kind in (0x0806, 0x0800, 0x86DD, 0x8100, 0x88A8, 0x8809)
)
_ICMP, _UDP, _ICMPV6 = b"\x01", b"\x11", b"\x3a"
_DHCP_SERVER, _DHCPV6_SERVER = struct.pack("!H", 67), struct.pack("!H", 547)
_ROUTER_ADVERTISEMENT, _SOLICITATION, _ADVERTISEMENT, _REDIRECT = b"\x86", b"\x87", b"\x88", b"\x89"
_LINK_LOCAL_GROUPS = bytes.fromhex("0180c2000000")
"""01:80:c2:00:00:00 to :0f (IEEE 802.1Q, 8.6.3): spanning tree, LACP, LLDP, MAC control."""
_SLOW_PROTOCOLS_GROUP = bytes.fromhex("0180c2000002")
_ECHO_TYPES = b"\xf7"
"""The mask under which echo request (8) and echo reply (0) are zero."""
_ECHO6_TYPES, _ECHO6_REQUEST = b"\xfe", b"\x80"
"""The mask under which echo request (128) and echo reply (129) of ICMPv6 are the request."""
_COUNTER = re.compile(rf"({'|'.join(Guard)})_(.+)")
_DROP = nft.verdict(nft.DROP)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardCounter:
    """The packets that a guard has dropped at a port since the deploy."""

    interface: str
    guard: Guard
    packets: int
    bytes: int


def guard_messages(operation: GuardSwitch) -> Table:
    """The messages of the transaction that puts the guards of a switch, or of a VRF on it, in force."""
    table = Table(nft.table_name(TABLE, operation.tenant))
    for guard in operation.guards.kinds:
        for port in operation.ports:
            table.counter(_counter(guard, port))
        counters = [(_index(port), _counter(guard, port)) for port in operation.ports]
        table.objects(f"count-{guard}", nft.COUNTER, counters)
    own = [
        _index(port) + address
        for port in operation.ports
        for address in (bytes(16), link_local_address(port.mac), *_packed(port.addresses, 6))
    ]
    table.set("addresses6", (nft.INTERFACE, nft.IPV6_ADDRESS), own)
    table.chain("port")
    if any(port.member_mac for port in operation.ports):
        _members(table, operation)
    for guard in _ORDER:
        if guard in operation.guards:
            _RULES[guard](table, operation)
    names = [port.name for port in operation.ports]
    for number, start in enumerate(range(0, len(names), nft.DEVICES_AT_ONCE), 1):
        table.hook(f"in{number}", names[start : start + nft.DEVICES_AT_ONCE])
        table.rule(f"in{number}", nft.jump("port"))
    return table


def read_guards(socket: NetfilterSocket) -> list[GuardCounter]:
    """The counters of the switch in whose namespace the socket is; none for a switch without guards."""
    found: list[GuardCounter] = []
    for _, name, packets, size in socket.counters(TABLE):
        if match := _COUNTER.fullmatch(name):
            found.append(GuardCounter(interface=match[2], guard=Guard(match[1]), packets=packets, bytes=size))
    return found


def _counter(guard: Guard, port: GuardedPort) -> str:
    return f"{guard}_{port.name}"


def _index(port: GuardedPort) -> bytes:
    return struct.pack("=I", port.ifindex)


def _count_and_drop(guard: Guard) -> tuple[bytes, ...]:
    return nft.load_meta(nft.META_IIF), nft.by_object(f"count-{guard}"), _DROP


def _is(key: int, value: bytes) -> tuple[bytes, bytes]:
    return nft.load_meta(key), nft.equal(value)


def _field(base: int, offset: int, value: bytes) -> tuple[bytes, bytes]:
    return nft.load_field(base, offset, len(value)), nft.equal(value)


def _members(table: Table, switch: GuardSwitch) -> None:
    """Let slow protocols (IEEE 802.3, annex 57A), such as LACP, pass a port of a link group from the host's member."""
    members = [_index(port) + _padded(port.member_mac) for port in switch.ports if port.member_mac]
    table.set("members", (nft.INTERFACE, nft.MAC_ADDRESS), members)
    mac = nft.load_field(nft.LINK, 6, 6, nft.REGISTER + 1)
    slow = (
        *_field(nft.LINK, 12, _SLOW),
        *_field(nft.LINK, 0, _SLOW_PROTOCOLS_GROUP),
        *(nft.load_meta(nft.META_IIF), mac, nft.is_in("members")),
    )
    if Guard.CONTROL in switch.guards:
        limited = [port for port in switch.ports if port.member_mac]
        for port in limited:
            table.excess(f"slow_{port.name}", SLOW_PROTOCOLS_PPS, SLOW_PROTOCOLS_PPS)
        table.objects("slow", nft.LIMIT, [(_index(port), f"slow_{port.name}") for port in limited])
        excess = (nft.load_meta(nft.META_IIF), nft.by_object("slow"))
        table.rule("port", *slow, *excess, *_count_and_drop(Guard.CONTROL))
    table.rule("port", *slow, nft.verdict(nft.ACCEPT))


def _source(table: Table, switch: GuardSwitch) -> None:
    pairs = [_index(port) + address for port in switch.ports for address in _packed(port.addresses, 4)]
    table.set("addresses", (nft.INTERFACE, nft.IPV4_ADDRESS), pairs)
    address = nft.load_field(nft.NETWORK, 12, 4, nft.REGISTER + 1)
    foreign = (nft.load_meta(nft.META_IIF), address, nft.is_in("addresses", inverted=True))
    table.rule("port", *_is(nft.META_PROTOCOL, _IPV4), *foreign, *_count_and_drop(Guard.SOURCE))
    table.rule("port", *_is(nft.META_PROTOCOL, _IPV6), *_not_own6(nft.NETWORK, 8), *_count_and_drop(Guard.SOURCE))


def _mac(table: Table, switch: GuardSwitch) -> None:
    table.set("macs", (nft.INTERFACE, nft.MAC_ADDRESS), [_index(port) + _padded(port.mac) for port in switch.ports])
    mac = nft.load_field(nft.LINK, 6, 6, nft.REGISTER + 1)
    foreign = (nft.load_meta(nft.META_IIF), mac, nft.is_in("macs", inverted=True))
    table.rule("port", *foreign, *_count_and_drop(Guard.MAC))


def _not_own6(base: int, offset: int) -> tuple[bytes, ...]:
    """An IPv6 address that is neither of the port's host (link-local and global) nor that of one that has none yet."""
    address = nft.load_field(base, offset, 16, nft.REGISTER + 1)
    return nft.load_meta(nft.META_IIF), address, nft.is_in("addresses6", inverted=True)


def _arp(table: Table, switch: GuardSwitch) -> None:
    """A sender without an address asks whether one is free (RFC 5227; RFC 4862, section 5.4).

    Of neighbour discovery (RFC 4861) both messages are believed that a neighbour sends: what a solicitation says is
    believed of its source, what an advertisement says of its target. A solicitation without a source has whoever is
    about to take its target desist: it may be about an address of its sender alone.
    """
    senders = [
        _index(port) + address + _padded(port.mac)
        for port in switch.ports
        for address in (bytes(4), *_packed(port.addresses, 4))
    ]
    table.set("senders", (nft.INTERFACE, nft.IPV4_ADDRESS, nft.MAC_ADDRESS), senders)
    address = nft.load_field(nft.NETWORK, 14, 4, nft.REGISTER + 1)
    mac = nft.load_field(nft.NETWORK, 8, 6, nft.REGISTER + 2)
    foreign = (nft.load_meta(nft.META_IIF), address, mac, nft.is_in("senders", inverted=True))
    table.rule("port", *_is(nft.META_PROTOCOL, _ARP), *foreign, *_count_and_drop(Guard.ARP))
    for kind, more, (base, offset) in (
        (_SOLICITATION, (), (nft.NETWORK, 8)),
        (_SOLICITATION, _field(nft.NETWORK, 8, bytes(16)), (nft.TRANSPORT, 8)),
        (_ADVERTISEMENT, (), (nft.TRANSPORT, 8)),
    ):
        said = (*_is(nft.META_L4PROTO, _ICMPV6), *_field(nft.TRANSPORT, 0, kind), *more)
        table.rule("port", *said, *_not_own6(base, offset), *_count_and_drop(Guard.ARP))


def _servers(table: Table, switch: GuardSwitch) -> None:
    for protocol, value in (
        (_UDP, _DHCP_SERVER),
        (_UDP, _DHCPV6_SERVER),
        (_ICMPV6, _ROUTER_ADVERTISEMENT),
        (_ICMPV6, _REDIRECT),
    ):
        said = (*_is(nft.META_L4PROTO, protocol), *_field(nft.TRANSPORT, 0, value))
        table.rule("port", *said, *_count_and_drop(Guard.SERVERS))


def _control(table: Table, switch: GuardSwitch) -> None:
    table.set("switches", (nft.IPV4_ADDRESS,), _packed(switch.switches, 4))
    gateways = [_index(port) + port.gateway.packed for port in switch.ports if port.gateway is not None]
    table.set("gateways", (nft.INTERFACE, nft.IPV4_ADDRESS), gateways)
    group = (nft.load_field(nft.LINK, 0, 6), nft.mask(b"\xff" * 5 + b"\xf0"), nft.equal(_LINK_LOCAL_GROUPS))
    table.rule("port", *group, *_count_and_drop(Guard.CONTROL))
    to_gateway = (
        nft.load_meta(nft.META_IIF),
        nft.load_field(nft.NETWORK, 16, 4, nft.REGISTER + 1),
        nft.is_in("gateways"),
    )
    echo = (nft.load_field(nft.TRANSPORT, 0, 1), nft.mask(_ECHO_TYPES), nft.equal(b"\0"))
    ipv4 = _is(nft.META_PROTOCOL, _IPV4)
    few = nft.under_limit(ECHO_PPS, ECHO_PPS // 2)
    table.rule("port", *ipv4, *to_gateway, *_is(nft.META_L4PROTO, _ICMP), *echo, few, nft.verdict(nft.ACCEPT))
    to_switch = (nft.load_field(nft.NETWORK, 16, 4), nft.is_in("switches"))
    table.rule("port", *ipv4, *to_switch, *_count_and_drop(Guard.CONTROL))
    if switch.routers:
        _control6(table, switch)


def _control6(table: Table, switch: GuardSwitch) -> None:
    """The rules for IPv6, where gateways are asked who they are by what is addressed to them, too (RFC 4861, 7.3)."""
    known = [*_packed(switch.switches, 6), *map(link_local_address, switch.routers)]
    table.set("switches6", (nft.IPV6_ADDRESS,), known)
    gateways = [_index(port) + port.gateway6.packed for port in switch.ports if port.gateway6 is not None]
    table.set("gateways6", (nft.INTERFACE, nft.IPV6_ADDRESS), gateways)
    ipv6, icmp = _is(nft.META_PROTOCOL, _IPV6), _is(nft.META_L4PROTO, _ICMPV6)
    address = nft.load_field(nft.NETWORK, 24, 16, nft.REGISTER + 1)
    to_gateway = (nft.load_meta(nft.META_IIF), address, nft.is_in("gateways6"))
    echo = (nft.load_field(nft.TRANSPORT, 0, 1), nft.mask(_ECHO6_TYPES), nft.equal(_ECHO6_REQUEST))
    few = nft.under_limit(ECHO_PPS, ECHO_PPS // 2)
    table.rule("port", *ipv6, *to_gateway, *icmp, *echo, few, nft.verdict(nft.ACCEPT))
    to_switch = (*ipv6, nft.load_field(nft.NETWORK, 24, 16), nft.is_in("switches6"))
    for kind in (_SOLICITATION, _ADVERTISEMENT):
        table.rule("port", *to_switch, *icmp, *_field(nft.TRANSPORT, 0, kind), nft.verdict(nft.ACCEPT))
    table.rule("port", *to_switch, *_count_and_drop(Guard.CONTROL))


def _vlan(table: Table, switch: GuardSwitch) -> None:
    for kind in (_VLAN, _SERVICE_VLAN):
        table.rule("port", *_field(nft.LINK, 12, kind), *_count_and_drop(Guard.VLAN))


def _storm(table: Table, switch: GuardSwitch) -> None:
    table.set("stations", (nft.MAC_ADDRESS,), [mac_bytes(mac) for mac in switch.stations])
    pps = switch.guards.storm_pps
    for port in switch.ports:
        table.excess(f"flooded_{port.name}", pps, max(1, pps // 2))
    table.objects("floods", nft.LIMIT, [(_index(port), f"flooded_{port.name}") for port in switch.ports])
    flooded = (nft.load_field(nft.LINK, 0, 6), nft.is_in("stations", inverted=True))
    excess = (nft.load_meta(nft.META_IIF), nft.by_object("floods"))
    table.rule("port", *flooded, *excess, *_count_and_drop(Guard.STORM))


def _packed(addresses: Iterable[IPv4Address | IPv6Address], version: int) -> list[bytes]:
    """The addresses of one version of IP among these."""
    return [address.packed for address in addresses if address.version == version]


def _padded(mac: str) -> bytes:
    """A MAC as it lies in two registers."""
    return mac_bytes(mac) + bytes(2)


_RULES: dict[Guard, Callable[[Table, GuardSwitch], None]] = {
    Guard.SOURCE: _source,
    Guard.MAC: _mac,
    Guard.ARP: _arp,
    Guard.SERVERS: _servers,
    Guard.CONTROL: _control,
    Guard.VLAN: _vlan,
    Guard.STORM: _storm,
}
_ORDER = (Guard.VLAN, Guard.MAC, Guard.ARP, Guard.SOURCE, Guard.SERVERS, Guard.STORM, Guard.CONTROL)
"""A packet that is dropped for what it says of itself is not counted as a flood; what is accepted is accepted last."""
