"""What an endpoint is asked for follows the queue of its NIC."""

import time
from contextlib import ExitStack

import pytest
from agent_io_fakes import FakeEndpoint, datagram, own_address

from testbed.endpoints.loop import Loop
from testbed.endpoints.pacing import AHEAD_PACKETS, Pacer
from testbed.endpoints.sockets import SocketConfig, SocketGroup
from testbed.protocols.datagram import NIC_PACKETS, Priority

PACKET = 1000 - 42
"""With what is below UDP: a microsecond on a line of 8 Gbit/s."""
RATE_BPS = 8 * 10**9
US = 1000


def test_an_idle_nic_takes_some_packets_and_asks_again_when_half_are_gone() -> None:
    pacer = Pacer(RATE_BPS, PACKET)
    assert pacer.room(50 * US) == AHEAD_PACKETS and pacer.next_due() is None
    pacer.sent([datagram("10.0.0.1", size=PACKET)] * AHEAD_PACKETS, 50 * US)
    pacer.held_back = True
    assert pacer.room(50 * US) == 0
    due = pacer.next_due()
    assert due == pytest.approx((50 + AHEAD_PACKETS / 2) * US, abs=2)
    assert due is not None and pacer.room(due) == AHEAD_PACKETS // 2


@pytest.mark.parametrize(
    ("packet_us", "tick_us", "ahead"),
    [
        (1, 0, 8),
        (1_680, 0, 8),
        (3_350, 0, 5),
        (3_350, 2_400, 6),
        (6_710, 0, 3),
        (6_710, 2_400, 3),
        (6_710, 7_200, 5),
        (13_400, 0, 2),
        (100_000, 2_400, 2),
    ],
)
def test_a_slow_line_is_given_no_more_than_keeps_it_busy_while_a_turn_is_late(
    packet_us: int, tick_us: int, ahead: int
) -> None:
    """Half of it is there when the endpoint is asked again: for a tick and 5 ms more, which timers are late in valid
    runs."""
    pacer = Pacer(RATE_BPS // packet_us, PACKET, tick_us * US)
    assert pacer.room(0) == ahead
    pacer.sent([datagram("10.0.0.1", size=PACKET)] * ahead, 0)
    pacer.held_back = True
    due = pacer.next_due()
    assert due == pytest.approx(ahead / 2 * packet_us * US, rel=0.001, abs=2)
    assert packet_us == 1 or ahead * packet_us * US - due > (tick_us + 5_000) * US
    assert pacer.room(due) in (ahead // 2, -(-ahead // 2)) and pacer.room(ahead * packet_us * US + US) == ahead


def test_what_the_line_did_not_use_is_gone() -> None:
    pacer = Pacer(RATE_BPS, PACKET)
    pacer.sent([datagram("10.0.0.1", size=PACKET)], 0)
    pacer.sent([datagram("10.0.0.1", size=PACKET)] * AHEAD_PACKETS, 1000 * US)
    assert pacer.room(1000 * US) == 0
    assert pacer.room((1000 + AHEAD_PACKETS) * US) == AHEAD_PACKETS


@pytest.mark.parametrize(("rate_bps", "packet_bytes"), [(0, 1000), (10**9, 0), (-1, 1000)])
def test_no_rate_and_no_size(rate_bps: int, packet_bytes: int) -> None:
    with pytest.raises(ValueError, match="have a size"):
        Pacer(rate_bps, packet_bytes)


def test_the_loop_keeps_to_the_rate_and_lets_acknowledgements_pass() -> None:
    rate_bps, count = 80 * 10**6, 200  # 0.1 ms for each packet
    with ExitStack() as cleanup:
        loop = Loop()
        cleanup.callback(loop.close)
        sockets = [SocketGroup(own_address(), SocketConfig(trimmed=False)) for _ in range(2)]
        for item in sockets:
            cleanup.callback(item.close)
        sender, receiver = (FakeEndpoint(item.address) for item in sockets)
        loop.add(sender, sockets[0], pacer=Pacer(rate_bps, PACKET))
        loop.add(receiver, sockets[1])
        sender.outbox = [datagram(receiver.address, number, PACKET) for number in range(count)]
        began = time.monotonic_ns()
        loop.run_once(began)
        urgent = datagram(receiver.address, 1000, PACKET, priority=Priority.CONTROL)
        sender.outbox.insert(0, urgent)
        loop.touch()
        while len(receiver.inbox) < count + 1:
            assert time.monotonic_ns() < began + 5 * 10**9, f"{len(receiver.inbox)} came"
            loop.run_once(time.monotonic_ns() + 10**8)
        numbers = [int.from_bytes(item.data[:4]) for item in receiver.inbox]
        assert sorted(numbers) == [*range(count), 1000]
        assert numbers.index(1000) <= 2 * AHEAD_PACKETS
        # The last of them may still be in the NIC, and a late turn of this loop only makes it longer.
        assert receiver.received_at[-1] - began >= (count - AHEAD_PACKETS) * PACKET * 8e9 / rate_bps * 0.95
        assert sender.pulls < count


@pytest.mark.parametrize(
    ("gathers", "rate_bps", "sent"), [(False, 8 * 10**6, AHEAD_PACKETS), (True, 8 * 10**6, 50), (False, 8 * 10**5, 8)]
)
def test_small_packets_leave_many_at_a_time_where_the_loop_gathers(gathers: bool, rate_bps: int, sent: int) -> None:
    """A packet of 58 bytes takes 58 us or 0.58 ms, a full one 1 or 10 ms."""
    with ExitStack() as cleanup:
        loop = Loop()
        cleanup.callback(loop.close)
        sockets = SocketGroup(own_address(), SocketConfig(trimmed=False))
        cleanup.callback(sockets.close)
        loop.set_tick(0, gathers=gathers)
        endpoint = FakeEndpoint(sockets.address)
        endpoint.outbox = [datagram(sockets.address, number, 16) for number in range(200)]
        loop.add(endpoint, sockets, pacer=Pacer(rate_bps, PACKET))
        loop.serve()
        assert 200 - len(endpoint.outbox) == sent


@pytest.mark.parametrize(
    ("packet_bytes", "truesize"), [(1_082, 2_304), (2_106, 4_352), (4_154, 8_448), (8_250, 16_640)]
)
def test_the_send_buffer_has_room_for_what_may_wait_in_a_nic(packet_bytes: int, truesize: int) -> None:
    """What the kernel counts of a packet, as `SIOCOUTQ` showed it on 6.18."""
    assert 2 * Pacer.buffer_bytes(packet_bytes) == NIC_PACKETS * truesize
    assert NIC_PACKETS > AHEAD_PACKETS, "a NIC that is not paused takes all that it is given"
