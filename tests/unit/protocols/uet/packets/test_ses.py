"""SES headers against bytes written out by hand from the specification's tables."""

import pytest
from encoded import encoded

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import (
    AmoOpcode,
    AmoType,
    NextHeader,
    Opcode,
    RequestBit,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)
from testbed.protocols.uet.packets.ses import (
    AtomicExtension,
    CswapExtension,
    DeferrableTokens,
    MediumRequest,
    RendezvousExtension,
    Response,
    ResponseData,
    ResponseDataSmall,
    SesHeader,
    SmallRequest,
    StandardRequest,
    decode_ses,
)

STD, MEDIUM, SMALL = NextHeader.REQUEST_STD, NextHeader.REQUEST_MEDIUM, NextHeader.REQUEST_SMALL
RESPONSE, DATA, DATA_SMALL = NextHeader.RESPONSE, NextHeader.RESPONSE_DATA, NextHeader.RESPONSE_DATA_SMALL
SOM, EOM, HD = RequestBit.SOM, RequestBit.EOM, RequestBit.HD

# message_id | ri_generation, job_id | PIDonFEP | resource_index | buffer_offset | initiator
MIDDLE = "0007 00000001 0002 0003 0000000000000010 00000004"
# memory_key | header_data | request_length
END = "0000000000000005 0000000000000000 00000040"


def a_request(opcode: Opcode, flags: int = SOM, **changes: object) -> StandardRequest:
    """That of `MIDDLE` and `END`."""
    return StandardRequest(opcode, flags, 7, 0, 1, 2, 3, 16, 4, 5, 0, 0, 0, 64)._replace(**changes)


