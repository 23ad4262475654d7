"""Bytes of anybody's making: decoders raise `DecodeError` or give a segment, and a stack takes everything, raises
nothing, and delivers no byte that it was not sent in its window.

TESTBED_FUZZ_CASES sets how many cases each test has (20,000 by default, a few seconds).
"""

import os
from random import Random

import pytest
from tcp_wire import HERE, MS, PORT, THERE, TcpWire, pattern

from testbed.protocols.datagram import Incoming
from testbed.protocols.errors import DecodeError
from testbed.protocols.tcp.connection import TcpState
from testbed.protocols.tcp.receiver import MOST_RECEIVE_WINDOW
from testbed.protocols.tcp.segment import ACK, RST, TcpSegment, decode_segment, encode_header

CASES = int(os.environ.get("TESTBED_FUZZ_CASES", "20000"))
WORD = 1 << 32


def test_any_bytes_are_a_segment_or_none() -> None:
    source = Random(1)
    for _ in range(CASES):
        data = bytearray(source.randbytes(source.randrange(90)))
        if len(data) > 12 and source.random() < 0.8:
            data[12] = source.randrange(5, 16) << 4
        try:
            segment = decode_segment(bytes(data))
        except DecodeError:
            continue
        again = decode_segment(encode_header(segment) + segment.payload)
        assert (again.sequence, again.ack, again.flags, again.payload) == (
            segment.sequence,
            segment.ack,
            segment.flags,
            segment.payload,
        )


def hostile(source: Random, wire: TcpWire, near: list[int]) -> bytes:
    """A segment with numbers near those that the connection goes by, and anything else."""

    def number() -> int:
        return (source.choice(near) + source.choice((0, 0, 1, -1, source.randrange(-70_000, 70_000)))) % WORD

    segment = TcpSegment(
        PORT, source.choice((20_000, 20_000, 20_000, 20_001)), number(), number(), source.randrange(256),
        source.randrange(1 << 16), source.randbytes(source.choice((0, 0, 1, 100, 1448, 9000))),
    )  # fmt: skip
    if source.random() < 0.7:
        segment.flags |= ACK
    if source.random() < 0.98:  # one at the very next number ends the connection, and the case
        segment.flags &= ~RST
    if source.random() < 0.7:
        segment.has_timestamps = True
        segment.tsval, segment.tsecr = (
            source.randrange(WORD),
            source.choice((0, wire.now // MS, source.randrange(WORD))),
        )
    if source.random() < 0.4:
        segment.sack = tuple((number(), number()) for _ in range(source.randrange(1, 4)))
    data = encode_header(segment) + segment.payload
    if source.random() < 0.1:
        data = data[: source.randrange(len(data))]
    return data


@pytest.mark.parametrize("control", ["cubic", "dctcp"])
def test_a_stack_takes_whatever_comes(control) -> None:
    source = Random(control)
    lives = 0
    for case in range(max(1, CASES // 400)):
        wire = TcpWire(congestion_control=control, seed=case)
        connection = wire.connect()
        wire.send(pattern(400_000, case))
        wire.run(source.randrange(12, 200) * MS)
        stack = wire.stacks[HERE]
        for _ in range(400):
            sender, receiver = connection.sender, connection.receiver
            near = [sender.unacknowledged, sender.next, receiver.next, source.randrange(WORD)]
            incoming = Incoming(THERE, 0, hostile(source, wire, near), ce=source.random() < 0.3)
            stack.receive((incoming,), wire.now)
            if source.random() < 0.3:
                wire.now += source.randrange(50 * MS)
            timer = stack.next_timer()
            if timer is not None and timer <= wire.now:
                stack.handle_timer(wire.now)
            for outgoing in stack.transmit(wire.now, source.randrange(1, 8)):
                decode_segment(outgoing.to_bytes())
            assert receiver.readable <= MOST_RECEIVE_WINDOW
            assert sender.unacknowledged <= sender.next
            assert sender.flight.in_flight >= 0
            assert sender.control.window >= 1
            while receiver.readable:
                assert receiver.read(1 << 16)
        lives += connection.state is not TcpState.CLOSED
    assert lives  # not every case was over with the first reset


def test_a_listener_is_not_filled_by_handshakes_that_never_end() -> None:
    from testbed.protocols.tcp.segment import SYN
    from testbed.protocols.tcp.stack import MOST_BACKLOG

    wire = TcpWire()
    stack = wire.stacks[THERE]
    for number in range(MOST_BACKLOG + 500):
        segment = TcpSegment(1024 + number % 60_000, PORT, number, 0, SYN, 1000)
        stack.receive((Incoming(f"10.9.{number >> 16}.{number >> 8 & 255}", 0, encode_header(segment)),), 0)
    assert wire.listener.waiting == MOST_BACKLOG
