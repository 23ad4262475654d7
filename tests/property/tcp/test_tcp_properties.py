"""Whatever a wire does to segments, each byte arrives once, in its order, and nobody's account goes wrong."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tcp_wire import HERE, MS, THERE, TcpWire, pattern

from testbed.protocols.tcp.congestion.registry import TCP_CONTROLS
from testbed.protocols.tcp.connection import TcpConnection

SECOND = 1000 * MS


def check_accounts(connection: TcpConnection) -> None:
    """The counts of the scoreboard are those of its segments, whose numbers follow each other."""
    sender = connection.sender
    flight = sender.flight
    assert flight.sacked == sum(one.sacked for one in flight.segments)
    assert flight.lost == sum(one.lost for one in flight.segments)
    assert flight.retransmitted == sum(one.retransmitted for one in flight.segments)
    assert 0 <= flight.in_flight <= flight.sent + flight.retransmitted
    assert sender.unacknowledged <= sender.next
    place = sender.unacknowledged
    for segment in flight.segments:
        assert segment.first == place
        place = segment.end
    assert place == sender.next
    assert sender.control.window >= 1


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1 << 30),
    loss=st.floats(0, 0.15),
    twice=st.floats(0, 0.1),
    late=st.floats(0, 0.3),
    room=st.integers(4, 200),
    back=st.booleans(),
    control=st.sampled_from(sorted(TCP_CONTROLS)),
    there=st.integers(1, 200_000),
    sent_back=st.integers(0, 60_000),
)
def test_each_byte_arrives_once_and_in_order(seed, loss, twice, late, room, back, control, there, sent_back) -> None:
    source = Random(seed)
    wire = TcpWire(
        room=room,
        congestion_control=control,
        seed=seed,
        drop=lambda address, count, segment: (back or address == HERE) and source.random() < loss,
        twice=lambda: source.random() < twice,
        late=lambda: source.randrange(20 * MS) if source.random() < late else 0,
        mark=lambda waiting: waiting > 10,
    )
    connection = wire.connect()
    data, answer = pattern(there, seed), pattern(sent_back, seed + 1)
    wire.send(data)
    wire.send(answer, THERE)

    def done() -> bool:
        check_accounts(connection)
        return len(wire.received[THERE]) >= there and len(wire.received[HERE]) >= sent_back

    wire.run(4000 * SECOND, stop=done)

    assert bytes(wire.received[THERE]) == data
    assert bytes(wire.received[HERE]) == answer
    for one in (connection, *wire.accepted):
        check_accounts(one)
    # all is acknowledged in the end, and nothing is left that would be sent again
    wire.run(wire.now + 400 * SECOND)
    assert connection.sender.acked_bytes == there
    assert not connection.sender.flight.sent


@pytest.mark.parametrize("control", sorted(TCP_CONTROLS))
def test_flows_share_a_port(control) -> None:
    """Four flows through one port get about as much each, and together all of it."""
    wire = TcpWire(room=80, congestion_control=control, mark=lambda waiting: waiting > 20)
    connections = [wire.connect(20_000 + number) for number in range(4)]
    wire.run(SECOND)
    size = 3_000_000
    data = pattern(size)
    left = dict.fromkeys(connections, 0)

    def feed() -> bool:
        for one in connections:
            if one.is_open and left[one] < size:
                left[one] += wire.stacks[HERE].write(one, data[left[one] : left[one] + 65_536])
        return all(one.sender.acked_bytes >= size for one in connections)

    begin = wire.now
    wire.run(60 * SECOND, stop=feed)
    assert all(one.sender.acked_bytes == size for one in connections)
    assert wire.now - begin < 1.3 * 4 * size * 8 / 100e6 * SECOND
