"""A host's TCP at one address: connections by their ports, listeners, and whose turn it is to send.

It is an endpoint as the simulator has them (`protocols.simulation.Endpoint`). Connections take turns, two
segments each, as Linux' small queues (tcp_small_queue_check) have them do on a slow line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random
from typing import Final

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.tcp.congestion.registry import make_tcp_control
from testbed.protocols.tcp.connection import TcpConnection, TcpState
from testbed.protocols.tcp.rto import MIN_RTO_NS
from testbed.protocols.tcp.segment import ACK, FIN, RST, SYN, WORD, TcpSegment, decode_segment, encode_header

MOST_BACKLOG: Final = 4096
"""Connections of a listener that nobody has accepted."""
PORT_SHIFT: Final = 16
SEGMENTS_IN_TURN: Final = 2
"""Segments that a connection may have in the queue of a slow NIC (tcp_small_queue_check), one behind the other."""


class TcpListener:
    """A port at which connections are accepted; `accepted` are those that wait for it."""

    def __init__(self, port: int, congestion_control: str) -> None:
        self.port = port
        self.congestion_control = congestion_control
        self.accepted: deque[TcpConnection] = deque()
        self.waiting = 0
        """Handshakes that are not over."""
        self.noted = False


class TcpStack:
    """`changed` are connections and listeners that the application has yet to look at.

    `min_rto_ns` is the floor of time-outs.
    """

    def __init__(self, address: str, random: Random, *, mtu_bytes: int, min_rto_ns: int = MIN_RTO_NS) -> None:
        self.address = address
        self.mtu_bytes = mtu_bytes
        self.changed: deque[TcpConnection | TcpListener] = deque()
        self.malformed = 0
        """Datagrams that were no segments."""
        self.strangers = 0
        """Segments of no connection, which were answered by a reset."""
        self._random = random
        self._min_rto_ns = min_rto_ns
        self._connections: dict[tuple[str, int, int], TcpConnection] = {}
        self._listeners: dict[int, TcpListener] = {}
        self._opening: dict[TcpConnection, TcpListener] = {}
        self._urgent: deque[TcpConnection] = deque()
        self._ready: deque[TcpConnection] = deque()
        self._resets: deque[Outgoing] = deque()
        self._timers: list[tuple[int, int, TcpConnection]] = []
        self._sequence = 0

    # --- the application ---------------------------------------------------------------------------------

    def listen(self, port: int, congestion_control: str) -> TcpListener:
        """Accept connections at a port from now on. Raises `UsageError` where somebody does already."""
        if port in self._listeners:
            raise UsageError(f"port {port} of {self.address} is in use")
        make_tcp_control(congestion_control)
        listener = self._listeners[port] = TcpListener(port, congestion_control)
        return listener

    def unlisten(self, listener: TcpListener) -> None:
        """Accept no more; what was not accepted is let go of."""
        if self._listeners.get(listener.port) is listener:
            del self._listeners[listener.port]
        for connection in listener.accepted:
            self.abort(connection)
        listener.accepted.clear()

    def is_free(self, port: int, remote: str, remote_port: int) -> bool:
        """Tell whether a connection may have these ends."""
        return (remote, remote_port, port) not in self._connections

    def connect(self, port: int, remote: str, remote_port: int, congestion_control: str) -> TcpConnection:
        """Open a connection. Raises `UsageError` where there is one with the same ends."""
        if not self.is_free(port, remote, remote_port):
            raise UsageError(f"port {port} of {self.address} is in use")
        connection = self._add(port, remote, remote_port, congestion_control)
        connection.open()
        self._stir(connection)
        return connection

    def write(self, connection: TcpConnection, data: bytes) -> int:
        """Take what there is room for of some bytes; how many those are."""
        count = min(len(data), connection.writable_bytes)
        if count:
            connection.write(data if count == len(data) else data[:count])
            self._stir(connection)
        return count

    def on_read(self, connection: TcpConnection, now: int) -> None:
        """Hear that the application has read from a connection, so that its peer may be told of the room."""
        connection.receiver.on_read(now)
        if connection.urgent:
            self._stir(connection)

    def close(self, connection: TcpConnection) -> None:
        """Send what was written, and then nothing."""
        connection.close()
        self._stir(connection)
        if connection.state is TcpState.CLOSED:
            self._forget(connection)

    def abort(self, connection: TcpConnection) -> None:
        """Let go of a connection at once, and tell its peer."""
        connection.abort()
        self._stir(connection)
        self._forget(connection)

    def _add(self, port: int, remote: str, remote_port: int, congestion_control: str) -> TcpConnection:
        connection = TcpConnection(
            remote=remote,
            remote_port=remote_port,
            port=port,
            first=self._random.getrandbits(32),
            mtu_bytes=self.mtu_bytes,
            control=make_tcp_control(congestion_control),
            min_rto_ns=self._min_rto_ns,
        )
        self._connections[remote, remote_port, port] = connection
        return connection

    # --- segments come -----------------------------------------------------------------------------------

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        for incoming in datagrams:
            try:
                segment = decode_segment(incoming.data)
            except DecodeError:
                self.malformed += 1
                continue
            self._receive(incoming.remote, segment, incoming.ce, now)

    def _receive(self, remote: str, segment: TcpSegment, marked: bool, now: int) -> None:
        key = (remote, segment.source_port, segment.destination_port)
        connection = self._connections.get(key)
        if connection is not None and connection.state is TcpState.TIME_WAIT and segment.flags & SYN:
            self._forget(connection)  # the same ends are to be used again
            connection = None
        if connection is None:
            connection = self._greet(remote, segment, now)
            if connection is None:
                return
        elif connection.is_refused(segment):
            self._refuse(remote, segment)
            return
        else:
            self._take(connection, segment, marked, now)
        self._stir(connection)

    def _take(self, connection: TcpConnection, segment: TcpSegment, marked: bool, now: int) -> None:
        state, acked = connection.state, connection.sender.acked_bytes
        connection.on_segment(segment, marked, now)
        if connection.state is not state:
            self._on_state(connection, state)
        elif connection.receiver.readable or connection.sender.acked_bytes != acked:
            self._note(connection)

    def _on_state(self, connection: TcpConnection, before: TcpState) -> None:
        listener = self._opening.get(connection)
        if listener is not None and before is TcpState.SYN_RECEIVED:
            del self._opening[connection]
            listener.waiting -= 1
            if connection.state is not TcpState.CLOSED:
                if self._listeners.get(listener.port) is listener:
                    listener.accepted.append(connection)
                    self._note(listener)
                else:
                    connection.abort()
        if connection.state is TcpState.CLOSED:
            self._forget(connection)
        self._note(connection)

    def _greet(self, remote: str, segment: TcpSegment, now: int) -> TcpConnection | None:
        """Return the new connection that a segment asks for; one that asks for none is answered by a reset."""
        listener = self._listeners.get(segment.destination_port)
        if segment.flags & RST:
            return None
        if listener is None or segment.flags & (SYN | ACK) != SYN:
            self.strangers += 1
            self._refuse(remote, segment)
            return None
        if listener.waiting + len(listener.accepted) >= MOST_BACKLOG:
            return None  # it will ask again
        connection = self._add(segment.destination_port, remote, segment.source_port, listener.congestion_control)
        connection.accept(segment, now)
        self._opening[connection] = listener
        listener.waiting += 1
        return connection

    def _refuse(self, remote: str, segment: TcpSegment) -> None:
        """Answer a segment of no connection (RFC 9293, section 3.10.7.1)."""
        if len(self._resets) >= MOST_BACKLOG:
            return
        answer = TcpSegment(segment.destination_port, segment.source_port, 0, 0, RST, 0)
        if segment.flags & ACK:
            answer.sequence = segment.ack
        else:
            ends = bool(segment.flags & SYN) + bool(segment.flags & FIN)
            answer.ack = (segment.sequence + len(segment.payload) + ends) % WORD
            answer.flags |= ACK
        self._resets.append(outgoing_of(answer, remote, Priority.CONTROL))

    # --- segments go -------------------------------------------------------------------------------------

    @property
    def urgent(self) -> int:
        """Return how many acknowledgements wait."""
        return len(self._urgent) + len(self._resets)

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        found: list[Outgoing] = []
        while len(found) < limit:
            outgoing = self._next(now)
            if outgoing is None:
                break
            found.append(outgoing)
        return found

    def _next(self, now: int) -> Outgoing | None:
        if self._resets:
            return self._resets.popleft()
        while self._urgent:
            connection = self._urgent.popleft()
            if connection.urgent:
                segment = connection.next_segment(now)
                if segment is not None:
                    return self._outgoing(connection, segment, now)
        ready = self._ready
        while ready:
            connection = ready.popleft()
            segment = connection.next_segment(now)
            if segment is not None:
                connection.in_turn += 1
                if connection.in_turn < SEGMENTS_IN_TURN:
                    ready.appendleft(connection)
                else:
                    connection.in_turn = 0
                    ready.append(connection)
                return self._outgoing(connection, segment, now)
            connection.queued = False
            connection.in_turn = 0
            if connection.state is TcpState.CLOSED:
                self._forget(connection)
                self._note(connection)
            else:
                self._arm(connection)
        return None

    def _outgoing(self, connection: TcpConnection, segment: TcpSegment, now: int) -> Outgoing:
        if connection.state is TcpState.CLOSED:
            self._forget(connection)
        else:
            self._arm(connection)
        # all that DCTCP sends is ECN-capable, its SYNs as well (tcp_ecn_send)
        capable = connection.control.wants_ecn
        return outgoing_of(segment, connection.remote, Priority.DATA if capable else Priority.CONTROL)

    def _stir(self, connection: TcpConnection) -> None:
        """See to it that a connection which something happened to is asked for segments."""
        if connection.urgent:
            self._urgent.append(connection)
        if not connection.queued and connection.state > TcpState.SYN_RECEIVED:
            connection.queued = True
            self._ready.append(connection)
        self._arm(connection)

    def _note(self, what: TcpConnection | TcpListener) -> None:
        if not what.noted:
            what.noted = True
            self.changed.append(what)

    def _forget(self, connection: TcpConnection) -> None:
        key = (connection.remote, connection.remote_port, connection.port)
        if self._connections.get(key) is connection and not connection.urgent:
            del self._connections[key]
        listener = self._opening.pop(connection, None)
        if listener is not None:
            listener.waiting -= 1

    # --- time --------------------------------------------------------------------------------------------

    def _arm(self, connection: TcpConnection) -> None:
        """Have its timers looked at when the first is due; a later one waits until an earlier one was looked at."""
        due = connection.due_ns()
        if due >= 0 and (connection.armed_ns < 0 or due < connection.armed_ns):
            connection.armed_ns = due
            self._sequence += 1
            heappush(self._timers, (due, self._sequence, connection))

    def next_timer(self) -> int | None:
        return self._timers[0][0] if self._timers else None

    def handle_timer(self, now: int) -> None:
        timers = self._timers
        while timers and timers[0][0] <= now:
            armed, _, connection = heappop(timers)
            if armed != connection.armed_ns:
                continue
            connection.armed_ns = -1
            due = connection.due_ns()
            if 0 <= due <= now:
                state = connection.state
                connection.on_timer(now)
                if connection.state is not state:
                    self._on_state(connection, state)
                self._stir(connection)
            else:
                self._arm(connection)


def outgoing_of(segment: TcpSegment, remote: str, priority: Priority) -> Outgoing:
    """Return a segment as it is sent. Both its ports are in the entropy, for switches to hash: the destination's above
    the source's."""
    entropy = segment.destination_port << PORT_SHIFT | segment.source_port
    return Outgoing(remote, entropy, priority, encode_header(segment), segment.payload)
