"""The verb `decode` over tunnels, RoCEv1, MAC control, other traffic, and what the capture or the wire cut."""

import json
import struct
import zlib
from ipaddress import ip_address
from typing import Any

import capture_files as make
import pytest
from decode_verb import Decode
from encoded import encoded
from encoded_frames import encode_frame
from link_samples import LinkSamples
from packet_samples import PacketSamples
from pfc_frames import encode_pfc
from roce_samples import RoceSamples, roce_frame

from testbed.protocols.captured.content import CapturedFrame
from testbed.protocols.roce import captured as roce
from testbed.protocols.roce.packets.headers import Bth, Reth
from testbed.protocols.roce.packets.opcodes import LAYOUTS, UDP_PORT, Opcode
from testbed.protocols.roce.packets.packet import RocePacket, decode_roce, describe
from testbed.protocols.uet.captured import decode_datagram
from testbed.protocols.uet.packets import packet as uet_packet
from testbed.protocols.uet.packets.codes import UDP_PORT as UET_PORT
from testbed.record.captures.decoders.registry import PacketFinder
from testbed.record.captures.layers.walk import find_datagram

STATION = bytes.fromhex("020000000001")
ARP = b"\xff" * 6 + STATION + b"\x08\x06" + bytes(46)
BGP = make.ethernet(make.ipv4(struct.pack("!HH", 40_000, 179) + bytes(16), protocol=6))
BFD = make.ethernet(make.ipv4(make.udp(bytes(24), port=3784)))


def write(psn: int, size: int = 1024) -> RocePacket:
    bth = Bth(Opcode.RC_WRITE_ONLY, 0x11, psn)
    return RocePacket(
        bth, None, Reth(0x1000, 0xBEEF, size), None, None, None, None, None, memoryview(bytes(size)), b"", 0
    )


def in_vxlan(frame: bytes, vni: int = 5010, tos: int = 0) -> bytes:
    return make.ethernet(make.ipv4(make.vxlan(frame, vni), tos=tos))


def test_packets_of_tenants_are_found_in_their_tunnels(decode: Decode) -> None:
    """Two tenants with the same addresses are two flows; marks of the fabric are on the tunnels."""
    frames = [
        in_vxlan(roce_frame(write(1)), tos=3),
        in_vxlan(roce_frame(write(1)), 5011),
        in_vxlan(roce_frame(write(1))),
        in_vxlan(make.ethernet(make.ipv4(make.udp(bytes.fromhex("3800 0000 00000005 0009 0007"))))),
    ]
    path = decode.file(frames)
    shown = decode.documents(path)
    assert [item["encapsulation"][0]["id"] for item in shown] == [5010, 5011, 5010, 5010]
    assert [item["roce"]["retransmitted"] for item in shown[:3]] == [False, False, True]
    assert all(item["roce"]["icrc_good"] for item in shown[:3])
    assert shown[0]["encapsulation"] == [
        {"kind": "VXLAN", "id": 5010, "src": "10.0.0.1", "dst": "10.0.0.2", "dscp": 0, "ecn": 3}
    ]
    assert (decode.counted["packets"], decode.counted["marked_ce"]) == (
        {"RoCE": {"RC_WRITE_ONLY": 3}, "UET": {"ACK": 1}},
        1,
    )
    assert [item["frame"] for item in decode.documents(path, filters=["encapsulation.id=5011"])] == [2]
    flows = {(row["transport"], row["inside"]): row for row in decode.flows(path)}
    assert set(flows) == {("RoCE", "VXLAN 5010"), ("RoCE", "VXLAN 5011"), ("UET", "VXLAN 5010")}
    assert (flows["RoCE", "VXLAN 5010"]["ce"], flows["RoCE", "VXLAN 5010"]["retransmitted"]) == (1, 1)
    (line,) = decode.lines(path, count=1)
    assert line.endswith("1024 B (in VXLAN 5010 of 10.0.0.1 > 10.0.0.2 CE)")


def test_what_is_left_alone_is_counted_by_kind(decode: Decode) -> None:
    path = decode.file([ARP, ARP, BGP, BFD, in_vxlan(ARP), roce_frame(write(1))])
    decode.lines(path)
    assert decode.said.endswith("; left alone: 3 ARP, 1 BGP/TCP, 1 BFD\n")
    decode.documents(path)
    assert decode.counted["left_alone"] == {"ARP": 3, "BGP/TCP": 1, "BFD": 1}


