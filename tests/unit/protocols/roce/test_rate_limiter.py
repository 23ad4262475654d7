"""The rate limiter of a queue pair when its rate changes while a packet waits."""

from __future__ import annotations

import pytest
from rnic_pair import RnicPair

from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.rate_limiter import BURST_PACKETS, RateLimiter

MEGABIT = 1e6
PATIENCE_NS = 100_000


def test_what_is_left_of_a_wait_is_that_of_the_rate_which_there_is() -> None:
    limiter = RateLimiter(PATIENCE_NS)
    limiter.on_send(0, 1000, MEGABIT)
    limiter.on_send(0, 1000, MEGABIT)
    wait_ns = limiter.next_at
    assert wait_ns >= 8_000_000
    limiter.wait(0, MEGABIT)
    assert (limiter.next_at, limiter.due) == (wait_ns, PATIENCE_NS)
    half = int(wait_ns / 2)
    limiter.wait(half, 1000 * MEGABIT)
    assert limiter.next_at == pytest.approx(half + wait_ns / 2000, abs=1)
    assert limiter.due == int(limiter.next_at) + 1
    limiter.wait(half, 10 * MEGABIT)
    assert limiter.next_at == pytest.approx(half + wait_ns / 20, abs=1), "and back"


def test_a_flow_that_was_cut_to_nearly_nothing_goes_on_as_its_rate_rises() -> None:
    """At 1 Mbit/s a packet of 4 KiB takes 33 ms; the rate is back at half of the line's after 0.3 ms."""
    pair = RnicPair(RoceConfig(link_rate_bps=10_000_000_000, base_rtt_ns=12_000, parameters="nvidia", timeout=20))
    here, there = pair.connect()
    there.receive(bytearray(1 << 18), 0)
    request = here.send(bytes(1 << 18), 0)
    pair.run(lambda: here.requester.sent > 2)
    here.control.on_notification(pair.now)
    here.control.update(pair.now + 4_000)
    here.control.rate_bps = MEGABIT
    here.limiter.wait(pair.now, MEGABIT)
    pair.finish(request)
    assert pair.now < 2_000_000


def burst_after_a_wait(pair: RnicPair, *, full: bool) -> int:
    """Return how many packets leave at once at a quarter of the line's rate, when nobody has asked for any for 100 us
    since the turn was late or since (`full`) the NIC took none."""
    here, there = pair.connect()
    there.receive(bytearray(1 << 20), 0)
    here.send(bytes(1 << 20), 0)
    here.control.rate_bps = 10e9
    pair.first.transmit(0)  # up to the first packet that has to wait
    later = 100_000
    if full:
        pair.first.on_room(later)
    pair.first.handle_timer(later)
    return len(pair.first.transmit(later))


def test_what_a_full_nic_did_not_take_is_not_made_up_for() -> None:
    """In 100 us it might have sent 31 packets of 4 KiB: a late turn catches up with them, a pause has cost them."""
    config = RoceConfig(link_rate_bps=40_000_000_000, base_rtt_ns=20_000, parameters="paper", timeout=20)
    late = burst_after_a_wait(RnicPair(config), full=False)
    assert 28 <= late <= 34
    assert burst_after_a_wait(RnicPair(config), full=True) <= BURST_PACKETS + 1


def test_a_turn_that_is_late_after_a_pause_makes_up_for_itself_alone() -> None:
    limiter = RateLimiter(PATIENCE_NS)
    limiter.on_send(0, 1000, 1000 * MEGABIT)
    limiter.on_send(0, 1000, 1000 * MEGABIT)
    limiter.on_send(0, 1000, 1000 * MEGABIT)
    limiter.wait(0, 1000 * MEGABIT)
    limiter.go_on(1_000_000, 900_000, 1000, 1000 * MEGABIT)
    sent = 0
    while limiter.next_at <= 1_000_000:
        limiter.on_send(1_000_000, 1000, 1000 * MEGABIT)
        sent += 1
    assert 12 <= sent <= 14, "12.5 packets of 8 us in 100 us, and not those of the 900 us before"
