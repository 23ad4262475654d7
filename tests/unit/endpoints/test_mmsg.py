"""Control messages, socket addresses, and what is left of trimmed packets."""

from __future__ import annotations

import socket
import struct
import sys

import pytest

from testbed.base.linux.socket_options import SOL_UDP, UDP_GRO
from testbed.endpoints.mmsg import NAME_BYTES, packed_address, parse_control
from testbed.endpoints.trimmed import decode_trimmed

PORT = 4793


def control(level: int, kind: int, data: bytes) -> bytes:
    message = struct.pack("@Nii", 16 + len(data), level, kind) + data
    return message.ljust(-(-len(message) // 8) * 8, b"\xaa")


TOS = control(socket.IPPROTO_IP, socket.IP_TOS, b"\x6b")
TCLASS = control(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, struct.pack("@i", 0x6A))
GRO = control(SOL_UDP, UDP_GRO, struct.pack("@i", 4160))
OTHER = control(socket.SOL_SOCKET, 29, b"timestamp.......")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", (0, 0)),
        (TOS, (0x6B, 0)),
        (TCLASS, (0x6A, 0)),
        (GRO + TOS, (0x6B, 4160)),
        (TOS + OTHER + GRO, (0x6B, 4160)),
        (OTHER, (0, 0)),
        (GRO + bytes(16), (0, 4160)),
        (GRO[:12], (0, 0)),
    ],
)
def test_control_messages_are_found_wherever_they_stand(data: bytes, found: tuple[int, int]) -> None:
    assert parse_control(data) == found


def test_socket_addresses_are_those_of_the_kernel() -> None:
    name = packed_address("10.1.2.3", PORT)
    assert (len(name), name[2:8]) == (NAME_BYTES, PORT.to_bytes(2) + bytes((10, 1, 2, 3)))
    assert int.from_bytes(name[:2], sys.byteorder) == socket.AF_INET
    name = packed_address("2001:db8::7", PORT)
    assert (len(name), name[2:4], name[8:24]) == (
        NAME_BYTES,
        PORT.to_bytes(2),
        socket.inet_pton(socket.AF_INET6, "2001:db8::7"),
    )
    with pytest.raises(OSError, match="illegal IP address"):
        packed_address("host", PORT)


def packet(length: int, *, source: int = 50_000, port: int = PORT, rest: bytes = b"rest", options: int = 0) -> bytes:
    """An IPv4 header with `options` words of options, a UDP header, and `rest`."""
    return bytes([0x45 + options]) + bytes(19 + 4 * options) + struct.pack("!HHHH", source, port, length, 0) + rest


@pytest.mark.parametrize("options", [0, 1, 10])
def test_a_trimmed_packet_tells_what_was_sent_and_shows_what_is_left(options: int) -> None:
    whole = packet(4168, options=options)
    for data, ipv6 in ((whole, False), (whole[20 + 4 * options :], True)):
        decoded = decode_trimmed(memoryview(data), ipv6=ipv6, port=PORT)
        assert decoded is not None
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
