"""The cost of a packet is measured on a lab of its own, once, and leaves nothing behind."""

import time
from typing import Any

import pytest

from testbed.lab.core.deploy.packet_costs import FILE
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.sweep.packet_cost import packet_cost

pytestmark = [pytest.mark.netns, pytest.mark.timed]


def test_a_packet_of_uet_is_measured_once(sandbox: Any) -> None:
    state = sandbox.state
    (state.state / FILE).unlink(missing_ok=True)
    uet = Transport(kind=TransportKind.UET)
    assert packet_cost(uet, state, measure=False) is None
    measured = packet_cost(uet, state)
    assert 10 < measured.us < 5000
    assert state.names() == []
    started = time.monotonic()
    assert packet_cost(uet, state) == measured
    assert time.monotonic() - started < 0.5


def test_a_transport_of_the_kernel_has_none(sandbox: Any) -> None:
    assert packet_cost(Transport(kind=TransportKind.TCP), sandbox.state) is None
