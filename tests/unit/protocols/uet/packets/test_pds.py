"""PDS headers against bytes written out by hand from the specification's tables."""

import pytest
from encoded import encoded

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import (
    AckFlag,
    ControlFlag,
    ControlType,
    NackCode,
    NackFlag,
    NextHeader,
    PdsType,
    RequestFlag,
    RudiFlag,
)
from testbed.protocols.uet.packets.pds import (
    Ack,
    CcxState,
    ControlPacket,
    CreditState,
    Nack,
    NsccState,
    PdsHeader,
    Request,
    RequestCcState,
    RudiPacket,
    Uud,
    decode_pds,
    peek_type,
)

# A prologue is type:5 next_hdr:4 flags:7; its bits are spelt out before each line.
GOLDEN: dict[str, tuple[str, PdsHeader]] = {
    "RUD_REQ": (
        # 00010 0011 0001000 | clear_psn_offset -3 | psn 333 | spdcid | dpdcid
        "1188 fffd 0000014d 1234 5678",
        Request(PdsType.RUD_REQ, NextHeader.REQUEST_STD, RequestFlag.AR, -3, 333, 0x1234, 0x5678),
    ),
    "ROD_REQ with SYN": (
        # 00011 0010 0010100 | clear_psn_offset -1 | psn | spdcid | pdc_info:4 psn_offset:12
        "1914 ffff fffffffe 0001 8123",
        Request(PdsType.ROD_REQ, NextHeader.REQUEST_MEDIUM, 0x14, -1, 0xFFFFFFFE, 1, 0, 0x8, 0x123),
    ),
    "RUD_CC_REQ": (
        # 01101 0001 0000000 | 0 | psn | spdcid | dpdcid | ccc_id:8 credit_target:24
        "6880 0000 00000001 ffff 0002 0a 00abcd",
        Request(
            PdsType.RUD_CC_REQ, NextHeader.REQUEST_SMALL, 0, 0, 1, 0xFFFF, 2, req_cc_state=RequestCcState(10, 0xABCD)
        ),
    ),
    "ROD_CC_REQ with SYN": (
        # 01110 0101 0011100 | -32768 | psn | spdcid | pdc_info psn_offset | req_cc_state
        "729c 8000 80000000 0100 0fff ff ffffff",
        Request(
            PdsType.ROD_CC_REQ,
            NextHeader.RESPONSE_DATA,
            RequestFlag.RETX | RequestFlag.AR | RequestFlag.SYN,
            -0x8000,
            0x8000_0000,
            0x100,
            0,
            0,
            0xFFF,
            RequestCcState(0xFF, 0xFF_FFFF),
        ),
    ),
    "ACK": (
        # 00111 0100 0100010 | ack_psn_offset 1 | cack_psn 332 | spdcid | dpdcid
        "3a22 0001 0000014c 5678 1234",
        Ack(PdsType.ACK, NextHeader.RESPONSE, AckFlag.MARKED | AckFlag.REQ_CLEAR, 1, 332, 0x5678, 0x1234),
    ),
    "ACK of a probe": (
        # 00111 0000 0001000 | probe_opaque 0xbeef | cack_psn | spdcid | dpdcid
        "3808 beef 00000000 0001 0002",
        Ack(PdsType.ACK, NextHeader.NONE, AckFlag.PROBE, 0xBEEF - 0x10000, 0, 1, 2),
    ),
    "ACK_CC with NSCC state": (
        # 01000 0000 0010100 | -1 | cack_psn | spdcid | dpdcid
        "4014 ffff 00000200 0003 0004"
        # cc_type:4 cc_flags:4 | mpr | sack_psn_offset | sack_bitmap
        "00 08 0002 8000000000000005"
        # service_time | rc:1 rcv_cwnd_pend:7 | rcvd_bytes:24 | ooo_count
        "0102 c0 0a0b0c 0007",
        Ack(
            PdsType.ACK_CC,
            NextHeader.NONE,
            AckFlag.RETX | AckFlag.REQ_CLOSE,
            -1,
            0x200,
            3,
            4,
            8,
            2,
            1 << 63 | 0b101,
            NsccState(0x102, True, 0x40, 0x0A0B0C, 7),
        ),
    ),
    "ACK_CC with credit": (
        # 01000 0110 0000000 | 0 | cack_psn | spdcid | dpdcid
        "4300 0000 ffffffff 0003 0004"
        # cc_type 1 | mpr | sack_psn_offset -32768 | sack_bitmap
        "10 01 8000 0000000000000000"
        # credit:24 | rsvd:24 | ooo_count
        "123456 000000 ffff",
        Ack(
            PdsType.ACK_CC,
            NextHeader.RESPONSE_DATA_SMALL,
            0,
            0,
            0xFFFF_FFFF,
            3,
            4,
            1,
            -0x8000,
            0,
            CreditState(0x123456, 0xFFFF),
        ),
    ),
    "ACK_CCX": (
        # 01001 0000 0000000 | ACK | ccx_type:4 rsvd:4 | mpr | sack_psn_offset | sack_bitmap | state:128
        "4800 0000 00000001 0003 0004 e0 02 0000 0000000000000001 00112233445566778899aabbccddeeff",
        Ack(
            PdsType.ACK_CCX, NextHeader.NONE, 0, 0, 1, 3, 4, 2, 0, 1, CcxState(0xE, 0x00112233445566778899AABBCCDDEEFF)
        ),
    ),
    "NACK": (
        # 01010 0000 0110000 | nack_code | vendor_code | nack_psn | spdcid 0 | dpdcid | payload
        "5030 0d 7f 0000014d 0000 1234 0000014e",
        Nack(PdsType.NACK, NackFlag.MARKED | NackFlag.RETX, NackCode.ROD_OOO, 0x7F, 333, 0, 0x1234, 334),
    ),
    "NACK of a RUDI request": (
        # 01010 0000 0001000 | TRIMMED | 0 | nack_pkt_id | 0 | 0 | 0
        "5008 01 00 cafebabe 0000 0000 00000000",
        Nack(PdsType.NACK, NackFlag.RUDI, NackCode.TRIMMED, 0, 0xCAFEBABE, 0, 0, 0),
    ),
    "NACK_CCX": (
        # 01100 0000 0000000 | NACK | nccx_type:4 state:124
        "6000 17 00 00000005 0001 0002 00001000 f123456789abcdef0fedcba987654321",
        Nack(
            PdsType.NACK_CCX,
            0,
            NackCode.NEW_START_PSN,
            0,
            5,
            1,
            2,
            0x1000,
            CcxState(0xF, 0x123456789ABCDEF0FEDCBA987654321),
        ),
    ),
    "CP PROBE": (
        # 01011 0110 0100000 | probe_opaque | psn | spdcid | dpdcid | payload
        "5b20 9876 0000014d 0001 0002 00000140",
        ControlPacket(ControlType.PROBE, ControlFlag.ISROD, 0x9876, 333, 1, 2, payload=320),
    ),
    "CP CLOSE_CMD": (
        # 01011 0100 0001000 | rsvd | psn | spdcid | dpdcid | 0
        "5a08 0000 00000150 0001 0002 00000000",
        ControlPacket(ControlType.CLOSE_CMD, ControlFlag.AR, 0, 336, 1, 2),
    ),
    "CP NOOP with SYN": (
        # 01011 0000 0010100 | rsvd | psn | spdcid | pdc_info:4 psn_offset:12 | 0
        "5814 0000 00000065 0009 1001 00000000",
        ControlPacket(ControlType.NOOP, ControlFlag.SYN | ControlFlag.RETX, 0, 101, 9, 0, 1, 1),
    ),
    "RUDI_REQ": (
        # 00100 0011 0010000 | rsvd | pkt_id
        "2190 0000 01020304",
        RudiPacket(PdsType.RUDI_REQ, NextHeader.REQUEST_STD, RudiFlag.RETX, 0x01020304),
    ),
    "RUDI_RESP": (
        # 00101 0100 0100000 | rsvd | pkt_id
        "2a20 0000 01020304",
        RudiPacket(PdsType.RUDI_RESP, NextHeader.RESPONSE, RudiFlag.MARKED, 0x01020304),
    ),
    "UUD_REQ": (
        # 00110 0011 0000000 | rsvd
        "3180 0000",
        Uud(NextHeader.REQUEST_STD),
    ),
}
golden = pytest.mark.parametrize(("text", "header"), GOLDEN.values(), ids=GOLDEN)
AN_ACK_CC = bytes.fromhex(GOLDEN["ACK_CC with NSCC state"][0])


