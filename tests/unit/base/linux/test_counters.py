"""Whether a port is up is its carrier at this moment, not its operational state, which follows later."""

import struct
from typing import Any

import pytest

from testbed.base.linux import rtnetlink
from testbed.base.linux.counters import read_counters

UP, CARRIER, RUNNING = rtnetlink.IFF_UP, rtnetlink.IFF_LOWER_UP, 0x40
IFLA_OPERSTATE, OPERSTATE_UP, OPERSTATE_DOWN = 16, 6, 2


class Answering:
    """A netlink socket that knows one link."""

    def __init__(self, flags: int, operational: int) -> None:
        self.body = (
            rtnetlink.IFINFOMSG.pack(0, 0, 7, flags, 0)
            + rtnetlink.text(rtnetlink.IFLA_IFNAME, "v1")
            + rtnetlink.attribute(IFLA_OPERSTATE, bytes([operational]))
            + rtnetlink.attribute(rtnetlink.IFLA_STATS64, struct.pack("=24Q", *range(24)))
        )

    def dump(self, *_: object) -> list[memoryview]:
        return [memoryview(self.body)]


@pytest.mark.parametrize(
    ("flags", "operational", "up"),
    [
        (UP | CARRIER | RUNNING, OPERSTATE_UP, True),
        (UP | RUNNING, OPERSTATE_UP, False),  # its other end went down a moment ago
        (UP | CARRIER, OPERSTATE_DOWN, True),  # its other end came up a moment ago
        (CARRIER, OPERSTATE_DOWN, False),
        (UP, OPERSTATE_DOWN, False),
    ],
)
def test_a_port_is_up_with_its_carrier(flags: int, operational: int, up: bool) -> None:
    answering: Any = Answering(flags, operational)
    found = read_counters(answering)
    assert found["v1"].up is up and found["v1"].rx_packets == 0 and found["v1"].tx_bytes == 3