GOLDEN: dict[str, tuple[NextHeader, str, SesHeader]] = {
    "standard, first packet": (
        STD,
        # rsvd:2 opcode:6 | ver:2 DC IE REL HD EOM SOM | message_id | ri_generation | job_id
        "01 25 0102 03 040506"
        # rsvd:4 PIDonFEP:12 | rsvd:4 resource_index:12 | buffer_offset | initiator
        "0708 090a 0b0c0d0e0f101112 13141516"
        # memory_key | header_data | request_length
        "1718191a1b1c1d1e 1f20212223242526 2728292a",
        StandardRequest(
            Opcode.WRITE,
            RequestBit.DC | HD | SOM,
            0x0102,
            0x03,
            0x040506,
            0x708,
            0x90A,
            0x0B0C0D0E0F101112,
            0x13141516,
            0x1718191A1B1C1D1E,
            0x1F20212223242526,
            0,
            0,
            0x2728292A,
        ),
    ),
    "standard, last packet": (
        STD,
        # without SOM: rsvd:18 payload_length:14 | message_offset in the place of header_data
        "05 0a ffff 00 000001 0fff 0001 0000000000000000 00000000 0000000000000000 00001000 00010000 00011000",
        StandardRequest(Opcode.SEND, EOM | RequestBit.REL, 0xFFFF, 0, 1, 0xFFF, 1, 0, 0, 0, 0, 4096, 0x10000, 0x11000),
    ),
    "standard, initiator error": (STD, "0f 13" + MIDDLE + END, a_request(Opcode.MSG_ERROR, RequestBit.IE | SOM | EOM)),
    "rendezvous": (
        STD,
        # eager_length | ri_generation:8 PIDonFEP:12 resource_index:12 | read offset | read key
        "06 01" + MIDDLE + END + "00000400 11222333 0000000000001000 00000000deadbeef",
        a_request(Opcode.RENDEZVOUS_SEND, extension=RendezvousExtension(1024, 0x11, 0x222, 0x333, 0x1000, 0xDEADBEEF)),
    ),
    "tagged rendezvous": (
        STD,
        "0a 01" + MIDDLE + END + "ffffffff fffffff0 0000000000000000 ffffffffffffffff",
        a_request(
            Opcode.RENDEZVOUS_TSEND,
            extension=RendezvousExtension(0xFFFF_FFFF, 0xFF, 0xFFF, 0xFF0, 0, 0xFFFF_FFFF_FFFF_FFFF),
        ),
    ),
    "atomic": (
        STD,
        # amo_opcode | datatype | semantic_control | rsvd
        "03 03" + MIDDLE + END + "02 07 01 00",
        a_request(
            Opcode.ATOMIC, SOM | EOM, extension=AtomicExtension(AmoOpcode.SUM, AmoType.UINT64, semantic_control=1)
        ),
    ),
    "tagged atomic": (
        STD,
        "0d 03" + MIDDLE + END + "0c 11 00 00",
        a_request(Opcode.TSEND_ATOMIC, SOM | EOM, extension=AtomicExtension(AmoOpcode.WRITE, AmoType.FP16)),
    ),
    "compare and swap": (
        STD,
        # AMO | compare | swap
        "04 03" + MIDDLE + END + "11 09 03 00 000102030405060708090a0b0c0d0e0f 0f0e0d0c0b0a09080706050403020100",
        a_request(
            Opcode.FETCHING_ATOMIC,
            SOM | EOM,
            extension=CswapExtension(
                AmoOpcode.CSWAP_GE, AmoType.UINT128, 3, bytes(range(16)), bytes(reversed(range(16)))
            ),
        ),
    ),
    "masked swap": (
        STD,
        "0e 03" + MIDDLE + END + "13 05 00 00" + "ff" * 16 + "01" + "00" * 15,
        a_request(
            Opcode.TSEND_FETCH_ATOMIC,
            SOM | EOM,
            extension=CswapExtension(AmoOpcode.MSWAP, AmoType.UINT32, 0, b"\xff" * 16, b"\x01" + bytes(15)),
        ),
    ),
    "medium with header data": (
        MEDIUM,
        # opcode | flags | rsvd:2 request_length:14 | ri_generation job_id | PIDonFEP | resource_index
        "09 07 0040 01 000007 0002 0003"
        # header_data | initiator | match_bits
        "8877665544332211 00000009 ffffffffffffff01",
        MediumRequest(Opcode.TAGGED_SEND, HD | EOM | SOM, 64, 1, 7, 2, 3, 0, 0x8877665544332211, 9, 0xFFFFFFFFFFFFFF01),
    ),
    "medium": (
        MEDIUM,
        # buffer_offset in the place of header_data
        "01 23 3fff 00 000007 0002 0003 8877665544332211 00000009 00000000000000aa",
        MediumRequest(Opcode.WRITE, RequestBit.DC | EOM | SOM, 0x3FFF, 0, 7, 2, 3, 0x8877665544332211, 0, 9, 0xAA),
    ),
    "medium atomic": (
        MEDIUM,
        "03 03 0008 00 000007 0002 0003 0000000000000010 00000009 00000000000000aa 01 0b 00 00",
        MediumRequest(
            Opcode.ATOMIC, EOM | SOM, 8, 0, 7, 2, 3, 16, 0, 9, 0xAA, AtomicExtension(AmoOpcode.MAX, AmoType.DOUBLE)
        ),
    ),
    "small": (
        SMALL,
        # opcode | flags | rsvd:2 request_length:14 | ri_generation job_id | PIDonFEP | resource_index | buffer_offset
        "02 0b 3fff 00 ffffff 0000 0fff 0000000000001234",
        SmallRequest(Opcode.READ, RequestBit.REL | EOM | SOM, 0x3FFF, 0, 0xFF_FFFF, 0, 0xFFF, 0x1234),
    ),
    "small atomic": (
        SMALL,
        "04 03 0008 00 000001 0002 0003 0000000000001234 00 06 00 00",
        SmallRequest(
            Opcode.FETCHING_ATOMIC, EOM | SOM, 8, 0, 1, 2, 3, 0x1234, AtomicExtension(AmoOpcode.MIN, AmoType.INT64)
        ),
    ),
    "response": (
        RESPONSE,
        # list:2 opcode:6 | ver:2 return_code:6 | message_id | ri_generation | job_id | modified_length
        "41 01 0102 03 040506 00001000",
        Response(ResponseList.OVERFLOW, ResponseOpcode.RESPONSE, ReturnCode.OK, 0x102, 0x040506, 4096, ri_generation=3),
    ),
    "default response": (
        RESPONSE,
        "00 00 0007 00 000001 00000040",
        Response(ResponseList.EXPECTED, ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.NULL, 7, 1, 64),
    ),
    "no response": (
        RESPONSE,
        "03 3e 0000 00 000000 00000000",
        Response(ResponseList.EXPECTED, ResponseOpcode.NO_RESPONSE, ReturnCode.EXTENDED, 0, 0, 0),
    ),
    "response with data": (
        DATA,
        # list opcode | return_code | message_id | rsvd:8 job_id:24
        "02 01 0009 00 000007"
        # read_request_message_id | rsvd:2 payload_length:14 | modified_length | message_offset
        "0001 0400 00002000 00000c00",
        ResponseData(ResponseList.EXPECTED, ResponseOpcode.RESPONSE_W_DATA, ReturnCode.OK, 9, 7, 1, 1024, 8192, 3072),
    ),
    "response with data of a small request": (
        DATA_SMALL,
        # list opcode | return_code | rsvd:2 payload_length:14 | rsvd:8 job_id:24 | original_request_psn
        "02 24 0010 00 000007 0000014d",
        ResponseDataSmall(ResponseList.EXPECTED, ResponseOpcode.RESPONSE_W_DATA, ReturnCode.DROPPED, 16, 7, 333),
    ),
}
golden = pytest.mark.parametrize(("next_header", "text", "header"), GOLDEN.values(), ids=GOLDEN)


