"""IPv4 packets with their headers, and what is no datagram for us among them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.endpoints.with_header import decode_datagram
from testbed.protocols.datagram import Incoming

PORT = 4791
SOURCE = "10.0.0.1"


def packet(
    payload: bytes = b"payload", *, first: int = 0x45, length: int | None = None, source: int = 50_000, port: int = PORT
) -> memoryview:
    """With the identification 0xABCD, DF and a mark of congestion; `length`: what UDP says."""
    header = struct.pack("!BBHIBBHII", first, 107, 28 + len(payload), 0xABCD_4000, 64, 17, 0, 0x0A00_0001, 0x0A00_0002)
    udp = struct.pack("!HHHH", source, port, 8 + len(payload) if length is None else length, 0)
    return memoryview(header + udp + payload)


def test_the_second_word_of_the_header_comes_with_it() -> None:
    assert decode_datagram(packet(), SOURCE, PORT) == Incoming(
        SOURCE, 50_000, memoryview(b"payload"), True, 0, False, 0xABCD_4000
    )


def test_what_is_behind_the_datagram_does_not_belong_to_it() -> None:
    found = decode_datagram(memoryview(bytes(packet()) + b"padding"), SOURCE, PORT)
    assert found is not None and found.data == b"payload"


@pytest.mark.parametrize(
    "other",
    [
        packet(length=16),  # more than arrived
        packet(length=7),
        packet(length=0),
        packet(first=0x46),  # with options
        packet(first=0x65),
        packet(source=0),
        packet(port=PORT + 1),
        packet(b"")[:27],
        memoryview(b""),
    ],
)
def test_anything_else_is_left_out(other: memoryview) -> None:
    assert decode_datagram(other, SOURCE, PORT) is None


@given(st.binary(max_size=80))
def test_nothing_that_arrives_raises(data: bytes) -> None:
    for noise in (data, bytes(packet())[: len(data)] + data, b"\x45" + data):
        found = decode_datagram(memoryview(noise), SOURCE, PORT)
        assert found is None or len(found.data) <= len(noise) - 28
