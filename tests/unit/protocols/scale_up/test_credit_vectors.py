"""CBFC against the public test plan for UEC ports (SONiC): the identifiers are those of the plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import ceil

import pytest
from link_end import LinkConfig
from native_link import NativeCreditConfig, credit_config
from native_parts import CreditReceiver, CreditSender
from simulated_links import FIRST, SECOND, Backlog, Clock, LinkEnd, connect, damaged, frame_of

from testbed.protocols.scale_up.credits import spacing_ns
from testbed.protocols.scale_up.ctlos import CfUpdate
from testbed.protocols.scale_up.frames import DataFrame, decode_prefix, is_control
from testbed.protocols.scale_up.headers import HeaderKind

pytestmark = pytest.mark.usefixtures("clang")

RATE = 100_000_000_000
SIZE = 4096
UNIT = 256
FRAME_CREDITS = SIZE // UNIT
CYCLE = 1 << 20


def credits_of(*limits: int, rate_bps: int = RATE, port_limit: int = 0, cc_period_ns: int = 0) -> NativeCreditConfig:
    """Limits in frames of `SIZE`."""
    return credit_config(
        *(limit * FRAME_CREDITS for limit in limits),
        unit_bytes=UNIT,
        port_limit=port_limit * FRAME_CREDITS,
        cf_min_ns=spacing_ns(800, rate_bps),
        cf_max_ns=spacing_ns(262_144, rate_bps),
        cc_period_ns=cc_period_ns,
    )


class CreditPair:
    """Two ends of a link with credits one way."""

    def __init__(self, config: NativeCreditConfig, *, delay_ns: int = 500, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.near = LinkEnd(
            self.clock, LinkConfig(address=FIRST, peer=SECOND, sending=config), rate_bps=RATE, delay_ns=delay_ns
        )
        self.far = LinkEnd(
            self.clock, LinkConfig(address=SECOND, peer=FIRST, receiving=config), rate_bps=RATE, delay_ns=delay_ns
        )
        connect(self.near, self.far)
        assert self.near.link.sender is not None
        assert self.far.link.receiver is not None
        self.sender: CreditSender = self.near.link.sender
        self.receiver: CreditReceiver = self.far.link.receiver

    def saturate(self, *vcs: int) -> None:
        for vc in vcs:
            self.near.backlog.endless[vc] = frame_of(SIZE, vc=vc)
        self.near.pump()

    def shares(self, ns: int) -> dict[int, float]:
        """What each VC has of the line rate in the next `ns`."""
        before = dict(self.far.drained_bytes)
        self.clock.run(self.clock.now + ns)
        return {vc: (size - before.get(vc, 0)) * 8e9 / ns / RATE for vc, size in sorted(self.far.drained_bytes.items())}


@pytest.mark.parametrize("overhead", [-16, 0, 20, 127])
@pytest.mark.parametrize("unit", [32, 256, 2048])
def test_cbfc_01_what_frames_take(unit: int, overhead: int) -> None:
    """S_CC = R_CC = R_CF = frames x ceil((size + PktOvhd) / unit) mod 2**20, for sizes about each power of two."""
    config = credit_config(CYCLE - 1, unit_bytes=unit, overhead_bytes=overhead)
    sender, receiver = CreditSender(config), CreditReceiver(config)
    total, frames = 0, 3000
    for power in range(6, 13):
        for size in (2**power - 1, 2**power, 2**power + 1):
            for _ in range(frames if size > 4000 else 10):
                assert sender.may_send(0, size)
                sender.on_sent(0, size)
                assert receiver.on_stored(0, size)
                receiver.on_freed(0, size)
                update = receiver.poll(0)
                assert update is not None
                sender.on_cf_update(update)
            total += (frames if size > 4000 else 10) * ceil((size + overhead) / unit)
            assert sender.consumed[0] == receiver.consumed[0] == receiver.freed[0] == total % CYCLE
            assert sender.freed[0] == total % CYCLE
    assert (total > CYCLE) == (unit == 32), "the counters have gone round"


def test_cbfc_03_credits_of_lost_frames_come_back_with_cc_update() -> None:
    """With no CC_Update the sender stalls for good once the limit has leaked; one brings all of it back."""
    config = credits_of(20, cc_period_ns=100_000)
    pair = CreditPair(config)

    def fault(data: bytes) -> bytes | None:
        if is_control(data):
            return data
        if decode_prefix(data).kind is HeaderKind.CC_UPDATE:
            return None
        return damaged(data)

    pair.near.fault = fault
    for number in range(50):
        pair.near.backlog.add(frame_of(SIZE, number=number))
    pair.near.pump()
    pair.clock.run(90_000)
    assert pair.far.received == []
    assert pair.far.link.counters.bad_unnumbered == 20
    assert len(pair.near.backlog) == 30
    assert pair.sender.in_use(0) == 20 * FRAME_CREDITS
    assert pair.receiver.consumed[0] == pair.receiver.freed[0] == 0
    pair.near.fault = lambda data: data
    pair.clock.run(300_000)
    assert len(pair.far.received) == 30
    assert pair.sender.freed[0] == pair.sender.consumed[0] == 50 * FRAME_CREDITS
    assert pair.receiver.counters.leaked_credits == 20 * FRAME_CREDITS


def test_cbfc_08_a_slow_vc_holds_up_none_of_the_others() -> None:
    pair = CreditPair(credits_of(8, 8, 8, 8), delay_ns=100)
    pair.saturate(0, 1, 2, 3)
    assert pair.shares(100_000) == pytest.approx(dict.fromkeys(range(4), 0.25), abs=0.02)
    pair.far.resume(1, RATE // 10)
    pair.clock.run(pair.clock.now + 50_000)
    shares = pair.shares(100_000)
    assert shares[1] == pytest.approx(0.10, abs=0.015)
    assert all(shares[vc] >= 0.25 - 0.02 for vc in (0, 2, 3))
    pair.far.resume(1, 0)
    pair.clock.run(pair.clock.now + 50_000)
    shares = pair.shares(100_000)
    assert shares[1] == 0
    assert all(shares[vc] >= 0.25 - 0.02 for vc in (0, 2, 3))


def test_cbfc_09_a_limit_of_the_port_does_not_isolate() -> None:
    """Two VCs of one port limit: the one that stops takes the other one's credits with it."""
    pair = CreditPair(credits_of(16, 16, port_limit=16), delay_ns=100)
    pair.saturate(0, 1)
    assert sum(pair.shares(50_000).values()) > 0.98
    pair.far.resume(1, 0)
    pair.clock.run(pair.clock.now + 50_000)
    assert pair.shares(50_000) == {0: 0.0, 1: 0.0}
    pair.far.resume(1, None)
    pair.clock.run(pair.clock.now + 10_000)
    assert sum(pair.shares(50_000).values()) > 0.98


