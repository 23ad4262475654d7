"""The bytes of every header, as tables of the InfiniBand Architecture Specification have them."""

import pytest

from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.roce.packets.headers import (
    Aeth,
    AtomicEth,
    Bth,
    Deth,
    Reth,
    decode_aeth,
    decode_atomic_ack,
    decode_atomic_eth,
    decode_bth,
    decode_deth,
    decode_ieth,
    decode_immediate,
    decode_reth,
    encode_atomic_ack,
    encode_ieth,
    encode_immediate,
)
from testbed.protocols.roce.packets.opcodes import Opcode

BTH = Bth(
    Opcode.RC_WRITE_ONLY,
    0x123456,
    0xABCDEF,
    ack_request=True,
    pad_bytes=3,
    solicited=True,
    migration=True,
    pkey=0x8001,
    fecn=True,
    becn=True,
)
BTH_WIRE = bytes.fromhex("0a f0 8001 c0 123456 80 abcdef")
HEADERS = {
    "reth": (Reth(0x0102030405060708, 0xA0B0C0D0, 0x11223344), "0102030405060708 a0b0c0d0 11223344", decode_reth),
    "atomic": (
        AtomicEth(0x10, 2, 3, 4),
        "0000000000000010 00000002 0000000000000003 0000000000000004",
        decode_atomic_eth,
    ),
    "aeth": (Aeth(0x60, 0x010203), "60 010203", decode_aeth),
    "deth": (Deth(0x11111111, 0x010203), "11111111 00 010203", decode_deth),
}
WORDS = {
    "immediate": (encode_immediate, decode_immediate, 0xDEADBEEF, "deadbeef"),
    "ieth": (encode_ieth, decode_ieth, 0xDEADBEEF, "deadbeef"),
    "atomic-ack": (encode_atomic_ack, decode_atomic_ack, 0x0102030405060708, "0102030405060708"),
}


def test_the_base_transport_header_has_its_fields_in_their_places() -> None:
    assert BTH.encode() == BTH_WIRE
    assert decode_bth(BTH_WIRE) == BTH


def test_reserved_bits_of_the_base_transport_header_are_ignored() -> None:
    noisy = bytearray(BTH_WIRE)
    noisy[4] |= 0x3F
    noisy[8] |= 0x7F
    assert decode_bth(noisy) == BTH


@pytest.mark.parametrize("name", HEADERS)
def test_an_extended_header_has_its_fields_in_their_places(name: str) -> None:
    header, wire, decode = HEADERS[name]
    data = bytes.fromhex(wire)
    assert header.encode() == data
    assert decode(b"\xff" + data, 1) == header


@pytest.mark.parametrize("name", WORDS)
def test_a_header_of_one_number_is_big_endian(name: str) -> None:
    encode, decode, value, wire = WORDS[name]
    assert encode(value) == bytes.fromhex(wire)
    assert decode(b"\xff" + encode(value), 1) == value


@pytest.mark.parametrize("name", [*HEADERS, *WORDS])
def test_a_header_that_is_cut_short_is_refused(name: str) -> None:
    wire, decode = (HEADERS[name][1], HEADERS[name][2]) if name in HEADERS else (WORDS[name][3], WORDS[name][1])
    data = bytes.fromhex(wire)
    for length in range(len(data)):
        with pytest.raises(DecodeError, match=f"{length} are there"):
            decode(data[:length], 0)


def test_a_base_transport_header_that_is_cut_short_is_refused() -> None:
    for length in range(len(BTH_WIRE)):
        with pytest.raises(DecodeError, match="12 bytes"):
            decode_bth(BTH_WIRE[:length])


def test_an_opcode_that_is_not_known_is_refused() -> None:
    known = {int(opcode) for opcode in Opcode}
    for number in range(256):
        data = bytes([number]) + BTH_WIRE[1:]
        if number in known:
            assert decode_bth(data).opcode == number
        else:
            with pytest.raises(DecodeError, match=f"{number:#04x}"):
                decode_bth(data)


def test_another_version_of_the_transport_header_is_refused() -> None:
    with pytest.raises(DecodeError, match="version 1"):
        decode_bth(BTH_WIRE[:1] + b"\xf1" + BTH_WIRE[2:])


@pytest.mark.parametrize(
    "bth",
    [
        Bth(0x100, 1, 1),
        Bth(4, 1 << 24, 1),
        Bth(4, -1, 1),
        Bth(4, 1, 1 << 24),
        Bth(4, 1, -1),
        Bth(4, 1, 1, pad_bytes=4),
        Bth(4, 1, 1, pkey=1 << 16),
    ],
)
def test_fields_that_do_not_fit_are_not_encoded(bth: Bth) -> None:
    with pytest.raises(UsageError):
        bth.encode()


@pytest.mark.parametrize(
    "header",
    [
        Reth(1 << 64, 1, 1),
        Reth(1, 1 << 32, 1),
        Aeth(0x100, 1),
        Aeth(1, 1 << 24),
        Deth(1, 1 << 24),
        AtomicEth(0, 0, -1, 0),
    ],
)
def test_fields_of_extended_headers_that_do_not_fit_are_not_encoded(header: Reth | Aeth | Deth | AtomicEth) -> None:
    with pytest.raises(UsageError):
        header.encode()
