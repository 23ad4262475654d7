"""The frames of attacks are what they claim to be: a victim that checks them finds no fault."""

import struct
from ipaddress import IPv4Address, IPv6Address

from testbed.lab.checks.isolation import frames

A, B, C = (bytes.fromhex(f"02000000000{number}") for number in (1, 2, 3))
ONE, TWO = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
TOKEN = b"token-12345"


def test_a_checksum_over_its_own_field_is_zero() -> None:
    header = bytes.fromhex("4500003044224000800600008c7c19acae241e2b")
    assert frames.checksum(header) == 0x442E, "the example of RFC 1071 implementations"
    assert frames.checksum(header[:10] + b"\x44\x2e" + header[12:]) == 0


def test_a_datagram_has_lengths_and_addresses_that_fit() -> None:
    frame = frames.udp(A, B, (ONE, TWO), (1000, 9), TOKEN)
    assert len(frame) == 60 and frame[:14] == A + B + b"\x08\x00"
    assert frames.checksum(frame[14:34]) == 0
    assert struct.unpack("!H", frame[16:18])[0] == 20 + 8 + len(TOKEN)
    assert (frame[26:30], frame[30:34]) == (ONE.packed, TWO.packed)
    assert struct.unpack("!HHH", frame[34:40]) == (1000, 9, 8 + len(TOKEN))
    assert TOKEN in frame


def test_a_vxlan_header_has_the_vni_where_it_belongs() -> None:
    """RFC 7348, section 5: the I flag, 24 reserved bits, the VNI, 8 reserved bits."""
    assert frames.vxlan(10101, b"inner") == b"\x08\0\0\0" + (10101).to_bytes(3, "big") + b"\0inner"


def test_an_arp_announcement_is_about_its_sender() -> None:
    frame = frames.gratuitous_arp(A, B, ONE, TOKEN)
    assert frame[12:22] == bytes.fromhex("08060001080006040001")
    assert frame[22:28] == B and frame[28:32] == frame[38:42] == ONE.packed
    assert frame[42:].startswith(TOKEN)


def test_a_router_advertisement_passes_the_checks_of_its_receivers() -> None:
    """RFC 4861, section 6.1.2: link-local source, hop limit 255, checksum, no option of length 0."""
    frame = frames.router_advertisement(A, TOKEN)
    header, body = frame[14:54], frame[54:]
    assert header[8:10] == b"\xfe\x80" and header[7] == 255
    assert struct.unpack("!H", header[4:6])[0] == len(body)
    assert frames.checksum(header[8:40] + struct.pack("!II", len(body), 58) + body) == 0
    assert body[0] == 134 and body[17] * 8 == len(body) - 16
    assert TOKEN in body


def test_who_is_about_to_take_an_address_asks_its_group_and_says_no_address_of_its_own() -> None:
    """RFC 4861, section 7.1.1: a solicitation without a source goes to the solicited-node group, with no MAC in it."""
    frame = frames.duplicate_address(A, IPv6Address("fd00::12:3456"), TOKEN)
    assert frame[:6] == bytes.fromhex("3333ff123456")
    header, body = frame[14:54], frame[54:]
    assert header[8:24] == bytes(16) and IPv6Address(header[24:40]) == IPv6Address("ff02::1:ff12:3456")
    assert frames.checksum(header[8:40] + struct.pack("!II", len(body), 58) + body) == 0
    assert (body[0], IPv6Address(body[8:24])) == (135, IPv6Address("fd00::12:3456"))
    assert body[24] == 253 and body[25] * 8 == len(body) - 24


def test_a_neighbour_advertisement_passes_the_checks_of_its_receivers() -> None:
    """RFC 4861, section 7.1.2: hop limit 255, checksum, a target that is no multicast, no option of length 0."""
    frame = frames.neighbour_advertisement(A, B, frames.link_local(C), TOKEN)
    assert frame[:6] == B and frame[6:12] == A
    header, body = frame[14:54], frame[54:]
    assert header[7] == 255 and struct.unpack("!H", header[4:6])[0] == len(body)
    assert header[8:24] == frames.link_local(A) and header[24:40] == frames.link_local(B)
    assert frames.checksum(header[8:40] + struct.pack("!II", len(body), 58) + body) == 0
    assert body[0] == 136 and body[4] == 0x20, "it overrides"
    assert body[8:24] == frames.link_local(C) and body[24:32] == b"\x02\x01" + A
    assert body[33] * 8 == len(body) - 32 and TOKEN in body


def test_a_datagram_over_ipv6_has_its_addresses_and_a_checksum() -> None:
    addresses = (frames.link_local(C), frames.link_local(B))
    frame = frames.udp_over_ipv6(B, A, addresses, TOKEN)
    header, body = frame[14:54], frame[54:]
    assert (header[8:24], header[24:40]) == addresses
    length = struct.unpack("!H", header[4:6])[0]
    assert (length, body[6:8]) == (8 + len(TOKEN), bytes(2)), "without a checksum nobody answers it"
    assert body[8:].startswith(TOKEN)


def test_a_link_local_address_is_made_of_the_mac() -> None:
    """The example of RFC 2464, section 4."""
    assert frames.link_local(bytes.fromhex("3456789abcde")) == bytes.fromhex("fe80000000000000365678fffe9abcde")


def test_a_dhcp_offer_has_the_cookie_and_its_options() -> None:
    body = frames.dhcp_offer(A, ONE, TWO, TOKEN)[42:]
    assert body[0] == 2 and body[16:20] == TWO.packed
    assert body[44 : 44 + len(TOKEN)] == TOKEN
    assert body[236:243] == bytes.fromhex("63825363350102")
    assert body.endswith(b"\xff")


def test_a_tag_goes_between_addresses_and_type() -> None:
    frame = frames.udp(A, B, (ONE, TWO), (1, 2), TOKEN)
    assert frames.tagged(frame, 10) == frame[:12] + b"\x81\x00\x00\x0a" + frame[12:]
    assert frames.tagged(frame, 1, service=True) == frame[:12] + b"\x88\xa8\x00\x01" + frame[12:]


def test_a_bridge_frame_claims_the_best_root() -> None:
    frame = frames.bridge_frame(A, TOKEN)
    assert frame[:6] == frames.BRIDGE_GROUP and frame[14:17] == b"\x42\x42\x03"
    assert struct.unpack("!H", frame[12:14])[0] == 3 + 35 + len(TOKEN)
    assert frame[22:30] == b"\0\0" + A, "priority 0"
