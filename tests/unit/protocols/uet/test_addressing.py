"""Addresses of endpoints: text, limits, and the 30 bytes of the UET address."""

from __future__ import annotations

import pytest

from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.uet.addressing import ADDRESS_BYTES, AddressFlag, FepAddress, FepCapability, UetAddress

FULL = UetAddress(
    ip="10.1.2.3",
    pid_on_fep=0xABC,
    start_ri=0x00F,
    num_ri=2,
    initiator_id=0xDEADBEEF,
    fep_caps=FepCapability.AI_FULL | FepCapability.OPTIMISED_NON_MATCHING,
    relative=False,
    mtu_limited=True,
)
FULL_BYTES = bytes.fromhex("00bf00820abc" + "0a010203" + "00" * 12 + "000f0002deadbeef")


def test_text_names_ip_process_and_resource_index() -> None:
    address = FepAddress.parse("10.0.0.1/3/15", job_id=7)
    assert address == FepAddress("10.0.0.1", 3, 15, 7, True)
    assert str(address) == "10.0.0.1/3/15"


def test_equal_ipv6_addresses_are_equal_whatever_their_spelling() -> None:
    address = FepAddress.parse("FD00:0:0::1/0/1")
    assert address == FepAddress("fd00::1")
    assert hash(address) == hash(FepAddress("fd00::1"))
    assert str(address) == "fd00::1/0/1"


def test_fields_take_their_whole_range() -> None:
    address = FepAddress("0.0.0.0", 4095, 4095, 0xFFFFFF)
    assert (address.pid_on_fep, address.resource_index, address.job_id) == (4095, 4095, 0xFFFFFF)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.1",
        "10.0.0.1/3",
        "10.0.0.1/3/4/5",
        "10.0.0.256/0/1",
        "010.0.0.1/0/1",
        "host/0/1",
        "fd00::1%eth0/0/1",
        "fd00:::1/0/1",
        "10.0.0.1/4096/1",
        "10.0.0.1/0/4096",
        "10.0.0.1/-1/1",
        "10.0.0.1/+1/1",
        "10.0.0.1/ 1/1",
        "10.0.0.1/0x1/1",
        "10.0.0.1/1_0/1",
        "10.0.0.1/\u0661/1",
        "10.0.0.1//1",
        "10.0.0.1/0/" + "9" * 5000,
    ],
)
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        FepAddress.parse(text)


@pytest.mark.parametrize(
    "values",
    [("10.0.0.1", 4096), ("10.0.0.1", -1), ("10.0.0.1", 0, 4096), ("10.0.0.1", 0, 1, 1 << 24), ("10.0.0.1", 0, 1, -1)],
)
def test_values_beyond_their_field_are_refused(values: tuple[str, int]) -> None:
    with pytest.raises(UsageError):
        FepAddress(*values)


def test_uet_address_has_the_fields_in_the_order_of_the_table() -> None:
    assert FULL.encode() == FULL_BYTES
    assert UetAddress.decode(FULL_BYTES) == FULL
    assert UetAddress.decode(memoryview(FULL_BYTES)) == FULL


def test_ipv6_fills_the_fabric_address() -> None:
    data = UetAddress(ip="fd00::2").encode()
    assert data[1] == AddressFlag.ADDRESS_VALID | AddressFlag.IPV6
    assert data[6:22] == bytes.fromhex("fd000000000000000000000000000002")
    assert UetAddress.decode(data) == UetAddress(ip="fd00::2")


def test_fields_that_are_not_valid_are_ignored() -> None:
    assert UetAddress.decode(bytes([0, 0]) + b"\xff" * (ADDRESS_BYTES - 2)) == UetAddress()


def test_reserved_bits_are_ignored() -> None:
    data = bytearray(FULL_BYTES)
    for at in (4, 22, 24):
        data[at] |= 0xF0
    assert UetAddress.decode(bytes(data)) == FULL


def test_an_empty_address_is_all_zero() -> None:
    assert UetAddress().encode() == bytes(ADDRESS_BYTES)


@pytest.mark.parametrize("length", [0, 1, ADDRESS_BYTES - 1, ADDRESS_BYTES + 1])
def test_wrong_lengths_do_not_decode(length: int) -> None:
    with pytest.raises(DecodeError, match="30 bytes") as caught:
        UetAddress.decode((FULL_BYTES + b"\0")[:length])
    assert caught.value.offset == min(length, ADDRESS_BYTES)


def test_another_version_does_not_decode() -> None:
    with pytest.raises(DecodeError, match="version 1") as caught:
        UetAddress.decode(b"\x01" + FULL_BYTES[1:])
    assert caught.value.offset == 0


@pytest.mark.parametrize(("start", "number"), [(1, 0), (4095, 2), (1, 4096)])
def test_resource_indices_beyond_12_bits_do_not_decode(start: int, number: int) -> None:
    data = bytearray(FULL_BYTES)
    data[22:26] = start.to_bytes(2, "big") + number.to_bytes(2, "big")
    with pytest.raises(DecodeError) as caught:
        UetAddress.decode(bytes(data))
    assert caught.value.offset == 24


def test_a_uet_address_leads_to_each_of_its_resource_indices() -> None:
    assert FULL.to_fep(5, 1) == FepAddress("10.1.2.3", 0xABC, 0x010, 5, relative=False)
    with pytest.raises(UsageError, match="resource index"):
        FULL.to_fep(5, 2)


def test_an_incomplete_uet_address_leads_nowhere() -> None:
    with pytest.raises(UsageError, match="lacks"):
        UetAddress(ip="10.0.0.1", pid_on_fep=1).to_fep(0)


@pytest.mark.parametrize(
    "values",
    [
        {"ip": "10.0.0"},
        {"pid_on_fep": 4096},
        {"initiator_id": 1 << 32},
        {"fep_caps": 1 << 16},
        {"start_ri": 4096},
        {"start_ri": 1, "num_ri": 0},
        {"start_ri": 4095, "num_ri": 2},
        {"num_ri": 2},
    ],
)
def test_uet_addresses_that_cannot_be_encoded_cannot_be_made(values: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        UetAddress(**values)
