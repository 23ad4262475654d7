"""What crosses a scale-up link, byte by byte, and what is refused."""

from __future__ import annotations

import zlib

import pytest
from encoded_frames import encode_ctlos, encode_frame, encode_header, numbered, seal

from testbed.protocols.errors import DecodeError
from testbed.protocols.scale_up.ctlos import Ack, CfUpdate, Ctlos, Init, InitEcho, Nack, decode_ctlos
from testbed.protocols.scale_up.frames import (
    CC_UPDATE_BYTES,
    CONTROL_FRAME_BYTES,
    CcUpdateFrame,
    ControlFrame,
    DataFrame,
    FrameCheck,
    check_frame,
    decode_frame,
    decode_prefix,
)
from testbed.protocols.scale_up.headers import (
    Header,
    HeaderKind,
    SueHeader,
    UaRequest,
    UaResponse,
    decode_header,
    kind_of,
)

TO, FROM = bytes.fromhex("020000000002"), bytes.fromhex("020000000001")
SUE = SueHeader(operation=1, xpu=0x2AA, next_psn=0x1234, vc=2, partition=0x155, acked_psn=0xFEDC)

CTLOS: list[tuple[Ctlos, str]] = [
    (Ack(0xABCDE), "5c 01 abcde6 000000"),
    (Nack(900), "5c 02 003846 000000"),
    (Init(0, 0x1234), "5c 03 000006 341200"),
    (InitEcho(0xFFFFF, 0xFF00), "5c 04 fffff6 00ff00"),
    (CfUpdate(31, 0x7FFF, 0, 1), "5c 10 fffff6 000010"),
    (CfUpdate(1, 0x1234, 30, 0x4001), "5c 10 092346 f40010"),
]
HEADERS: list[tuple[Header, str]] = [
    # ver 00, op 01, reserved 00, xpuid 10 1010 1010, npsn; vc 10, reserved 0000, partition 01 0101 0101, apsn
    (SUE, "12aa 1234 8155 fedc"),
    # ftype 0001, cmd 000011, vc 01, asi 00, tag eleven ones, pool 0, attr 0, len 111111, ..., dst in bits 14 to 5
    (
        UaRequest(
            command=0x03,
            vc=1,
            address_space=0,
            tag=0x7FF,
            pool=0,
            attributes=0,
            length=63,
            metadata=0,
            address=0,
            source=0,
            destination=1,
        ),
        "10d3ff80 3f000000 00000000 00000020",
    ),
    # ftype 0010, vc 11, tag 000 0000 0001, pool 1, len 00, offset 11, status 0000, write 1, last 1, src, dst, spare
    (
        UaResponse(vc=3, tag=1, pool=1, length=0, offset=3, status=0, is_write=1, last=1, source=5, destination=9),
        "2c00cc30 14090000",
    ),
]
BODY = TO + FROM + bytes.fromhex("88b6")


@pytest.mark.parametrize(("item", "text"), CTLOS)
def test_control_ordered_sets(item: Ctlos, text: str) -> None:
    data = bytes.fromhex(text)
    assert encode_ctlos(item) == data
    assert decode_ctlos(data) == item


@pytest.mark.parametrize(("header", "text"), HEADERS)
def test_headers(header: Header, text: str) -> None:
    data = encode_header(header)
    assert data.hex() == text.replace(" ", "")
    assert decode_header(kind_of(header), data, 0) == header


def test_a_data_frame_is_a_prefix_a_header_and_a_checked_payload() -> None:
    frame = DataFrame(TO, FROM, 17, SUE, b"payload", sequence=0x12345)
    data = encode_frame(frame)
    assert data[:-4] == BODY + bytes.fromhex("712345 b1 12aa12348155fedc") + b"payload"
    assert check_frame(data) is FrameCheck.GOOD
    assert decode_frame(data) == frame
    assert decode_prefix(data) == (HeaderKind.SUE, 17, 0x12345)


def test_the_check_sequence_is_that_of_ethernet() -> None:
    """The residue that IEEE 802.3 names: the CRC over a frame and its FCS is always the same."""
    data = encode_frame(DataFrame(TO, FROM, 0, SUE, b"x" * 100))
    assert zlib.crc32(data) == 0x2144DF1C


