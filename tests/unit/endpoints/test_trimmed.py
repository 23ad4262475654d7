"""What is left of trimmed packets."""

import struct

import pytest

from testbed.endpoints.trimmed import decode_trimmed

PORT = 4793


def packet(length: int, *, source: int = 50_000, port: int = PORT, rest: bytes = b"rest", options: int = 0) -> bytes:
    """An IPv4 header with `options` words of options, a UDP header, and `rest`."""
    return bytes([0x45 + options]) + bytes(19 + 4 * options) + struct.pack("!HHHH", source, port, length, 0) + rest


@pytest.mark.parametrize("options", [0, 1, 10])
def test_a_trimmed_packet_tells_what_was_sent_and_shows_what_is_left(options: int) -> None:
    whole = packet(4168, options=options)
    for data, ipv6 in ((whole, False), (whole[20 + 4 * options :], True)):
        decoded = decode_trimmed(memoryview(data), ipv6=ipv6, port=PORT)
        assert (decoded[0], decoded[1], bytes(decoded[2])) == (50_000, 4160, b"rest")


@pytest.mark.parametrize(
    "udp",
    [
        packet(12)[20:],  # whole
        packet(11)[20:],  # padded
        packet(0)[20:],
        packet(4168, port=4792)[20:],
        packet(4168, source=0)[20:],
        packet(4168, rest=b"")[20:27],  # no room for a UDP header
        b"",
    ],
)
def test_anything_else_is_no_trimmed_packet(udp: bytes) -> None:
    assert decode_trimmed(memoryview(udp), ipv6=True, port=PORT) is None
    for header in (packet(0)[:20], packet(0, options=10)[:60]):
        assert decode_trimmed(memoryview(header + udp), ipv6=False, port=PORT) is None


def test_an_ip_header_that_is_cut_short_is_no_trimmed_packet() -> None:
    whole = packet(4168, options=10)
    for length in range(68):
        assert decode_trimmed(memoryview(whole[:length]), ipv6=False, port=PORT) is None
