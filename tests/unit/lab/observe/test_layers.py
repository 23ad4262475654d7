"""What frames carry inside of tags and tunnels, what is left alone, and by which name it is counted."""

import struct
from collections.abc import Callable

import capture_files as make
import pytest

from testbed.protocols.captured.content import CapturedDatagram, CapturedFrame, LeftAlone, LinkFrame
from testbed.record.captures.layers.walk import MAX_HEADERS, find_content

PAYLOAD = b"sixteen bytes..."
INNER = make.ethernet(make.ipv4(make.udp(PAYLOAD), tos=0x2A))
MAC_CONTROL = 0x8808


def content(
    data: bytes, link_type: int = make.ETHERNET, length: int | None = None
) -> CapturedDatagram | LinkFrame | LeftAlone:
    frame = CapturedFrame(1, 5, link_type, data, len(data) if length is None else length)
    return find_content(frame, [make.UET_PORT], [MAC_CONTROL])


def datagram(data: bytes, link_type: int = make.ETHERNET, length: int | None = None) -> CapturedDatagram:
    found = content(data, link_type, length)
    assert isinstance(found, CapturedDatagram), found
    return found


def kind(data: bytes, link_type: int = make.ETHERNET, length: int | None = None) -> str:
    found = content(data, link_type, length)
    assert isinstance(found, LeftAlone), found
    return found.kind


def in_ip(body: bytes, protocol: int) -> bytes:
    return make.ethernet(make.ipv4(body, protocol=protocol))


BARE = make.ipv4(make.udp(PAYLOAD))
BARE_6 = make.ipv6(make.udp(PAYLOAD))
OUTER = {"src": "10.0.0.1", "dst": "10.0.0.2", "dscp": 0, "ecn": 0}
MIRROR = {**OUTER, "vlan": 100}


@pytest.mark.parametrize(
    ("data", "around"),
    [
        (make.ethernet(BARE, tags=[0x8100]), [{"kind": "VLAN", "id": 42, "pcp": 0, "dei": False}]),
        (
            make.ethernet(BARE, tags=[0x88A8, 0x8100]),
            [{"kind": name, "id": 42, "pcp": 0, "dei": False} for name in ("S-VLAN", "VLAN")],
        ),
        (make.ethernet(make.ipv4(make.vxlan(INNER))), [{"kind": "VXLAN", "id": 5010, **OUTER}]),
        (make.ethernet(make.ipv4(make.vxlan(INNER, port=8472))), [{"kind": "VXLAN", "id": 5010, **OUTER}]),
        (
            make.ethernet(make.ipv4(make.vxlan(BARE, flags=0x0C, port=4790).replace(b"\x0c\0\0\0", b"\x0c\0\0\1", 1))),
            [{"kind": "VXLAN-GPE", "id": 5010, **OUTER}],
        ),
        (make.ethernet(make.ipv4(make.geneve(INNER, options=bytes(12)))), [{"kind": "GENEVE", "id": 77, **OUTER}]),
        (make.ethernet(make.ipv4(make.geneve(BARE_6, 0x86DD))), [{"kind": "GENEVE", "id": 77, **OUTER}]),
        (in_ip(make.gre(BARE, 0x0800), 47), [{"kind": "GRE", **OUTER}]),
        (in_ip(make.gre(INNER, 0x6558, key=7, sums=True), 47), [{"kind": "GRE", "id": 7, **OUTER}]),
        (in_ip(make.gre(INNER, 0x88BE), 47), [{"kind": "ERSPAN I", **OUTER}]),
        (in_ip(make.erspan_2(INNER), 47), [{"kind": "ERSPAN II", "id": 9, **MIRROR, "cos": 3}]),
        (in_ip(make.erspan_3(INNER), 47), [{"kind": "ERSPAN III", "id": 8, **MIRROR, "cos": 0}]),
        (in_ip(make.erspan_3(INNER, subheader=bytes(8)), 47), [{"kind": "ERSPAN III", "id": 8, **MIRROR, "cos": 0}]),
        (in_ip(make.erspan_3(BARE_6, kind=2), 47), [{"kind": "ERSPAN III", "id": 8, **MIRROR, "cos": 0}]),
        (in_ip(BARE, 4), [{"kind": "IP-in-IP", **OUTER}]),
        (in_ip(BARE_6, 41), [{"kind": "IP-in-IP", **OUTER}]),
        (
            make.ethernet(make.ipv6(BARE, protocol=4)),
            [{"kind": "IP-in-IP", **OUTER, "src": "fd00::1", "dst": "fd00::2"}],
        ),
        (
            make.ethernet(make.ipv6(make.gre(BARE_6, 0x86DD), protocol=47)),
            [{"kind": "GRE", **OUTER, "src": "fd00::1", "dst": "fd00::2"}],
        ),
    ],
)
def test_a_datagram_in_tags_and_tunnels(data: bytes, around: list[dict[str, object]]) -> None:
    seen = datagram(data)
    assert (seen.payload, seen.length, seen.trimmed, seen.snapped, seen.fragment) == (PAYLOAD, 16, False, False, False)
    assert [one.document() for one in seen.around] == around