def error_of(next_header: NextHeader, text: str, offset: int = 0) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode_ses(next_header, bytes(offset) + bytes.fromhex(text), offset)
    return caught.value


@golden
def test_encodes_to_the_bytes_of_the_table(next_header: NextHeader, text: str, header: SesHeader) -> None:
    assert encoded(header).hex() == text.replace(" ", "")


@golden
@pytest.mark.parametrize("wrap", [bytes, memoryview])
@pytest.mark.parametrize("offset", [0, 12])
def test_decodes_from_the_bytes_of_the_table(
    next_header: NextHeader, text: str, header: SesHeader, wrap: type[bytes] | type[memoryview], offset: int
) -> None:
    data = bytes.fromhex(text)
    decoded, at = decode_ses(next_header, wrap(b"\xff" * offset + data + b"payload"), offset)
    assert decoded == header
    assert type(decoded) is type(header)
    assert at == offset + len(data)


@golden
def test_every_shorter_piece_is_refused_at_its_end(next_header: NextHeader, text: str, header: SesHeader) -> None:
    data = bytes(12) + bytes.fromhex(text)
    for length in range(len(data)):
        with pytest.raises(DecodeError) as caught:
            decode_ses(next_header, data[:length], 12)
        assert caught.value.offset == length


def test_golden_bytes_cover_every_next_header() -> None:
    assert {next_header for next_header, _, _ in GOLDEN.values()} == set(NextHeader) - {NextHeader.NONE}


def test_none_has_no_header() -> None:
    error = error_of(NextHeader.NONE, "00" * 50, offset=12)
    assert (error.offset, error.reason) == (12, "next_hdr NONE: no SES header follows")


@pytest.mark.parametrize(
    ("next_header", "reserved_set", "reserved_clear"),
    [
        (
            STD,  # two bits of the opcode's byte, four before PIDonFEP and resource_index, 18 before payload_length
            "c5 0a ffff 00000001 f001 f002 0000000000000000 00000000 0000000000000000 ffffd000 00010000 00011000",
            "05 0a ffff 00000001 0001 0002 0000000000000000 00000000 0000000000000000 00001000 00010000 00011000",
        ),
        (
            MEDIUM,
            "c1 03 c040 00000007 f002 f003 0000000000000000 00000009 0000000000000000",
            "01 03 0040 00000007 0002 0003 0000000000000000 00000009 0000000000000000",
        ),
        (SMALL, "c1 03 c040 00000007 f002 f003 0000000000000000", "01 03 0040 00000007 0002 0003 0000000000000000"),
        (
            SMALL,
            "04 03 0008 00000001 0002 0003 0000000000001234 00 06 00 ff",
            "04 03 0008 00000001 0002 0003 0000000000001234 00 06 00 00",
        ),
        (DATA, "02 01 0009 ff000007 0001 c400 00002000 00000c00", "02 01 0009 00000007 0001 0400 00002000 00000c00"),
        (DATA_SMALL, "02 01 c010 ff000007 0000014d", "02 01 0010 00000007 0000014d"),
    ],
)
def test_reserved_bits_are_ignored(next_header: NextHeader, reserved_set: str, reserved_clear: str) -> None:
    header, _ = decode_ses(next_header, bytes.fromhex(reserved_set), 0)
    assert header == decode_ses(next_header, bytes.fromhex(reserved_clear), 0)[0]
    assert encoded(header) == bytes.fromhex(reserved_clear)


