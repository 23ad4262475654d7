"""A port with classes: who waits, who is marked, cut or dropped, who goes first, and how pauses are asked for."""

from dataclasses import replace
from typing import Any

import pytest

from testbed.base.datapath.markers import MarkAt
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.simulation import (
    Call,
    Events,
    FabricPortSettings,
    FabricSwitch,
    Frame,
    InputPort,
    Line,
    LinkSettings,
    OutputPort,
    PacketKind,
    SwitchMemory,
    SwitchSettings,
)
from testbed.protocols.simulation.port import DROP_BUFFER, DROP_HEADROOM, DROP_TAIL
from testbed.protocols.simulation.seeded import SeededRandom

GBPS = 10**9
WIRE = 1000
NS_PER_BYTE = 8
OVERHEAD = 42
BULK, DATA, CONTROL = 1, 3, 6
CLASSES = (
    ClassPlan(priority=BULK, quantum_bytes=WIRE),
    ClassPlan(priority=DATA, quantum_bytes=3 * WIRE),
    ClassPlan(priority=CONTROL, strict=True),
)
PLAIN = FabricPortSettings(classes=CLASSES, priority_of=(DATA, BULK, CONTROL, CONTROL, CONTROL))


def with_data(settings: FabricPortSettings = PLAIN, **changes: Any) -> FabricPortSettings:
    """The port with another data class."""
    classes = tuple(replace(item, **changes) if item.priority == DATA else item for item in settings.classes)
    return replace(settings, classes=classes)


class Bench:
    """One port at 1 Gbit/s of a switch, and what leaves it. The first packet offered goes straight to the line."""

    def __init__(self, settings: FabricPortSettings = PLAIN, *, buffer_bytes: int = 0, seed: int = 1) -> None:
        self.events = Events()
        self.left: list[tuple[int, Frame]] = []
        line = Line("port", LinkSettings(rate_bps=GBPS, delay_ns=0), self.events, Call(self.arrive), SeededRandom(seed))
        self.buffer = SwitchMemory(buffer_bytes)
        self.port = OutputPort(line, settings, self.events, SeededRandom(seed), self.buffer, overhead_bytes=OVERHEAD)
        switch = FabricSwitch("switch", SwitchSettings(), [b"\0" * 4] * 2, 1, SeededRandom(seed))
        self.source = InputPort("source", switch, settings, self.events)

    def arrive(self, now: int, frame: Frame) -> None:
        self.left.append((now, frame))

    def offer(self, kind: PacketKind = PacketKind.DATA, count: int = 1, wire_bytes: int = WIRE) -> list[Frame]:
        frames = []
        for _ in range(count):
            frame = Frame(0, 1, 1, int(kind), bytes(wire_bytes - OVERHEAD))
            frame.wire_bytes = wire_bytes
            frames.append(frame)
            self.port.offer(self.events.now, frame, self.source)
        return frames

    def drain(self) -> list[Frame]:
        self.events.run(None, None)
        return [frame for _, frame in self.left]


def test_what_is_offered_leaves_at_the_rate_of_the_line_and_in_order() -> None:
    bench = Bench()
    frames = bench.offer(count=5)
    assert bench.drain() == frames
    assert [now for now, _ in bench.left] == [WIRE * NS_PER_BYTE * number for number in range(1, 6)]
    queue = bench.port.queue_of(DATA)
    assert (queue.in_packets, queue.enqueued_packets, queue.out_packets, queue.bytes) == (5, 5, 5, 0)
    assert queue.max_bytes == 4 * WIRE


def test_a_strict_class_goes_first_and_the_others_share_by_their_quanta() -> None:
    bench = Bench()
    bench.offer(PacketKind.DATA)  # on the line
    bench.offer(PacketKind.RETRANSMISSION, count=8)
    bench.offer(PacketKind.DATA, count=24)
    bench.offer(PacketKind.CONTROL, count=2)
    kinds = [PacketKind(frame.kind) for frame in bench.drain()][1:]
    assert kinds[:2] == [PacketKind.CONTROL] * 2
    first = kinds[2:18]
    assert first.count(PacketKind.DATA) == 12 and first.count(PacketKind.RETRANSMISSION) == 4


def test_a_static_limit_drops_the_tail() -> None:
    bench = Bench(with_data(limit_bytes=3 * WIRE))
    frames = bench.offer(count=6)
    assert bench.drain() == frames[:4]
    queue = bench.port.queue_of(DATA)
    assert queue.drops_packets[DROP_TAIL] == 2 and queue.drops_bytes[DROP_TAIL] == 2 * WIRE
    assert queue.in_packets == queue.enqueued_packets + 2


def test_a_queue_may_take_alpha_times_what_is_free_and_its_reserve_always() -> None:
    settings = with_data(alpha=1.0, reserved_bytes=WIRE)
    bench = Bench(settings, buffer_bytes=10 * WIRE)
    frames = bench.offer(count=12)
    # the n-th that waits is admitted while n <= 10 - (n - 1): five of them
    assert bench.drain() == frames[:6]
    assert bench.port.queue_of(DATA).drops_packets[DROP_BUFFER] == 6
    assert bench.buffer.max_bytes == 5 * WIRE and bench.buffer.used_bytes == 0
    full = Bench(settings, buffer_bytes=1)
    assert len(full.offer(count=3)) == 3
    assert len(full.drain()) == 2