class Incast:
    """Some senders, whose frames leave a switch through one port, in turn, to a receiver."""

    def __init__(self, senders: int, config: NativeCreditConfig) -> None:
        self.clock = Clock()
        self.inputs = [CreditPair(config, clock=self.clock, delay_ns=100) for _ in range(senders)]
        self.output = CreditPair(config, clock=self.clock, delay_ns=100)
        self.output.near.backlog = SwitchQueues(self)
        self.waiting: list[deque[tuple[DataFrame, int]]] = [deque() for _ in self.inputs]
        for queue, pair in zip(self.waiting, self.inputs, strict=True):
            pair.far.on_frame = self._taker(queue)

    def _taker(self, queue: deque[tuple[DataFrame, int]]) -> Callable[[DataFrame, int], None]:
        def take(frame: DataFrame, size: int) -> None:
            queue.append((frame, size))
            self.output.near.pump()

        return take


class SwitchQueues(Backlog):
    """The buffers of a switch's inputs, as one of its outputs sees them."""

    def __init__(self, switch: Incast) -> None:
        super().__init__()
        self.switch = switch

    def heads(self) -> Iterator[tuple[int, DataFrame]]:
        count = len(self.switch.waiting)
        for index in ((self._last + 1 + step) % count for step in range(count)):
            if self.switch.waiting[index]:
                yield index, self.switch.waiting[index][0][0]

    def taken(self, index: int) -> None:
        self._last = index
        frame, size = self.switch.waiting[index].popleft()
        port = self.switch.inputs[index].far
        port.free(frame.vc, size)
        port.pump()


