"""Whole packets: what belongs together is taken apart right, and described in the specification's words."""

from __future__ import annotations

import json

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
LATER_SEND = (
    "1994 ffff 00000064 0001 8002"
    "05 0a ffff 00 000001 0fff 0001 0000000000000000 00000000 0000000000000000 00001000 00010000 00011000"
)
ACK_CC = "4200 0001 0000014c 0003 0004 00 08 0002 0000000000000005 0102 c0 0a0b0c 0007"
RESPONSE = "41 01 0102 03 040506 00001000"

DESCRIBED: dict[str, tuple[str, dict[str, object], str]] = {
    "WRITE": (
        WRITE + "aabb",
        {
            "pds": {
                "type": "RUD_REQ",
                "next_hdr": "REQUEST_STD",
                "flags": ["AR"],
                "clear_psn_offset": -3,
                "psn": 333,
                "spdcid": 0x1234,
                "dpdcid": 0x5678,
            },
            "ses": {
                "opcode": "WRITE",
                "flags": ["DC", "HD", "SOM"],
                "message_id": 0x102,
                "ri_generation": 3,
                "job_id": 0x40506,
                "PIDonFEP": 0x708,
                "resource_index": 0x90A,
                "buffer_offset": 0x0B0C0D0E0F101112,
                "initiator": 0x13141516,
                "memory_key": "0x1718191a1b1c1d1e",
                "header_data": "0x1f20212223242526",
                "request_length": 0x2728292A,
            },
            "payload_length": 2,
        },
        "RUD_REQ 4660>22136 PSN 333 CLEAR 330 [AR] | WRITE message 258 of 656943402 [DC HD SOM] | 2 B",
    ),
    "SEND, a later packet, with SYN": (
        LATER_SEND,
        {
            "pds": {
                "type": "ROD_REQ",
                "next_hdr": "REQUEST_STD",
                "flags": ["RETX", "SYN"],
                "clear_psn_offset": -1,
                "psn": 100,
                "spdcid": 1,
                "pdc_info": 8,
                "psn_offset": 2,
            },
            "ses": {
                "opcode": "SEND",
                "flags": ["REL", "EOM"],
                "message_id": 0xFFFF,
                "ri_generation": 0,
                "job_id": 1,
                "PIDonFEP": 0xFFF,
                "resource_index": 1,
                "buffer_offset": 0,
                "initiator": 0,
                "memory_key": "0x0000000000000000",
                "payload_length": 4096,
                "message_offset": 65536,
                "request_length": 69632,
            },
            "payload_length": 0,
        },
        "ROD_REQ 1>SYN+2 PSN 100 CLEAR 99 [RETX SYN] | SEND message 65535 at 65536 of 69632 [REL EOM]",
    ),
    "ACK_CC": (
        ACK_CC + RESPONSE,
        {
            "pds": {
                "type": "ACK_CC",
                "next_hdr": "RESPONSE",
                "flags": [],
                "ack_psn_offset": 1,
                "cack_psn": 332,
                "spdcid": 3,
                "dpdcid": 4,
                "mpr": 8,
                "sack_psn_offset": 2,
                "sack_bitmap": "0x0000000000000005",
                "cc_type": "NSCC",
                "ack_cc_state": {
                    "service_time": 0x102,
                    "rc": True,
                    "rcv_cwnd_pend": 64,
                    "rcvd_bytes": 0xA0B0C,
                    "ooo_count": 7,
                },
            },
            "ses": {
                "list": "OVERFLOW",
                "opcode": "RESPONSE",
                "return_code": "OK",
                "message_id": 0x102,
                "ri_generation": 3,
                "job_id": 0x40506,
                "modified_length": 4096,
            },
            "payload_length": 0,
        },
        "ACK_CC 3>4 ACK 333 CACK 332 SACK 334+0x5 | RESPONSE OK message 258",
    ),
    "ACK of a probe, with credit": (
        "4008 beef 00000009 0003 0004 10 01 8000 0000000000000000 123456 000000 ffff",
        {
            "pds": {
                "type": "ACK_CC",
                "next_hdr": "NONE",
                "flags": ["PROBE"],
                "probe_opaque": 0xBEEF,
                "cack_psn": 9,
                "spdcid": 3,
                "dpdcid": 4,
                "mpr": 1,
                "sack_psn_offset": -32768,
                "sack_bitmap": "0x0000000000000000",
                "cc_type": "CREDIT",
                "ack_cc_state": {"credit": 0x123456, "ooo_count": 0xFFFF},
            },
            "ses": None,
            "payload_length": 0,
        },
        "ACK_CC 3>4 probe 48879 CACK 9 [PROBE]",
    ),
    "ACK_CCX": (
        "4800 0000 00000001 0003 0004 e0 02 0000 0000000000000001 00112233445566778899aabbccddeeff",
        {
            "pds": {
                "type": "ACK_CCX",
                "next_hdr": "NONE",
                "flags": [],
                "ack_psn_offset": 0,
                "cack_psn": 1,
                "spdcid": 3,
                "dpdcid": 4,
                "mpr": 2,
                "sack_psn_offset": 0,
                "sack_bitmap": "0x0000000000000001",
                "ccx_type": 14,
                "ack_ccx_state": "0x00112233445566778899aabbccddeeff",
            },
            "ses": None,
            "payload_length": 0,
        },
        "ACK_CCX 3>4 ACK 1 CACK 1 SACK 1+0x1",
    ),
    "NACK": (
        "5030 0d 7f 0000014d 0000 1234 0000014e",
        {
            "pds": {
                "type": "NACK",
                "next_hdr": "NONE",
                "flags": ["MARKED", "RETX"],
                "nack_code": "ROD_OOO",
                "vendor_code": 127,
                "nack_psn": 333,
                "spdcid": 0,
                "dpdcid": 0x1234,
                "payload": 334,
            },
            "ses": None,
            "payload_length": 0,
        },
        "NACK 0>4660 ROD_OOO PSN 333 [MARKED RETX]",
    ),
    "NACK_CCX of a RUDI request": (
        "6008 01 00 00000005 0000 0000 00000000 f0000000000000000000000000000007",
        {
            "pds": {
                "type": "NACK_CCX",
                "next_hdr": "NONE",
                "flags": ["RUDI"],
                "nack_code": "TRIMMED",
                "vendor_code": 0,
                "nack_pkt_id": 5,
                "spdcid": 0,
                "dpdcid": 0,
                "payload": 0,
                "nccx_type": 15,
                "nack_ccx_state": "0x0000000000000000000000000000007",
            },
            "ses": None,
            "payload_length": 0,
        },
        "NACK_CCX 0>0 TRIMMED packet 5 [RUDI]",
    ),
    "CP": (
        "5b20 9876 0000014d 0001 0002 00000140",
        {
            "pds": {
                "type": "CP",
                "ctl_type": "PROBE",
                "flags": ["ISROD"],
                "probe_opaque": 0x9876,
                "psn": 333,
                "spdcid": 1,
                "dpdcid": 2,
                "payload": 320,
            },
            "ses": None,
            "payload_length": 0,
        },
        "CP PROBE 1>2 PSN 333 payload 320 [ISROD]",
    ),
    "request with credit target, small atomic": (
        "6880 0000 00000001 ffff 0002 0a 00abcd"
        "04 03 0008 00 000001 0002 0003 0000000000001234 11 06 02 00" + "11" * 16 + "22" * 16,
        {
            "pds": {
                "type": "RUD_CC_REQ",
                "next_hdr": "REQUEST_SMALL",
                "flags": [],
                "clear_psn_offset": 0,
                "psn": 1,
                "spdcid": 0xFFFF,
                "dpdcid": 2,
                "req_cc_state": {"ccc_id": 10, "credit_target": 0xABCD},
            },
            "ses": {
                "opcode": "FETCHING_ATOMIC",
                "flags": ["EOM", "SOM"],
                "ri_generation": 0,
                "job_id": 1,
                "PIDonFEP": 2,
                "resource_index": 3,
                "buffer_offset": 0x1234,
                "request_length": 8,
                "extension": {
                    "amo_opcode": "CSWAP_GE",
                    "datatype": "INT64",
                    "semantic_control": 2,
                    "compare": "11" * 16,
                    "swap": "22" * 16,
                },
            },
            "payload_length": 0,
        },
        "RUD_CC_REQ 65535>2 PSN 1 CLEAR 1 credit target 43981 | FETCHING_ATOMIC of 8 [EOM SOM]",
    ),
    "RUDI request, medium": (
        "2110 0000 01020304 09 07 0040 01 000007 0002 0003 8877665544332211 00000009 00000000000000aa",
        {
            "pds": {"type": "RUDI_REQ", "next_hdr": "REQUEST_MEDIUM", "flags": ["RETX"], "pkt_id": 0x01020304},
            "ses": {
                "opcode": "TAGGED_SEND",
                "flags": ["HD", "EOM", "SOM"],
                "ri_generation": 1,
                "job_id": 7,
                "PIDonFEP": 2,
                "resource_index": 3,
                "header_data": "0x8877665544332211",
                "initiator": 9,
                "match_bits": "0x00000000000000aa",
                "request_length": 64,
            },
            "payload_length": 0,
        },
        "RUDI_REQ packet 16909060 [RETX] | TAGGED_SEND of 64 [HD EOM SOM]",
    ),
    "RUDI response, medium": (
        "2ab0 0000 01020304 02 01 0009 00 000007 0001 0002 00002000 00000c00 ffff",
        {
            "pds": {
                "type": "RUDI_RESP",
                "next_hdr": "RESPONSE_DATA",
                "flags": ["MARKED", "RETX"],
                "pkt_id": 0x01020304,
            },
            "ses": {
                "list": "EXPECTED",
                "opcode": "RESPONSE_W_DATA",
                "return_code": "OK",
                "message_id": 9,
                "read_request_message_id": 1,
                "payload_length": 2,
                "message_offset": 3072,
                "job_id": 7,
                "modified_length": 8192,
            },
            "payload_length": 2,
        },
        "RUDI_RESP packet 16909060 [MARKED RETX] | RESPONSE_W_DATA OK request 1 at 3072 | 2 B",
    ),
    "small data in an ACK": (
        "3b00 0000 00000001 0001 0002 02 24 0001 00 000007 0000014d ff",
        {
            "pds": {
                "type": "ACK",
                "next_hdr": "RESPONSE_DATA_SMALL",
                "flags": [],
                "ack_psn_offset": 0,
                "cack_psn": 1,
                "spdcid": 1,
                "dpdcid": 2,
            },
            "ses": {
                "list": "EXPECTED",
                "opcode": "RESPONSE_W_DATA",
                "return_code": "DROPPED",
                "payload_length": 1,
                "original_request_psn": 333,
                "job_id": 7,
            },
            "payload_length": 1,
        },
        "ACK 1>2 ACK 1 CACK 1 | RESPONSE_W_DATA DROPPED request PSN 333 | 1 B",
    ),
    "UUD, rendezvous": (
        "3180 0000 0a 01 0007 00 000001 0002 0003 0000000000000010 00000004 0000000000000005 0000000000000000"
        "00000040 00000400 11222333 0000000000001000 00000000deadbeef",
        {
            "pds": {"type": "UUD_REQ", "next_hdr": "REQUEST_STD", "flags": []},
            "ses": {
                "opcode": "RENDEZVOUS_TSEND",
                "flags": ["SOM"],
                "message_id": 7,
                "ri_generation": 0,
                "job_id": 1,
                "PIDonFEP": 2,
                "resource_index": 3,
                "buffer_offset": 16,
                "initiator": 4,
                "match_bits": "0x0000000000000005",
                "request_length": 64,
                "extension": {
                    "eager_length": 1024,
                    "ri_generation": 0x11,
                    "PIDonFEP": 0x222,
                    "resource_index": 0x333,
                    "read_offset": 4096,
                    "read_key": "0x00000000deadbeef",
                },
            },
            "payload_length": 0,
        },
        "UUD_REQ | RENDEZVOUS_TSEND message 7 of 64 [SOM]",
    ),
    "DEFERRABLE_RTR": (
        "1180 0000 00000001 0001 0002 0c 03 0007 00 000001 0002 0003 0000000000000010 00000004"
        "0000000100000002 0000000000000000 00000040",
        {
            "pds": {
                "type": "RUD_REQ",
                "next_hdr": "REQUEST_STD",
                "flags": [],
                "clear_psn_offset": 0,
                "psn": 1,
                "spdcid": 1,
                "dpdcid": 2,
            },
            "ses": {
                "opcode": "DEFERRABLE_RTR",
                "flags": ["EOM", "SOM"],
                "message_id": 7,
                "ri_generation": 0,
                "job_id": 1,
                "PIDonFEP": 2,
                "resource_index": 3,
                "buffer_offset": 16,
                "initiator": 4,
                "memory_key": "0x0000000100000002",
                "restart_tokens": {"initiator": 1, "target": 2},
                "request_length": 64,
            },
            "payload_length": 0,
        },
        "RUD_REQ 1>2 PSN 1 CLEAR 1 | DEFERRABLE_RTR message 7 of 64 [EOM SOM]",
    ),
}
described = pytest.mark.parametrize(("text", "description", "line"), DESCRIBED.values(), ids=DESCRIBED)


@described
def test_description_and_summary(text: str, description: dict[str, object], line: str) -> None:
    packet = decode_packet(bytes.fromhex(text))
    assert describe(packet) == description
    assert json.loads(json.dumps(describe(packet))) == description
    assert summary(packet) == line


@described
def test_packets_encode_to_what_they_came_from(text: str, description: dict[str, object], line: str) -> None:
    data = bytes.fromhex(text)
    assert encoded(decode_packet(data)) == data


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_of_packet_comes_back_from_its_bytes(seed: int) -> None:
    for packet in PacketSamples(seed).of_every_kind():
        assert decode_packet(encoded(packet)) == packet


def test_descriptions_cover_every_header() -> None:
    types = {decode_packet(bytes.fromhex(text)).pds.type for text, _, _ in DESCRIBED.values()}
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
