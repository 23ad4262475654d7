"""Scoreboards, probes and reductions, one acknowledgement at a time: what is undone, and what counts as come twice."""

from tcp_wire import HERE, MS, PORT, THERE, TcpWire, pattern

from testbed.protocols.datagram import Incoming
from testbed.protocols.tcp.congestion.control import TcpControl
from testbed.protocols.tcp.congestion.dctcp import Dctcp
from testbed.protocols.tcp.connection import TcpConnection
from testbed.protocols.tcp.flight import Flight, SentSegment
from testbed.protocols.tcp.rack import Rack
from testbed.protocols.tcp.receiver import TcpReceiver
from testbed.protocols.tcp.recovery import AckNews, WindowRecovery, WindowState
from testbed.protocols.tcp.rto import RttEstimator
from testbed.protocols.tcp.segment import ACK, FIN, WORD, TcpSegment, decode_segment, encode_header
from testbed.protocols.tcp.sender import TcpSender

SECOND = 1000 * MS


def settled() -> tuple[TcpWire, TcpConnection]:
    """A connection over which bytes have gone, of which all are acknowledged."""
    wire = TcpWire()
    connection = wire.connect()
    wire.send(pattern(20_000))
    wire.run(SECOND)
    assert connection.sender.acked_bytes == 20_000
    return wire, connection


def told(wire: TcpWire, connection: TcpConnection, segment: TcpSegment) -> None:
    """Have a segment from there arrive here."""
    wire.stacks[HERE].receive((Incoming(THERE, 0, encode_header(segment) + segment.payload),), wire.now)


def test_a_reduction_for_marks_stays_where_a_loss_was_none() -> None:
    control, flight = Dctcp(), Flight()
    control.window = 40
    recovery = WindowRecovery(control, flight, Rack())
    segments = [SentSegment(number, number + 1, b"", 0, 0) for number in range(10)]
    for segment in segments:
        flight.add(segment)
    recovery.enter_cwr(10)
    flight.on_lost(segments[0])
    news = AckNews()
    news.sacked = 3
    recovery.on_ack(news, 0, 10)
    assert recovery.state is WindowState.RECOVERY
    assert control.threshold == 20
    flight.on_retransmitted(segments[0], 5 * MS)
    recovery.on_retransmitted(5 * MS)
    assert len(list(flight.acknowledge(5))) == 5
    news = AckNews()
    news.acked, news.advanced, news.echoed_ns = 5, True, 0  # the first copy's timestamp
    recovery.on_ack(news, 5, 10)
    assert recovery.state is WindowState.OPEN
    assert control.threshold == 20


def test_a_loss_that_was_none_is_undone() -> None:
    control, flight = TcpControl(), Flight()
    control.window, control.threshold = 40, 30
    recovery = WindowRecovery(control, flight, Rack())
    segments = [SentSegment(number, number + 1, b"", 0, 0) for number in range(10)]
    for segment in segments:
        flight.add(segment)
    flight.on_lost(segments[0])
    news = AckNews()
    news.sacked = 3
    recovery.on_ack(news, 0, 10)
    assert control.threshold == 20
    flight.on_retransmitted(segments[0], 5 * MS)
    recovery.on_retransmitted(5 * MS)
    assert len(list(flight.acknowledge(5))) == 5
    news = AckNews()
    news.acked, news.advanced, news.echoed_ns = 5, True, 0
    recovery.on_ack(news, 5, 10)
    assert (control.window, control.threshold) == (40, 30)


def test_an_acknowledgement_that_was_overtaken_tells_of_nothing_that_came_twice() -> None:
    # RFC 2883, section 4.1: a block is compared with the acknowledgement that it is in
    wire, connection = settled()
    sender, receiver = connection.sender, connection.receiver
    end = sender.unacknowledged
    for ack, block, count in ((end - 5000, (end - 3000, end - 1000), 0), (end, (end - 3000, end - 1000), 1)):
        segment = TcpSegment(PORT, 20_000, receiver.next % WORD, ack % WORD, ACK, 500)
        segment.sack = ((block[0] % WORD, block[1] % WORD),)
        told(wire, connection, segment)
        assert sender.duplicate_sacks == count


def test_a_late_copy_does_not_turn_the_echoed_timestamp_back() -> None:
    # RFC 7323, section 4.3
    wire, connection = settled()
    segment = TcpSegment(
        PORT, 20_000, (connection.receiver.next - 1) % WORD, connection.sender.unacknowledged % WORD, ACK, 500, b"x"
    )
    segment.has_timestamps, segment.tsval = True, 1
    told(wire, connection, segment)
    [answer] = wire.stacks[HERE].transmit(wire.now, 1)
    assert decode_segment(answer.to_bytes()).tsecr > 1


def test_what_is_lost_is_sent_where_a_probe_has_nothing_to_send() -> None:
    rtt = RttEstimator()
    rtt.sample(10 * MS, 1, 1)
    sender = TcpSender(1, 1000, TcpControl(), rtt)
    sender.on_window(1 + 100_000)
    sender.write(bytes(4000))
    for _ in range(4):
        assert sender.next_segment(0) is not None
    due = sender.due_ns()
    assert due == 22 * MS
    sender.on_timer(due)
    # the line was busy, and the last segment has arrived before the probe could leave
    sender.on_ack(1, ((1001, 4001),), due + 1, marked=False, echoed_ns=-1, dup=True)
    again = sender.next_segment(due + 2)
    assert again.first == 1
    assert sender.retransmitted_segments == 1


def test_a_fin_out_of_order_belongs_to_the_block_before_it() -> None:
    receiver = TcpReceiver(100, 1448)
    receiver.on_segment(110, TcpSegment(1, 2, 0, 0, ACK, 0, b"tail"), False, False, 0)
    assert receiver.sack_blocks() == ((110, 114),)
    receiver.on_segment(114, TcpSegment(1, 2, 0, 0, ACK | FIN, 0), False, True, 0)
    assert receiver.sack_blocks() == ((110, 115),)  # and nothing has come twice
    receiver.on_segment(100, TcpSegment(1, 2, 0, 0, ACK, 0, b"0123456789"), False, False, 0)
    assert (receiver.next, receiver.finished, receiver.sack_blocks()) == (115, True, ())