def test_tunnels_in_tunnels_are_named_from_outside_in() -> None:
    tagged = make.ethernet(make.ipv4(make.udp(PAYLOAD)), tags=[0x8100])
    mirrored = make.ethernet(make.ipv4(make.vxlan(tagged)))
    for link_type, data in (
        (make.ETHERNET, in_ip(make.erspan_2(mirrored), 47)),
        (make.COOKED, make.cooked(make.ipv4(make.erspan_2(mirrored), protocol=47))),
        (make.COOKED_2, make.cooked_2(make.ipv4(make.erspan_2(mirrored), protocol=47))),
        (make.RAW, make.ipv4(make.erspan_2(mirrored), protocol=47)),
        (0, b"\2\0\0\0" + make.ipv4(make.erspan_2(mirrored), protocol=47)),
    ):
        assert datagram(data, link_type).inside == "ERSPAN II 9, VXLAN 5010, VLAN 42"


def test_what_is_nested_without_end_is_left_alone() -> None:
    packet = BARE
    for _ in range(MAX_HEADERS):
        packet = make.ipv4(packet, protocol=4)
    assert datagram(packet, make.RAW).payload == PAYLOAD
    assert kind(make.ipv4(packet, protocol=4), make.RAW) == "nested in more than 16 tags and tunnels"
    assert kind(make.ethernet(BARE, tags=[0x8100] * 2_000)) == "nested in more than 16 tags and tunnels"


@pytest.mark.parametrize(
    ("wrap", "marked"),
    [
        (lambda frame, tos: make.ethernet(make.ipv4(make.vxlan(frame), tos=tos)), True),
        (lambda frame, tos: make.ethernet(make.ipv4(make.erspan_2(frame), protocol=47, tos=tos)), False),
    ],
    ids=["VXLAN", "ERSPAN"],
)
def test_a_mark_on_a_tunnel_is_one_on_its_packet_but_not_one_on_a_copy(
    wrap: Callable[[bytes, int], bytes], marked: bool
) -> None:
    """RFC 6040: who opens the tunnel marks the packet."""
    assert datagram(wrap(INNER, 0x02)).marked is False
    assert datagram(wrap(INNER, 0x03)).marked is marked
    inside = datagram(wrap(make.ethernet(make.ipv4(make.udp(PAYLOAD), tos=3)), 0x02))
    assert inside.marked is True


def test_a_trimmed_tunnel_a_cut_one_and_a_fragment_are_three_things() -> None:
    whole = make.ethernet(make.ipv4(make.vxlan(INNER)))
    trimmed = bytearray(whole[:-10])
    trimmed[16:18] = (len(trimmed) - 14).to_bytes(2, "big")
    fragment = bytearray(whole[:-10])
    fragment[16:18] = (len(fragment) - 14).to_bytes(2, "big")
    fragment[20] |= 0x20
    shown = [datagram(bytes(data), length=length) for data, length in ((trimmed, None), (whole[:-10], len(whole)))]
    shown.append(datagram(bytes(fragment)))
    assert [(one.trimmed, one.snapped, one.fragment) for one in shown] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert {one.payload for one in shown} == {PAYLOAD[:6]}


def test_a_mirror_that_truncates_cuts_as_a_capture_does() -> None:
    seen = datagram(in_ip(make.erspan_2(INNER[:-6], truncated=True), 47))
    assert (seen.snapped, seen.trimmed, seen.payload, seen.length) == (True, False, PAYLOAD[:-6], 16)


