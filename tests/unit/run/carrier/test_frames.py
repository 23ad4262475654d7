"""Frames of the carrier: what is written is read back, and nothing else is read."""

from ipaddress import IPv4Address, IPv6Address

import pytest

from testbed.run.carrier.frames import (
    HEADER_BYTES,
    ConnectionEnds,
    Frame,
    FrameError,
    FrameKind,
    decode,
    encode,
    write_data_header,
)

ENDS = ConnectionEnds(IPv4Address("10.0.1.2"), 40_000, IPv4Address("10.0.2.2"), 5201)
ENDS6 = ConnectionEnds(IPv6Address("fd00::1"), 40_000, IPv6Address("fd00::2"), 5201)
OPEN = Frame(FrameKind.OPEN, True, 7, window=1 << 16, word=1 << 40, ends=ENDS)
FRAMES = [
    OPEN,
    Frame(FrameKind.OPEN, True, (1 << 32) - 1, window=1 << 12, ends=ENDS6),
    Frame(FrameKind.OPENED, False, 7, window=1 << 28, word=3),
    Frame(FrameKind.REFUSED, False, 7, 111),
    Frame(FrameKind.DATA, True, 7, 5, b"hello"),
    Frame(FrameKind.CREDIT, True, 7, (1 << 64) - 1),
    Frame(FrameKind.FIN, False, 7, 6),
    Frame(FrameKind.RESET, True, 7, 104),
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.kind.name)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    assert decode(encode(frame)) == frame
    assert decode(memoryview(encode(frame))) == frame


def test_the_bytes_are_those_that_are_documented() -> None:
    frame = Frame(FrameKind.DATA, True, 0x01020304, 5, b"hi")
    assert encode(frame) == bytes.fromhex("01 04 01 00 01020304 0000000000000005") + b"hi"
    opened = encode(Frame(FrameKind.OPEN, True, 1, window=4096, ends=ENDS))
    assert opened[HEADER_BYTES:] == bytes.fromhex(
        "00001000 0000000000000000 00000000000000000000ffff0a000102 9c40 00000000000000000000ffff0a000202 1451"
    )


def test_a_header_in_front_of_data_is_that_of_their_frame() -> None:
    room = bytearray(HEADER_BYTES) + b"hello"
    write_data_header(room, from_opener=False, number=9, sequence=3)
    assert decode(bytes(room)) == Frame(FrameKind.DATA, False, 9, 3, b"hello")


def changed(frame: Frame, offset: int, value: int) -> bytes:
    data = bytearray(encode(frame))
    data[offset] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes"),
        (encode(OPEN)[:15], "15 bytes"),
        (changed(OPEN, 0, 2), "version 2"),
        (changed(OPEN, 1, 0), "kind 0"),
        (changed(OPEN, 1, 8), "kind 8"),
        (changed(OPEN, 2, 2), "reserved"),
        (changed(OPEN, 3, 1), "reserved"),
        (changed(OPEN, 2, 0), "wrong end"),
        (changed(OPEN, 15, 1), "a value"),
        (encode(OPEN)[:-1], "OPEN with 47 bytes"),
        (encode(OPEN) + b"x", "OPEN with 49 bytes"),
        (encode(Frame(FrameKind.OPEN, True, 1, window=100, ends=ENDS)), "a window of 100"),
        (encode(Frame(FrameKind.OPEN, True, 1, window=(1 << 28) + 1, ends=ENDS)), "a window of"),
        (encode(Frame(FrameKind.OPEN, True, 1, window=4096, ends=ENDS._replace(source_port=0))), "port 0"),
        (
            encode(Frame(FrameKind.OPEN, True, 1, window=4096, ends=ENDS._replace(source=IPv6Address("fd00::1")))),
            "one of IPv6",
        ),
        (
            encode(Frame(FrameKind.OPEN, True, 1, window=4096, ends=ENDS._replace(source=IPv4Address("127.0.0.1")))),
            "no address of a NIC",
        ),
        (
            encode(Frame(FrameKind.OPEN, True, 1, window=4096, ends=ENDS._replace(source=IPv4Address("224.0.0.1")))),
            "no address of a NIC",
        ),
        (encode(Frame(FrameKind.OPENED, True, 1, window=4096)), "wrong end"),
        (encode(Frame(FrameKind.DATA, True, 1)), "without data"),
        (encode(Frame(FrameKind.FIN, True, 1)) + b"x", "FIN with 1 bytes"),
        (encode(Frame(FrameKind.RESET, True, 1, 4096)), "errno 4096"),
        (encode(Frame(FrameKind.REFUSED, True, 1, 111)), "refuses nothing"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        decode(data)
