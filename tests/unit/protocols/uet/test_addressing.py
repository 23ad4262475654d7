"""Addresses of endpoints: text and limits."""

import pytest

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import FepAddress


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