@pytest.mark.parametrize(("next_header", "length"), [(STD, 100), (MEDIUM, 100), (SMALL, 100)])
def test_opcodes_of_requests(next_header: NextHeader, length: int) -> None:
    whose = {
        **dict.fromkeys(range(0x10, 0x30), "reserved"),
        **dict.fromkeys(range(0x30, 0x3F), "a vendor's"),
        0x3F: "extended",
    }
    for number in range(64):
        data = bytes([number, 3]) + bytes(length)
        if number in whose:
            error = error_of(next_header, data.hex())
            assert (error.offset, error.reason) == (0, f"opcode 0x{number:02x} is {whose[number]}")
        elif next_header is not STD and number in (Opcode.RENDEZVOUS_SEND, Opcode.RENDEZVOUS_TSEND):
            assert "needs a message_id" in error_of(next_header, data.hex()).reason
        else:
            header, _ = decode_ses(next_header, data, 0)
            assert header.opcode is Opcode(number)


@pytest.mark.parametrize("next_header", [RESPONSE, DATA, DATA_SMALL])
def test_return_codes_and_opcodes_of_responses(next_header: NextHeader) -> None:
    for number in range(64):
        text = bytes([1, number]).hex() + "00" * 20
        if number <= 0x24 or 0x30 <= number <= 0x37 or number == 0x3E:
            header, _ = decode_ses(next_header, bytes.fromhex(text), 0)
            assert isinstance(header, Response | ResponseData | ResponseDataSmall)
            assert header.return_code is ReturnCode(number)
        else:
            error = error_of(next_header, text, offset=12)
            assert (error.offset, error.reason) == (13, f"return code 0x{number:02x} is reserved")
    for number in range(256):
        data = bytes([number, 1]) + bytes(20)
        if number & 0x3F > 3:
            assert error_of(next_header, data.hex()).reason == f"response opcode {number & 0x3F} is reserved"
        else:
            header, _ = decode_ses(next_header, data, 0)
            assert isinstance(header, Response | ResponseData | ResponseDataSmall)
            assert (header.list, header.opcode) == (number >> 6, number & 0x3F)


@pytest.mark.parametrize(
    ("next_header", "text", "offset", "reason"),
    [
        (STD, "05 43" + MIDDLE + END, 13, "version 1 is unknown"),
        (STD, "03 c3" + MIDDLE + END + "02 07 01 00", 13, "version 3 is unknown"),
        (MEDIUM, "05 83" + "00" * 30, 13, "version 2 is unknown"),
        (SMALL, "01 43" + "00" * 18, 13, "version 1 is unknown"),
        (RESPONSE, "01 41" + "00" * 10, 13, "version 1 is unknown"),
        (MEDIUM, "05 01" + "00" * 30, 13, "SOM and EOM must be set in a medium or small header"),
        (SMALL, "01 02" + "00" * 18, 13, "SOM and EOM must be set in a medium or small header"),
        (STD, "03 03" + MIDDLE + END + "15 07 01 00", 56, "amo_opcode 0x15 is reserved"),
        (STD, "03 03" + MIDDLE + END + "e0 07 01 00", 56, "amo_opcode 0xe0 is a vendor's"),
        (STD, "03 03" + MIDDLE + END + "02 12 01 00", 57, "datatype 0x12 is unknown"),
        (SMALL, "03 03" + "00" * 18 + "ff 00 00 00", 32, "amo_opcode 0xff is reserved"),
    ],
)
def test_what_is_refused_and_where(next_header: NextHeader, text: str, offset: int, reason: str) -> None:
    error = error_of(next_header, text, offset=12)
    assert (error.offset, error.reason) == (offset, reason)


@pytest.mark.parametrize("opcode", [Opcode.DEFERRABLE_SEND, Opcode.DEFERRABLE_TSEND])
def test_restart_tokens_of_a_deferrable_send_are_its_buffer_offset(opcode: Opcode) -> None:
    text = f"{opcode:02x} 01 0007 00000001 0002 0003 11111111 00000000 00000004" + END
    header, _ = decode_ses(STD, bytes.fromhex(text), 0)
    assert isinstance(header, StandardRequest)
    assert header.tokens == DeferrableTokens(initiator=0x11111111, target=0)
    assert header._replace(buffer_offset=header.tokens.word) == header


def test_restart_tokens_of_a_ready_to_restart_are_its_match_bits() -> None:
    text = "0c 03" + MIDDLE + "11111111 22222222 0000000000000000 00000040"
    header, _ = decode_ses(STD, bytes.fromhex(text), 0)
    assert isinstance(header, StandardRequest)
    assert header.tokens == DeferrableTokens(initiator=0x11111111, target=0x22222222)
    assert header.memory_key == header.tokens.word


def test_other_requests_have_no_restart_tokens() -> None:
    assert a_request(Opcode.SEND, buffer_offset=1 << 32).tokens is None
