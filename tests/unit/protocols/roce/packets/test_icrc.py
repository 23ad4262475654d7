"""The invariant CRC, against packets whose checksum other implementations computed, and what it may not see."""

import zlib
from random import Random

import pytest

from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.roce.packets.icrc import HAS_CRC32, Icrc, check_icrc, compute_icrc, encode_icrc

VECTORS = {
    # Source, destination, source port, UDP payload. Made with scapy 2.6 (contrib.roce), IPv4 with identification 0.
    "ipv4": ("10.0.0.1", "10.0.0.2", 49200, "0410ffff00000011800000057363616c650000005f60ba69"),
    "ipv6": ("fd00::1", "fd00::2", 49200, "0410ffff00000011800000057363616c6500000023e844d2"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_another_path_is_seen(name: str) -> None:
    source, destination, port, wire = VECTORS[name]
    data = bytes.fromhex(wire)
    for others in ((destination, source, port), (source, source, port), (source, destination, port + 1)):
        with pytest.raises(DecodeError, match="ICRC"):
            check_icrc(*others, data)


def test_a_packet_that_is_cut_short_is_refused() -> None:
    source, destination, port, wire = VECTORS["ipv4"]
    for length in range(16):
        with pytest.raises(DecodeError):
            check_icrc(source, destination, port, bytes.fromhex(wire)[:length])


@pytest.mark.parametrize(
    ("source", "destination", "port"),
    [("10.0.0.1", "fd00::1", 1), ("x", "10.0.0.1", 1), ("10.0.0.1", "10.0.0.2", 1 << 16)],
)
def test_addresses_and_ports_that_are_none_are_refused(source: str, destination: str, port: int) -> None:
    with pytest.raises(UsageError):
        compute_icrc(source, destination, port, bytes(12), b"")


@pytest.mark.parametrize("name", VECTORS)
def test_what_is_sealed_has_its_padding_and_icrc_behind_it(name: str) -> None:
    source, destination, port, _ = VECTORS[name]
    random = Random(1)
    icrc = Icrc()
    for length in (*range(300), 1024, 4096):
        header, payload = random.randbytes(random.choice((12, 16, 28, 32, 40))), random.randbytes(length)
        padding = -length & 3
        padded = payload + bytes(padding)
        sealed = icrc.seal(source, destination, port, header, memoryview(payload), padding)
        assert sealed == padded + encode_icrc(compute_icrc(source, destination, port, header, padded))
        check_icrc(source, destination, port, header + sealed)
        assert icrc.seal(source, destination, port, header, payload, padding) == sealed


@pytest.mark.skipif(not HAS_CRC32, reason="the CRC in C is there in a build alone")
def test_the_crc_in_c_is_that_of_zlib() -> None:
    from testbed.protocols.roce.packets import crc32

    random = Random(2)
    for length in (*range(600), 4096, 4099, 65_535):
        data, value = random.randbytes(length), random.randrange(1 << 32)
        assert crc32.crc32(data, value) == zlib.crc32(data, value)
        assert crc32.crc32(memoryview(data)[length // 3 :], value) == zlib.crc32(data[length // 3 :], value)
    with pytest.raises(ValueError, match="no header"):
        crc32.seal(0, bytes(11), b"", 0)
    with pytest.raises(ValueError, match="more padding"):
        crc32.seal(0, bytes(12), b"", 4)
    assert not crc32.intact(0, bytes(15))