FRAMED = b"\x02" * 12


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (FRAMED + b"\x08\x06" + bytes(28), "ARP"),
        (FRAMED + b"\x88\xcc" + bytes(46), "LLDP"),
        (FRAMED + b"\x88\x09" + bytes(46), "LACP"),
        (FRAMED + b"\x00\x26\x42\x42\x03" + bytes(43), "LLC"),
        (FRAMED + b"\x12\x34" + bytes(46), "EtherType 0x1234"),
        (make.ethernet(make.ipv4(struct.pack("!HH", 40_000, 179) + bytes(16), protocol=6)), "BGP/TCP"),
        (make.ethernet(make.ipv6(struct.pack("!HH", 179, 40_000) + bytes(16), protocol=6)), "BGP/TCP"),
        (make.ethernet(make.ipv4(struct.pack("!HH", 40_000, 4420) + bytes(16), protocol=6)), "NVMe/TCP"),
        (make.ethernet(make.ipv4(struct.pack("!HH", 40_000, 40_001) + bytes(16), protocol=6)), "TCP"),
        (make.ethernet(make.ipv4(make.udp(PAYLOAD, port=3784))), "BFD"),
        (make.ethernet(make.ipv4(make.udp(PAYLOAD, port=18_516))), "probe"),
        (make.ethernet(make.ipv4(make.udp(PAYLOAD, port=9))), "UDP"),
        (make.ethernet(make.ipv4(bytes(8), protocol=1)), "ICMP"),
        (make.ethernet(make.ipv6(bytes(8), protocol=58)), "ICMPv6"),
        (make.ethernet(make.ipv6(b"", extensions=[(0, b"\x00" + bytes(6))], protocol=59)), "no next header"),
        (make.ethernet(make.ipv4(bytes(8), protocol=200)), "IP protocol 200"),
        (make.ethernet(make.ipv4(PAYLOAD, fragment=0x0010)), "IPv4 fragment"),
        (make.ethernet(make.ipv6(PAYLOAD, extensions=[(44, b"\0\0\x10" + bytes(4))])), "IPv6 fragment"),
        (make.ethernet(make.ipv4(make.vxlan(FRAMED + b"\x08\x06" + bytes(28)))), "ARP"),
        (make.ethernet(make.ipv4(make.vxlan(INNER, flags=0))), "malformed VXLAN header"),
        (make.ethernet(b"\x42" + BARE[1:]), "malformed IPv4 header"),
        (make.ethernet(make.ipv4(make.vxlan(b"short"))), "malformed Ethernet header"),
        (in_ip(make.gre(b"", 0x880B), 47), "EtherType 0x880b"),
        (in_ip(b"\0\1" + make.gre(b"", 0x880B)[2:], 47), "GRE version 1"),
        (b"\x02" * 13, "malformed Ethernet header"),
    ],
)
def test_what_is_left_alone_is_called_by_its_name(data: bytes, named: str) -> None:
    assert kind(data) == named


@pytest.mark.parametrize(
    ("length", "named"),
    [
        (10, "Ethernet header cut by the capture"),
        (30, "IPv4 header cut by the capture"),
        (36, "UDP header cut by the capture"),
        (46, "VXLAN header cut by the capture"),
        (60, "Ethernet header cut by the capture"),
        (70, "IPv4 header cut by the capture"),
        (90, "UDP header cut by the capture"),
    ],
)
def test_a_header_that_the_capture_cut_is_not_malformed(length: int, named: str) -> None:
    whole = make.ethernet(make.ipv4(make.vxlan(INNER)))
    assert kind(whole[:length], length=len(whole)) == named
    mirrored = kind(whole[:length])  # its IP header, where it has one, says that a mirror cut it before the capture
    assert mirrored == named if length >= 34 else "malformed" in mirrored


def test_a_frame_of_a_link_protocol_is_found_below_tags_and_in_tunnels() -> None:
    pause = FRAMED + b"\x88\x08" + bytes(46)
    for data in (pause, pause[:12] + b"\x81\x00\x60\x05" + pause[12:], make.ethernet(make.ipv4(make.vxlan(pause)))):
        found = content(data)
        assert isinstance(found, LinkFrame)
        assert (found.ethertype, found.seen.payload, found.seen.length) == (MAC_CONTROL, bytes(46), 46)
        assert (found.ethernet is None) == bool(found.seen.inside.startswith("VLAN"))
        if found.ethernet is not None:
            assert found.ethernet.data == pause
