"""LRH, ICRC and VCRC of InfiniBand's frames."""

import pytest

from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.infiniband.local_routing import (
    GLOBAL,
    LocalHeader,
    compute_icrc,
    compute_vcrc,
    decode_frame,
    decode_local,
    encode_frame,
)

EXAMPLE = bytes.fromhex(
    "7012375c000e17d2 0a2024870087b1b3000dec2a 01710a1c015d400238f27a050000000e bb884d85fd5cfba4728bc0690ed40000"
)
"""The example of section 7.8 without its checksums: a WRITE on VL 7 and SL 1."""


def test_the_example_of_the_specification() -> None:
    header = decode_local(EXAMPLE)
    assert header == LocalHeader(vl=7, sl=1, dlid=0x375C, slid=0x17D2, words=14)
    assert header.encode() == EXAMPLE[:8]
    assert compute_icrc(EXAMPLE).to_bytes(4, "little").hex() == "9625b75a"


def test_what_changes_on_the_way_is_not_covered() -> None:
    other = bytearray(EXAMPLE)
    other[0] = 0x30  # the VL
    other[12] = 0xC0  # FECN and BECN
    assert compute_icrc(other) == compute_icrc(EXAMPLE)
    assert compute_vcrc(other) != compute_vcrc(EXAMPLE)
    other[20] ^= 1
    assert compute_icrc(other) != compute_icrc(EXAMPLE)


def test_of_a_global_packet_the_local_header_is_not_covered() -> None:
    grh = bytes([0x60, *range(1, 40)])
    packet = bytearray(EXAMPLE[:1] + bytes([0x13]) + EXAMPLE[2:8] + grh + EXAMPLE[8:])
    before = compute_icrc(packet)
    packet[2:4] = b"\x12\x34"  # the destination's LID, which a router changes
    packet[8 + 7] = 1  # the hop limit
    assert compute_icrc(packet) == before
    packet[8 + 8] ^= 1  # the source's GID
    assert compute_icrc(packet) != before
    assert decode_local(packet).lnh == GLOBAL


def test_a_frame_comes_back_as_it_was() -> None:
    header = decode_local(EXAMPLE)
    frame = encode_frame(header, EXAMPLE[8:])
    assert len(frame) == 58
    assert decode_frame(frame) == (header, EXAMPLE[8:])


@pytest.mark.parametrize("place", range(58))
def test_no_wrong_bit_passes(place: int) -> None:
    frame = bytearray(encode_frame(decode_local(EXAMPLE), EXAMPLE[8:]))
    frame[place] ^= 0x10
    with pytest.raises(DecodeError):
        decode_frame(bytes(frame))


def test_what_is_no_frame_is_refused() -> None:
    frame = encode_frame(decode_local(EXAMPLE), EXAMPLE[8:])
    for wrong in (b"", frame[:7], frame[:25], frame + b"\0\0\0\0"):
        with pytest.raises(DecodeError):
            decode_frame(wrong)
    for header, packet in (
        (LocalHeader(vl=16, sl=0, dlid=1, slid=1, words=0), bytes(12)),
        (LocalHeader(vl=0, sl=0, dlid=1 << 16, slid=1, words=0), bytes(12)),
        (LocalHeader(vl=0, sl=0, dlid=1, slid=1, words=0), bytes(13)),
        (LocalHeader(vl=0, sl=0, dlid=1, slid=1, words=0), bytes(8)),
        (LocalHeader(vl=0, sl=0, dlid=1, slid=1, words=0, lnh=GLOBAL), bytes(48)),
        (LocalHeader(vl=0, sl=0, dlid=1, slid=1, words=0, lnh=GLOBAL), bytes(12)),
    ):
        with pytest.raises(UsageError):
            encode_frame(header, packet)
