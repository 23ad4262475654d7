"""Windows of CUBIC, NewReno and DCTCP against the formulas of their RFCs."""

import pytest

from testbed.protocols.errors import UsageError
from testbed.protocols.tcp.congestion.control import INITIAL_WINDOW, TcpControl
from testbed.protocols.tcp.congestion.cubic import BETA, Cubic
from testbed.protocols.tcp.congestion.dctcp import FULL, Dctcp
from testbed.protocols.tcp.congestion.registry import make_tcp_control

MS = 1_000_000
RTT = 100 * MS


def round_trip(control: TcpControl, now: int, rtt_ns: int = RTT) -> int:
    """Acknowledge a window's segments one by one, evenly over a round trip; the time behind it."""
    window = control.window
    for number in range(window):
        at = now + rtt_ns * number // window
        control.on_rtt(at, rtt_ns, 0, 0)
        control.on_ack(at, 1, 0, 0)
    return now + rtt_ns


def test_slow_start_doubles_each_round_trip_and_stops_at_the_threshold() -> None:
    control = TcpControl()
    control.threshold = 50
    windows, now = [control.window], 0
    for _ in range(4):
        now = round_trip(control, now)
        windows.append(control.window)
    assert windows[:3] == [INITIAL_WINDOW, 20, 40]
    assert windows[3:] == [50, 51]


def test_reno_halves() -> None:
    control = TcpControl()
    control.window = 101
    assert control.threshold_after_loss() == 50
    control.window = 1
    assert control.threshold_after_loss() == 2


def test_cubic_grows_by_the_curve_of_rfc_9438() -> None:
    # W_cubic(t) = C (t - K)^3 + W_max with K = cbrt(W_max (1 - beta) / C), section 4.2; at this window and round trip
    # the curve lies above that of a flow of AIMD
    control = Cubic()
    control.window = 1000
    control.threshold = control.threshold_after_loss()
    control.window = control.threshold
    assert control.window == int(1000 * BETA)
    k = ((1000 - control.window) / 0.4) ** (1 / 3)
    now = 0
    control.on_rtt(now, RTT, 0, 0)
    for _ in range(150):
        now = round_trip(control, now)
        t = now / 1e9
        expected = 0.4 * (t - k) ** 3 + 1000
        assert control.window == pytest.approx(expected, rel=0.02)
    assert control.window > 1050  # it went through the plateau, 9 s, and beyond


def test_cubic_is_no_slower_than_aimd_where_round_trips_are_short() -> None:
    # section 4.3: alpha = 3 (1 - beta) / (1 + beta) segments a round trip
    control = Cubic()
    control.window = 30
    control.threshold = control.threshold_after_loss()
    control.window = begin = control.threshold
    now = 0
    for _ in range(40):
        now = round_trip(control, now, MS)
    alpha = 3 * (1 - BETA) / (1 + BETA)
    assert control.window - begin == pytest.approx(40 * alpha, rel=0.15)


def test_cubic_converges_fast() -> None:
    # section 4.7: a flow that is reduced again before it was back gives way
    control = Cubic()
    control.window = 100
    control.threshold_after_loss()
    assert control.most_window == 100
    control.window = 80
    control.threshold_after_loss()
    assert control.most_window == int(80 * (1 + BETA) / 2)


def test_hystart_leaves_slow_start_as_delays_grow() -> None:
    control = Cubic()
    control.window = 64
    now, rtt = 0, 40 * MS
    for number in range(64):
        control.on_rtt(now + number * 3 * MS, rtt, number, 64)
    assert control.in_slow_start
    for number in range(64):
        control.on_rtt(300 * MS + number * 3 * MS, rtt + 6 * MS, 65 + number, 200)
    assert not control.in_slow_start
    assert control.threshold == 64


def test_hystart_leaves_slow_start_as_a_train_gets_long() -> None:
    control = Cubic()
    control.window = 64
    for number in range(32):
        control.on_rtt(number * MS, 40 * MS, 0, 64)
    assert control.threshold == 64  # after 20.5 ms of one millisecond each


def test_dctcp_shrinks_by_half_of_the_marked_share() -> None:
    # RFC 8257, sections 3.3 and 3.4: alpha = (1 - g) alpha + g F, W = W (1 - alpha / 2)
    control = Dctcp()
    expected, sent = 1.0, 0
    for _ in range(60):
        control.on_delivered(3, False, sent, sent + 4)
        control.on_delivered(1, True, sent + 4, sent + 8)
        sent += 4
        expected = expected * 15 / 16 + 0.25 / 16
    assert control.alpha / FULL == pytest.approx(expected, abs=0.03)
    control.window = 100
    assert control.threshold_after_marks() == pytest.approx(100 * (1 - control.alpha / FULL / 2), abs=1)


def test_dctcp_halves_after_a_loss_whatever_was_marked() -> None:
    # RFC 8257, section 3.5, and dctcp_react_to_loss of Linux
    control = Dctcp()
    control.window, control.alpha = 100, 0
    assert control.threshold_after_marks() == 100
    assert control.threshold_after_loss() == 50


def test_a_control_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="'bbr' is none of cubic, reno, dctcp"):
        make_tcp_control("bbr")
