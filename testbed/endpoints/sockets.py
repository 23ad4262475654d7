"""The sockets of one fabric end point (FEP): an IP address, UDP port 4793, and a source port for each entropy value.

One socket receives. The entropy value of what is sent is its UDP source port (UE Specification 1.0, figure 1-2). A raw
socket sends from all of them, many datagrams in one system call, where the compiled mover is there, over IPv4, and this
process may (CAP_NET_RAW). Elsewhere there is a socket for each value: they come to be when they are needed, and the one
unused for longest goes when there are too many. Runs of datagrams of one flow leave as one message (UDP_SEGMENT).
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from testbed.base.cleanup import on_failure
from testbed.base.linux import socket_options as options
from testbed.endpoints import messages, namespace
from testbed.endpoints.trimmed import TrimmedReceiver
from testbed.endpoints.with_header import HeaderReceiver
from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.uet.packets.codes import DSCP_TRIMMED_LASTHOP, UDP_PORT

try:
    from testbed.endpoints import mover
except ImportError:  # interpreted
    HAS_MOVER = False
else:
    mover.start(Incoming)
    HAS_MOVER = True

ECT_0 = 2
"""ECN codepoint "ECN-capable transport" (RFC 3168)."""
MOST_SEGMENTS = 64
"""UDP_MAX_SEGMENTS of Linux up to 6.8; later 128."""
LONGEST_MESSAGE = 0xFFFF - 20 - 8
RAW_MESSAGES = 64
"""Datagrams that a raw socket is given at a time."""
MOST_WAITING = 1024
"""Datagrams that wait for room while others may go past them."""
ENTROPY_SOCKETS = 512
"""Sending sockets that are kept open."""
SEND_BUFFER_BYTES = 1 << 16
"""The send buffer of each entropy value; Linux doubles it. It is small: what waits here escapes congestion control."""
RECEIVE_MESSAGES = 32
"""Received at a time, at most."""
REMEMBERED = 1 << 16
"""Addresses of peers that are remembered; whoever makes us forget them makes us look at them anew."""
RETRY_NS = 100_000
"""After ENOBUFS or ENOMEM, of whose end nothing tells."""
_SEGMENT_SIZE = struct.Struct("@H")
_FULL = (errno.ENOBUFS, errno.ENOMEM)
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """DSCP (0 to 63) by `Priority`; the defaults are those of the fabrics' QoS presets.

    Data and retransmissions are ECN-capable, control packets and notifications are not.
    """

    data: int = 26
    retransmission: int = 26
    control: int = 48
    notification: int = 48
    """The DSCP of CNPs."""
    trimmed_last_hop: int | None = DSCP_TRIMMED_LASTHOP
    """DSCP_TRIMMED_LASTHOP, where the fabric has one."""

    def tos(self, priority: Priority) -> int:
        """The TOS byte (IPv6: traffic class) of datagrams of `priority`."""
        dscp = (self.data, self.retransmission, self.control, self.notification)[priority]
        return dscp << 2 | (ECT_0 if priority <= Priority.RETRANSMISSION else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketConfig:
    """Settings of the sockets of a FEP."""

    port: int = UDP_PORT
    marking: Marking = field(default_factory=Marking)
    gso_segments: int = MOST_SEGMENTS
    """Datagrams that leave as one message, at most; 1 or less: UDP_SEGMENT is not used."""
    trimmed: bool = True
    """Receive trimmed packets, if this process may (CAP_NET_RAW)."""
    foreign_peers: bool = False
    """Peers are other implementations. Over IPv4, datagrams are received with the header that they came with, and each
    leaves with an identification of 0, which those of a run that the kernel cuts have not: it needs CAP_NET_RAW, and
    more time for each. Over IPv6, datagrams without a UDP checksum are received too (RFC 6935)."""
    receive_buffer_bytes: int = 1 << 23
    raw_buffer_bytes: int = 1 << 18
    """The send buffer of all entropy values together, where a raw socket sends."""
    stamps: bool = False
    """Have the kernel say when datagrams arrive, where the mover can read that."""
    receive_datagrams: int = 128
    """Datagrams of one `receive`: about as many, since nobody knows how many UDP_GRO will join next time."""


@dataclass(slots=True)
class SocketCounters:
    """Counts what a `SocketGroup` has done so far. Bytes are those of UDP payload."""

    received: int = 0
    received_bytes: int = 0
    receive_calls: int = 0
    trimmed: int = 0
    """Trimmed datagrams, in addition to `received`."""
    sent: int = 0
    sent_bytes: int = 0
    send_calls: int = 0
    blocked: int = 0
    """The number of times that sending had to wait for room."""
    dropped: int = 0
    """Datagrams that could not be sent; `errors` says why."""
    errors: dict[int, int] = field(default_factory=dict)
    """By errno: how often a call failed for good."""


class _Sender:
    """The socket of one entropy value, and the TOS it was last set to."""

    def __init__(self, item: socket.socket) -> None:
        self.socket = item
        self.fd = item.fileno()
        self.tos = -1


class SocketGroup:
    """All sockets of one FEP. Whatever the network does to them is counted; only opening the receiving socket raises.

    `OSError` if it cannot be opened (the address is not of this machine, or another FEP has it), `ValueError` for
    what is no IPv4 or IPv6 address that hosts route by (link-local ones need a zone that a datagram does not name).
    """

    def __init__(self, address: str, config: SocketConfig | None = None) -> None:
        parsed = ip_address(address)
        if parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
            raise ValueError(f"{address} cannot be the address of a fabric end point")
        self.address = str(parsed)
        self._config = config = config or SocketConfig()
        self._tos = tuple(config.marking.tos(priority) for priority in Priority)
        self._packed_tos = bytes(self._tos)
        self._aside = tuple(tos >> 2 != self._tos[Priority.DATA] >> 2 for tos in self._tos)
        """By priority: whether such datagrams are of another class than data, so that a pause of data is not theirs."""
        self._packed_address = parsed.packed
        self.counters = SocketCounters()
        self.blocked_fd = -1
        """The descriptor that sending waits for to become writable; -1 if none."""
        self.retry_at = 0
        """When to try again (ns of `time.monotonic_ns`) where no descriptor tells; 0 if there is no need."""
        self.arrivals: list[int] = []
        """When each datagram of the last `receive` arrived (ns of `time.monotonic_ns`); empty where nobody knows."""
        self.drained = True
        """The last `receive` took all that was there."""
        self._queue: list[Outgoing] = []
        self._head = 0
        self._senders: OrderedDict[int, _Sender] = OrderedDict()
        self._peers: dict[str, tuple[str, int]] = {}
        self._namespace = namespace.entered()
        self._receiver = options.open_socket(self.address, socket.SOCK_DGRAM)
        self._headers: HeaderReceiver | None = None
        self._raw: socket.socket | None = None
        self._aside_socket: socket.socket | None = None
        self._trimmed: TrimmedReceiver | None = None
        with on_failure(self.close):
            self._headers = self._prepare_receiver()
            if HAS_MOVER and parsed.version == 4:
                self._raw = self._open_raw()
                self._aside_socket = self._open_raw() if any(self._aside) else None
            if config.trimmed:
                self._trimmed = self._open_trimmed()
        self._limit = RECEIVE_MESSAGES
        self.unanswerable = 0
        """Datagrams that were ignored because they came from source port 0."""
        self._raw_fd = -1 if self._raw is None else self._raw.fileno()
        self._aside_fd = -1 if self._aside_socket is None else self._aside_socket.fileno()
        first = self._receiver.fileno() if self._headers is None else self._headers.fileno()
        self.receivers = (first, *((self._trimmed.fileno(),) if self._trimmed else ()))
        """Descriptors to be watched, and to be handed to `receive` when they are readable."""

    def _prepare_receiver(self) -> HeaderReceiver | None:
        """Set up the UDP socket, and for foreign peers over IPv4 the raw one that receives while it keeps the port."""
        config, receiver = self._config, self._receiver
        headers = config.foreign_peers and receiver.family == socket.AF_INET
        options.set_receive_buffer(receiver, config.receive_buffer_bytes)
        options.receive_tos(receiver)
        if HAS_MOVER and config.stamps:
            receiver.setsockopt(socket.SOL_SOCKET, options.SO_TIMESTAMPNS, 1)
        options.never_fragment(receiver)
        self.gro = not headers and options.enable_gro(receiver)
        """The kernel may hand over several datagrams as one message."""
        most = 1 if headers else min(config.gso_segments, MOST_SEGMENTS)
        self._gso_segments = most if most > 1 and options.has_gso(receiver) else 1
        if headers:
            options.receive_nothing(receiver)
        elif config.foreign_peers:
            options.receive_without_checksum(receiver)
        receiver.bind((self.address, config.port))
        if not headers:
            return None
        return HeaderReceiver(self.address, port=config.port, receive_buffer_bytes=config.receive_buffer_bytes)

    def _open_raw(self) -> socket.socket | None:
        try:
            item = options.open_socket(self.address, socket.SOCK_RAW, socket.IPPROTO_RAW)
        except PermissionError:
            return None
        with on_failure(item.close):
            item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._config.raw_buffer_bytes)
            item.bind((self.address, 0))  # routes may depend on where packets come from
        return item

    def _open_trimmed(self) -> TrimmedReceiver | None:
        config = self._config
        try:
            last_hop_dscp = config.marking.trimmed_last_hop
            return TrimmedReceiver(self.address, port=config.port, last_hop_dscp=last_hop_dscp)
        except PermissionError:
            return None

    @property
    def sees_trimmed(self) -> bool:
        """Tell whether trimmed packets arrive here. If not, the transport recovers what was trimmed by its timeouts."""
        return self._trimmed is not None

    @property
    def gso(self) -> bool:
        """Tell whether runs of datagrams leave as one message."""
        return self._gso_segments > 1

    @property
    def blocked(self) -> bool:
        """Datagrams wait here for room in the kernel; those handed over now would only wait behind them."""
        return self._head < len(self._queue)

    @property
    def waiting(self) -> int:
        """Datagrams that have been handed over and not left yet."""
        return len(self._queue) - self._head

    @property
    def overflows(self) -> int:
        """Datagrams, whole and trimmed, that the kernel dropped because this process did not receive them in time."""
        trimmed = 0 if self._trimmed is None else self._trimmed.overflows
        if self._headers is not None:  # what its filter rejects counts as dropped by the UDP socket
            return self._headers.overflows + trimmed
        return options.dropped_datagrams(self._receiver) + trimmed

    # --- receiving ------------------------------------------------------------------------------------

    def receive(self, fd: int) -> list[Incoming]:
        """Return what has arrived at `fd`, one of `receivers`; not all of it where that is much. Never waits, never
        raises.

        The data is valid until the next call.
        """
        counters = self.counters
        counters.receive_calls += 1
        if fd != self.receivers[0] and self._trimmed is not None:
            self.arrivals = []
            found = self._trimmed.receive()
            counters.trimmed += len(found)
            return found
        if self._headers is not None:
            found = self._headers.receive()
            counters.received += len(found)
            counters.received_bytes += sum([len(datagram.data) for datagram in found])
            return found
        taken = mover.receive(fd, self._limit) if HAS_MOVER else messages.receive(self._receiver, self._limit)
        found, self.arrivals, count, size, unanswerable, error = taken
        self.drained = count < self._limit
        self.unanswerable += unanswerable
        if not found:
            if error:
                counters.errors[error] = counters.errors.get(error, 0) + 1
            return found
        counters.received += len(found)
        counters.received_bytes += size
        joined = len(found) // count or 1
        self._limit = max(1, min(RECEIVE_MESSAGES, self._config.receive_datagrams // joined))
        return found

    # --- sending --------------------------------------------------------------------------------------

    def send(self, datagrams: Sequence[Outgoing]) -> None:
        """Send in this order. What finds no room stays here, `blocked`, until `flush`.

        While data waits, because its class is paused, datagrams of another class go past it, as in a NIC.
        """
        waiting = self.blocked
        self._queue.extend(datagrams)
        if not waiting:
            self.flush()
        if self._aside_fd >= 0 and self.blocked:
            self._send_aside()

    @property
    def passes(self) -> bool:
        """Tell whether datagrams may be handed over though data is `blocked`: those of another class go past it."""
        return self._aside_fd >= 0 and self.waiting < MOST_WAITING

    def _send_aside(self) -> None:
        """Send what waits and is of another class than data, as far as there is room for it."""
        aside = [item for item in self._queue[self._head :] if self._aside[item.priority]]
        if not aside:
            return
        sent = 0
        try:
            while sent < len(aside):
                stop = min(sent + RAW_MESSAGES, len(aside))
                count, size = mover.send(
                    self._aside_fd, self._packed_address, self._config.port, self._packed_tos, aside, sent, stop
                )
                self.counters.send_calls += 1
                self.counters.sent += count
                self.counters.sent_bytes += size
                sent += count
        except OSError:  # it is full, too, or the other queue will tell what is wrong
            pass
        if sent:
            gone = {id(item) for item in aside[:sent]}
            self._queue[self._head :] = [item for item in self._queue[self._head :] if id(item) not in gone]
            if not self.blocked:
                self.blocked_fd = -1
                self.retry_at = 0

    def flush(self) -> None:
        """Send what waits. To be called when `blocked_fd` is writable, or at `retry_at`."""
        self.blocked_fd = -1
        self.retry_at = 0
        queue = self._queue
        while self._head < len(queue):
            if not self._send_run():
                self.counters.blocked += 1
                del queue[: self._head]
                self._head = 0
                return
        queue.clear()
        self._head = 0

    def _send_run(self) -> bool:
        """Send the datagrams at the head of the queue that belong together, or drop one; False if there is no room."""
        queue = self._queue
        start = self._head
        first = queue[start]
        size = len(first.header) + len(first.payload)
        stop = start + 1
        if stop < len(queue) and queue[stop].entropy == first.entropy:
            stop = self._end_of_run(start, size)
        if self._raw_fd >= 0 and (stop - start == 1 or self._gso_segments <= 1):
            return self._send_raw()
        sender: _Sender | None = None
        try:
            peer = self._peers.get(first.remote) or self._remember_peer(first.remote)
            sender = self._senders.get(first.entropy) or self._open_sender(first.entropy)
            self._senders.move_to_end(first.entropy)
            tos = self._tos[first.priority]
            if sender.tos != tos:
                options.set_tos(sender.socket, tos)
                sender.tos = tos
            if stop - start == 1:
                sender.socket.sendmsg((first.header, first.payload), (), 0, peer)
                sent = 1
            else:
                sent = self._send_segments(sender, peer, start, stop, size)
        except BlockingIOError:
            if sender is not None:
                self.blocked_fd = sender.fd
            return False
        except OSError as error:
            return self._failed(error.errno or errno.EINVAL)
        counters = self.counters
        counters.send_calls += 1
        counters.sent += sent
        if sent > 1:  # the last may be shorter
            last = queue[start + sent - 1]
            size = (sent - 1) * size + len(last.header) + len(last.payload)
        counters.sent_bytes += size
        self._head = start + sent
        return True

    def _send_raw(self) -> bool:
        """Do as `_send_run` by the raw socket, up to the next run that leaves as one message."""
        queue = self._queue
        start = self._head
        stop = min(start + RAW_MESSAGES, len(queue))
        if self._gso_segments > 1:
            for index in range(start + 1, stop - 1):
                if queue[index].entropy == queue[index + 1].entropy:
                    stop = index
                    break
        port = self._config.port
        try:
            sent, size = mover.send(self._raw_fd, self._packed_address, port, self._packed_tos, queue, start, stop)
        except BlockingIOError:
            self.blocked_fd = self._raw_fd
            return False
        except OSError as error:
            return self._failed(error.errno or errno.EINVAL)
        counters = self.counters
        counters.send_calls += 1
        counters.sent += sent
        counters.sent_bytes += size
        self._head = start + sent
        return True

    def _end_of_run(self, start: int, size: int) -> int:
        """Return where the datagrams end that leave together: of one flow and priority, equally long (the last: or
        less)."""
        most = min(self._gso_segments, LONGEST_MESSAGE // max(size, 1))
        queue = self._queue
        most = min(start + most, len(queue)) if size else start
        first = queue[start]
        stop = start + 1
        while stop < most:
            item = queue[stop]
            if item.entropy != first.entropy or item.remote != first.remote or item.priority is not first.priority:
                break
            length = len(item.header) + len(item.payload)
            if length != size:
                return stop + 1 if 0 < length < size else stop
            stop += 1
        return stop

    def _send_segments(self, sender: _Sender, peer: tuple[str, int], start: int, stop: int, size: int) -> int:
        """Send a run as one message that the kernel cuts (udp(7), UDP_SEGMENT); how many datagrams went."""
        buffers: list[bytes | memoryview] = []
        for index in range(start, stop):
            item = self._queue[index]
            buffers.append(item.header)
            if item.payload:
                buffers.append(item.payload)
        control = ((options.SOL_UDP, options.UDP_SEGMENT, _SEGMENT_SIZE.pack(size)),)
        try:
            sender.socket.sendmsg(buffers, control, 0, peer)
        except OSError as error:
            if error.errno == errno.EIO:
                self._gso_segments = 1  # Linux before 6.11, on an interface without transmit checksums
            elif error.errno not in (errno.EINVAL, errno.EMSGSIZE):
                raise
            # Alone, a datagram longer than the MTU is told from a run that this interface cannot take.
            first = self._queue[start]
            sender.socket.sendmsg((first.header, first.payload), (), 0, peer)
            return 1
        return stop - start

    def _failed(self, reason: int) -> bool:
        if reason in _FULL:
            self.retry_at = time.monotonic_ns() + RETRY_NS
            return False
        self.counters.errors[reason] = self.counters.errors.get(reason, 0) + 1
        self.counters.dropped += 1
        self._head += 1
        return True

    def _remember_peer(self, remote: str) -> tuple[str, int]:
        socket.inet_pton(self._receiver.family, remote)  # not a name, which would be looked up
        if len(self._peers) >= REMEMBERED:
            self._peers.clear()
        found = self._peers[remote] = (remote, self._config.port)
        return found

    def _open_sender(self, entropy: int) -> _Sender:
        if not 0 < entropy <= 0xFFFF:
            raise OSError(errno.EADDRNOTAVAIL, "no UDP port")
        while len(self._senders) >= ENTROPY_SOCKETS:
            self._close_oldest()
        try:
            sender = _Sender(self._receiver if entropy == self._config.port else self._bind_sender(entropy))
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS or not self._senders:
                raise
            self._close_oldest()
            sender = _Sender(self._bind_sender(entropy))
        self._senders[entropy] = sender
        return sender

    def _bind_sender(self, entropy: int) -> socket.socket:
        namespace.enter(self._namespace)
        item = options.open_socket(self.address, socket.SOCK_DGRAM)
        with on_failure(item.close):
            options.receive_nothing(item)
            options.never_fragment(item)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            item.bind((self.address, entropy))
        return item

    def _close_oldest(self) -> None:
        _, sender = self._senders.popitem(last=False)
        if sender.socket is not self._receiver:
            sender.socket.close()

    def close(self) -> None:
        """Close all sockets; what waits is lost."""
        while self._senders:
            self._close_oldest()
        for item in (self._receiver, self._headers, self._raw, self._aside_socket, self._trimmed):
            if item is not None:
                item.close()
