"""Connections over a wire: handshakes, losses and how they are repaired, time-outs, marks, windows, and ends."""

from itertools import pairwise
from random import Random

import pytest
from tcp_wire import HERE, MS, PORT, THERE, TcpWire, pattern

from testbed.protocols.errors import UsageError
from testbed.protocols.tcp.congestion.control import INITIAL_WINDOW
from testbed.protocols.tcp.connection import TcpState
from testbed.protocols.tcp.recovery import WindowState
from testbed.protocols.tcp.segment import ACK, ECE, FIN, RST, SYN
from testbed.protocols.tcp.stack import TcpStack

SECOND = 1000 * MS


def carried(wire: TcpWire, size: int, until_ns: int = 60 * SECOND) -> None:
    """Send so many bytes from here to there, and see that they arrive as they were."""
    data = pattern(size)
    wire.send(data)
    wire.run(until_ns, stop=lambda: len(wire.received[THERE]) >= size)
    assert bytes(wire.received[THERE]) == data


def test_three_segments_open_a_connection() -> None:
    wire = TcpWire()
    connection = wire.connect()
    wire.run(SECOND)
    assert connection.state is TcpState.ESTABLISHED
    assert wire.accepted[0].state is TcpState.ESTABLISHED
    assert [(one.source, one.segment.flags) for one in wire.sent] == [(HERE, SYN), (THERE, SYN | ACK), (HERE, ACK)]
    assert wire.sent[0].segment.mss == 1460
    assert connection.mss == 1448


def test_a_port_that_nobody_listens_at_refuses() -> None:
    wire = TcpWire()
    connection = wire.stacks[HERE].connect(20_001, THERE, PORT + 1, "cubic")
    wire.run(SECOND)
    assert (connection.state, connection.error) == (TcpState.CLOSED, "refused")
    with pytest.raises(UsageError, match="in use"):
        wire.stacks[THERE].listen(PORT, "cubic")


def test_bytes_arrive_both_ways_in_order() -> None:
    wire = TcpWire()
    wire.connect()
    wire.run(SECOND)
    there, back = pattern(2_000_000), pattern(300_000, seed=8)
    wire.send(there)
    wire.send(back, THERE)
    wire.run(20 * SECOND)
    assert bytes(wire.received[THERE]) == there
    assert bytes(wire.received[HERE]) == back
    assert all(one.sender.retransmitted_segments == 0 for one in (*wire.accepted, *wire._opened[HERE]))


def test_the_first_flight_is_ten_segments() -> None:
    wire = TcpWire(delay_ns=50 * MS)
    wire.connect()
    wire.send(pattern(200_000))
    wire.run(190 * MS)
    assert len(wire.data_segments()) == INITIAL_WINDOW


def test_acknowledgements_come_for_every_second_segment_or_after_40_ms() -> None:
    wire = TcpWire()
    wire.connect()
    carried(wire, 1448 * 400)
    acks = [one for one in wire.sent if one.source == THERE and not one.segment.flags & SYN]
    assert 200 <= len(acks) <= 240  # the first few segments are acknowledged each
    begin, count = wire.now, len(wire.sent)
    wire.send(pattern(1448))  # a full one alone: nothing follows it
    wire.run(begin + SECOND)
    answers = [one for one in wire.sent[count:] if one.source == THERE]
    assert len(answers) == 1
    arrived = wire.sent[count].at_ns + 5 * MS
    assert answers[0].at_ns - arrived == pytest.approx(40 * MS, abs=10 * MS)


@pytest.mark.interpreted
def test_a_segment_that_is_lost_is_sent_again_once_and_the_window_shrinks_by_three_tenths() -> None:
    wire = TcpWire(drop=lambda source, count, segment: source == HERE and count == 60)
    connection = wire.connect()
    seen: list[tuple[int, int]] = []
    real = connection.control.threshold_after_loss

    def watched() -> int:
        seen.append((connection.control.window, real()))
        return seen[-1][1]

    connection.control.threshold_after_loss = watched  # type: ignore[method-assign]
    carried(wire, 600_000)
    assert connection.sender.retransmitted_segments == 1
    assert connection.sender.timeouts == 0
    [(before, after)] = seen
    assert after == int(before * 717 / 1024)


def test_segments_out_of_order_are_told_in_blocks() -> None:
    wire = TcpWire(drop=lambda source, count, segment: source == HERE and count in (10, 12))
    wire.connect()
    carried(wire, 60_000)
    told = [one.segment.sack for one in wire.sent if one.source == THERE and one.segment.sack]
    assert told
    assert max(map(len, told)) == 2
    for blocks in told:
        assert all(first < end for first, end in blocks)


def test_a_lost_tail_is_found_by_a_probe_rather_than_by_a_time_out() -> None:
    # RFC 8985, section 7.2: after twice the round trip; where one segment alone is on its way, whose acknowledgement
    # may be late on purpose, after the time-out of a delayed acknowledgement, 200 ms in Linux
    for lost, most_ms in (((9, 10), 100), ((10,), 280)):
        wire = TcpWire(drop=lambda source, count, segment, lost=lost: source == HERE and count in lost)
        connection = wire.connect()
        carried(wire, 1448 * 10)
        assert (connection.sender.probes, connection.sender.timeouts) == (1, 0)
        assert wire.now < most_ms * MS


