"""Tables as management datagrams have them."""

from __future__ import annotations

from testbed.lab.features.infiniband.reading import decode_arbitration, decode_path_sl, decode_pkeys, decode_sl2vl


def test_lanes_are_four_bits_each() -> None:
    data = bytes([0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]) + bytes(56)
    assert decode_sl2vl(data) == tuple(range(16))


def test_weights_of_zero_are_none() -> None:
    assert decode_arbitration(bytes([1, 64, 0, 0, 2, 8]) + bytes(58)) == ((1, 64), (2, 8))


def test_empty_pkeys_are_none() -> None:
    data = bytes.fromhex("7fff8001") + bytes(60)
    assert decode_pkeys(data) == {0x7FFF, 0x8001}


def test_the_service_level_of_a_path_is_below_its_class() -> None:
    record = bytearray(64)
    record[52:54] = (0xABC5).to_bytes(2, "big")
    assert decode_path_sl(bytes(record)) == 5
