"""Names of things that somebody called otherwise elsewhere."""

import pytest

from testbed.base.names import MAX_INTERFACE_NAME, check_interface_name, fitting_name


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("GigabitEthernet0/0/1", "gigabite0-0-1"),
        ("eth1" + "a" * 30, "e" + "a" * 12),
        ("0" * 40, "n" + "0" * 12),
        ("", "n"),
        ("Ethernet1/1", "ethernet1-1"),
    ],
)
def test_a_name_fits_whatever_it_was_elsewhere(there: str, here: str) -> None:
    """What is too long behind its first word, too: an import looked for a name that fits for ever."""
    assert fitting_name(there, 13) == here
    check_interface_name(f"{fitting_name(there, MAX_INTERFACE_NAME - 6)}-12345")