def test_time_outs_double() -> None:
    lost = []

    def drop(source: str, count: int, segment: object) -> bool:
        if source == HERE and count > 11 and wire.now < 5 * SECOND:
            lost.append(wire.now)
            return True
        return False

    wire = TcpWire(drop=drop)
    connection = wire.connect()
    carried(wire, 1448 * 20)
    gaps = [b - a for a, b in pairwise(lost) if b - a > 150 * MS]
    assert gaps[0] == pytest.approx(connection.rtt.least_ns + 200 * MS, rel=0.3)
    for before, after in pairwise(gaps):
        assert after == pytest.approx(2 * before, rel=0.02)
    assert connection.sender.timeouts >= 3


def test_the_window_begins_with_one_segment_after_a_time_out() -> None:
    wire = TcpWire(drop=lambda source, count, segment: source == HERE and 12 <= count < 40)
    connection = wire.connect()
    wire.send(pattern(1448 * 40))
    wire.run(20 * SECOND, stop=lambda: connection.sender.timeouts == 1)
    assert connection.sender.recovery.state is WindowState.LOSS
    assert connection.control.window == 1
    wire.run(60 * SECOND, stop=lambda: len(wire.received[THERE]) >= 1448 * 40)
    assert bytes(wire.received[THERE]) == pattern(1448 * 40)


def test_a_peer_that_is_gone_is_given_up() -> None:
    wire = TcpWire(drop=lambda source, count, segment: source == THERE and count > 3)
    connection = wire.connect()
    wire.send(pattern(100_000))
    wire.run(3600 * SECOND)
    assert (connection.state, connection.error) == (TcpState.CLOSED, "timed out")
    assert connection.sender.timeouts == 16


def test_a_syn_is_sent_seven_times() -> None:
    wire = TcpWire(drop=lambda source, count, segment: True)
    connection = wire.connect()
    wire.run(600 * SECOND)
    assert (connection.state, connection.error) == (TcpState.CLOSED, "timed out")
    times = [one.at_ns / SECOND for one in wire.sent]
    assert times == pytest.approx([0, 1, 3, 7, 15, 31, 63])


def test_the_window_begins_with_one_segment_where_two_syns_were_lost() -> None:
    # RFC 5681, section 3.1; Linux forgives the first (tcp_init_transfer)
    for lost, window in ((0, INITIAL_WINDOW), (1, INITIAL_WINDOW), (2, 1)):
        wire = TcpWire(drop=lambda source, count, segment, lost=lost: source == HERE and count < lost)
        connection = wire.connect()
        wire.run(10 * SECOND)
        assert connection.state is TcpState.ESTABLISHED
        assert connection.control.window == window


def test_a_spurious_time_out_is_undone() -> None:
    late = {"ns": 0}
    wire = TcpWire(late=lambda: late["ns"])
    connection = wire.connect()
    wire.send(pattern(400_000))
    wire.run(80 * MS)
    window = connection.control.window
    late["ns"] = 700 * MS
    wire.at.append((95 * MS, lambda: late.update(ns=0)))
    wire.run(20 * SECOND, stop=lambda: len(wire.received[THERE]) >= 400_000)
    assert bytes(wire.received[THERE]) == pattern(400_000)
    assert connection.control.window >= window // 2


def test_dctcp_keeps_the_queue_at_its_threshold() -> None:
    wire = TcpWire(congestion_control="dctcp", mark=lambda waiting: waiting >= 20, room=1000)
    connection = wire.connect()
    carried(wire, 12_000_000)
    assert connection.ecn
    assert connection.sender.marked_segments > 20
    assert (wire.dropped, connection.sender.retransmitted_segments) == (0, 0)
    # alpha has come down from 1, and the throughput is that of the line
    assert connection.control.state()["alpha"] < 0.5
    assert wire.now < 1.25 * 12_000_000 * 8 / 100e6 * SECOND
    assert any(one.segment.flags & ECE for one in wire.sent if one.source == THERE)


def test_cubic_fills_a_queue_and_is_told_by_its_losses() -> None:
    wire = TcpWire(room=60)
    connection = wire.connect()
    carried(wire, 8_000_000)
    assert wire.dropped > 0
    assert connection.sender.retransmitted_segments >= wire.dropped
    assert wire.now < 1.3 * 8_000_000 * 8 / 100e6 * SECOND


def test_what_nobody_reads_closes_the_window_and_opens_it_again() -> None:
    wire = TcpWire()
    connection = wire.connect()
    wire.reads = False
    data = pattern(500_000)
    wire.send(data)
    wire.run(20 * SECOND)
    waiting = wire.accepted[0].receiver.readable
    assert 60_000 < waiting <= 65_535
    assert connection.state is TcpState.ESTABLISHED
    wire.reads = True
    wire.run(60 * SECOND, stop=lambda: len(wire.received[THERE]) >= len(data))
    assert bytes(wire.received[THERE]) == data


