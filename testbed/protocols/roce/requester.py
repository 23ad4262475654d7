"""The send side of a reliable or unreliable connection: work requests become packets, and answers complete them.

Every packet has a number that does not wrap; its PSN is the lower 24 bits. A request of data has as many as it has
packets of the path MTU; a READ as many as its response has, though it is one packet itself; an atomic operation one.
Packets below `una` are acknowledged. Requests form a list: from `head`, the oldest that has not ended, over `cursor`,
where packets are taken from, to the one that was posted last.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, sections 9.7.2 (PSNs), 9.7.3 (acknowledgements
coalesced or lost), 9.7.5 (NAK and RNR NAK), 9.9.2 (errors of the requester).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from testbed.protocols.datagram import Outgoing
from testbed.protocols.roce.packets.headers import AtomicEth, Reth, encode_bth, encode_ieth, encode_immediate
from testbed.protocols.roce.packets.opcodes import Operation
from testbed.protocols.roce.packets.syndrome import ACK, NAK, RNR_NAK, RNR_TIMERS_NS, NakCode, kind_of, value_of
from testbed.protocols.roce.recovery import RECOVERIES, Recovery
from testbed.protocols.roce.states import QpState
from testbed.protocols.roce.work import ATOMIC_BYTES, WorkRequest, WorkStatus

if TYPE_CHECKING:
    from testbed.protocols.roce.qp import QueuePair

INFINITE_RETRIES: Final = 7
"""With so many retries after RNR NAKs the requester never gives up (section 9.7.5.2.8)."""
PSN_HALF: Final = 1 << 23
_SHORT_BYTES: Final = 256
_PSN_MASK: Final = 0xFF_FFFF
_REFUSALS: Final[dict[int, WorkStatus]] = {
    int(NakCode.INVALID_REQUEST): WorkStatus.REMOTE_INVALID_REQUEST,
    int(NakCode.REMOTE_ACCESS_ERROR): WorkStatus.REMOTE_ACCESS_ERROR,
    int(NakCode.REMOTE_OPERATIONAL_ERROR): WorkStatus.REMOTE_OPERATION_ERROR,
}
_SEND: Final = Operation.SEND
_SUCCESS: Final = WorkStatus.SUCCESS
_SQD: Final = QpState.SQD
# The operation part of the opcodes, of which all services have the same ones.
_SEND_FIRST, _SEND_MIDDLE, _SEND_LAST, _SEND_ONLY = 0x00, 0x01, 0x02, 0x04
_WRITE_FIRST, _WRITE_MIDDLE, _WRITE_LAST, _WRITE_ONLY = 0x06, 0x07, 0x08, 0x0A
_READ_REQUEST, _COMPARE_SWAP, _FETCH_ADD = 0x0C, 0x13, 0x14
_LAST_INVALIDATE, _ONLY_INVALIDATE = 0x16, 0x17


def distance(psn: int, number: int) -> int:
    """Return the distance of the packet of a PSN ahead of the packet of a number: -2**23 to 2**23 - 1."""
    return ((psn - number + PSN_HALF) & _PSN_MASK) - PSN_HALF


class Requester:
    """Made by `QueuePair`, which it asks for its path, its congestion control and its place in the round."""

    def __init__(self, qp: QueuePair, start_psn: int, reliable: bool) -> None:
        config = qp.config
        self._qp = qp
        self._reliable = reliable
        self.recovery: Recovery = RECOVERIES[config.recovery](start_psn)
        self.una: int = start_psn
        """The oldest packet that is not acknowledged."""
        self.posted: int = 0
        """Requests that have not ended."""
        self.sent: int = 0
        """Packets, those sent again included."""
        self.retransmitted: int = 0
        """Packets that were sent again."""
        self._head: WorkRequest | None = None
        self._tail: WorkRequest | None = None
        self._cursor: WorkRequest | None = None
        self._reads: int = 0
        """READs and atomic operations that are under way."""
        self._unrequested: int = 0
        """Packets since the last that asked for an acknowledgement."""
        self._deadline: int = 0
        """When the peer will have been silent for too long; 0: it owes nothing."""
        self._resume_at: int = 0
        """When to go on after an RNR NAK; 0: nothing is waited for."""
        self._retries_left: int = config.retry_count
        self._rnr_left: int = config.rnr_retry
        self._probes: dict[int, int] | None = None
        """When packets that ask for an acknowledgement were first sent, for round trips."""
        self.acked_bytes: int = 0
        """Bytes of messages that the peer has acknowledged, those of messages under way included."""
        self._asked_again: int = -1
        """The packet of a response that was missing, and was asked for again: once is enough."""

    # --- work ---------------------------------------------------------------------------------------------

    def post(self, request: WorkRequest) -> None:
        """Put a request at the end of the queue."""
        size = len(request.data)
        mtu = self._qp.mtu
        tail = self._tail
        request.first = self.recovery.top if tail is None else tail.end
        request.packets = max(1, (size + mtu - 1) // mtu)
        if tail is None:
            request.first = max(request.first, self.una)
            self._head = request
        else:
            tail.successor = request
        self._tail = request
        if self._cursor is None:
            self._cursor = request
        self.posted += 1

    @property
    def idle(self) -> bool:
        """Tell whether every request has ended."""
        return self._head is None

    @property
    def unacknowledged(self) -> int:
        """Packets that were sent and are not acknowledged."""
        return self.recovery.top - self.una

    # --- sending ------------------------------------------------------------------------------------------

    def may_send(self, now: int) -> bool:
        """Tell whether there is a packet that may be sent, as far as this requester knows."""
        return self._sendable(now) is not None

    def _sendable(self, now: int) -> WorkRequest | None:
        """The request whose packet is next, and may be sent."""
        if self._head is None or (self._resume_at and now < self._resume_at):
            return None
        recovery = self.recovery
        number = recovery.sequence()
        request = self._find(number)
        if request is None:
            return None
        qp = self._qp
        if number - self.una >= qp.window_packets:
            return None
        again = number < recovery.top
        if (
            qp.unacked_bytes >= qp.control.window_bytes
            and (recovery.rewinds or not again)  # what fills a hole is in the window already
            and not self._unrequested  # else nothing would tell when there is room: one more, which asks
        ):
            return None
        if again:
            return request
        if number == request.first:
            if qp.state is _SQD:
                return None
            if self._reads and (request.fence or (request.has_response and self._reads >= qp.config.most_reads)):
                return None
        return request

    @property
    def next_is_short(self) -> bool:
        """Tell whether the next packet is a whole message of a few bytes, sent for the first time."""
        request = self._cursor
        return (
            request is not None
            and request.first == self.recovery.top == self.recovery.sequence()
            and len(request.data) <= _SHORT_BYTES
            and not request.has_response
        )

    def next_packet(self, now: int) -> Outgoing | None:
        """The next packet; None: there is none that may be sent."""
        request = self._sendable(now)
        if request is None:
            return None
        number = self.recovery.sequence()
        again = number < self.recovery.top
        self.sent += 1
        if again:
            self.retransmitted += 1
            self._qp.count("retransmitted")
        if not request.has_response:
            return self._data_packet(request, number, again, now)
        return self._request_of_response(request, number, again, now)

    def _data_packet(self, request: WorkRequest, number: int, again: bool, now: int) -> Outgoing:
        qp = self._qp
        mtu = qp.mtu
        index = number - request.first
        start = index * mtu
        payload = request.data[start : start + mtu]
        last = index == request.packets - 1
        operation, extensions = self._describe(request, index, len(payload))
        self.recovery.on_sent(number, 1)
        asks = self._reliable and self._asks(number, last, again, len(payload), now)
        if asks and not again:
            self._probe(number, now)
        padding = -len(payload) & 3
        header = encode_bth(qp.opcode_base | operation, qp.remote_qpn, number & _PSN_MASK, asks, padding)
        if extensions:
            header += extensions
        if self._reliable:
            self._arm(now)
            if not again or self.recovery.rewinds:
                qp.unacked_bytes += len(payload)
        elif last:
            self._complete_unreliable(request, now)
        return qp.data_datagram(header, payload, padding, now, again=again)

    def _describe(self, request: WorkRequest, index: int, size: int) -> tuple[int, bytes]:
        """The operation part of the opcode of a packet of data, and its headers after the BTH."""
        only = request.packets == 1
        first = index == 0
        last = index == request.packets - 1
        sends = request.operation is _SEND
        if not first and not last and (sends or not self._qp.config.ooo):
            return (_SEND_MIDDLE if sends else _WRITE_MIDDLE), b""
        tail = encode_immediate(request.immediate) if last and request.immediate is not None else b""
        if sends:
            if last and request.invalidate is not None:
                return (_ONLY_INVALIDATE if only else _LAST_INVALIDATE), encode_ieth(request.invalidate)
            operation = _SEND_ONLY if only else _SEND_FIRST if first else _SEND_LAST if last else _SEND_MIDDLE
            return operation + (1 if tail else 0), tail
        remote = request.remote
        assert remote is not None
        if self._qp.config.ooo and not only:  # every packet says where it belongs
            address = remote.virtual_address + index * self._qp.mtu
            return _WRITE_ONLY + (1 if tail else 0), Reth(address, remote.rkey, size).encode() + tail
        operation = _WRITE_ONLY if only else _WRITE_FIRST if first else _WRITE_LAST if last else _WRITE_MIDDLE
        if tail:
            operation += 1
        if first:
            tail = Reth(remote.virtual_address, remote.rkey, len(request.data)).encode() + tail
        return operation, tail

    def _request_of_response(self, request: WorkRequest, number: int, again: bool, now: int) -> Outgoing:
        """A READ, from the packet on that is missing, or an atomic operation."""
        qp = self._qp
        remote = request.remote
        assert remote is not None
        if request.operation is Operation.READ_REQUEST:
            start = (number - request.first) * qp.mtu
            header = Reth(remote.virtual_address + start, remote.rkey, len(request.data) - start).encode()
            operation = _READ_REQUEST
            packets = request.end - number
        else:
            header = AtomicEth(remote.virtual_address, remote.rkey, request.swap_or_add, request.compare).encode()
            operation = _COMPARE_SWAP if request.operation is Operation.COMPARE_SWAP else _FETCH_ADD
            packets = 1
        if not again and number == request.first:
            self._reads += 1
        self.recovery.on_sent(number, packets)
        bth = encode_bth(qp.opcode_base | operation, qp.remote_qpn, number & _PSN_MASK, True)
        self._arm(now)
        return qp.data_datagram(bth + header, b"", 0, now, again=again)

    def _find(self, number: int) -> WorkRequest | None:
        """The request that a packet belongs to, which the cursor stays at; None: it has not been posted yet."""
        request = self._cursor
        if request is None or number < request.first:
            request = self._head
        while request is not None and number >= request.end:
            request = request.successor
        if request is not None:
            self._cursor = request
        return request

    def _asks(self, number: int, last: bool, again: bool, size: int, now: int) -> bool:
        """Tell whether a packet is to ask for an acknowledgement: one that ends a message or fills a window, or that is
        the first to be sent again, and every so many, or one that leaves when the peer's time is half over."""
        qp = self._qp
        self._unrequested += 1
        if (
            last
            or self._unrequested >= qp.config.ack_packets
            or (again and (number == self.una or not self.recovery.rewinds))
            or number + 1 - self.una >= qp.window_packets
            or qp.unacked_bytes + size >= qp.control.window_bytes
            or 0 < self._deadline < now + qp.timeout_ns // 2
        ):
            self._unrequested = 0
            return True
        return False

    def _probe(self, number: int, now: int) -> None:
        if self._probes is None:
            self._probes = {}
        self._probes[number] = now

    def _complete_unreliable(self, request: WorkRequest, now: int) -> None:
        """The last packet of a request that nothing will acknowledge has been sent."""
        self.una = request.end
        self.acked_bytes += len(request.data)
        self._end_head(WorkStatus.SUCCESS, now)

    # --- answers ------------------------------------------------------------------------------------------

    def on_acknowledge(self, psn: int, syndrome: int, now: int, marked: bool = False) -> None:
        """An acknowledgement, or a refusal, of a packet of ours. `marked`: it says that packets were marked."""
        kind = kind_of(syndrome)
        number = self.una + distance(psn, self.una)
        if kind == ACK:
            if number >= self.recovery.top:
                self._qp.count("invalid-ack")
            elif number >= self.una:
                self._sample_round_trip(number, now)
                self._advance(number + 1, now, marked)
            return
        if number >= self.recovery.top or number < self.una:
            self._qp.count("stray-nak")
            return
        self._sample_round_trip(number - 1, now)
        self._advance(number, now, marked)
        if self.una != number:
            return  # a response before it is missing, which is asked for again first
        if kind == RNR_NAK:
            self._on_not_ready(number, value_of(syndrome), now)
        elif kind == NAK:
            self._on_refusal(number, value_of(syndrome), now)

    def on_selective(self, psn: int, syndrome: int, bitmap: int, now: int, marked: bool = False) -> None:
        """A selective acknowledgement: everything up to `psn`, and the packets after it whose bits are set."""
        before = self.una + distance(psn, self.una)
        if before < self.una - 1 or before >= self.recovery.top:
            self._qp.count("invalid-ack")
            return
        if before >= self.una:
            self._advance(before + 1, now, marked)
        self._qp.count("selective-ack")
        self.recovery.on_selective(before + 1, bitmap)
        self._touch(now)

    def _on_not_ready(self, number: int, timer_code: int, now: int) -> None:
        """The responder has no receive posted: wait, then send from this packet on again."""
        qp = self._qp
        qp.count("rnr-nak")
        if qp.config.rnr_retry < INFINITE_RETRIES:
            if self._rnr_left == 0:
                qp.fail(self._head, WorkStatus.RNR_RETRY_EXCEEDED, "the peer has no receive posted", now)
                return
            self._rnr_left -= 1
        self.recovery.on_timeout(number)
        self._rewound()
        self._resume_at = now + int(RNR_TIMERS_NS[timer_code] * qp.config.time_scale)
        self._deadline = 0
        qp.arm(self._resume_at)

    def _on_refusal(self, number: int, code: int, now: int) -> None:
        qp = self._qp
        if code == NakCode.PSN_SEQUENCE_ERROR:
            qp.count("sequence-nak")
            self._forget_probes(number)
            self.recovery.on_gap(number)
            self._rewound()
            qp.on_loss(now)
            self._touch(now)
            return
        status = _REFUSALS.get(code)
        if status is None:
            qp.count("reserved-nak")
            return
        qp.count("refused")
        qp.fail(self._find(number), status, "", now)

    def on_read_response(self, psn: int, first: bool, last: bool, payload: memoryview, now: int) -> None:
        """A packet of the response to a READ."""
        number = self.una + distance(psn, self.una)
        request = self._awaiting(number)
        if request is None or request.operation is not Operation.READ_REQUEST:
            self._qp.count("stray-response")
            return
        self._advance(request.first, now)
        wanted = request.first + request.received
        if number != wanted or request is not self._head:
            # A gap: what is missing is asked for once; a request before it may be what was lost.
            if number > wanted:
                self._ask_again(wanted if request is self._head else self.una, now)
            return
        mtu = self._qp.mtu
        start = request.received * mtu
        room = request.data[start : start + mtu]
        final = number == request.end - 1
        if len(payload) != len(room) or last != final:
            self._qp.count("invalid-response")
            self._qp.fail(request, WorkStatus.LOCAL_LENGTH_ERROR, "the response has another length than was asked", now)
            return
        room[:] = payload
        request.received += 1
        self.una = number + 1
        self.acked_bytes += len(payload)
        self.recovery.on_acknowledged(self.una)
        if final:
            self._reads -= 1
            self._end_head(WorkStatus.SUCCESS, now)
        self._progressed(now)

    def on_atomic_acknowledge(self, psn: int, original: int, now: int) -> None:
        """The answer to an atomic operation: the value that it found."""
        number = self.una + distance(psn, self.una)
        request = self._awaiting(number)
        if request is None or request.operation is Operation.READ_REQUEST:
            self._qp.count("stray-response")
            return
        self._advance(request.first, now)
        if request is not self._head:
            self._ask_again(self.una, now)
            return
        request.original = original
        if len(request.data) == ATOMIC_BYTES:
            request.data[:] = original.to_bytes(ATOMIC_BYTES, "little")
        self.una = number + 1
        self.acked_bytes += ATOMIC_BYTES
        self.recovery.on_acknowledged(self.una)
        self._reads -= 1
        self._end_head(WorkStatus.SUCCESS, now)
        self._progressed(now)

    def _awaiting(self, number: int) -> WorkRequest | None:
        """The request whose response this packet belongs to; None: none that was sent."""
        if not self.una <= number < self.recovery.top:
            return None
        request = self._head
        while request is not None and number >= request.end:
            request = request.successor
        return request if request is not None and request.has_response else None

    def _ask_again(self, number: int, now: int) -> None:
        if self._asked_again != number:
            self._asked_again = number
            self._qp.count("response-gap")
            self.recovery.on_response_missing(number)
            self._rewound()
            self._touch(now)

    def _rewound(self) -> None:
        """Go back: the next packet may be older than the last. Nothing counts as under way where recovery takes all
        of it for lost: a window that it filled would keep it from being sent again."""
        self._cursor = self._head
        if self.recovery.rewinds:
            self._qp.unacked_bytes = 0

    def _advance(self, una: int, now: int, marked: bool = False) -> None:
        """Everything below `una` has arrived, unless a response is missing there: an acknowledgement of what comes
        after it says that it was lost."""
        before = self.una
        if una <= before:
            return
        mtu = self._qp.mtu
        request = self._head
        while request is not None and request.first < una:
            if request.has_response:
                self._ask_again(request.first + request.received, now)
                una = min(una, request.first + request.received)
                break
            start = (max(self.una, request.first) - request.first) * mtu
            stop = min((una - request.first) * mtu, len(request.data))
            if stop > start:
                self.acked_bytes += stop - start
                self._qp.on_acked(stop - start, now, marked)
            if request.end > una:
                break
            self.una = request.end
            self._end_head(_SUCCESS, now)
            request = self._head
        self.una = max(self.una, una)
        if self.una > before:
            self.recovery.on_acknowledged(self.una)
            self._progressed(now)

    def _sample_round_trip(self, number: int, now: int) -> None:
        """Take the time since the latest packet that asked for this acknowledgement, which may stand for several."""
        probes = self._probes
        if not probes:
            return
        sent_at = -1
        while probes:  # the oldest stands first
            asking = next(iter(probes))
            if asking > number:
                break
            sent_at = probes.pop(asking)
        if sent_at >= 0:
            self._qp.on_round_trip(now - sent_at, now)

    def _forget_probes(self, number: int) -> None:
        """Packets from this one on may be sent again: their answers tell no round trip (Karn)."""
        probes = self._probes
        if probes:
            for asking in [asking for asking in probes if asking >= number]:
                del probes[asking]

    def _progressed(self, now: int) -> None:
        config = self._qp.config
        self._retries_left = config.retry_count
        self._rnr_left = config.rnr_retry
        self._deadline = 0
        if self.recovery.top > self.una:
            self._arm(now)
        self._qp.wake()

    def _end_head(self, status: WorkStatus, now: int) -> None:
        """The oldest request has ended."""
        request = self._head
        assert request is not None
        if self._cursor is request:
            self._cursor = request.successor
        self._head = request.successor
        if self._head is None:
            self._tail = None
        request.successor = None
        self.posted -= 1
        self._qp.complete(request, status, "", now)

    # --- time ---------------------------------------------------------------------------------------------

    def _arm(self, now: int) -> None:
        if self._deadline == 0:
            self._deadline = now + self._qp.timeout_ns
            self._qp.arm(self._deadline)

    def _touch(self, now: int) -> None:
        """The peer lives: it has until a whole timeout from now."""
        if self._deadline:
            self._deadline = now + self._qp.timeout_ns
        self._qp.wake()

    def next_timer(self) -> int:
        """Return when `handle_timer` is to be called; 0: at no time."""
        return self._resume_at or self._deadline

    def handle_timer(self, now: int) -> None:
        """Go on after an RNR NAK; send again what the peer has not answered, or give up."""
        if self._resume_at:
            if now >= self._resume_at:
                self._resume_at = 0
                self._qp.wake()
            return
        if not self._deadline or now < self._deadline:
            return
        qp = self._qp
        if self.recovery.sequence() <= self.una and qp.limiter.next_at > now:
            self._deadline = now + qp.timeout_ns  # what is to be sent again waits for its rate
            return
        if self._retries_left == 0:
            qp.fail(self._head, WorkStatus.RETRY_EXCEEDED, "the peer does not answer", now)
            return
        self._retries_left -= 1
        qp.count("timeout")
        qp.on_timeout(now)
        self.recovery.on_timeout(self.una)
        self._rewound()
        self._asked_again = -1
        self._forget_probes(self.una)
        self._deadline = now + qp.timeout_ns
        qp.wake()

    def flush(self, failed: WorkRequest | None, status: WorkStatus, error: str, now: int) -> None:
        """End every request: the one that has failed with `status`, the others as flushed."""
        self._deadline = 0
        self._resume_at = 0
        self._reads = 0
        self._qp.unacked_bytes = 0
        self._probes = None
        self._cursor = None
        request = self._head
        self._head = None
        self._tail = None
        self.posted = 0
        while request is not None:
            successor = request.successor
            request.successor = None
            if request is failed:
                self._qp.complete(request, status, error, now)
            else:
                self._qp.complete(request, WorkStatus.FLUSHED, "", now)
            request = successor
