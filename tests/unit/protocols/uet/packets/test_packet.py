"""Whole packets: what belongs together is taken apart right, and described in the specification's words."""

import json
from pathlib import Path
from typing import Any

import pytest
from encoded import encoded
from packet_samples import PacketSamples

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import NackCode, NextHeader, PdsType
from testbed.protocols.uet.packets.packet import Packet, decode_packet, describe, summary
from testbed.protocols.uet.packets.pds import Nack, Request
from testbed.protocols.uet.packets.ses import StandardRequest

WRITE = (
    "1188 fffd 0000014d 1234 5678"
    "01 25 0102 03 040506 0708 090a 0b0c0d0e0f101112 13141516 1718191a1b1c1d1e 1f20212223242526 2728292a"
)
DESCRIBED = json.loads((Path(__file__).parents[4] / "data/uet/described_packets.json").read_text())
"""Packets of every type with every header, and what is to be shown of them."""
described = pytest.mark.parametrize("case", DESCRIBED, ids=[case["name"] for case in DESCRIBED])


@described
def test_description_and_summary(case: dict[str, Any]) -> None:
    packet = decode_packet(bytes.fromhex(case["packet"]))
    assert describe(packet) == case["description"]
    assert summary(packet) == case["summary"]
    assert encoded(packet) == bytes.fromhex(case["packet"])


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_of_packet_comes_back_from_its_bytes(seed: int) -> None:
    for packet in PacketSamples(seed).of_every_kind():
        assert decode_packet(encoded(packet)) == packet


def test_descriptions_cover_every_header() -> None:
    types = {decode_packet(bytes.fromhex(case["packet"])).pds.type for case in DESCRIBED}
    assert types == set(PdsType) - {PdsType.RESERVED, PdsType.TSS, PdsType.ROD_CC_REQ}


def test_the_payload_is_a_view_of_the_data() -> None:
    data = bytearray(bytes.fromhex(WRITE) + b"abcd")
    packet = decode_packet(memoryview(data))
    assert packet.payload == b"abcd"
    data[-1] = ord("e")
    assert packet.payload == b"abce"


def test_nothing_follows_a_header_without_next_header() -> None:
    packet = decode_packet(bytes.fromhex("1008 0000 00000001 0001 0002") + b"left over")
    assert packet == Packet(Request(PdsType.RUD_REQ, NextHeader.NONE, 8, 0, 1, 1, 2), None, memoryview(b"left over"))


def test_a_nack_has_no_ses_header() -> None:
    packet = decode_packet(bytes.fromhex("5000 01 00 00000001 0001 0002 00000000") + b"x")
    assert packet.pds == Nack(PdsType.NACK, 0, NackCode.TRIMMED, 0, 1, 1, 2, 0)
    assert (packet.ses, bytes(packet.payload)) == (None, b"x")


def test_offsets_of_errors_count_from_the_start_of_the_packet() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_packet(bytes.fromhex("3180 0000 10 03") + bytes(50))
    assert caught.value.offset == 4
    with pytest.raises(DecodeError) as caught:
        decode_packet(bytes.fromhex(WRITE)[:40])
    assert caught.value.offset == 40


def test_a_trimmed_packet_keeps_its_pds_header() -> None:
    data = bytes.fromhex(WRITE)[:16]
    packet = decode_packet(data, trimmed=True)
    assert isinstance(packet.pds, Request)
    assert (packet.pds.psn, packet.ses, bytes(packet.payload)) == (333, None, data[12:])
    whole = decode_packet(bytes.fromhex(WRITE) + b"abc", trimmed=True)
    assert isinstance(whole.ses, StandardRequest)


def test_trimming_excuses_nothing_but_the_end() -> None:
    with pytest.raises(DecodeError, match="at byte 4: opcode 0x10 is reserved"):
        decode_packet(bytes.fromhex("3180 0000 10 03") + bytes(50), trimmed=True)
    with pytest.raises(DecodeError, match="at byte 11"):
        decode_packet(bytes.fromhex(WRITE)[:11], trimmed=True)
