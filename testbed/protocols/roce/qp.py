"""A queue pair: its state, its path, its queues, and the two sides that requests have, of which it is the switchboard.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, sections 10.2.4 and 10.3 (queue pairs and their
states).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.congestion.registry import make_control
from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.errors import UsageError
from testbed.protocols.roce.config import HEADER_BYTES, MTUS, RoceConfig
from testbed.protocols.roce.datagrams import Datagrams
from testbed.protocols.roce.packets.headers import BTH_BYTES, Bth, decode_bth
from testbed.protocols.roce.packets.opcodes import Opcode, Operation, Service
from testbed.protocols.roce.rate_limiter import RateLimiter
from testbed.protocols.roce.requester import Requester
from testbed.protocols.roce.responder import Responder
from testbed.protocols.roce.states import QpState, may_step
from testbed.protocols.roce.work import (
    Buffer,
    CompletionQueue,
    ReceiveRequest,
    SendQueue,
    WorkRequest,
    WorkStatus,
    byte_view,
    writable_view,
)

if TYPE_CHECKING:
    from testbed.protocols.roce.rnic import Rnic

_RC: Final = Service.RC
_DATA: Final = Priority.DATA  # members of enumerations take as long to look up as all else of a packet together
_RETRANSMISSION: Final = Priority.RETRANSMISSION
_CONTROL: Final = Priority.CONTROL
_RECEIVING: Final = (QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE)
_SENDING: Final = _RECEIVING[1:]
_HEADER_BYTES: Final[int] = HEADER_BYTES
_BELOW_BYTES: Final[int] = HEADER_BYTES - BTH_BYTES
_OUTGOING: Final = Outgoing
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes
_CNP_RESERVED: Final = bytes(16)
RATE_LOOK_RTTS: Final = 4
"""While a packet waits for its time, its rate is looked at so often, in base round trips."""


class QueuePair(SendQueue):
    """Made by `Rnic.create_qp`. Times in ns. Requests end in `completions`."""

    def __init__(self, rnic: Rnic, number: int, service: Service, completions: CompletionQueue, domain: int) -> None:
        self.config: Final[RoceConfig] = rnic.config
        self.number: Final[int] = number
        """QPN, 24 bits."""
        self.service: Final[Service] = service
        self.opcode_base: Final[int] = int(service)
        self.completions: Final[CompletionQueue] = completions
        self.domain: Final[int] = domain
        """The protection domain."""
        self._rnic = rnic
        self._enter(QpState.RESET)
        self.error: str = ""
        """Why it is in ERR."""
        self.remote_ip: str = ""
        self.remote_qpn: int = 0
        self.qkey: int = 0
        """UD: what a packet must carry to be let in."""
        self.mtu: int = self.config.mtu
        self.window_packets: int = self.config.most_unacknowledged
        self.timeout_ns: int = self.config.timeout_ns or 1 << 62
        self.entropy: int = rnic.next_entropy()
        """UDP source port."""
        self.queued: bool = False
        """It is in the round of those that may have something to send."""
        self.answering: bool = False
        """It is among those that answer when what arrived together has been handled."""
        self.timer_at: int = 0
        """When its timer will be handled, as its RNIC has it; 0: it has none."""
        self.later_timer_at: int = 0
        """When it would be handled next if nothing asked for it before; 0: it is not known."""
        self.limiter: Final[RateLimiter] = RateLimiter(RATE_LOOK_RTTS * self.config.base_rtt_ns)
        self._receives: deque[ReceiveRequest] | None = None
        self._notified_at: int = -1
        """When the last CNP was sent to the peer; -1: never."""
        self._notify_next: tuple[str, int] | None = None
        """Whom to tell when the interval since then is over: address and QPN."""
        self.control: CongestionControl = make_control(self.config.cc, self.config.flow_settings())
        self.requester: Requester = Requester(self, 0, service is Service.RC)
        self.responder: Responder = Responder(self, 0, service is Service.RC)
        self.datagrams: Datagrams | None = Datagrams(self, 0) if service is Service.UD else None
        self.notifications: int = 0
        """CNPs received."""
        self._counts: dict[str, int] | None = None
        self.marked: int = 0
        """Packets that arrived with a mark of congestion."""
        self.unacked_bytes: int = 0
        self._path: int = 0
        """The path that its congestion control asked for last."""
        self.latest_rtt_ns: int = 0
        self.least_rtt_ns: int = 0

    # --- states -------------------------------------------------------------------------------------------

    def connect(
        self, remote_ip: str, remote_qpn: int, *, send_psn: int = 0, receive_psn: int = 0, mtu: int | None = None
    ) -> None:
        """Take a queue pair from RESET to RTS. Raises `UsageError`.

        `send_psn` is the PSN of our first request, `receive_psn` that of the peer's.
        """
        self.modify(QpState.INIT)
        self.modify(
            QpState.RTR, remote_ip=remote_ip, remote_qpn=remote_qpn, receive_psn=receive_psn, mtu=mtu or self.config.mtu
        )
        self.modify(QpState.RTS, send_psn=send_psn)

    def open_datagrams(self, qkey: int) -> None:
        """Take a datagram queue pair from RESET to RTS; `qkey` lets packets in. Raises `UsageError`."""
        if self.datagrams is None:
            raise UsageError(f"queue pair {self.number:#08x} is {self.service.name}, not UD")
        self.qkey = qkey
        self.modify(QpState.INIT)
        self.modify(QpState.RTR, mtu=self.config.mtu)
        self.modify(QpState.RTS, send_psn=0)

    def modify(
        self,
        state: QpState,
        *,
        remote_ip: str = "",
        remote_qpn: int = 0,
        receive_psn: int = 0,
        send_psn: int | None = None,
        mtu: int = 0,
        now: int = 0,
    ) -> None:
        """Take it to another state. Raises `UsageError` where the state machine has no such step, having done nothing.

        RTR takes the peer, the PSN of its first request and the path MTU; RTS the PSN of our first one.
        """
        if not may_step(self.state, state):
            raise UsageError(f"queue pair {self.number:#08x} is {self.state}, from where no step leads to {state}")
        if state is QpState.RTR:
            if mtu not in MTUS:
                raise UsageError(f"a path MTU is one of {', '.join(map(str, MTUS))}, not {mtu}")
            if mtu > self.config.mtu:
                raise UsageError(f"a path MTU of {mtu} bytes, where that of the link allows {self.config.mtu}")
            self.remote_ip = remote_ip
            self.remote_qpn = remote_qpn
            self.mtu = mtu
            self.responder = Responder(self, receive_psn, self.service is Service.RC)
        elif state is QpState.RTS and send_psn is not None and self.state is QpState.RTR:
            self.requester = Requester(self, send_psn, self.service is Service.RC)
            self.unacked_bytes = 0
        elif state is QpState.ERR:
            self.fail(None, WorkStatus.FLUSHED, "its user has taken it to ERR", now)
            return
        elif state is QpState.RESET:
            self._flush(None, WorkStatus.FLUSHED, "", now)
            self.limiter.begin()
        elif state is QpState.SQE:
            if self.service is Service.RC:
                raise UsageError(f"queue pair {self.number:#08x} is RC: its errors take it to ERR, not to SQE")
            self._flush_requests(None, WorkStatus.FLUSHED, "", now)
        self._enter(state)
        self.wake()

    def _enter(self, state: QpState) -> None:
        self.state: QpState = state
        self.receives: bool = state in _RECEIVING
        """Its state lets it take requests."""
        self.sends: bool = state in _SENDING
        """Its state lets it send requests, and take their answers."""

    def fail(self, failed: WorkRequest | None, status: WorkStatus, error: str, now: int) -> None:
        """An error that the connection does not survive: `failed` ends with its status, all others as flushed."""
        if self.state is QpState.ERR:
            return
        self._enter(QpState.ERR)
        self.error = error or status.name
        self.count("failed")
        self._flush(failed, status, error, now)

    def _flush_requests(self, failed: WorkRequest | None, status: WorkStatus, error: str, now: int) -> None:
        self.requester.flush(failed, status, error, now)
        if self.datagrams is not None:
            self.datagrams.flush(now)

    def _flush(self, failed: WorkRequest | None, status: WorkStatus, error: str, now: int) -> None:
        self._notify_next = None
        self._flush_requests(failed, status, error, now)
        self.responder.flush()
        receives = self._receives
        self._receives = None
        while receives:
            self.complete_receive(receives.popleft(), WorkStatus.FLUSHED, "", now)

    # --- posting ------------------------------------------------------------------------------------------

    def send_to(
        self,
        remote: tuple[str, int, int],
        data: Buffer,
        now: int,
        *,
        immediate: int | None = None,
        context: object = None,
    ) -> WorkRequest:
        """Send a datagram to an address, a QPN and its Q_Key. It has ended when it is sent."""
        request = WorkRequest(Operation.SEND, byte_view(data), None, context)
        request.immediate = immediate
        request.remote_ip, request.remote_qpn, request.remote_qkey = remote
        if self.datagrams is None:
            raise UsageError(f"queue pair {self.number:#08x} is {self.service.name}, not UD")
        if len(request.data) > self.mtu:
            raise UsageError(f"a datagram has at most {self.mtu} bytes, not {len(request.data)}")
        return self._post(request, False, now)

    def _post(self, request: WorkRequest, fence: bool, now: int) -> WorkRequest:
        if self.service is not _RC:
            if request.has_response:
                what = request.operation.name.removesuffix("_REQUEST")
                raise UsageError(f"{what} needs a reliable connection, this queue pair is {self.service.name}")
            if self.datagrams is not None and not request.remote_ip:
                raise UsageError("a datagram needs an address: send_to")
        if self.state is QpState.ERR or self.state is QpState.SQE:
            self.complete(request, WorkStatus.FLUSHED, "", now)
            return request
        if self.state not in (QpState.RTS, QpState.SQD):
            raise UsageError(f"queue pair {self.number:#08x} is {self.state}: it cannot send")
        posted = self.requester.posted if self.datagrams is None else self.datagrams.posted
        if posted >= self.config.most_posted:
            raise UsageError(f"the send queue holds {self.config.most_posted} requests")
        request.fence = fence
        if self.datagrams is None:
            self.requester.post(request)
        else:
            self.datagrams.post(request)
        self.wake()
        return request

    def receive(self, buffer: Buffer, now: int, *, context: object = None) -> ReceiveRequest:
        """Post room for a message. Raises `UsageError`."""
        request = ReceiveRequest(writable_view(buffer), context)
        if self.state is QpState.RESET:
            raise UsageError(f"queue pair {self.number:#08x} is {self.state}: it takes no receives")
        if self.state is QpState.ERR:
            self.complete_receive(request, WorkStatus.FLUSHED, "", now)
            return request
        if self._receives is None:
            self._receives = deque()
        if len(self._receives) >= self.config.most_posted:
            raise UsageError(f"the receive queue holds {self.config.most_posted} requests")
        self._receives.append(request)
        return request

    # --- what arrives -------------------------------------------------------------------------------------

    def on_marked(self, remote: str, qpn: int, now: int) -> None:
        """A packet of a peer's data has arrived with a mark of congestion: tell that peer, not too often.

        At once, if it was not told for an interval; else once at the end of the interval, for all packets that were
        marked in it (section 3.1 of the DCQCN paper, the notification point).
        """
        self.marked += 1
        if self.control.notification_ns < 0:
            return
        if self._notified_at < 0 or now >= self._notification_due:
            self._notify(remote, qpn, now)
        elif self._notify_next is None:
            self._notify_next = (remote, qpn)
            self.arm(self._notification_due)

    @property
    def _notification_due(self) -> int:
        return self._notified_at + self.control.notification_ns

    def _notify(self, remote: str, qpn: int, now: int) -> None:
        self._notified_at = now
        self._notify_next = None
        self.count("cnp-sent")
        header = Bth(Opcode.CNP, qpn, 0, becn=True).encode() + _CNP_RESERVED
        self.emit(self.answer_datagram(header, Priority.NOTIFICATION, remote))

    def on_notification(self, now: int) -> None:
        """A CNP of the peer."""
        self.notifications += 1
        self.control.update(now)
        self.control.on_notification(now)

    def decode_kept(self, data: memoryview) -> Bth:
        """The BTH of a packet that was kept, and decoded when it came."""
        return decode_bth(data)

    @property
    def counts(self) -> Mapping[str, int]:
        """Events of this queue pair, by the names of `Rnic.counters`."""
        return self._counts or {}

    @property
    def acked_bytes(self) -> int:
        """Bytes of messages that the peer has acknowledged, those of messages under way included."""
        return self.requester.acked_bytes

    @property
    def sent(self) -> int:
        """Packets of requests, those sent again included."""
        return self.requester.sent

    @property
    def retransmitted(self) -> int:
        """Packets of requests that were sent again."""
        return self.requester.retransmitted

    # --- what the two sides ask for -----------------------------------------------------------------------

    def take_receive(self) -> ReceiveRequest | None:
        return self._receives.popleft() if self._receives else None

    def return_receive(self, request: ReceiveRequest) -> None:
        """A message that began was given up: its receive is the next one's."""
        if self._receives is None:
            self._receives = deque()
        self._receives.appendleft(request)

    def resolve(self, rkey: int, virtual_address: int, length: int, access: int) -> memoryview:
        """Memory of ours that a request means. Raises `AccessRefused`."""
        return self._rnic.regions.resolve(rkey, self.domain, virtual_address, length, access)

    def invalidate(self, rkey: int) -> bool:
        return self._rnic.regions.invalidate(rkey, self.domain)

    def complete(self, request: WorkRequest, status: WorkStatus, error: str, now: int) -> None:
        request.status = status
        request.error = error
        request.finished_ns = now
        self.completions.append(request)

    def complete_receive(self, request: ReceiveRequest, status: WorkStatus, error: str, now: int) -> None:
        request.status = status
        request.error = error
        request.finished_ns = now
        if not request.source_ip:
            request.source_ip = self.remote_ip
            request.source_qpn = self.remote_qpn
        self.completions.append(request)

    def count(self, what: str) -> None:
        counters = self._rnic.counters
        counters[what] = counters.get(what, 0) + 1
        if self._counts is None:
            self._counts = {}
        self._counts[what] = self._counts.get(what, 0) + 1

    def wake(self) -> None:
        """There may be something to send."""
        self._rnic.wake(self)

    def arm(self, deadline: int) -> None:
        self._rnic.schedule(self, deadline)

    def answer_soon(self) -> None:
        self._rnic.answer_soon(self)

    def emit(self, datagram: Outgoing) -> None:
        self._rnic.emit(datagram)

    def renew_control(self) -> None:
        """Forget what is known of congestion: what is sent next is a new flow."""
        self.control = make_control(self.config.cc, self.config.flow_settings())
        self._path = self.control.path
        self.limiter.begin()

    def on_acked(self, size: int, now: int, marked: bool) -> None:
        self.unacked_bytes = max(0, self.unacked_bytes - size)
        self.control.on_ack(now, size, marked, -1)

    def on_round_trip(self, rtt_ns: int, now: int) -> None:
        self.latest_rtt_ns = rtt_ns
        if rtt_ns < self.least_rtt_ns or not self.least_rtt_ns:
            self.least_rtt_ns = rtt_ns
        self.control.on_ack(now, 0, False, rtt_ns)

    def on_loss(self, now: int) -> None:
        self.control.on_loss(now, self.mtu + _HEADER_BYTES)

    def on_timeout(self, now: int) -> None:
        self.control.on_timeout(now)

    # --- sending ------------------------------------------------------------------------------------------

    def pull(self, now: int) -> Outgoing | None:
        """The next packet of data or request; None: there is none, or its time has not come, which was asked for."""
        datagrams = self.datagrams
        limiter = self.limiter
        if limiter.next_at > now:
            if self._has_datagram or self.responder.has_response or self.requester.may_send(now):
                self.control.update(now)
                limiter.wait(now, self.control.rate_bps)
                self.arm(limiter.due)
            return None
        control = self.control
        control.update(now)
        if limiter.waiting:
            limiter.go_on(now, self.mtu + _HEADER_BYTES, control.rate_bps)
        if datagrams is not None and self._has_datagram:
            return datagrams.next_packet(now)
        if self.responder.has_response:
            return self.responder.next_packet(now)
        datagram = self.requester.next_packet(now)
        if datagram is None:
            limiter.pause()
        return datagram

    @property
    def next_is_short(self) -> bool:
        """Tell whether what it would send next is a message of a few bytes."""
        return not self.responder.has_response and self.requester.next_is_short

    @property
    def _has_datagram(self) -> bool:
        return self.datagrams is not None and self.datagrams.posted > 0 and self.state is not QpState.SQD

    def data_datagram(
        self,
        header: bytes,
        payload: memoryview | bytes,
        padding: int,
        now: int,
        *,
        again: bool = False,
        remote: str = "",
    ) -> Outgoing:
        """A packet of data or a request for data, which counts against the rate of the queue pair.

        `remote`: whom it is for; "": the peer of the connection.
        """
        remote = remote or self.remote_ip
        size = _BELOW_BYTES + len(header) + len(payload) + padding
        control = self.control
        rate_bps = control.rate_bps
        if rate_bps < self._rnic.unlimited_bps:
            self.limiter.on_send(now, self._rnic.room_at, size, rate_bps)
        else:
            self.limiter.next_at = float(now)
        control.on_send(now, size)
        if control.path != self._path:
            self._path = control.path
            self.entropy = self._rnic.next_entropy()
            self.count("repathed")
        entropy = self.entropy
        body = self._rnic.seal(remote, entropy, header, payload, padding)
        datagram: Outgoing = _new(_OUTGOING, (remote, entropy, _RETRANSMISSION if again else _DATA, header, body))
        return datagram

    def answer_datagram(self, header: bytes, priority: Priority = _CONTROL, remote: str = "") -> Outgoing:
        """An acknowledgement or a CNP. `remote`: whom it is for; "": the peer of the connection."""
        remote = remote or self.remote_ip
        entropy = self.entropy
        body = self._rnic.seal(remote, entropy, header, b"", 0)
        datagram: Outgoing = _new(_OUTGOING, (remote, entropy, priority, header, body))
        return datagram

    # --- time ---------------------------------------------------------------------------------------------

    def next_timer(self) -> int:
        """Return when `handle_timer` is to be called; 0: at no time."""
        deadline = self.requester.next_timer()
        if self._notify_next is not None and (not deadline or self._notification_due < deadline):
            deadline = self._notification_due
        limiter = self.limiter
        if limiter.waiting and not self.queued and (not deadline or limiter.due < deadline):
            return limiter.due
        return deadline

    def handle_timer(self, now: int) -> None:
        if self._notify_next is not None and now >= self._notification_due:
            remote, qpn = self._notify_next
            self._notify(remote, qpn, now)
        self.requester.handle_timer(now)
        if self.limiter.due <= now:
            self.wake()

    @property
    def idle(self) -> bool:
        """Tell whether nothing is to be sent or waited for."""
        return self.requester.idle and not self.responder.has_response and not self._has_datagram
