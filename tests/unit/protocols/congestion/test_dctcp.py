"""DCTCP, event by event, against RFC 8257 worked out by hand."""

import pytest

from testbed.protocols.congestion.controller import FlowSettings
from testbed.protocols.congestion.dctcp import DctcpFlow, DctcpParameters
from testbed.protocols.errors import UsageError

RTT = 20_000
LINE = 10_000_000_000
MTU = 1000
SETTINGS = FlowSettings(link_rate_bps=LINE, base_rtt_ns=RTT, time_scale=1.0, mtu_bytes=MTU)
BDP = LINE * RTT / 8e9 / MTU


def dctcp(**changes: float) -> DctcpFlow:
    return DctcpFlow(DctcpParameters(**changes), SETTINGS)  # type: ignore[arg-type]


def test_it_begins_with_what_the_path_holds_and_the_worst_estimate() -> None:
    flow = dctcp()
    assert (flow.window, flow.alpha, flow.window_bytes) == (BDP, 1.0, BDP * MTU)
    assert flow.precise_marks


def test_without_marks_it_grows_by_a_packet_in_a_round_trip_up_to_its_largest_window() -> None:
    flow = dctcp()
    for packet in range(int(BDP)):
        flow.on_ack(packet, MTU, False, -1)
    assert flow.window == pytest.approx(BDP + 1, abs=0.05)
    for packet in range(100 * int(BDP)):
        flow.on_ack(packet, MTU, False, -1)
    assert flow.window == 1.5 * BDP


def test_at_the_end_of_a_round_trip_it_shrinks_by_half_of_what_was_marked() -> None:
    flow = dctcp()
    flow.on_ack(0, 3 * MTU, False, -1)
    grown = flow.window
    flow.on_ack(RTT, MTU, True, -1)
    alpha = 1 + (1 / 4 - 1) / 16
    assert flow.alpha == pytest.approx(alpha)
    assert flow.window == pytest.approx(grown * (1 - alpha / 2))


def test_within_a_round_trip_marks_are_counted_alone() -> None:
    flow = dctcp()
    flow.on_ack(0, MTU, True, -1)
    flow.on_ack(RTT - 1, MTU, True, -1)
    assert (flow.window, flow.alpha) == (BDP, 1.0)
    flow.on_ack(RTT, MTU, True, -1)
    assert flow.window == BDP / 2


def test_a_longer_round_trip_is_waited_for() -> None:
    flow = dctcp()
    flow.on_ack(0, 0, False, 2 * RTT)
    flow.on_ack(1, MTU, True, -1)
    flow.on_ack(1 + RTT, MTU, True, -1)
    assert flow.window == BDP


def test_losses_and_silence() -> None:
    flow = dctcp()
    flow.on_loss(0, MTU)
    assert flow.window == BDP / 2
    flow.on_timeout(0)
    assert (flow.window, flow.window_bytes) == (1.0, MTU)


@pytest.mark.parametrize("wrong", [{"gain": 0}, {"gain": 1.5}, {"window_bdps": 0}, {"least_window": -1}])
def test_parameters_that_cannot_work(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        dctcp(**wrong)