def decode(text: str) -> PdsHeader:
    return decode_pds(bytes.fromhex(text))[0]


def error_of(text: str) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode_pds(bytes.fromhex(text))
    return caught.value


@golden
def test_encodes_to_the_bytes_of_the_table(text: str, header: PdsHeader) -> None:
    assert encoded(header).hex() == text.replace(" ", "")


@golden
@pytest.mark.parametrize("wrap", [bytes, memoryview])
def test_decodes_from_the_bytes_of_the_table(
    text: str, header: PdsHeader, wrap: type[bytes] | type[memoryview]
) -> None:
    data = bytes.fromhex(text)
    decoded, end = decode_pds(wrap(data + b"what follows"))
    assert decoded == header
    assert type(decoded) is type(header)
    assert end == len(data)
    assert peek_type(data) is decoded.type is header.type


@golden
def test_every_shorter_piece_is_refused_at_its_end(text: str, header: PdsHeader) -> None:
    data = bytes.fromhex(text)
    for length in range(len(data)):
        with pytest.raises(DecodeError) as caught:
            decode_pds(data[:length])
        assert caught.value.offset == length


def test_golden_bytes_cover_every_type() -> None:
    assert {header.type for _, header in GOLDEN.values()} == set(PdsType) - {PdsType.RESERVED, PdsType.TSS}


