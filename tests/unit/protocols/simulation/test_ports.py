"""Classes, capacities, marking and trimming of a switch port, to the byte and to the packet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from random import Random
from typing import Any

import pytest

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.simulation import (
    WIRE_OVERHEAD_BYTES,
    Call,
    ConfigurationError,
    EcnCurve,
    Events,
    Frame,
    Impairments,
    LeafSpineSize,
    Line,
    LinkSettings,
    Network,
    Port,
    PortSettings,
    Tier,
    leaf_spine,
    star,
)

GBPS = 10**9
WIRE = 1000
PAYLOAD_BYTES = WIRE - WIRE_OVERHEAD_BYTES
TRIMMED_WIRE = 64 + WIRE_OVERHEAD_BYTES
NS_PER_BYTE = 8
ROOMY = PortSettings(low_capacity_bytes=10**7, medium_capacity_bytes=10**7, high_capacity_bytes=10**7)


class Bench:
    """One port at 1 Gb/s, and what leaves it. The first frame offered goes straight to the line."""

    def __init__(self, settings: PortSettings, *, last_hop: bool = False, seed: int = 1) -> None:
        self.events = Events()
        self.left: list[tuple[int, Frame]] = []
        line = Line("port", LinkSettings(rate_bps=GBPS, delay_ns=0), self.events, Call(self.arrive), Random(seed))
        self.port = Port(line, settings, self.events, Random(seed), last_hop=last_hop)

    def arrive(self, now: int, frame: Frame) -> None:
        self.left.append((now, frame))

    def offer(self, priority: Priority, count: int = 1, wire_bytes: int = WIRE) -> None:
        for number in range(count):
            data = number.to_bytes(4, "big") + bytes(wire_bytes - WIRE_OVERHEAD_BYTES - 4)
            self.port.offer(self.events.now, Frame(0, 1, 1, priority, data))

    def drain(self) -> list[Frame]:
        self.events.run(None, None)
        return [frame for _, frame in self.left]


class Blaster:
    """Sends `count` datagrams as fast as it can."""

    def __init__(self, address: str, remote: str = "", count: int = 0, priority: Priority = Priority.DATA) -> None:
        self.address = address
        self.remote = remote
        self.count = count
        self.priority = priority
        self.arrived: list[Incoming] = []

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.arrived += datagrams

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        if not self.count:
            return []
        self.count -= 1
        return [Outgoing(self.remote, 1 + self.count, self.priority, bytes(32), bytes(PAYLOAD_BYTES - 32))]

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None:
        raise AssertionError("it has no timer")


def incast(senders: int, each: int, port: PortSettings, seed: int = 0) -> tuple[Blaster, Network]:
    sink = Blaster("sink")
    blasters = [Blaster(f"s{index}", "sink", each) for index in range(senders)]
    link = LinkSettings(rate_bps=GBPS, delay_ns=1000)
    return sink, star([*blasters, sink], link=link, port=port, seed=seed)


def test_control_overtakes_all_that_waits_and_each_class_keeps_its_order() -> None:
    bench = Bench(ROOMY)
    bench.offer(Priority.DATA, 3)
    bench.offer(Priority.CONTROL, 2)
    frames = bench.drain()
    assert [frame.priority for frame in frames] == [0, 2, 2, 0, 0]
    assert [frame.data[:4] for frame in frames] == [number.to_bytes(4, "big") for number in (0, 0, 1, 1, 2)]
    assert [now for now, _ in bench.left] == [WIRE * NS_PER_BYTE * count for count in range(1, 6)]


def test_retransmissions_ride_with_data_unless_told_otherwise() -> None:
    bench = Bench(ROOMY)
    bench.offer(Priority.DATA, 3)
    bench.offer(Priority.RETRANSMISSION, 3)
    assert [frame.priority for frame in bench.drain()] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("retransmission_wire_bytes", [200, 1000, 4000])
def test_medium_gets_three_quarters_of_the_bytes_whatever_the_sizes(retransmission_wire_bytes: int) -> None:
    bench = Bench(replace(ROOMY, retransmissions_medium=True))
    bench.offer(Priority.DATA, 2000)
    bench.offer(Priority.RETRANSMISSION, 4000, retransmission_wire_bytes)
    bench.events.run(300 * WIRE * NS_PER_BYTE, None)
    counts = {0: 0, 1: 0}
    for _, frame in bench.left[1:]:
        counts[frame.priority] += frame.wire_bytes
    assert counts[1] / (counts[0] + counts[1]) == pytest.approx(0.75, abs=0.01)


def test_class_that_was_idle_has_no_claim_on_the_past() -> None:
    bench = Bench(replace(ROOMY, retransmissions_medium=True))
    bench.offer(Priority.RETRANSMISSION, 50)
    bench.drain()
    bench.left.clear()
    bench.offer(Priority.DATA, 21)
    bench.offer(Priority.RETRANSMISSION, 60)
    first = [frame.priority for frame in bench.drain()][1:41]
    assert first.count(0) == pytest.approx(10, abs=1)


def test_tail_drop_at_the_capacity_to_the_byte() -> None:
    bench = Bench(replace(ROOMY, low_capacity_bytes=5 * WIRE))
    bench.offer(Priority.DATA, 1 + 5 + 2)
    statistics = bench.port.statistics(0)
    assert (statistics.dropped_low, statistics.max_queue_bytes) == (2, 5 * WIRE)
    assert len(bench.drain()) == 6
    one_less = Bench(replace(ROOMY, low_capacity_bytes=5 * WIRE - 1))
    one_less.offer(Priority.DATA, 1 + 5 + 2)
    assert one_less.port.dropped_low == 3


def test_classes_do_not_share_their_capacity() -> None:
    bench = Bench(PortSettings(low_capacity_bytes=WIRE, medium_capacity_bytes=0, high_capacity_bytes=2 * WIRE))
    bench.offer(Priority.DATA, 4)
    bench.offer(Priority.CONTROL, 4)
    statistics = bench.port.statistics(0)
    assert (statistics.dropped_low, statistics.dropped_high, statistics.dropped) == (2, 2, 4)
    assert (statistics.max_queue_bytes, statistics.max_low_queue_bytes) == (3 * WIRE, WIRE)


def test_mean_queue_is_the_integral_over_time() -> None:
    bench = Bench(ROOMY)
    bench.offer(Priority.DATA, 4)
    bench.drain()
    slot = WIRE * NS_PER_BYTE
    assert bench.events.now == 4 * slot
    statistics = bench.port.statistics(bench.events.now)
    assert statistics.queue_byte_ns == (3 + 2 + 1) * WIRE * slot
    assert statistics.mean_queue_bytes == 1.5 * WIRE
    assert bench.port.statistics(8 * slot).mean_queue_bytes == 0.75 * WIRE


def test_integral_grows_with_arrivals_at_their_times() -> None:
    bench = Bench(ROOMY)
    bench.offer(Priority.DATA, 2)
    bench.events.run(1000, None)
    bench.offer(Priority.DATA)
    bench.events.run(3000, None)
    bench.offer(Priority.CONTROL)
    assert bench.port.statistics(6000).queue_byte_ns == WIRE * (1 * 1000 + 2 * 2000 + 3 * 3000)


def test_mean_counts_what_still_waits() -> None:
    bench = Bench(ROOMY)
    bench.offer(Priority.DATA, 3)
    assert bench.port.statistics(100).queue_byte_ns == 2 * WIRE * 100


def test_deterministic_threshold_marks_while_more_than_it_stays_behind() -> None:
    bench = Bench(replace(ROOMY, ecn=EcnCurve(kmin_bytes=3 * WIRE, kmax_bytes=3 * WIRE)))
    bench.offer(Priority.DATA, 9)
    marks = [frame.ce for frame in bench.drain()]
    # The first meets an empty queue. The others leave 7, 6, 5, 4, 3, ... behind.
    assert marks == [False] + [True] * 4 + [False] * 4
    assert bench.port.marked == 4


def test_only_the_low_class_is_marked() -> None:
    curve = EcnCurve(kmin_bytes=0, kmax_bytes=0)
    bench = Bench(replace(ROOMY, ecn=curve, retransmissions_medium=True))
    bench.offer(Priority.DATA, 10)
    bench.offer(Priority.CONTROL, 5)
    bench.offer(Priority.RETRANSMISSION, 5)
    assert {frame.priority for frame in bench.drain() if frame.ce} == {Priority.DATA}
    low = Bench(replace(ROOMY, ecn=curve))
    low.offer(Priority.RETRANSMISSION, 5)
    assert [frame.ce for frame in low.drain()] == [False, True, True, True, False]


def test_probability_is_linear_between_the_thresholds() -> None:
    curve = EcnCurve(kmin_bytes=1000, kmax_bytes=5000, pmax=0.5)
    assert [curve.probability(queue) for queue in (0, 1000, 3000, 5000, 5001)] == [0, 0, 0.25, 0.5, 1]


def test_marks_follow_the_curve() -> None:
    """At every depth of the queue, the share of marked packets is within 4.5 standard deviations of the curve."""
    curve = EcnCurve(kmin_bytes=5 * WIRE, kmax_bytes=25 * WIRE, pmax=0.8)
    depth, rounds = 30, 400
    bench = Bench(replace(ROOMY, ecn=curve))
    for _ in range(rounds):
        bench.offer(Priority.DATA, depth + 1)
        bench.drain()
    marked = [0] * depth
    for index, (_, frame) in enumerate(bench.left):
        position = index % (depth + 1)
        if position:
            marked[depth - position] += frame.ce
    for behind, count in enumerate(marked):
        probability = curve.probability(behind * WIRE)
        assert abs(count - rounds * probability) <= 4.5 * sqrt(rounds * probability * (1 - probability)), behind
    assert sum(marked) == bench.port.marked


def test_data_above_the_threshold_is_trimmed_and_overtakes() -> None:
    settings = replace(ROOMY, trim_threshold_bytes=3 * WIRE)
    bench = Bench(settings)
    bench.offer(Priority.DATA, 6)
    assert (bench.port.low_bytes, bench.port.medium_bytes) == (3 * WIRE, 2 * TRIMMED_WIRE)
    frames = bench.drain()
    # By weight in bytes: after a trimmed packet it is the low class's turn, and after a whole one that of many trimmed.
    assert [frame.trimmed for frame in frames] == [False, True, False, True, False, False]
    trimmed = frames[1]
    assert (len(trimmed.data), trimmed.length, trimmed.wire_bytes) == (64, PAYLOAD_BYTES, TRIMMED_WIRE)
    assert trimmed.data[:4] == (4).to_bytes(4, "big")
    assert bench.port.trimmed == 2
    assert bench.port.statistics(0).dropped == 0


def test_retransmissions_and_the_last_hop_are_trimmed_later() -> None:
    settings = replace(ROOMY, trim_threshold_bytes=3 * WIRE, late_trim_threshold_bytes=5 * WIRE)
    trimmed = {}
    for priority in (Priority.DATA, Priority.RETRANSMISSION):
        for last_hop in (False, True):
            bench = Bench(settings, last_hop=last_hop)
            bench.offer(priority, 9)
            frames = bench.drain()
            trimmed[priority, last_hop] = bench.port.trimmed
            assert all(frame.last_hop == last_hop for frame in frames if frame.trimmed)
    assert trimmed == {
        (Priority.DATA, False): 5,
        (Priority.DATA, True): 3,
        (Priority.RETRANSMISSION, False): 3,
        (Priority.RETRANSMISSION, True): 3,
    }


def test_control_and_what_is_shorter_than_a_trimmed_packet_are_not_trimmed() -> None:
    bench = Bench(replace(ROOMY, trim_threshold_bytes=0, high_capacity_bytes=WIRE, low_capacity_bytes=2 * TRIMMED_WIRE))
    bench.offer(Priority.CONTROL, 3)
    bench.offer(Priority.DATA, 3, TRIMMED_WIRE)
    statistics = bench.port.statistics(0)
    assert (statistics.trimmed, statistics.dropped_high, statistics.dropped_low) == (0, 1, 1)


def test_trimmed_packets_drop_when_their_class_is_full() -> None:
    bench = Bench(replace(ROOMY, trim_threshold_bytes=WIRE, medium_capacity_bytes=3 * TRIMMED_WIRE))
    bench.offer(Priority.DATA, 10)
    statistics = bench.port.statistics(0)
    assert (statistics.trimmed, statistics.dropped_medium, statistics.dropped_low) == (8, 5, 0)


def test_packet_trimmed_upstream_keeps_its_class_and_is_not_of_the_last_hop() -> None:
    """Two hosts of one leaf send through one spine to the other leaf: its uplink is where they are trimmed."""
    hosts = [Blaster("a", "c", 200), Blaster("b", "c", 200), Blaster("c"), Blaster("d")]
    link = LinkSettings(rate_bps=GBPS, delay_ns=100)
    tier = Tier(link=link, port=replace(ROOMY, trim_threshold_bytes=10 * WIRE))
    size = LeafSpineSize(leaves=2, hosts_per_leaf=2, spines=1)
    network = leaf_spine(hosts, size, host_tier=tier, fabric_tier=tier)
    network.run()
    trimmed = [datagram for datagram in hosts[2].arrived if datagram.trimmed]
    assert len(trimmed) == network.ports["leaf0->spine0"].trimmed == network.statistics().trimmed > 50
    assert len(hosts[2].arrived) == 400
    assert {(len(datagram.data), datagram.length, datagram.last_hop) for datagram in trimmed} == {
        (64, PAYLOAD_BYTES, False)
    }
    assert {datagram.length for datagram in hosts[2].arrived if not datagram.trimmed} == {0}


def test_incast_is_trimmed_on_the_last_hop_and_the_queue_stays_in_bounds() -> None:
    bdp = 20 * WIRE
    sink, network = incast(8, 100, PortSettings.for_plane(bdp))
    network.run()
    port = network.port_statistics()["switch->sink"]
    assert port.max_low_queue_bytes == bdp * 3 // 2
    assert port.max_queue_bytes <= bdp * 5 // 2
    assert all(datagram.last_hop for datagram in sink.arrived if datagram.trimmed)
    assert len(sink.arrived) + port.dropped_medium == 800
    assert port.dropped_low == 0
    assert sum(datagram.ce for datagram in sink.arrived) == port.marked > 0


def test_duplicate_of_a_trimmed_marked_packet_is_the_same() -> None:
    sink, network = incast(
        4, 20, replace(ROOMY, trim_threshold_bytes=5 * WIRE, ecn=EcnCurve(kmin_bytes=0, kmax_bytes=0))
    )
    network.impair("switch->sink", Impairments(duplicate=1.0))
    network.run()
    assert sink.arrived[::2] == sink.arrived[1::2]
    assert any(datagram.trimmed for datagram in sink.arrived)
    assert any(datagram.ce for datagram in sink.arrived)


def test_incast_without_trimming_drops_at_five_plane_bdp() -> None:
    bdp = 10 * WIRE
    sink, network = incast(8, 100, PortSettings.for_plane(bdp, trimming=False))
    network.run()
    port = network.port_statistics()["switch->sink"]
    assert port.max_queue_bytes == 5 * bdp
    assert (len(sink.arrived) + port.dropped, port.trimmed) == (800, 0)
    assert port.dropped > 600


def test_settings_of_the_specification() -> None:
    trimming = PortSettings.for_plane(100_000)
    assert trimming.ecn == EcnCurve(kmin_bytes=20_000, kmax_bytes=80_000, pmax=1.0)
    assert (trimming.trim_threshold_bytes, trimming.late_trim_threshold_bytes) == (100_000, 150_000)
    assert (trimming.medium_capacity_bytes, trimming.high_capacity_bytes) == (100_000, 100_000)
    assert (trimming.medium_weight, trimming.low_weight) == (75, 25)
    dropping = PortSettings.for_plane(100_000, trimming=False, deterministic_ecn=True, drop_bdps=2)
    assert dropping.ecn == EcnCurve(kmin_bytes=50_000, kmax_bytes=50_000)
    assert (dropping.trim_threshold_bytes, dropping.low_capacity_bytes) == (None, 200_000)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"low_capacity_bytes": -1}, "capacity"),
        ({"low_weight": 0}, "weight"),
        ({"trim_bytes": 23}, "MIN_TRIM_SIZE"),
        ({"late_trim_threshold_bytes": 1}, "needs a trim_threshold_bytes"),
    ],
)
def test_impossible_settings_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        replace(ROOMY, **change)
    with pytest.raises(ConfigurationError, match="kmin <= kmax"):
        EcnCurve(kmin_bytes=2, kmax_bytes=1)