def test_pauses_of_priorities_and_of_links(decode: Decode) -> None:
    pause = bytes.fromhex("0180c2000001") + STATION + b"\x88\x08\x00\x01\x12\x34" + bytes(42)
    other = pause[:14] + b"\x00\x02" + bytes(44)
    frames = [
        encode_pfc(STATION, 0x88, [9, 9, 9, 65_535, 9, 9, 9, 512]),
        encode_pfc(STATION, 0x08, [0] * 8),
        pause,
        other,
        pause[:15],
    ]
    path = decode.file(frames)
    shown = decode.documents(path)
    assert shown[0]["pfc"] == {"class_enable_vector": 0x88, "priorities": [3, 7], "quanta": {"3": 65_535, "7": 512}}
    assert shown[1]["pfc"]["quanta"] == {"3": 0}
    assert (shown[2]["pause"], shown[2]["src"]) == ({"quanta": 0x1234}, "02:00:00:00:00:01")
    assert shown[3]["mac_control"] == {"opcode": 2}
    assert (shown[4]["malformed"], shown[4]["cut"]) == (True, False)
    kinds = {"PFC": 2, "PAUSE": 1, "opcode 0x0002": 1, "malformed": 1}
    assert decode.counted["packets"] == {"MAC control": kinds}
    way = "02:00:00:00:00:01 > 01:80:c2:00:00:01"
    assert [line.split("  ", 1)[1] for line in map(str.strip, decode.lines(path, count=3))] == [
        f"{way}  PFC priority 3 65535 quanta, priority 7 512 quanta",
        f"{way}  PFC priority 3 resume",
        f"{way}  PAUSE 4660 quanta",
    ]


def rocev1_frame(packet: RocePacket, traffic_class: int = 0x69) -> bytes:
    """Its ICRC is computed here by the specification's words (section 7.8.1), not by the decoder's function."""
    body = packet.encode()[:-4]
    addresses = ip_address("fe80::1").packed + ip_address("fe80::2").packed
    tail = struct.pack("!HBB", len(body) + 4, 0x1B, 64) + addresses
    masked = struct.pack("!HBB", len(body) + 4, 0x1B, 0xFF) + addresses + body[:4] + b"\xff" + body[5:]
    icrc = zlib.crc32(b"\xff" * 8 + b"\x6f\xff\xff\xff" + masked)
    grh = struct.pack("!I", 6 << 28 | traffic_class << 20 | 0x12345) + tail
    return b"\x02" * 12 + b"\x89\x15" + grh + body + icrc.to_bytes(4, "little")


def test_rocev1_has_gids_and_an_icrc_of_its_own(decode: Decode) -> None:
    good = rocev1_frame(write(7))
    tagged = good[:12] + b"\x81\x00\x60\x05" + good[12:]
    damaged = bytearray(good)
    damaged[-20] ^= 1
    broken = bytearray(good)
    broken[14 + 6] = 0x11
    longer = good[:14] + good[14:18] + b"\xff\xff" + good[20:]
    frames = [good, bytes(damaged), tagged, bytes(broken), longer, good[:40]]
    shown = decode.documents(frames)
    assert (shown[0]["transport"], shown[0]["src"], shown[0]["dst"]) == ("RoCEv1", "fe80::1", "fe80::2")
    assert (shown[0]["dscp"], shown[0]["ecn"], shown[0]["roce"]["dma_length"]) == (26, "ECT1", 1024)
    assert [item["roce"]["icrc_good"] for item in shown[:3]] == [True, False, True]
    assert [item["roce"]["retransmitted"] for item in shown[:3]] == [False, True, False], "the VLAN is another link"
    assert [item["error"]["reason"] for item in shown[3:]] == [
        "next header 0x11 behind the GRH",
        "the GRH announces 65535 bytes, 1056 are there",
        "a GRH has 40 bytes, 26 are there",
    ]
    assert decode.counted["packets"] == {"RoCEv1": {"RC_WRITE_ONLY": 3, "malformed": 3}}


def decoded(frame: bytes, there: int) -> dict[str, Any] | None:
    """The document of a frame of which the first bytes were captured; None: it is left alone as cut, and no more."""
    finder = PacketFinder()
    found = finder.find(CapturedFrame(1, 0, make.ETHERNET, frame[:there], len(frame)))
    if found is None:
        ((kind, count),) = finder.left_alone.items()
        assert kind.endswith(" cut by the capture") and count == 1
        return None
    assert found.line() and found.kind
    document: dict[str, Any] = json.loads(json.dumps(found.document()))
    assert (document["malformed"], document["cut"]) == (False, True), (there, document)
    return document


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (encode_pfc(STATION, 8, [0, 0, 0, 65_535, 0, 0, 0, 0]), "pfc"),
        (rocev1_frame(write(7)), "roce"),
        (make.ethernet(make.ipv4(make.erspan_2(roce_frame(write(7))), protocol=47)), "roce"),
        (in_vxlan(roce_frame(write(7))), "roce"),
        *((encode_frame(frame), "scale_up") for frame in LinkSamples(4).of_every_kind()),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} B",
)
def test_a_cut_frame_is_never_malformed(frame: bytes, kind: str) -> None:
    """A capture may end at any byte."""
    shown = [decoded(frame, there) for there in range(len(frame))]
    assert shown[0] is None
    last = shown[-1]
    assert last is not None and last[kind]
    for earlier in shown:
        for name, value in (earlier or {}).get(kind, {}).items():
            assert value in (last[kind].get(name), None, "cut") or isinstance(value, list | dict), name