@pytest.mark.parametrize(
    ("kind", "prologue"),
    [
        (ControlType.NOOP, "5800"),
        (ControlType.ACK_REQ, "5880"),
        (ControlType.CLEAR_CMD, "5900"),
        (ControlType.CLEAR_REQ, "5980"),
        (ControlType.CLOSE_CMD, "5a00"),
        (ControlType.CLOSE_REQ, "5a80"),
        (ControlType.PROBE, "5b00"),
        (ControlType.CREDIT, "5b80"),
        (ControlType.CREDIT_REQ, "5c00"),
        (ControlType.NEGOTIATION, "5c80"),
    ],
)
def test_control_types_are_in_the_place_of_next_hdr(kind: ControlType, prologue: str) -> None:
    packet = ControlPacket(kind, 0, 0, 1, 2, 3, payload=4)
    assert encoded(packet).hex() == prologue + "0000000000010002000300000004"
    assert decode_pds(encoded(packet)) == (packet, 16)


def test_decoded_enumerations_are_members() -> None:
    request = decode("1188 0000 00000001 0001 0002")
    assert isinstance(request, Request)
    assert (request.type, request.next_header) == (PdsType.RUD_REQ, NextHeader.REQUEST_STD)
    assert isinstance(request.next_header, NextHeader)
    nack = decode("5000 0d 00 00000000 0000 0000 00000000")
    assert isinstance(nack, Nack)
    assert nack.nack_code is NackCode.ROD_OOO


def test_derived_psns_wrap() -> None:
    request = Request(PdsType.RUD_REQ, NextHeader.NONE, RequestFlag.SYN, -3, 1, 1, psn_offset=2)
    assert (request.clear_psn, request.start_psn) == (0xFFFF_FFFE, 0xFFFF_FFFF)
    ack = Ack(PdsType.ACK_CC, NextHeader.NONE, 0, 2, 0xFFFF_FFFF, 1, 2, 8, -0x8000, 1, CreditState(0, 0))
    assert (ack.ack_psn, ack.sack_base_psn) == (1, 0xFFFF_7FFF)


def test_probe_opaque_is_unsigned() -> None:
    ack = decode(GOLDEN["ACK of a probe"][0])
    assert isinstance(ack, Ack)
    assert ack.probe_opaque == 0xBEEF


@pytest.mark.parametrize(
    ("reserved_set", "reserved_clear"),
    [
        ("11e3 0000 00000001 0001 0002", "1180 0000 00000001 0001 0002"),  # request: 0x40 0x20 0x02 0x01
        ("3a41 0001 0000014c 5678 1234", "3a00 0001 0000014c 5678 1234"),  # ACK: 0x40 0x01
        ("5047 0d 00 0000014d 0000 1234 00000000", "5000 0d 00 0000014d 0000 1234 00000000"),  # NACK: 0x40 0x07
        ("5a43 0000 00000150 0001 0002 00000000", "5a00 0000 00000150 0001 0002 00000000"),  # CP: 0x40 0x03
        ("5a00 ffff 00000150 0001 0002 00000000", "5a00 0000 00000150 0001 0002 00000000"),  # CP: no probe_opaque
        ("3806 0000 00000001 0001 0002", "3800 0000 00000001 0001 0002"),  # ACK: REQ 3
        ("4036 0000 00000001 0001 0002" + "00" * 20, "4030 0000 00000001 0001 0002" + "00" * 20),  # ACK_CC: REQ 3
        ("4806 0000 00000001 0001 0002" + "00" * 28, "4800 0000 00000001 0001 0002" + "00" * 28),  # ACK_CCX: REQ 3
        ("5200 0d 00 00000001 0001 0002 00000000", "5000 0d 00 00000001 0001 0002 00000000"),  # NACK: next_hdr
        (
            "6780 01 00 00000001 0001 0002" + "00" * 20,
            "6000 01 00 00000001 0001 0002" + "00" * 20,
        ),  # NACK_CCX: the same
        ("21ef ffff 01020304", "2180 0000 01020304"),  # RUDI request: M, and the 16 bits
        ("2a4f 0000 01020304", "2a00 0000 01020304"),  # RUDI response
        ("31ff ffff", "3180 0000"),  # UUD
        (
            "4000 0000 00000001 0003 0004 1f 00 0000 0000000000000000 123456 ffffff 0000",  # cc_flags, rsvd:24
            "4000 0000 00000001 0003 0004 10 00 0000 0000000000000000 123456 000000 0000",
        ),
    ],
)
def test_reserved_bits_are_ignored(reserved_set: str, reserved_clear: str) -> None:
    assert decode(reserved_set) == decode(reserved_clear)
    assert encoded(decode(reserved_set)) == bytes.fromhex(reserved_clear)


