"""Two ends of a carried connection, and messages that overtake each other: every byte arrives once and in order, no
end keeps more than its window, and both are closed in the end."""

from ipaddress import IPv4Address
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.run.carrier.frames import HEADER_BYTES, ConnectionEnds, decode
from testbed.run.carrier.protocol import (
    CREDITS_PER_WINDOW,
    LEAST_COST,
    CarriedConnection,
    ConnectionLimits,
    ConnectionState,
    accept_connection,
    open_connection,
)

ENDS = ConnectionEnds(IPv4Address("10.0.1.2"), 40_000, IPv4Address("10.0.2.2"), 5201)
windows = st.integers(4096, 20_000)


class End:
    """A connection with a program that writes `to_send` in pieces, and takes what comes."""

    def __init__(self, connection: CarriedConnection, to_send: bytes, window: int) -> None:
        self.connection = connection
        self.left = to_send
        self.window = window
        self.taken = b""
        self.kept = 0

    def write(self, size: int) -> list[bytes]:
        size = min(size, self.connection.room, len(self.left))
        if not size:
            if not self.left and self.connection.state is ConnectionState.OPEN:
                self.connection.read_end()
            return self.connection.take_frames()
        room = bytearray(HEADER_BYTES) + self.left[:size]
        self.left = self.left[size:]
        return [bytes(self.connection.read(room, size)), *self.connection.take_frames()]

    def take(self, size: int) -> list[bytes]:
        data = self.connection.to_write
        if data is not None:
            some = data[:size]
            self.taken += some
            self.kept -= len(some)
            self.connection.written(len(some))
        if self.connection.end_due:
            self.connection.write_end()
        return self.connection.take_frames()

    def hear(self, message: bytes) -> list[bytes]:
        frame = decode(message)
        self.kept += len(frame.data)
        assert self.kept <= self.window
        self.connection.on_frame(frame, 0)
        return self.connection.take_frames()


@given(
    lengths=st.tuples(st.integers(0, 60_000), st.integers(0, 60_000)),
    sizes=st.tuples(windows, windows),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=60, deadline=None)
def test_what_one_program_writes_the_other_reads(lengths: tuple[int, int], sizes: tuple[int, int], seed: int) -> None:
    random = Random(seed)
    choose = random.randrange
    sent = (random.randbytes(lengths[0]), random.randbytes(lengths[1]))
    limits = [
        ConnectionLimits(window_bytes=size, data_bytes=max(LEAST_COST, size // CREDITS_PER_WINDOW), patience_ns=1)
        for size in sizes
    ]
    opener = open_connection(1, ENDS, limits[0], 0)
    (asking,) = opener.take_frames()
    other = accept_connection(decode(asking), limits[1])
    other.connected()
    ends = [End(opener, sent[0], sizes[0]), End(other, sent[1], sizes[1])]
    wires: list[list[bytes]] = [[], other.take_frames()]
    for _ in range(100_000):
        if all(end.connection.state is ConnectionState.CLOSED for end in ends) and not any(wires):
            break
        side = choose(2)
        end, wire, incoming = ends[side], wires[side], wires[1 - side]
        match choose(3):
            case 0:
                wire += end.write(1 + choose(6000))
            case 1:
                wire += end.take(1 + choose(6000))
            case _ if incoming:
                wire += end.hear(incoming.pop(choose(len(incoming))))
    assert not any(end.connection.was_reset for end in ends), [end.connection.error for end in ends]
    assert [end.connection.state for end in ends] == [ConnectionState.CLOSED] * 2
    assert (ends[1].taken, ends[0].taken) == sent