@pytest.mark.parametrize(("there", "priorities", "quanta"), [(16, [], {}), (20, [0], {"0": 5}), (24, [0], {"0": 5})])
def test_a_cut_pause_has_the_times_that_are_there(there: int, priorities: list[int], quanta: dict[str, int]) -> None:
    shown = decoded(encode_pfc(STATION, 0x81, [5, 0, 0, 0, 0, 0, 0, 7]), there)
    assert (shown["pfc"]["priorities"], shown["pfc"]["quanta"]) == (priorities, quanta)


def test_a_cut_roce_packet_shows_exactly_the_fields_that_are_there() -> None:
    for packet in RoceSamples(3).of_every_opcode():
        frame = roce_frame(packet)
        data = frame[42:]
        whole = json.loads(json.dumps(describe(decode_roce(data))))
        layout = LAYOUTS[packet.bth.opcode]
        assert layout is not None
        ends = roce.field_ends(layout) | {"icrc": len(data)}
        for there in range(min(len(data), 60)):
            shown = decoded(frame, 42 + there)
            assert shown is not None
            extra = {"icrc_good", "retransmitted", "selective_psns"}
            fields = {name: value for name, value in shown["roce"].items() if name not in extra}
            assert fields == {name: value for name, value in whole.items() if ends[name] <= there}


def test_a_cut_uet_packet_shows_what_is_there() -> None:
    for number, packet in enumerate(PacketSamples(3).of_every_kind()):
        data = encoded(packet)
        whole = json.loads(json.dumps(uet_packet.describe(packet)))
        frame = make.ethernet(make.ipv4(make.udp(data)))
        for there in range(number % 5, min(len(data), 90), 5):
            seen = find_datagram(CapturedFrame(1, 0, make.ETHERNET, frame[: 42 + there], len(frame)), UET_PORT)
            assert seen is not None
            shown: dict[str, Any] = decode_datagram(seen).document()
            assert (shown["malformed"], shown["cut"]) == (False, True), (packet, there, shown)
            pds = shown["pds"]
            assert pds is None or pds.items() <= whole["pds"].items()
            assert (pds is None) == (there == 0)
            if shown.get("ses"):
                assert shown["ses"].items() <= whole["ses"].items()
            if shown.get("payload_length") is not None:
                assert shown["payload_length"] == whole["payload_length"]


def test_cut_and_broken_are_two_things(decode: Decode) -> None:
    """What the capture has of a packet may be broken by itself."""
    reserved = make.ethernet(make.ipv4(make.udp(b"\xff" + bytes(99), port=UDP_PORT)))
    nack = make.ethernet(make.ipv4(make.udp(bytes.fromhex("5000 0c 00 00000006 0009 0007 00000000"))))
    short = make.ethernet(make.ipv4(make.udp(bytes(7), port=UDP_PORT)))
    frames = [reserved, nack, roce_frame(write(1)), short]
    shown = decode.documents(decode.file(frames, snaplen=52))
    assert [(item["malformed"], item["cut"]) for item in shown] == [
        (True, True),
        (True, True),
        (False, True),
        (True, False),
    ]
    assert decode.counted["cut"] == 3
    rows = decode.flows(decode.file(frames, snaplen=52))
    assert (sum(row["malformed"] for row in rows), sum(row["cut"] for row in rows)) == (3, 3)


def test_a_first_fragment_is_told_as_one(decode: Decode) -> None:
    packet = bytearray(roce_frame(write(1))[: 42 + 48])
    packet[16:18] = (len(packet) - 14).to_bytes(2, "big")
    packet[20:22] = b"\x20\x00"
    later = make.ethernet(make.ipv4(bytes(64), fragment=6))
    (shown,) = decode.documents([bytes(packet), later])
    assert (shown["fragment"], shown["malformed"], shown["cut"]) == (True, False, False)
    assert (shown["roce"]["psn"], shown["roce"]["icrc_good"]) == (1, None)
    assert decode.counted["left_alone"] == {"IPv4 fragment": 1}
    assert "(fragment: 48 of 1056 B)" in decode.lines([bytes(packet)])[0]