def test_marks_follow_the_curve_by_what_waits_at_the_arrival() -> None:
    bench = Bench(with_data(kmin_bytes=2 * WIRE, kmax_bytes=4 * WIRE, pmax=0.0))
    frames = bench.offer(count=7)
    bench.drain()
    assert [frame.ce for frame in frames] == [False] * 5 + [True] * 2
    queue = bench.port.queue_of(DATA)
    assert queue.ce_packets == 2 and queue.ect_packets == 7
    assert sum(queue.packets_by_bin) == 7 and sum(queue.marked_by_bin) == 2


def test_marks_at_the_departure_look_at_what_stays_behind() -> None:
    bench = Bench(with_data(kmin_bytes=2 * WIRE, kmax_bytes=2 * WIRE + 1, mark_at=MarkAt.DEQUEUE))
    frames = bench.offer(count=6)
    bench.drain()
    # five waited as the second left: four stayed, then three, two, ...
    assert [frame.ce for frame in frames] == [False, True, True, False, False, False]


def test_between_the_thresholds_chance_decides_by_the_probability_of_the_curve() -> None:
    bench = Bench(with_data(kmin_bytes=0, kmax_bytes=1_000_000 * WIRE, pmax=1.0), seed=3)
    bench.offer(count=1)
    marked = 0
    for _ in range(4000):
        queue = bench.port.queue_of(DATA)
        queue.bytes = 250_000 * WIRE
        marked += bench.offer()[0].ce
    assert 0.22 < marked / 4000 < 0.28


@pytest.mark.parametrize("kind", [PacketKind.CONTROL, PacketKind.NOTIFICATION])
def test_control_packets_are_not_marked_and_may_be_dropped_instead(kind: PacketKind) -> None:
    classes = tuple(
        replace(item, kmin_bytes=0, kmax_bytes=0, drop_non_ect=True) if item.priority == CONTROL else item
        for item in CLASSES
    )
    bench = Bench(replace(PLAIN, classes=classes))
    frames = bench.offer(kind, count=3)
    assert bench.drain() == frames[:2] and not any(frame.ce for frame in frames)
    assert bench.port.queue_of(CONTROL).wred_packets == 1


def test_what_would_be_refused_is_cut_and_goes_on_in_the_class_of_trimmed_packets() -> None:
    bench = Bench(replace(with_data(limit_bytes=2 * WIRE), trimming=True))
    frames = bench.offer(count=5)
    left = bench.drain()
    assert left == [frames[0], frames[3], frames[4], frames[1], frames[2]], (
        "cut packets overtake: their class is strict"
    )
    assert [frame.wire_bytes for frame in left] == [WIRE, 36 + OVERHEAD, 36 + OVERHEAD, WIRE, WIRE]
    assert frames[3].trimmed and frames[3].length == WIRE - OVERHEAD and len(frames[3].data) == 36
    queue = bench.port.queue_of(DATA)
    assert queue.trimmed_packets == 2 and queue.trimmed_bytes == 2 * (WIRE - 36 - OVERHEAD)
    assert queue.in_packets == 3 and bench.port.queue_of(CONTROL).in_packets == 2


def test_cutting_begins_at_the_limit_whatever_is_reserved() -> None:
    bench = Bench(replace(with_data(limit_bytes=4 * WIRE, reserved_bytes=2 * WIRE), trimming=True))
    frames = bench.offer(count=7)
    assert [frame.trimmed for frame in frames] == [False] * 5 + [True] * 2, "one is being sent, and four wait"


def test_a_short_packet_is_dropped_rather_than_cut() -> None:
    bench = Bench(replace(with_data(limit_bytes=0), trimming=True))
    bench.offer(wire_bytes=WIRE)
    short = bench.offer(wire_bytes=OVERHEAD + 36)
    assert short[0] not in bench.drain() and not short[0].trimmed


def test_a_paused_class_waits_while_others_are_sent() -> None:
    bench = Bench()
    bench.port.pause(0, DATA)
    data = bench.offer(count=2)
    control = bench.offer(PacketKind.CONTROL)
    assert bench.drain() == control
    bench.events.schedule(50_000, lambda now, _: bench.port.resume(now, DATA))
    assert bench.drain() == control + data
    assert bench.port.paused_ns(DATA, 10**6) == 50_000 and bench.port.queue_of(DATA).pauses == 1
    assert bench.left[1][0] == 50_000 + WIRE * NS_PER_BYTE


def test_an_input_port_asks_for_a_pause_above_xoff_and_for_its_end_at_xon() -> None:
    bench = Bench(with_data(lossless=True, xoff_bytes=2 * WIRE, xon_bytes=WIRE, headroom_bytes=2 * WIRE))
    upstream = Bench()
    upstream.events = bench.events
    account = bench.source.account_of(DATA)
    account.pauses(upstream.port, 100)
    bench.offer(count=6)
    assert account.xoff_sent == 1 and account.bytes == 4 * WIRE
    assert bench.port.queue_of(DATA).drops_packets[DROP_HEADROOM] == 1, "one more than the headroom holds"
    bench.drain()
    assert (account.xon_sent, account.bytes, account.max_bytes) == (1, 0, 4 * WIRE)
    # above XOFF at once; at XON when the fourth of the five begins to be sent
    assert upstream.port.paused_ns(DATA, 10**9) == 3 * WIRE * NS_PER_BYTE


def test_a_port_knows_the_queues_that_it_has() -> None:
    with pytest.raises(KeyError):
        Bench().port.queue_of(0)
