"""CRC32C against the vectors of RFC 3720 and a loop over bits; the UET CRC around a datagram."""

import random
import struct
from ipaddress import ip_address

import pytest

from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.uet.packets.crc import append_crc, check_crc, crc32c

A = "10.0.0.1"
B = "10.0.0.2"
PORT = 50000
ISCSI_READ = bytes.fromhex(
    "01c00000 00000000 00000000 00000000 14000000 00000400 00000014 00000018 28000000 00000000 02000000 00000000"
)


def crc32c_bit_by_bit(data: bytes) -> int:
    register = 0xFFFF_FFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F6_3B78 if register & 1 else 0)
    return register ^ 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("data", "on_the_wire"),
    [
        (bytes(32), "aa36918a"),
        (b"\xff" * 32, "43aba862"),
        (bytes(range(32)), "4e79dd46"),
        (bytes(range(31, -1, -1)), "5cdb3f11"),
        (ISCSI_READ, "563a96d9"),
    ],
)
def test_vectors_of_rfc_3720_b_4(data: bytes, on_the_wire: str) -> None:
    assert crc32c(data).to_bytes(4, "little").hex() == on_the_wire


def test_check_value_of_the_catalogue() -> None:
    assert crc32c(b"123456789") == 0xE306_9283


def test_all_short_lengths_and_the_neighbours_of_powers_of_two_agree_with_a_loop_over_bits() -> None:
    source = random.Random(1)
    for length in (*range(70), 127, 128, 129, 1023, 1025, 1500, 4095, 4096, 4097, 4132):
        data = source.randbytes(length)
        assert crc32c(data) == crc32c_bit_by_bit(data), length


@pytest.mark.parametrize(("source", "destination"), [(A, B), ("2001:db8::1", "2001:db8::2")])
def test_crc_covers_addresses_udp_header_with_checksum_0_and_payload(source: str, destination: str) -> None:
    payload = b"PDS and SES and data"
    covered = (
        ip_address(source).packed
        + ip_address(destination).packed
        + struct.pack(">HHHH", PORT, 4793, 8 + len(payload) + 4, 0)
        + payload
    )
    data = append_crc(source, destination, PORT, payload)
    assert data == payload + crc32c_bit_by_bit(covered).to_bytes(4, "little")
    assert check_crc(source, destination, PORT, memoryview(data)) == payload


def test_wrong_crc_is_a_decode_error_at_its_place() -> None:
    data = append_crc(A, B, PORT, bytes(20))
    with pytest.raises(DecodeError) as raised:
        check_crc(A, B, PORT, data[:-1] + bytes([data[-1] ^ 1]))
    assert raised.value.offset == 20
    for source, destination, port in (("10.0.0.3", B, PORT), (A, "10.0.0.3", PORT), (A, B, PORT + 1), (B, A, PORT)):
        with pytest.raises(DecodeError):
            check_crc(source, destination, port, data)


@pytest.mark.parametrize("length", range(4))
def test_payload_shorter_than_a_crc_is_a_decode_error(length: int) -> None:
    with pytest.raises(DecodeError) as raised:
        check_crc(A, B, PORT, bytes(length))
    assert raised.value.offset == length


def test_empty_payload_has_a_crc() -> None:
    assert check_crc(A, B, PORT, append_crc(A, B, PORT, b"")) == b""


def test_payload_that_leaves_no_room_for_the_crc_is_a_usage_error() -> None:
    assert len(append_crc(A, B, PORT, bytes(65_523))) == 65_527
    with pytest.raises(UsageError):
        append_crc(A, B, PORT, bytes(65_524))
