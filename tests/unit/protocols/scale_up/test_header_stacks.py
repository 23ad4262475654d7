"""The cost of headers: shares of payload that are in print, and the native counterpart."""

from __future__ import annotations

import pytest

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.header_stacks import HEADER_STACKS, LAB

PRINTED = [
    ("udp", 256, 0.766),
    ("udp", 4096, 0.981),
    ("afh", 256, 0.837),
    ("afh", 4096, 0.988),
    ("sue-lite", 256, 0.889),
    ("sue-lite", 1024, 0.970),
    ("ualink", 256, 0.872),
    ("ualink", 1024, 0.952),
]
"""Scale-Up Ethernet with FCS, preamble and gap; UALink with one write, and with four, for a control half-flit."""


@pytest.mark.parametrize(("name", "payload", "share"), PRINTED)
def test_shares_are_those_of_the_specifications_layouts(name: str, payload: int, share: float) -> None:
    assert payload / HEADER_STACKS[name].line_bytes(payload) == pytest.approx(share, abs=0.0006)


def test_the_four_need_less_and_less_for_256_bytes() -> None:
    """The order of the header study: UDP/IP, then AFH by a factor of 1.09, SUE-Lite by 1.16."""
    shares = {name: 256 / stack.line_bytes(256) for name, stack in HEADER_STACKS.items()}
    assert shares["afh"] / shares["udp"] == pytest.approx(1.09, abs=0.005)
    assert shares["sue-lite"] / shares["udp"] == pytest.approx(1.16, abs=0.005)


def test_a_packet_is_cut_where_it_may_be_no_longer() -> None:
    lite = HEADER_STACKS["sue-lite"]
    assert lite.line_bytes(1024) == 1024 + 32
    assert lite.line_bytes(1025) == 1025 + 64
    assert lite.line_bytes(0) == 32


def test_the_settings_of_a_link_know_the_stacks() -> None:
    assert LinkSettings(rate_bps=10**9).headers == LAB
    assert LinkSettings(rate_bps=10**9).line_bytes(4096) == 4096 + 38
    assert LinkSettings(rate_bps=10**9, headers="udp").line_bytes(4096) == 4096 + 78
    with pytest.raises(UsageError, match="headers ipx: lab, udp, afh, sue-lite, ualink"):
        LinkSettings(rate_bps=10**9, headers="ipx")
