"""TIMELY and Swift, event by event, against the algorithms of their papers worked out by hand."""

import math

import pytest

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.congestion.controller import FlowSettings
from testbed.protocols.congestion.registry import CONTROLLERS
from testbed.protocols.congestion.swift import Swift, SwiftParameters
from testbed.protocols.congestion.timely import Timely, TimelyParameters
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.congestion import CongestionWindow, Nscc

RTT = 20_000
LINE = 10_000_000_000
MTU = 1000
SETTINGS = FlowSettings(link_rate_bps=LINE, base_rtt_ns=RTT, time_scale=1.0, mtu_bytes=MTU)


def test_controllers_of_all_transports_are_of_one_kind() -> None:
    assert all(isinstance(one.make(SETTINGS), CongestionControl) for one in CONTROLLERS.values())
    assert issubclass(Nscc, CongestionWindow) and issubclass(CongestionWindow, CongestionControl)


def timely(**changes: float) -> Timely:
    flow = Timely(TimelyParameters(**changes), SETTINGS)  # type: ignore[arg-type]
    flow.rate_bps = LINE / 2
    return flow


@pytest.mark.parametrize(
    ("rtts", "rate"),
    [
        ([30], 1 / 2),  # a gradient takes two round trips
        ([1, 2], 1 / 2 + 0.001),  # it rises below T_low whatever the gradient
        ([50, 50], 1 / 2 * (1 - 0.8 * (1 - 25 / 50))),  # and falls above T_high by how far it is above
        ([5, 5.5], 1 / 2 * (1 - 0.8 * 0.875 / 2)),  # between them by the gradient: the mean is 0.875 * RTT / 2
        ([5] * 7, 1 / 2 + (5 + 5) * 0.001),  # hyper-active after five increases in a row
        ([-1 / RTT] * 5, 1 / 2),  # without a round trip an acknowledgement says nothing
    ],
)
def test_the_rate_of_timely_after_round_trips(rtts: list[float], rate: float) -> None:
    flow = timely()
    for now, rtt in enumerate(rtts):
        flow.on_ack(now, 0, False, round(rtt * RTT))
    assert flow.rate_bps == pytest.approx(rate * LINE)


def swift(window: float) -> Swift:
    flow = Swift(SwiftParameters(), SETTINGS)
    flow.window = window
    return flow


def test_the_target_of_swift_is_higher_for_smaller_windows() -> None:
    assert swift(100.0).target_ns == pytest.approx(1.25 * RTT)
    assert swift(0.1).target_ns == pytest.approx((1.25 + 2.5) * RTT)
    slope = 2.5 / (1 / math.sqrt(0.1) - 1 / math.sqrt(100))
    assert swift(4.0).target_ns == pytest.approx((1.25 + slope * (1 / 2 - 1 / 10)) * RTT)


def test_swift_grows_by_a_packet_in_a_window_below_its_target() -> None:
    flow = swift(4.0)
    for now in range(4):
        flow.on_ack(now, MTU, False, RTT)
    grown = 4.0
    for _ in range(4):
        grown += 1 / grown
    assert flow.window == pytest.approx(grown)
    assert flow.window_bytes == pytest.approx(grown * MTU)


def test_swift_shrinks_by_how_far_it_is_above_and_once_in_a_round_trip() -> None:
    flow = swift(4.0)
    target = flow.target_ns
    rtt_ns = int(target) + 2_000
    flow.on_ack(0, MTU, False, rtt_ns)
    assert flow.window == pytest.approx(4.0 * (1 - 0.8 * (rtt_ns - target) / rtt_ns))
    before = flow.window
    flow.on_ack(1, MTU, False, rtt_ns)
    assert flow.window == before
    flow.on_ack(100 * RTT, MTU, False, 100 * RTT)
    assert flow.window == pytest.approx(before / 2), "max_mdf"


def test_a_window_of_swift_below_one_packet_is_a_rate() -> None:
    flow = swift(0.5)
    flow.on_loss(0, MTU)
    assert flow.window == pytest.approx(0.25)
    assert (flow.window_bytes, flow.rate_bps) == (MTU, pytest.approx(0.25 * MTU * 8e9 / RTT))


@pytest.mark.parametrize(("name", "value"), [("low_rtts", 0.0), ("decrease", 1.5), ("high_rtts", 1.0)])
def test_parameters_that_cannot_work_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=name):
        TimelyParameters(**{name: value})  # type: ignore[arg-type]


def rounds(flow: Swift, count: int, rtt_ns: int, begin: int = 0) -> int:
    """So many round trips with four samples each, all of this length; when they are over."""
    now = begin
    for _ in range(4 * count):
        flow.on_ack(now, 0, False, rtt_ns)
        now += rtt_ns // 4 + 1
    return now


def test_swift_asks_for_another_path_after_so_many_congested_rounds_in_a_row() -> None:
    flow = Swift(SwiftParameters(repath_rounds=3), SETTINGS)
    now = rounds(flow, 3, 10 * RTT)
    assert flow.path == 0
    now = rounds(flow, 2, 10 * RTT, now)
    assert flow.path == 1
    rounds(flow, 4, 10 * RTT, now)
    assert flow.path == 2, "and again, where the next one is no better"


def test_a_round_below_the_target_begins_the_count_anew() -> None:
    flow = Swift(SwiftParameters(repath_rounds=3), SETTINGS)
    now = 0
    for _ in range(6):
        now = rounds(flow, 2, 10 * RTT, now)
        now = rounds(flow, 6, RTT, now)
    assert flow.path == 0


def test_without_the_parameter_swift_keeps_to_its_path() -> None:
    flow = Swift(SwiftParameters(), SETTINGS)
    rounds(flow, 100, 10 * RTT)
    assert flow.path == 0