@pytest.mark.parametrize("check", [FrameCheck.GOOD, FrameCheck.POISONED])
def test_a_number_is_put_in_and_the_check_is_made_anew(check: FrameCheck) -> None:
    frame = DataFrame(TO, FROM, 3, SUE, b"payload", check=check)
    again = numbered(encode_frame(frame), 0xFFFFF)
    assert decode_frame(again) == frame._replace(sequence=0xFFFFF)
    assert check_frame(again) is check


def test_any_damaged_bit_is_noticed() -> None:
    data = encode_frame(DataFrame(TO, FROM, 3, SUE, b"payload", sequence=1))
    for bit in range(8 * len(data)):
        hurt = bytearray(data)
        hurt[bit // 8] ^= 1 << bit % 8
        assert check_frame(hurt) is FrameCheck.BAD


def test_four_control_ordered_sets_share_a_frame_of_60_bytes() -> None:
    items = tuple(item for item, _ in CTLOS[:4])
    data = encode_frame(ControlFrame(TO, FROM, items, sent_ns=0x0102030405060708))
    assert len(data) == CONTROL_FRAME_BYTES
    assert data[14:46] == b"".join(bytes.fromhex(text) for _, text in CTLOS[:4])
    assert data[46:54] == bytes(range(1, 9))
    assert decode_frame(data) == ControlFrame(TO, FROM, items, 0x0102030405060708)


def test_cc_update_has_64_bytes() -> None:
    frame = CcUpdateFrame(TO, FROM, ((0, 0xFFFFF), (31, 5)), sequence=7)
    data = encode_frame(frame)
    assert len(data) == CC_UPDATE_BYTES
    assert data[14:28] == bytes.fromhex("700007 80 0200 000fffff f8000005")
    assert decode_frame(data) == frame


@pytest.mark.parametrize(
    ("body", "offset", "reason"),
    [
        (b"", 0, "has 22 bytes"),
        (TO + FROM + bytes.fromhex("0800 700000 20") + bytes(8), 12, "EtherType"),
        (BODY + bytes.fromhex("600000 20") + bytes(8), 14, "begins with 0x6"),
        (BODY + bytes.fromhex("700001 20") + bytes(8), 14, "not eligible"),
        (BODY + bytes.fromhex("700000 20") + bytes(7), 25, "SUE reliability header has 8 bytes, 7"),
        (BODY + bytes.fromhex("700000 40") + bytes(16), 18, "FTYPE 0"),
        (BODY + bytes.fromhex("700000 41 10") + bytes(14), 33, "a UALink request has 16 bytes, 15"),
        (BODY + bytes.fromhex("700000 60 10") + bytes(7), 18, "FTYPE 1"),
        (BODY + bytes.fromhex("700000 01 0100") + bytes(40), 17, "no VC"),
        (BODY + bytes.fromhex("700000 00 0100") + bytes(39), 63, "64 bytes, not 63"),
        (BODY + bytes.fromhex("700000 00 0b00") + bytes(40), 18, "11 counters"),
        (BODY + bytes.fromhex("700000 00 0000") + bytes(40), 18, "0 counters"),
        (BODY + bytes.fromhex("5c01 000006 000000") + bytes(33), 59, "60 bytes, not 59"),
        (BODY + bytes.fromhex("5c05 000006 000000") + bytes(34), 15, "type 0x05"),
        (BODY + bytes.fromhex("5c01 000007 000000") + bytes(34), 18, "O-code 0x7"),
        (BODY + bytes.fromhex("5c01 000006 000000 01") + bytes(33), 22, "control character 0x01"),
    ],
)
def test_what_is_no_frame_is_refused_with_its_place(body: bytes, offset: int, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        decode_frame(seal(body) if body else body)
    assert caught.value.offset == offset


def test_an_address_is_a_multiple_of_four() -> None:
    header = HEADERS[1][0]
    assert isinstance(header, UaRequest)
    largest = (1 << 57) - 4
    assert decode_header(HeaderKind.UALINK_REQUEST, encode_header(header._replace(address=largest)), 0) == (
        header._replace(address=largest)
    )