@pytest.mark.parametrize("cc_type", range(2, 16))
def test_the_state_of_another_cc_type_is_kept_and_the_ack_taken(cc_type: int) -> None:
    data = bytes.fromhex(f"4000 0001 00000001 0001 0002 {cc_type:x}0 08 0000 0000000000000003 0123 456789ab cdef")
    ack, end = decode_pds(data)
    assert isinstance(ack, Ack) and end == 32
    assert (ack.ack_psn, ack.cack_psn, ack.mpr, ack.sack_bitmap) == (2, 1, 8, 3)
    assert ack.cc_state == CcxState(cc_type, 0x0123_4567_89AB_CDEF)
    assert encoded(ack) == data


@pytest.mark.parametrize("kind", [0, *range(15, 32)])
def test_reserved_types(kind: int) -> None:
    data = bytes([kind << 3]) + bytes(40)
    for read in (decode_pds, peek_type):
        with pytest.raises(DecodeError, match=f"at byte 0: type {kind} is reserved"):
            read(data)


def test_tss_is_recognised_but_not_decoded() -> None:
    data = bytes([1 << 3]) + bytes(40)
    assert peek_type(data) is PdsType.TSS
    with pytest.raises(DecodeError, match="at byte 0: a TSS header"):
        decode_pds(data)


def test_an_empty_packet() -> None:
    for read in (decode_pds, peek_type):
        with pytest.raises(DecodeError, match="at byte 0: an empty packet"):
            read(b"")


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6, 7, 8, 9, 13, 14])
@pytest.mark.parametrize("number", range(7, 16))
def test_reserved_next_headers(kind: int, number: int) -> None:
    word = kind << 11 | number << 7
    error = error_of(f"{word:04x} 0000 00000001 0001" + "00" * 40)
    assert (error.offset, error.reason) == (0, f"next_hdr {number} is reserved")


@pytest.mark.parametrize("kind", [7, 8, 9])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_acknowledgements_carry_no_requests(kind: int, number: int) -> None:
    error = error_of(f"{kind << 11 | number << 7:04x} 0000 00000001 0001" + "00" * 40)
    assert error.offset == 0
    assert "in an acknowledgement" in error.reason


@pytest.mark.parametrize(
    ("text", "offset", "reason"),
    [
        ("1188 0001 00000001 0001 0002", 2, "clear_psn_offset is 1, above 0"),
        ("6980 7fff 00000001 0001 0002 00000000", 2, "clear_psn_offset is 32767, above 0"),
        ("1188 0000 00000001 0000 0002", 8, "spdcid is 0"),
        ("6980 0000 00000001 0000 0002 00000000", 8, "spdcid is 0"),
        ("3800 0000 00000001 0000 0002", 8, "spdcid is 0"),
        ("4000 0000 00000001 0000 0002" + "00" * 20, 8, "spdcid is 0"),
        ("4800 0000 00000001 0000 0002" + "00" * 28, 8, "spdcid is 0"),
        ("5a08 0000 00000150 0000 0002 00000000", 8, "spdcid is 0"),
        ("5000 0c 00 00000001 0001 0002 00000000", 2, "nack_code 0x0c is reserved"),
        ("6000 1b 00 00000001 0001 0002 00000000" + "00" * 16, 2, "nack_code 0x1b is reserved"),
        ("5d00 0000 00000001 0001 0002 00000000", 0, "ctl_type 10 is reserved"),
        ("5f80 0000 00000001 0001 0002 00000000", 0, "ctl_type 15 is reserved"),
    ],
)
def test_what_is_refused_and_where(text: str, offset: int, reason: str) -> None:
    error = error_of(text)
    assert (error.offset, error.reason) == (offset, reason)


def test_nack_codes_that_are_taken() -> None:
    taken = set()
    for code in range(256):
        try:
            decode_pds(bytes([0x50, 0, code]) + bytes(13))
        except DecodeError:
            continue
        taken.add(code)
    assert taken == {*range(0x01, 0x0C), *range(0x0D, 0x1B), 0xFD, 0xFE, 0xFF}
