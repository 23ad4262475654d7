"""Ethernet frames of the attacks, byte by byte: what a host can send that has root and nothing to lose. Pure."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

from testbed.base.linux.rtnetlink import link_local_address

BROADCAST = b"\xff" * 6
BRIDGE_GROUP = bytes.fromhex("0180c2000000")
ALL_NODES_MAC = bytes.fromhex("333300000001")
_ALL_NODES = bytes.fromhex("ff020000000000000000000000000001")
_SOLICITED_NODE = bytes.fromhex("ff0200000000000000000001ff")
_SHORTEST = 60
_ARP, _IPV4, _IPV6, _VLAN, _SERVICE_VLAN = 0x0806, 0x0800, 0x86DD, 0x8100, 0x88A8
_REQUEST = 1
_UDP, _ICMPV6 = 17, 58


def ethernet(target: bytes, source: bytes, kind: int, payload: bytes) -> bytes:
    """A frame, padded to the least that Ethernet has."""
    return (target + source + struct.pack("!H", kind) + payload).ljust(_SHORTEST, b"\0")


def gratuitous_arp(target: bytes, source: bytes, address: IPv4Address, token: bytes) -> bytes:
    """An announcement that `address` is at `source` (RFC 5227, section 1.1), with `token` in the padding."""
    body = struct.pack("!HHBBH", 1, _IPV4, 6, 4, _REQUEST) + source + address.packed + bytes(6) + address.packed
    return ethernet(target, source, _ARP, body + token)


def udp(
    target: bytes, source: bytes, addresses: tuple[IPv4Address, IPv4Address], ports: tuple[int, int], payload: bytes
) -> bytes:
    """An IPv4 datagram from the first to the second of `addresses` and `ports`, without a UDP checksum."""
    length = 8 + len(payload)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, _UDP, 0)
    header += addresses[0].packed + addresses[1].packed
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return ethernet(target, source, _IPV4, header + struct.pack("!HHHH", *ports, length, 0) + payload)


def vxlan(vni: int, inner: bytes) -> bytes:
    """Encode the payload of a datagram to port 4789: the frame `inner` for a VNI (RFC 7348, section 5)."""
    return struct.pack("!BxxxI", 0x08, vni << 8) + inner


def dhcp_offer(source: bytes, server: IPv4Address, offered: IPv4Address, token: bytes) -> bytes:
    """A DHCPOFFER to everybody that makes `server` the gateway (RFC 2131, table 3); `token` is the server's name."""
    body = struct.pack("!BBBBIHH", 2, 1, 6, 0, 0x7E57BED0, 0, 0x8000)
    body += bytes(4) + offered.packed + server.packed + bytes(4) + bytes(16)
    body += token.ljust(64, b"\0") + bytes(128) + bytes.fromhex("63825363")
    body += b"\x35\x01\x02" + b"\x36\x04" + server.packed + b"\x03\x04" + server.packed + b"\xff"
    return udp(BROADCAST, source, (server, IPv4Address("255.255.255.255")), (67, 68), body)


def router_advertisement(source: bytes, token: bytes) -> bytes:
    """A router advertisement to all nodes (RFC 4861, section 4.2) with `token` in an experimental option (RFC 4727)."""
    body = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + _experiment(token)
    return _discovery((source, ALL_NODES_MAC), (link_local(source), _ALL_NODES), body)


def neighbour_advertisement(source: bytes, target: bytes, claimed: bytes, token: bytes) -> bytes:
    """An advertisement that the IPv6 address `claimed` is at `source` (RFC 4861, section 4.4).

    It overrides what `target` knows; `token` is in an experimental option.
    """
    body = struct.pack("!BBHI", 136, 0, 0, 0x2000_0000) + claimed + bytes([2, 1]) + source + _experiment(token)
    return _discovery((source, target), (link_local(source), link_local(target)), body)


def duplicate_address(source: bytes, address: IPv6Address, token: bytes) -> bytes:
    """A solicitation of one that is about to take `address` (RFC 4862, section 5.4.2): who is, too, lets it be."""
    body = struct.pack("!BBHI", 135, 0, 0, 0) + address.packed + _experiment(token)
    group = _SOLICITED_NODE + address.packed[13:]
    return _discovery((source, b"\x33\x33" + group[12:]), (bytes(16), group), body)


def udp_over_ipv6(target: bytes, source: bytes, addresses: tuple[bytes, bytes], token: bytes) -> bytes:
    """An IPv6 datagram from the first to the second of `addresses`, to the port of the discard service.

    It has no checksum: a host that takes it drops it (RFC 8200, section 8.1), and says nothing of it to its source.
    """
    body = struct.pack("!HHHH", 40000, 9, 8 + len(token), 0) + token
    return _over_ipv6((source, target), addresses, _UDP, 64, body, checksum_at=None)


def link_local(mac: bytes) -> bytes:
    """The IPv6 address that an interface makes of a MAC."""
    return link_local_address(mac.hex(":"))


def _experiment(token: bytes) -> bytes:
    return bytes([253, 3]) + token.ljust(22, b"\0")


def _discovery(macs: tuple[bytes, bytes], addresses: tuple[bytes, bytes], body: bytes) -> bytes:
    """A message of neighbour discovery, from the first to the second of `macs` and `addresses`."""
    return _over_ipv6(macs, addresses, _ICMPV6, 255, body, checksum_at=2)


def _over_ipv6(
    macs: tuple[bytes, bytes],
    addresses: tuple[bytes, bytes],
    protocol: int,
    hops: int,
    body: bytes,
    *,
    checksum_at: int | None,
) -> bytes:
    """An IPv6 packet from the first to the second of `macs` and `addresses`; `body` has zeros for its checksum."""
    if checksum_at is not None:
        pseudo = b"".join(addresses) + struct.pack("!II", len(body), protocol)
        body = body[:checksum_at] + struct.pack("!H", checksum(pseudo + body)) + body[checksum_at + 2 :]
    header = struct.pack("!IHBB", 6 << 28, len(body), protocol, hops) + b"".join(addresses)
    return ethernet(macs[1], macs[0], _IPV6, header + body)


def tagged(frame: bytes, vlan: int, *, service: bool = False) -> bytes:
    """The frame with an 802.1Q tag; `service`: with that of a provider's network (IEEE 802.1ad)."""
    return frame[:12] + struct.pack("!HH", _SERVICE_VLAN if service else _VLAN, vlan) + frame[12:]


def bridge_frame(source: bytes, token: bytes) -> bytes:
    """A superior configuration BPDU (IEEE 802.1D-2004, 9.3.1): the sender would be the root of the spanning tree."""
    bpdu = bytes.fromhex("424203") + bytes(5) + bytes(2) + source + bytes(4) + bytes(2) + source
    bpdu += struct.pack("!HHHHH", 0x8001, 0, 20 << 8, 2 << 8, 15 << 8) + token
    return ethernet(BRIDGE_GROUP, source, len(bpdu), bpdu)


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