def test_cbfc_10_one_two_and_three_senders_to_one_port() -> None:
    """99, 50 and 33 % for each sender, the receiver is full and nothing is lost; again 99 % when two stop."""
    switch = Incast(3, credits_of(10))
    for senders, share in ((1, 0.99), (2, 0.5), (3, 0.33)):
        switch.inputs[senders - 1].saturate(0)
        switch.clock.run(switch.clock.now + 20_000)
        before = [pair.far.drained_bytes.get(0, 0) for pair in switch.inputs]
        assert sum(switch.output.shares(100_000).values()) >= 0.985
        for pair, was in list(zip(switch.inputs, before, strict=True))[:senders]:
            had = (pair.far.drained_bytes.get(0, 0) - was) * 8e9 / 100_000 / RATE
            assert had == pytest.approx(share, abs=0.015)
    for pair in switch.inputs[1:]:
        pair.near.backlog.endless.clear()
    switch.clock.run(switch.clock.now + 20_000)
    assert sum(switch.output.shares(100_000).values()) >= 0.985
    sent = sum(pair.near.sent_bytes[0] for pair in switch.inputs)
    held = sum(pair.receiver.held(0) for pair in switch.inputs) * UNIT
    in_flight = sum(pair.sender.in_use(0) for pair in switch.inputs) * UNIT
    assert held <= sent - sum(pair.far.drained_bytes[0] for pair in switch.inputs) <= in_flight
    assert all(pair.far.link.counters.no_room == 0 for pair in (*switch.inputs, switch.output))


def test_cbfc_11_beside_a_best_effort_vc() -> None:
    """The lossless VC loses nothing, the best-effort one whatever its buffer has no room for."""
    pair = CreditPair(credits_of(10, 0), delay_ns=100)
    pair.saturate(0, 1)
    for vc in (0, 1):
        pair.far.resume(vc, RATE // 4)
    room, dropped = 20 * SIZE, 0
    drain = pair.far.on_frame

    def finite(frame: DataFrame, size: int) -> None:
        nonlocal dropped
        held = pair.near.sent_bytes[1] - pair.far.drained_bytes.get(1, 0) - dropped
        if frame.vc == 1 and held > room:
            dropped += size
            return
        drain(frame, size)

    pair.far.on_frame = finite
    shares = pair.shares(200_000)
    assert shares[0] == pytest.approx(0.25, abs=0.02)
    assert dropped > 20 * SIZE
    on_the_way = pair.sender.in_use(0) * UNIT
    assert pair.near.sent_bytes[0] - pair.far.drained_bytes[0] <= on_the_way <= 10 * SIZE


@pytest.mark.parametrize(("loops", "share"), [(0.25, 0.25), (0.5, 0.5), (1.1, 1.0), (2.0, 1.0)])
def test_cbfc_12_a_long_cable_needs_credits_for_its_loop(loops: float, share: float) -> None:
    """rate = min(1, limit x unit / (B x R)): 500 m, R = two propagations and a frame's own time."""
    delay_ns = 2500
    serial_ns = SIZE * 8e9 / RATE
    loop_ns = 2 * delay_ns + serial_ns
    limit = round(loops * loop_ns / serial_ns)
    pair = CreditPair(credits_of(limit), delay_ns=delay_ns)
    pair.saturate(0)
    pair.clock.run(round(2 * loop_ns))
    measured = pair.shares(round(12 * loop_ns))[0]
    assert measured == pytest.approx(min(1.0, limit * serial_ns / loop_ns), rel=0.04)
    assert measured == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"limits": 1 << 20},
        {"unit_bytes": 16},
        {"overhead_bytes": -17},
        {"overhead_bytes": 128},
        {"port_limit": -1},
    ],
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        CreditSender(credit_config(wrong.pop("limits", 1), **wrong))


def test_updates_that_cannot_be_right_change_nothing() -> None:
    """More freed than is in use, more consumed than there is room for, a VC without credits."""
    config = credit_config(100)
    sender, receiver = CreditSender(config), CreditReceiver(config)
    sender.on_sent(0, 1280)
    for update in (CfUpdate(0, 11, 0, 11), CfUpdate(5, 1, 5, 1), CfUpdate(0, 0x7FFF, 0, 0)):
        sender.on_cf_update(update)
    assert (sender.freed[0], sender.counters.cf_update_errors) == (0, 3)
    assert receiver.on_stored(0, 1280)
    receiver.on_cc_update(((0, 101), (7, 1), (0, 5)))
    assert (receiver.consumed[0], receiver.freed[0], receiver.counters.cc_update_errors) == (10, 0, 3)
    assert not receiver.on_stored(0, 128 * 91)
    assert receiver.counters.over_limit_frames == 1
