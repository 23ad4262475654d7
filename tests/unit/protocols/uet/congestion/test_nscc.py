"""Each branch of the NSCC pseudo-code, with figures worked out by hand.

At 100 Gbit/s, 12 us and packets of 1,000 bytes: BDP = base_BDP = 150,000, MaxWnd = 225,000, scaling_a = 1. With
trimming the target is 9 us, scaling_b = 0.75, alpha = 4 * 0.75 * 1000 / 9000 = 1/3 byte per ns. fi = 5,000,
fi_scale = 0.25, eta = 150.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.congestion import Nscc, NsccConfig
from testbed.protocols.uet.packets.codes import NackCode

TRIMMING = NsccConfig(link_rate_bps=100_000_000_000, base_rtt_ns=12_000, mtu_bytes=1000, trimming=True)
DROPPING = replace(TRIMMING, trimming=False)
NO_RTT = -1


def source(config: NsccConfig = TRIMMING, cwnd: float = 100_000, inflight: int = 100_000) -> Nscc:
    nscc = Nscc(config, now=0)
    nscc.window_bytes = cwnd
    nscc.inflight = inflight
    return nscc


def ack(nscc: Nscc, now: int, delay: int, marked: bool = False, size: int = 1000) -> None:
    nscc.on_ack(now, size, marked, 12_000 + delay)


def test_parameters_at_the_reference_point() -> None:
    assert TRIMMING.bdp_bytes == 150_000
    assert TRIMMING.max_wnd_bytes == 225_000
    assert TRIMMING.scaling_a == 1
    assert TRIMMING.target_qdelay_ns == 9000
    assert TRIMMING.scaling_b == 0.75
    assert TRIMMING.alpha == pytest.approx(1 / 3)
    assert (TRIMMING.fi, TRIMMING.fi_scale, TRIMMING.eta) == (5000, 0.25, 150)
    assert TRIMMING.adjust_bytes == 8000
    assert TRIMMING.zero_delay_ns == 1000
    assert TRIMMING.qa_threshold_ns == math.inf


def test_parameters_without_trimming() -> None:
    assert DROPPING.target_qdelay_ns == 12_000
    assert DROPPING.scaling_b == 1
    assert DROPPING.alpha == pytest.approx(1 / 3)
    assert DROPPING.qa_threshold_ns == 48_000


def test_parameters_of_a_faster_fabric() -> None:
    config = replace(TRIMMING, link_rate_bps=400_000_000_000, base_rtt_ns=6000, time_scale=1)
    assert config.bdp_bytes == 300_000
    assert config.scaling_a == 2
    assert config.scaling_b == 0.375
    assert config.alpha == pytest.approx(2 / 3)
    assert (config.fi, config.fi_scale, config.eta) == (10_000, 0.5, 300)


def test_scaling_b_without_a_time_scale_takes_the_base_rtt_for_the_reference() -> None:
    config = replace(TRIMMING, base_rtt_ns=6000)
    assert config.scaling_b == 0.75
    assert replace(config, time_scale=1).scaling_b == 0.375


@pytest.mark.parametrize("change", [{"link_rate_bps": 0}, {"base_rtt_ns": -1}, {"mtu_bytes": 0}, {"time_scale": 0.0}])
def test_impossible_parameters_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(change))):
        replace(TRIMMING, **change)  # type: ignore[arg-type]


def test_the_window_is_one_packet_at_least() -> None:
    nscc = Nscc(replace(TRIMMING, link_rate_bps=1_000_000), now=0)
    assert nscc.window_bytes == nscc.max_wnd == 1000
    assert nscc.can_send()


def test_a_source_begins_with_max_wnd() -> None:
    nscc = Nscc(TRIMMING, now=77)
    assert (nscc.window_bytes, nscc.max_wnd, nscc.inflight, nscc.base_rtt, nscc.avg_delay) == (
        225_000,
        225_000,
        0,
        12_000,
        0,
    )


def test_it_may_send_while_a_whole_packet_fits() -> None:
    nscc = source(cwnd=3000, inflight=0)
    nscc.on_send(0, 1000)
    nscc.on_send(0, 1000)
    assert nscc.can_send()
    nscc.on_send(0, 1)
    assert not nscc.can_send()


def test_inflight_may_fall_below_zero() -> None:
    nscc = source(cwnd=1000, inflight=0)
    nscc.on_send(0, 1000)
    nscc.on_ack(10, 1024, False, NO_RTT)
    assert nscc.inflight == -24
    assert nscc.can_send()


def test_an_ack_without_a_valid_rtt_only_counts() -> None:
    nscc = source()
    nscc.on_ack(50_000, 4000, False, NO_RTT)
    assert (nscc.window_bytes, nscc.inflight, nscc.avg_delay, nscc.base_rtt) == (100_000, 96_000, 0, 12_000)


def test_a_shorter_rtt_becomes_the_base_and_shrinks_max_wnd() -> None:
    nscc = source(cwnd=225_000)
    ack(nscc, 10, -2000)
    assert nscc.base_rtt == 10_000
    assert nscc.max_wnd == 187_500
    assert nscc.window_bytes == 187_500


def course(name: str, *acks: tuple[int, ...], cwnd: float = 100_000, avg: float = 0, trimming: bool = True) -> object:
    """Acknowledgements and the windows after them: how many, when, of what delay, the window, 1 if marked, bytes."""
    return pytest.param(TRIMMING if trimming else DROPPING, cwnd, avg, acks, id=name)


@pytest.mark.parametrize(
    ("config", "cwnd", "avg", "acks"),
    [
        # 9 * 1000 bytes * 5000 / 100,000; no eta within the period.
        course("fair increase waits for eight packets", (8, 100, 9000, 100_000), (1, 100, 9000, 100_450)),
        # 2 * 1000 * (9000 - 3000) / 3 / 100,000 = 40, and eta.
        course(
            "proportional at the end",
            (1, 11_999, 3000, 100_000),
            (1, 12_000, 3000, 100_190),
            (1, 12_001, 3000, 100_190),
        ),
        course("the increase stops at max_wnd", (1, 12_000, 9000, 225_000), cwnd=224_990),
        course(
            "fast increase after a window without delay",
            (9, 100, 0, 12_700),  # as yet proportional: 9 * 1000 * 9000 / 3 / 10,000
            (3, 100, 0, 12_700),
            (1, 100, 0, 12_950),  # 13,000 bytes exceed the window
            (1, 100, 999, 13_200),
            # To 14,200; then what the three proportional ones had earned: 3 * 1000 * 9000 / 3 / 14,200.
            (4, 100, 0, 14_200 + 9_000_000 / 14_200),
            cwnd=10_000,
        ),
        course("delay ends fast increase", (6, 100, 0, 5250), (1, 100, 1000, 5250), (1, 100, 0, 5250), cwnd=5000),
        course("a decrease ends it", (6, 100, 0, 5250), (1, 100, 9000, 5250, 1), (1, 100, 0, 5250), cwnd=5000),
        # 1 - 0.8 * (20 - 9) / 20 = 0.56; eta is due at the same time.
        course("a mark above the target decreases by the average", (1, 12_001, 20_000, 56_150, 1), avg=20_000),
        # The average moves to 0.9875 * 18,000 + 0.0125 * 9000 = 17,887.5.
        course(
            "a marked delay at the target is above it",
            (1, 12_001, 9000, 100_000 * (1 - 0.8 * 8887.5 / 17_887.5) + 150, 1),
            avg=9000 / 0.5,
        ),
        course(
            "one decrease in a base RTT",
            (1, 12_000, 20_000, 100_150, 1),
            (1, 12_001, 20_000, 100_150 * 0.56, 1),
            (1, 23_999, 20_000, 100_150 * 0.56, 1),
            avg=20_000,
        ),
        course("no decrease goes below half", (1, 12_001, 1_000_000, 50_150, 1), avg=1_000_000),
        course("no decrease goes below one packet", (1, 12_001, 20_000, 1150, 1), cwnd=1200, avg=20_000),
        course("a mark below the target changes nothing", (9, 100, 8999, 100_000, 1), avg=20_000),
        course(
            "unmarked ones act while marks are ignored",
            (1, 1000, 50_000, 100_000, 1),
            (1, 25_000, 50_000, 5000, 1, 5000),
            (1, 25_001, 12_000, 5650, 0, 500),  # 500 * 5000 / 5000, and eta
            trimming=False,
        ),
        course(
            "quick adapt is not for who gets an eighth",
            (1, 1000, 50_000, 100_000, 1),
            (1, 25_000, 50_000, 100_150, 1, 28_125),
            trimming=False,
        ),
        course(
            "quick adapt needs a reason", (1, 1000, 48_000, 100_000, 1), (1, 25_000, 48_000, 100_150, 1), trimming=False
        ),
        course(
            "quick adapt leaves one packet",
            (1, 1000, 50_000, 100_000, 1),
            (1, 25_000, 50_000, 1000, 1, 100),
            trimming=False,
        ),
    ],
)
def test_the_window_after_acknowledgements(
    config: NsccConfig, cwnd: float, avg: float, acks: tuple[tuple[int, ...], ...]
) -> None:
    nscc = source(config, cwnd)
    nscc.avg_delay = avg
    for times, now, delay, window, marked, size in ((*one, *(0, 1000)[len(one) - 4 :]) for one in acks):
        for _ in range(times):
            ack(nscc, now, delay, bool(marked), size)
        assert nscc.window_bytes == pytest.approx(window, rel=1e-9)


def test_fast_increase_stops_at_max_wnd() -> None:
    nscc = source(cwnd=224_900)
    for _ in range(2):
        nscc.on_ack(100, 224_900, False, 12_000)
    assert nscc.window_bytes == 225_000


def test_an_rtt_below_the_floor_of_the_base_is_no_negative_delay() -> None:
    nscc = source()
    nscc.on_ack(1, 1000, False, 5)
    assert nscc.base_rtt == 1500
    assert nscc.avg_delay == 0


def test_a_base_rtt_is_no_less_than_a_full_packet_takes() -> None:
    """At 2 Mbit/s a packet of 4,200 bytes takes 16.8 ms, and a shaper lets the first one of an idle port go at once."""
    slow = NsccConfig(link_rate_bps=2_000_000, base_rtt_ns=67_200_000, mtu_bytes=4200, trimming=True)
    nscc = Nscc(slow, 0)
    nscc.on_ack(1, 4200, False, 200_000)
    assert nscc.base_rtt == 16_800_000 and nscc.max_wnd == 1.5 * 4200
    path = Nscc(replace(slow, least_rtt_ns=33_600_000), 0)
    path.on_ack(1, 4200, False, 200_000)
    assert path.base_rtt == 33_600_000 and path.max_wnd == 3 * 4200, "of two hops, whatever was measured"
    path.on_ack(2, 4200, True, 60_000_000)
    assert path.avg_delay == pytest.approx(0.0125 * (60_000_000 - 67_200_000 // 8)), "a queue is what exceeds the least"
    bounded = Nscc(replace(slow, least_rtt_ns=10**9), 0)
    bounded.on_ack(1, 4200, False, 200_000)
    assert bounded.base_rtt == slow.base_rtt_ns


def test_no_decrease_while_the_average_is_below_the_target() -> None:
    nscc = source()
    ack(nscc, 12_001, 20_000, marked=True)
    assert nscc.avg_delay == pytest.approx(250)
    assert nscc.window_bytes == pytest.approx(100_150)


def test_an_unmarked_sample_above_the_target_counts_a_quarter_rtt() -> None:
    nscc = source()
    ack(nscc, 100, 50_000)
    assert nscc.avg_delay == pytest.approx(0.0125 * 3000)
    ack(nscc, 100, 8000)
    assert nscc.avg_delay == pytest.approx(0.0125 * 8000 + 0.9875 * 37.5)


def test_quick_adapt_falls_to_what_was_achieved_and_then_ignores_marks() -> None:
    nscc = source(DROPPING, inflight=20_000)
    ack(nscc, 1000, 50_000, marked=True)  # opens a period of base RTT + target
    ack(nscc, 24_999, 50_000, marked=True, size=3000)
    assert nscc.window_bytes == 100_150
    ack(nscc, 25_000, 50_000, marked=True, size=2000)
    assert nscc.window_bytes == 5000
    assert nscc.inflight == 14_000
    nscc.avg_delay = 50_000
    for _ in range(13):
        ack(nscc, 40_000, 50_000, marked=True)
        assert nscc.window_bytes == 5000
    # All that was in flight has been heard of: 1 - 0.8 * 38 / 50 = 0.392, so half, and eta.
    ack(nscc, 40_000, 50_000, marked=True)
    assert nscc.window_bytes == pytest.approx(2650)


def test_quick_adapt_acts_once_for_one_reason() -> None:
    nscc = source(inflight=0)
    nscc.on_nack(1000, NackCode.TRIMMED, 1000, NO_RTT, rccc_enabled=False)
    ack(nscc, 22_000, 0, size=6000)
    assert nscc.window_bytes == 6000
    ack(nscc, 43_000, 0)
    assert nscc.window_bytes > 6000


def test_losses_count_as_ignored() -> None:
    nscc = source(DROPPING, inflight=20_000)
    ack(nscc, 1000, 50_000, marked=True)
    ack(nscc, 25_000, 50_000, marked=True, size=5000)
    assert (nscc.window_bytes, nscc.inflight) == (5000, 14_000)
    nscc.on_loss(25_000, 13_000)
    assert nscc.window_bytes == 1000
    nscc.window_bytes = 5000
    nscc.avg_delay = 50_000
    ack(nscc, 40_000, 50_000, marked=True)
    assert nscc.window_bytes == pytest.approx(2650)


@pytest.mark.parametrize("code", [NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP])
def test_a_trimmed_packet_takes_its_size_off_the_window(code: NackCode) -> None:
    nscc = source()
    nscc.on_nack(1000, code, 1000, NO_RTT, rccc_enabled=False)
    assert (nscc.window_bytes, nscc.inflight) == (99_000, 99_000)
    assert nscc.avg_delay == pytest.approx(150)
    nscc.on_nack(1000, code, 1000, NO_RTT, rccc_enabled=False)
    assert nscc.avg_delay == pytest.approx(150 + 0.0125 * 11_850)


def test_trims_lead_to_quick_adapt_at_the_end_of_the_period() -> None:
    nscc = source()
    nscc.on_nack(1000, NackCode.TRIMMED, 1000, NO_RTT, rccc_enabled=False)  # opens a period until 22,000
    nscc.on_ack(2000, 7000, True, NO_RTT)
    nscc.on_nack(21_999, NackCode.TRIMMED, 1000, NO_RTT, rccc_enabled=False)
    assert nscc.window_bytes == 98_000
    nscc.on_nack(22_000, NackCode.TRIMMED, 1000, NO_RTT, rccc_enabled=False)
    assert nscc.window_bytes == 7000
    # 90,000 bytes are in flight: further trims among them take nothing off.
    nscc.on_nack(22_001, NackCode.TRIMMED, 1000, NO_RTT, rccc_enabled=False)
    assert nscc.window_bytes == 7000


def test_an_ack_carries_out_the_quick_adapt_that_a_trim_asked_for() -> None:
    nscc = source()
    nscc.on_nack(1000, NackCode.TRIMMED, 1000, NO_RTT, rccc_enabled=False)
    ack(nscc, 22_000, 0, size=6000)
    assert nscc.window_bytes == 6000


def test_a_trim_at_the_last_hop_is_the_receivers_business_with_rccc() -> None:
    nscc = source()
    nscc.on_nack(1000, NackCode.TRIMMED_LASTHOP, 1000, NO_RTT, rccc_enabled=True)
    assert (nscc.window_bytes, nscc.inflight) == (100_000, 99_000)
    assert nscc.avg_delay == pytest.approx(150)
    nscc.on_nack(1000, NackCode.TRIMMED, 1000, NO_RTT, rccc_enabled=True)
    assert nscc.window_bytes == 99_000


def test_a_nack_for_another_reason_says_nothing_of_congestion() -> None:
    nscc = source()
    nscc.on_nack(1000, NackCode.NO_PKT_BUFFER, 1000, 11_000, rccc_enabled=False)
    assert (nscc.window_bytes, nscc.inflight, nscc.avg_delay) == (100_000, 99_000, 0)
    assert (nscc.base_rtt, nscc.max_wnd) == (11_000, 206_250)
    nscc.on_nack(1000, NackCode.NO_PKT_BUFFER, 1000, 0, rccc_enabled=False)
    assert nscc.base_rtt == 11_000


def test_an_inferred_loss_takes_its_size_off_the_window() -> None:
    nscc = source(cwnd=1500)
    nscc.on_loss(10, 300)
    assert (nscc.window_bytes, nscc.inflight) == (1200, 99_700)
    nscc.on_loss(10, 300)
    assert nscc.window_bytes == 1000


def test_acks_are_asked_for_when_the_window_is_full_or_small() -> None:
    nscc = source(cwnd=20_000, inflight=19_000)
    assert not nscc.ack_request()
    nscc.on_send(0, 1)
    assert nscc.ack_request()
    assert source(cwnd=16_383, inflight=0).ack_request()
    assert not source(cwnd=16_384, inflight=0).ack_request()


def history(config: NsccConfig, scale: int) -> list[float]:
    """The window over a fixed course of events, all its times multiplied by `scale`."""
    random = Random(7)
    nscc = Nscc(config, now=0)
    now = 0
    found = []
    for _ in range(3000):
        now += random.randrange(3000)
        kind = random.random()
        while nscc.can_send():
            nscc.on_send(0, 1000)
        delay = random.choice((0, 500, 4000, 8000, 15_000, 60_000))
        if kind < 0.9:
            marked = random.random() < delay / 30_000
            nscc.on_ack(now * scale, 4000, marked, (11_500 + delay) * scale)
        elif kind < 0.95:
            nscc.on_nack(now * scale, NackCode.TRIMMED, 1000, (13_000 + delay) * scale, rccc_enabled=False)
        else:
            nscc.on_loss(now * scale, 1000)
        found.append(nscc.window_bytes)
    return found


@pytest.mark.parametrize("modelled", [TRIMMING, DROPPING, replace(TRIMMING, time_scale=1)])
@pytest.mark.parametrize("scale", [1000, 1024, 4000])
def test_the_window_does_not_depend_on_the_time_scale(modelled: NsccConfig, scale: int) -> None:
    lab = replace(
        modelled,
        link_rate_bps=modelled.link_rate_bps // scale,
        base_rtt_ns=modelled.base_rtt_ns * scale,
        time_scale=None if modelled.time_scale is None else modelled.time_scale * scale,
    )
    # Only 1024 divides and multiplies floating-point numbers exactly.
    tolerance = 0 if scale == 1024 else 1e-9
    found = history(modelled, 1)
    assert history(lab, scale) == pytest.approx(found, rel=tolerance, abs=0)
    assert min(found) < 20_000
    assert max(found) > 100_000


def test_a_lab_that_does_not_scale_the_12_us_differs() -> None:
    modelled = replace(TRIMMING, time_scale=1)
    lab = replace(modelled, link_rate_bps=100_000_000, base_rtt_ns=12_000_000)
    assert history(lab, 1000) != pytest.approx(history(modelled, 1), rel=0.01)


class Bottleneck:
    """Sources over one queue with the marking of section 3.6.17 (at dequeue, from 0.2 to 0.8 BDP); no loss."""

    def __init__(self, sources: int, config: NsccConfig) -> None:
        self.config = config
        self.sources = [Nscc(config, now=0) for _ in range(sources)]
        self.delivered = [0] * sources
        self.depths: list[int] = []

    def events(self, starts: list[int], end: int) -> Iterator[None]:
        config, size = self.config, self.config.mtu_bytes
        wire = size * 8_000_000_000 // config.link_rate_bps
        half = config.base_rtt_ns // 2
        random = Random(3)
        heap: list[tuple[int, int, str, int, int, bool]] = []
        order = depth = free = 0
        for index, start in enumerate(starts):
            heapq.heappush(heap, (start, index - len(starts), "wake", index, 0, False))
        while heap[0][0] < end:
            now, _, kind, index, sent, marked = heapq.heappop(heap)
            order += 1
            if kind == "arrive":
                depth += size
                free = max(now, free) + wire
                heapq.heappush(heap, (free, order, "leave", index, sent, False))
            elif kind == "leave":
                depth -= size
                marked = random.random() < (depth / config.bdp_bytes - 0.2) / 0.6
                heapq.heappush(heap, (now + half, order, "wake", index, sent, marked))
                self.delivered[index] += size
                self.depths.append(depth)
                yield
            else:
                nscc = self.sources[index]
                if order > len(starts):
                    nscc.on_ack(now, size, marked, now - sent)
                while nscc.can_send():
                    nscc.on_send(0, size)
                    order += 1
                    heapq.heappush(heap, (now + half - wire, order, "arrive", index, now, False))

    def run(self, starts: list[int], end: int, warm_up: int) -> None:
        """Counts what happens after the first `warm_up` packets."""
        for number, _ in enumerate(self.events(starts, end)):
            if number == warm_up:
                self.delivered = [0] * len(self.sources)
                self.depths = []


LAB = NsccConfig(link_rate_bps=100_000_000, base_rtt_ns=12_000_000, mtu_bytes=3000, trimming=True)


@pytest.mark.parametrize("sources", [2, 8])
def test_flows_converge_to_fair_shares_and_the_queue_to_its_target(sources: int) -> None:
    line = Bottleneck(sources, LAB)
    line.run(starts=[0] * sources, end=600 * LAB.base_rtt_ns, warm_up=15_000)
    total = sum(line.delivered)
    # 50 packets of 3000 bytes in a base RTT.
    assert total == pytest.approx((600 * 50 - 15_000) * 3000, rel=0.01)
    assert total**2 / (sources * sum(share**2 for share in line.delivered)) > 0.95
    queue = sum(line.depths) / len(line.depths)
    assert queue == pytest.approx(0.75 * LAB.bdp_bytes, rel=0.1)
    assert max(line.depths) < 1.1 * LAB.bdp_bytes


def test_a_flow_that_comes_late_gets_its_share() -> None:
    line = Bottleneck(2, LAB)
    line.run(starts=[0, 100 * LAB.base_rtt_ns], end=600 * LAB.base_rtt_ns, warm_up=15_000)
    assert line.delivered[1] / sum(line.delivered) == pytest.approx(0.5, abs=0.1)


def test_a_lone_flow_fills_the_link() -> None:
    line = Bottleneck(1, LAB)
    line.run(starts=[0], end=100 * LAB.base_rtt_ns, warm_up=500)
    assert sum(line.delivered) == pytest.approx((100 * 50 - 500) * 3000, rel=0.01)
