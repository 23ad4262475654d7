"""Segments on the wire: what is encoded is decoded, and what is none is refused."""

import pytest

from testbed.protocols.errors import DecodeError
from testbed.protocols.tcp.segment import ACK, PSH, SYN, TcpSegment, decode_segment, encode_header, unwrap


def test_a_syn_with_all_options_is_what_it_was() -> None:
    segment = TcpSegment(20_000, 18_515, 4_294_967_295, 0, SYN, 65_535)
    segment.mss, segment.window_scale, segment.sack_permitted = 4460, 7, True
    segment.has_timestamps, segment.tsval = True, 77

    found = decode_segment(encode_header(segment))

    assert (found.sequence, found.flags, found.window) == (4_294_967_295, SYN, 65_535)
    assert (found.mss, found.window_scale, found.sack_permitted, found.tsval) == (4460, 7, True, 77)
    assert found.has_timestamps


def test_data_has_its_blocks_and_its_bytes() -> None:
    segment = TcpSegment(1, 2, 3, 4, ACK | PSH, 5, b"payload")
    segment.has_timestamps, segment.sack = True, ((10, 20), (30, 40), (50, 60))

    header = encode_header(segment)
    found = decode_segment(header + segment.payload)

    assert len(header) == 60  # the longest header there is (RFC 9293, section 3.1)
    assert found.sack == segment.sack
    assert found.payload == b"payload"


def test_unknown_options_are_passed_over() -> None:
    plain = encode_header(TcpSegment(1, 2, 3, 4, ACK, 5))
    data = bytearray(plain + bytes((254, 4, 1, 2, 3, 3, 9, 0)))
    data[12] = 7 << 4

    assert decode_segment(bytes(data)).window_scale == 9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data[:19], "20 bytes"),
        (lambda data: data[:12] + b"\x40" + data[13:], "header of 16 bytes"),
        (lambda data: data[:12] + b"\xf0" + data[13:], "header of 60 bytes"),
        (lambda data: data[:12] + b"\x60" + data[13:] + b"\x08\x00\x01\x01", "option 8 is said to have 0 bytes"),
        (lambda data: data[:12] + b"\x60" + data[13:] + b"\x01\x01\x01\x08", "option 8 has no length"),
    ],
)
def test_what_is_no_segment_is_refused(change, why) -> None:
    with pytest.raises(DecodeError, match=why):
        decode_segment(change(encode_header(TcpSegment(1, 2, 3, 4, ACK, 5))))


def test_numbers_are_followed_beyond_32_bits() -> None:
    near = (5 << 32) + 100
    assert unwrap(90, near) == (5 << 32) + 90
    assert unwrap(0xFFFF_FFF0, near) == (4 << 32) + 0xFFFF_FFF0
    assert unwrap(5, (4 << 32) + 0xFFFF_FFF0) == (5 << 32) + 5
