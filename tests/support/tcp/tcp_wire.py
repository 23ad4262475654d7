"""Two stacks of TCP and the wire between them: a bottleneck with a queue each way, under a clock of its own."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.tcp.connection import TcpConnection
from testbed.protocols.tcp.segment import TcpSegment, decode_segment
from testbed.protocols.tcp.stack import TcpStack

MS = 1_000_000
HERE, THERE = "10.0.0.1", "10.0.0.2"
PORT = 18_515
BELOW_BYTES = 34


@dataclass
class Sent:
    """A segment as it was put on the wire."""

    at_ns: int
    source: str
    segment: TcpSegment


@dataclass
class Way:
    """One direction."""

    waiting: deque[Incoming] = field(default_factory=deque)
    free_ns: int = 0
    host_free_ns: int = 0


class TcpWire:
    """Each host sends at ten times the rate of the bottleneck, whose queue holds `room` segments and drops the rest.

    `drop(source, count, segment)` loses a segment, of which `count` that source has sent before; `mark(waiting)` says
    whether one is marked that finds so many in the queue; `late` gives what a segment takes longer, in ns.
    """

    def __init__(
        self,
        *,
        rate_bps: int = 100_000_000,
        delay_ns: int = 5 * MS,
        room: int = 1000,
        mtu_bytes: int = 1500,
        congestion_control: str = "cubic",
        drop: Callable[[str, int, TcpSegment], bool] = lambda source, count, segment: False,
        mark: Callable[[int], bool] = lambda waiting: False,
        late: Callable[[], int] = lambda: 0,
        twice: Callable[[], bool] = lambda: False,
        seed: int = 1,
    ) -> None:
        self.now = 0
        self.rate_bps, self.delay_ns, self.room = rate_bps, delay_ns, room
        self.congestion_control = congestion_control
        self.stacks = {
            address: TcpStack(address, Random(f"{seed} {address}"), mtu_bytes=mtu_bytes) for address in (HERE, THERE)
        }
        self.sent: list[Sent] = []
        self.counts = dict.fromkeys(self.stacks, 0)
        self.dropped = 0
        self.received: dict[str, bytearray] = {address: bytearray() for address in self.stacks}
        self.accepted: list[TcpConnection] = []
        self.reads = True
        self.at: list[tuple[int, Callable[[], None]]] = []
        """What is called when its time has come, once."""
        self._drop, self._mark, self._late, self._twice = drop, mark, late, twice
        self._ways = {address: Way() for address in self.stacks}
        self._events: list[tuple[int, int, str, Incoming | None]] = []
        self._number = 0
        self._pending: dict[str, bytearray] = {address: bytearray() for address in self.stacks}
        self._opened: dict[str, list[TcpConnection]] = {address: [] for address in self.stacks}
        self.listener = self.stacks[THERE].listen(PORT, congestion_control)

    def connect(self, port: int = 20_000) -> TcpConnection:
        found = self.stacks[HERE].connect(port, THERE, PORT, self.congestion_control)
        self._opened[HERE].append(found)
        return found

    def send(self, data: bytes, source: str = HERE) -> None:
        """Have the last connection of a host send these bytes as it takes them."""
        self._pending[source] += data

    def _serve(self) -> None:
        while self.listener.accepted:
            connection = self.listener.accepted.popleft()
            self.accepted.append(connection)
            self._opened[THERE].append(connection)
        for address, stack in self.stacks.items():
            while stack.changed:
                stack.changed.popleft().noted = False
            for connection in self._opened[address]:
                pending = self._pending[address]
                if pending and connection.is_open and connection is self._opened[address][-1]:
                    count = stack.write(connection, bytes(pending[:65_536]))
                    del pending[:count]
                if self.reads and connection.receiver.readable:
                    while data := connection.receiver.read(1 << 16):
                        self.received[address] += data
                    stack.on_read(connection, self.now)

    def run(self, until_ns: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Go on up to a time, or until `stop` is true."""
        while self.now <= until_ns and not stop():
            self._serve()
            self._pull()
            due = self._next()
            if due is None or due > until_ns:
                self.now = max(self.now, until_ns)
                return
            self.now = max(self.now, due)
            while self.at and self.at[0][0] <= self.now:
                self.at.pop(0)[1]()
            while self._events and self._events[0][0] <= self.now:
                _, _, address, incoming = heappop(self._events)
                if incoming is not None:
                    self.stacks[address].receive((incoming,), self.now)
            for stack in self.stacks.values():
                timer = stack.next_timer()
                if timer is not None and timer <= self.now:
                    stack.handle_timer(self.now)

    def _next(self) -> int | None:
        times = [self._events[0][0]] if self._events else []
        times += [timer for stack in self.stacks.values() if (timer := stack.next_timer()) is not None]
        times += [self.at[0][0]] if self.at else []
        return min(times, default=None)

    def _pull(self) -> None:
        for address, stack in self.stacks.items():
            way = self._ways[address]
            while way.host_free_ns <= self.now:
                found = stack.transmit(self.now, 1)
                if not found:
                    break
                self._put(address, way, found[0])

    def _put(self, source: str, way: Way, outgoing: Outgoing) -> None:
        data = outgoing.to_bytes()
        segment = decode_segment(data)
        self.sent.append(Sent(self.now, source, segment))
        count = self.counts[source]
        self.counts[source] += 1
        size = len(data) + BELOW_BYTES
        way.host_free_ns = self.now + size * 8 * 10**9 // (10 * self.rate_bps)
        self._wake(source, way.host_free_ns)
        if self._drop(source, count, segment):
            self.dropped += 1
            return
        waiting = max(0, way.free_ns - self.now) * self.rate_bps // (8 * 10**9 * size)
        if waiting >= self.room:
            self.dropped += 1
            return
        way.free_ns = max(way.free_ns, self.now) + size * 8 * 10**9 // self.rate_bps
        marked = outgoing.priority == 0 and self._mark(waiting)
        incoming = Incoming(source, outgoing.entropy, data, ce=marked)
        for _ in range(2 if self._twice() else 1):
            self._wake(outgoing.remote, way.free_ns + self.delay_ns + self._late(), incoming)

    def _wake(self, address: str, at_ns: int, incoming: Incoming | None = None) -> None:
        self._number += 1
        heappush(self._events, (at_ns, self._number, address, incoming))

    def data_segments(self, source: str = HERE) -> list[Sent]:
        return [one for one in self.sent if one.source == source and one.segment.payload]


def pattern(size: int, seed: int = 7) -> bytes:
    """Bytes that are not alike anywhere."""
    return Random(seed).randbytes(size)