def test_a_window_may_stay_closed_for_as_long_as_the_peer_answers() -> None:
    # RFC 9293, section 3.8.6.1: probes that are answered do not end a connection, however many there are
    wire = TcpWire()
    connection = wire.connect()
    wire.reads = False
    data = pattern(200_000)
    wire.send(data)
    wire.run(3000 * SECOND)
    assert (connection.state, connection.error) == (TcpState.ESTABLISHED, "")
    assert connection.rtt.rto_ns < SECOND  # that nobody reads says nothing of the path
    wire.reads = True
    wire.run(3400 * SECOND, stop=lambda: len(wire.received[THERE]) >= len(data))
    assert bytes(wire.received[THERE]) == data


def test_the_receiver_s_window_grows_with_what_is_read() -> None:
    wire = TcpWire(rate_bps=1_000_000_000, delay_ns=20 * MS, room=10_000)
    wire.connect()
    carried(wire, 10_000_000)
    assert wire.accepted[0].receiver.window_bytes > 1_000_000


def test_both_ends_close() -> None:
    wire = TcpWire()
    connection = wire.connect()
    carried(wire, 5000)
    wire.stacks[HERE].close(connection)
    wire.run(wire.now + SECOND)
    peer = wire.accepted[0]
    assert (connection.state, peer.state) == (TcpState.FIN_WAIT_2, TcpState.CLOSE_WAIT)
    wire.stacks[THERE].close(peer)
    wire.run(wire.now + SECOND)
    assert (connection.state, peer.state) == (TcpState.TIME_WAIT, TcpState.CLOSED)
    assert sum(bool(one.segment.flags & FIN) for one in wire.sent) == 2
    wire.run(wire.now + 70 * SECOND)
    assert connection.state is TcpState.CLOSED
    assert not connection.error


def test_a_loss_before_the_last_segment_is_seen_though_that_has_the_fin() -> None:
    lost: list[int] = []
    wire = TcpWire(drop=lambda source, count, segment: source == HERE and count in lost)
    connection = wire.connect()
    wire.run(SECOND)
    lost.append(wire.counts[HERE] + 2)
    data = pattern(1448 * 4)
    wire.stacks[HERE].write(connection, data)
    wire.stacks[HERE].close(connection)
    wire.run(wire.now + SECOND)
    assert wire.dropped == 1
    assert bytes(wire.received[THERE]) == data
    assert wire.accepted[0].state is TcpState.CLOSE_WAIT
    assert (connection.sender.probes, connection.sender.timeouts) == (0, 0)


def test_a_peer_with_an_earlier_connection_of_the_same_ends_is_told() -> None:
    # RFC 9293, section 3.5.1: its answer acknowledges what the SYN was not, and is answered by a reset
    wire = TcpWire()
    wire.connect()
    carried(wire, 5000)
    wire.stacks[HERE] = TcpStack(HERE, Random(99), mtu_bytes=1500)  # it was started anew
    connection = wire.connect()
    wire.run(wire.now + 5 * SECOND)
    assert wire.accepted[0].error == "reset"
    assert connection.state is wire.accepted[1].state is TcpState.ESTABLISHED


def test_a_reset_ends_both() -> None:
    wire = TcpWire()
    connection = wire.connect()
    carried(wire, 5000)
    wire.stacks[HERE].abort(connection)
    wire.run(wire.now + SECOND)
    peer = wire.accepted[0]
    assert (peer.state, peer.error) == (TcpState.CLOSED, "reset")
    assert wire.sent[-1].segment.flags & RST
    assert wire.stacks[HERE].is_free(20_000, THERE, PORT)


def test_a_blind_reset_is_challenged() -> None:
    # RFC 5961, section 3: only one at the very next number is believed
    from testbed.protocols.datagram import Incoming
    from testbed.protocols.tcp.segment import TcpSegment, encode_header

    wire = TcpWire()
    connection = wire.connect()
    carried(wire, 5000)
    wrong = TcpSegment(PORT, 20_000, (connection.receiver.next + 1000) % (1 << 32), 0, RST, 0)
    wire.stacks[HERE].receive((Incoming(THERE, 0, encode_header(wrong)),), wire.now)
    assert connection.state is TcpState.ESTABLISHED
    assert connection.receiver.ack_now


def test_connections_take_turns() -> None:
    wire = TcpWire()
    first, second = wire.connect(20_000), wire.connect(20_001)
    wire.run(SECOND)
    for one in (first, second):
        wire.stacks[HERE].write(one, pattern(14_480))
    begin = len(wire.sent)
    wire.run(wire.now + 3 * MS)
    ports = [one.segment.source_port for one in wire.sent[begin:] if one.source == HERE]
    assert ports[:8] == [20_000, 20_000, 20_001, 20_001] * 2


def test_the_same_seed_gives_the_same_segments() -> None:
    def trace() -> list[tuple[int, str, int]]:
        source = Random(5)
        wire = TcpWire(drop=lambda *_: source.random() < 0.02)
        wire.connect()
        wire.send(pattern(300_000))
        wire.run(10 * SECOND)
        return [(one.at_ns, one.source, one.segment.sequence) for one in wire.sent]

    assert trace() == trace()
