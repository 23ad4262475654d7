"""The receive side of a reliable or unreliable connection: requests are executed in order, and answered.

Every packet has a number that does not wrap, as in `requester`; `expected` is that of the next one in order. What comes
out of order is dropped and asked for once (go-back-N; go-back-0 asks for the whole message), or kept and acknowledged
selectively (`recovery: selective`, or `ooo`: then WRITEs that say where they belong are placed at once). A READ is a
job that sends its response piece by piece, as the rate of the queue pair allows; acknowledgements of later requests
wait for it. What acknowledges packets of which some came with a mark of congestion has the BECN bit (section 9.2).

A READ or an atomic operation is acknowledged by its response alone. An acknowledgement with the PSN of one would end it
at a requester that, as soft RDMA, does not look whether its data has come: that of what was before it is sent instead.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, sections 9.7.4 (what a responder checks), 9.7.5
(acknowledgements), 9.7.7 (lengths) and 9.9.3 (errors of the responder).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from testbed.protocols.datagram import Outgoing
from testbed.protocols.roce.memory import Access, AccessRefused
from testbed.protocols.roce.packets import syndrome
from testbed.protocols.roce.packets.headers import (
    ATOMIC_ETH_BYTES,
    BECN,
    BTH_BYTES,
    IETH_BYTES,
    IMMEDIATE_BYTES,
    RETH_BYTES,
    Aeth,
    Bth,
    decode_atomic_eth,
    decode_ieth,
    decode_immediate,
    decode_reth,
    encode_aeth,
    encode_atomic_ack,
    encode_bth,
)
from testbed.protocols.roce.packets.icrc import ICRC_BYTES
from testbed.protocols.roce.packets.opcodes import LAYOUTS, Layout, Opcode, Operation
from testbed.protocols.roce.packets.syndrome import NakCode
from testbed.protocols.roce.recovery import RECOVERIES
from testbed.protocols.roce.requester import distance
from testbed.protocols.roce.work import ATOMIC_BYTES, PendingResponse, ReceiveRequest, WorkStatus

if TYPE_CHECKING:
    from testbed.protocols.roce.qp import QueuePair

_PSN_MASK: Final = 0xFF_FFFF
_WORD_MASK: Final = (1 << 64) - 1
_OPERATION_MASK: Final = 0x1F
_WRITE_MIDDLE: Final[int] = int(Opcode.RC_WRITE_MIDDLE)
_MIDDLE_BYTES: Final[int] = BTH_BYTES + ICRC_BYTES
BITMAP_BYTES: Final = 32
"""The bitmap of a selective acknowledgement: the 256 packets after the last in order."""
_ACKNOWLEDGE: Final[int] = int(Opcode.RC_ACKNOWLEDGE)
_ATOMIC_ACKNOWLEDGE: Final[int] = int(Opcode.RC_ATOMIC_ACKNOWLEDGE)
_SELECTIVE_ACKNOWLEDGE: Final[int] = int(Opcode.SELECTIVE_ACKNOWLEDGE)
_READ_RESPONSE_FIRST: Final[int] = int(Opcode.RC_READ_RESPONSE_FIRST)
_READ_RESPONSE_MIDDLE: Final[int] = int(Opcode.RC_READ_RESPONSE_MIDDLE)
_READ_RESPONSE_LAST: Final[int] = int(Opcode.RC_READ_RESPONSE_LAST)
_READ_RESPONSE_ONLY: Final[int] = int(Opcode.RC_READ_RESPONSE_ONLY)
_REMOTE_WRITE: Final = int(Access.REMOTE_WRITE)
_SEND: Final = Operation.SEND
_WRITE: Final = Operation.WRITE
_READ: Final = Operation.READ_REQUEST
_NOWHERE: Final = memoryview(bytearray())
"""The address at which a message without data arrives: its rkey is not looked at (section 9.7.4.1.5)."""
_PLACED: Final = b""
"""Kept for a packet that was placed when it came, out of order."""


class _Refused(Exception):
    """A request cannot be executed, and its requester is told why."""

    def __init__(self, code: NakCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Responder:
    """Made by `QueuePair`."""

    def __init__(self, qp: QueuePair, start_psn: int, reliable: bool) -> None:
        self._qp = qp
        self._reliable = reliable
        self.expected: int = start_psn
        self.msn: int = 0
        """Messages completed, 24 bits."""
        self._operation: Operation | None = None
        """The operation of the message that has begun and not ended."""
        self._receive: ReceiveRequest | None = None
        """The receive into which it arrives, if it is a SEND."""
        self._target: memoryview | None = None
        """The memory into which it arrives, if it is a WRITE."""
        self._received: int = 0
        """Bytes of it so far."""
        self._kept: dict[int, bytes] | None = None
        """Packets that came out of order, by their number."""
        self._responses: deque[PendingResponse] | None = None
        self._atomics: dict[int, int] | None = None
        """The values that the latest atomic operations found, by their number: a requester may ask again."""
        self._responses_begin: int = start_psn
        """The number of the first of the READs and atomic operations that were executed last, with no packet of data
        between them."""
        self._responses_end: int = start_psn
        """The number behind the last of them."""
        self._ack_is_due: bool = False
        self._nak: int = -1
        """The syndrome of a NAK that waits to be sent; -1: none."""
        self._refusal: str = ""
        """Why nothing is executed any longer: the queue pair fails when the requester is told."""
        self._nak_sent: bool = False
        """The gap at `expected` was told: once is enough (section 9.7.5.1.1)."""
        self._restarts: Final[bool] = RECOVERIES[qp.config.recovery].restarts
        """A message of which a packet is missing is forgotten, and comes again from its first one."""
        self._message: int = start_psn
        """The number of the first packet of the message that has begun."""
        self.marking: bool = False
        """The next acknowledgement says that a packet was marked."""
        self._acknowledged: int = start_psn
        """All below this was acknowledged, or asked for again."""

    # --- what arrives -------------------------------------------------------------------------------------

    def on_request(self, bth: Bth, data: memoryview, now: int) -> None:
        """A request packet, BTH to padding; its checksum has been checked, and its opcode is of our service."""
        ahead = distance(bth.psn, self.expected)
        if ahead == 0:
            self._in_order(bth, data, now)
        elif not self._reliable:
            self._after_loss(bth, data, now)
        elif ahead < 0:
            self._duplicate(bth, data, self.expected + ahead, now)
        else:
            self._out_of_order(bth, data, self.expected + ahead, now)

    def on_middle(self, opcode: int, psn: int, ack_request: bool, data: bytes | memoryview) -> bool:
        """A packet, BTH to ICRC, in the middle of a message: most of what arrives. False: there is something about it,
        and nothing has happened; `on_request` is to look at it."""
        qp = self._qp
        size = len(data) - _MIDDLE_BYTES
        if distance(psn, self.expected) or size != qp.mtu or self._kept or self._refusal:
            return False
        if opcode & _OPERATION_MASK == _WRITE_MIDDLE:
            room = self._target
            if self._operation is not _WRITE or room is None:
                return False
        else:
            receive = self._receive
            if self._operation is not _SEND or receive is None:
                return False
            room = receive.buffer
        start = self._received
        stop = start + size
        if stop > len(room):
            return False
        room[start:stop] = memoryview(data)[BTH_BYTES : BTH_BYTES + size]
        self._received = stop
        self.expected += 1
        self._nak_sent = False
        if ack_request and self._reliable:
            self.ack_soon()
        return True

    def on_mark(self, marked: bool) -> None:
        """A packet of a request has come, with a mark or without, and is to be looked at next."""
        if not self._qp.control.precise_marks:
            self.marking = self.marking or marked
        elif marked != self.marking:
            owes = self._reliable and self.expected > self._acknowledged
            if owes and not self._responses and not self._kept:
                self._qp.emit(self._acknowledgement(self._arrived - 1, syndrome.ack()))
            self.marking = marked

    @property
    def _arrived(self) -> int:
        """The number behind the last packet that may be acknowledged."""
        if self._restarts and self._operation is not None:
            return self._message
        return self._responses_begin if self.expected == self._responses_end else self.expected

    def _in_order(self, bth: Bth, data: memoryview, now: int) -> None:
        if not self._execute(bth, data, now):
            return
        kept = self._kept
        while kept:
            packet = kept.pop(self.expected, None)
            if packet is None:
                break
            if packet is _PLACED:
                self.expected += 1
                self.msn = (self.msn + 1) & _PSN_MASK
                continue
            view = memoryview(packet)
            if not self._execute(self._qp.decode_kept(view), view, now):
                break
        if self._kept:  # not forgotten with an error
            self._settle_kept(now)

    def _settle_kept(self, now: int) -> None:
        """Tell what is still kept; a READ that asked again for a part of one executed meanwhile is a duplicate now."""
        kept = self._kept
        assert kept is not None
        for number in [number for number in kept if number < self.expected]:
            view = memoryview(kept.pop(number))
            self._duplicate(self._qp.decode_kept(view), view, number, now)
        if kept:
            self.ack_soon()

    def _after_loss(self, bth: Bth, data: memoryview, now: int) -> None:
        """UC: what is missing stays missing, and the message that it belongs to is given up."""
        self._qp.count("lost-messages")
        self._abandon()
        self.expected += distance(bth.psn, self.expected)
        layout = LAYOUTS[bth.opcode]
        if layout is not None and layout.first:
            self._execute(bth, data, now)
        else:
            self.expected += 1

    def _abandon(self) -> None:
        """Give up the message that has begun; its receive is there for the next one."""
        if self._receive is not None:
            self._qp.return_receive(self._receive)
        self._operation = None
        self._receive = None
        self._target = None
        self._received = 0

    def _duplicate(self, bth: Bth, data: memoryview, number: int, now: int) -> None:
        """It has been executed already, and is answered again (section 9.7.4.1.6)."""
        self._qp.count("duplicate")
        layout = LAYOUTS[bth.opcode]
        assert layout is not None
        if layout.operation is Operation.READ_REQUEST:
            try:
                self._read(number, data)
            except (AccessRefused, _Refused):
                self._qp.count("dropped-duplicate")
        elif layout.atomic:
            original = None if self._atomics is None else self._atomics.get(number)
            if original is None:
                self._qp.count("dropped-duplicate")
            else:
                self._answer_atomic(number, original)
        else:
            self.ack_soon()

    def _out_of_order(self, bth: Bth, data: memoryview, number: int, now: int) -> None:
        qp = self._qp
        config = qp.config
        qp.count("out-of-order")
        if config.keeps_out_of_order:
            if number - self.expected >= config.window_packets:
                qp.count("beyond-window")
                return
            if self._kept is None:
                self._kept = {}
            if number in self._kept:
                qp.count("duplicate")
                return
            self._kept[number] = _PLACED if config.ooo and self._place(bth, data) else bytes(data)
            self.ack_soon()
            return
        if not self._nak_sent:
            self._restart()
            self._nak_sent = True
            self._nak = syndrome.nak(NakCode.PSN_SEQUENCE_ERROR)
            qp.answer_soon()

    def _restart(self) -> None:
        """Go-back-0: what has come of a message is forgotten, and all of it is wanted again."""
        if self._restarts and self._operation is not None:
            self.expected = self._message
            self._abandon()

    def _place(self, bth: Bth, data: memoryview) -> bool:
        """Put a WRITE that says where it belongs there at once; False: it has to wait for its turn."""
        layout = LAYOUTS[bth.opcode]
        assert layout is not None
        if bth.opcode != Opcode.RC_WRITE_ONLY or len(data) == BTH_BYTES + RETH_BYTES:
            return False
        payload = data[BTH_BYTES + RETH_BYTES : len(data) - bth.pad_bytes]
        reth = decode_reth(data, BTH_BYTES)
        if reth.length != len(payload) or len(payload) > self._qp.mtu:
            return False
        try:
            room = self._qp.resolve(reth.rkey, reth.virtual_address, len(payload), Access.REMOTE_WRITE)
        except AccessRefused:
            return False  # it is refused when its turn has come
        room[:] = payload
        return True

    # --- executing ----------------------------------------------------------------------------------------

    def _execute(self, bth: Bth, data: memoryview, now: int) -> bool:
        """Execute the packet in order. False: it was refused, or there is no receive for it."""
        if self._refusal:
            return False
        layout = LAYOUTS[bth.opcode]
        assert layout is not None
        try:
            if layout.operation is _READ:
                self._between_messages()
                self._executed_with_response(self._read(self.expected, data))
                self.msn = (self.msn + 1) & _PSN_MASK
            elif layout.atomic:
                self._between_messages()
                self._atomic(layout, data)
            elif not self._data(bth, layout, data, now):
                return False
        except AccessRefused as trespass:
            self._refuse(NakCode.REMOTE_ACCESS_ERROR, str(trespass), now)
            return False
        except _Refused as refusal:
            self._refuse(refusal.code, str(refusal), now)
            return False
        self._nak_sent = False
        if bth.ack_request and (layout.operation is _SEND or layout.operation is _WRITE):
            self.ack_soon()
        return True

    def _between_messages(self) -> None:
        if self._operation is not None:
            raise _Refused(NakCode.INVALID_REQUEST, "a message begins before the one before it has ended")

    def _begin_message(self) -> None:
        self._between_messages()
        self._message = self.expected

    def _data(self, bth: Bth, layout: Layout, data: memoryview, now: int) -> bool:
        """A packet of a SEND or a WRITE. False: there is no receive for it yet."""
        qp = self._qp
        offset = BTH_BYTES
        if layout.first:
            self._begin_message()
        elif self._operation is not layout.operation:
            raise _Refused(NakCode.INVALID_REQUEST, "a packet of a message that has not begun")
        end = len(data) - bth.pad_bytes
        writes = layout.operation is _WRITE
        takes_receive = layout.immediate or not writes
        if takes_receive and self._receive is None and (layout.first or layout.last):
            self._receive = qp.take_receive()
            if self._receive is None:
                if self._reliable:
                    self._say_not_ready()
                    return False
                raise _Refused(NakCode.INVALID_REQUEST, "no receive is posted")
        if layout.reth:
            self._target = self._memory_of(data, _REMOTE_WRITE)
            offset += RETH_BYTES
        immediate: int | None = None
        invalidated: int | None = None
        if layout.immediate:
            immediate = decode_immediate(data, offset)
            offset += IMMEDIATE_BYTES
        if layout.ieth:
            invalidated = decode_ieth(data, offset)
            offset += IETH_BYTES
        size = end - offset
        if size > qp.mtu or size < 0 or (not layout.last and size != qp.mtu) or (not size and not layout.first):
            raise _Refused(NakCode.INVALID_REQUEST, f"a packet of {size} bytes where the path MTU is {qp.mtu}")
        room = self._target if writes else None
        if room is None:
            assert self._receive is not None
            room = self._receive.buffer
        start = 0 if layout.first else self._received
        stop = start + size
        if stop > len(room) or (layout.last and writes and stop != len(room)):
            if not writes:
                self._too_long(now)
            raise _Refused(NakCode.INVALID_REQUEST, f"{stop} bytes of a message for {len(room)}")
        if invalidated is not None:
            self._invalidate(invalidated)
        room[start:stop] = data[offset:end]
        self._received = stop
        self._operation = None if layout.last else layout.operation
        self.expected += 1
        if layout.last:
            self.msn = (self.msn + 1) & _PSN_MASK
            self._end_message(layout, immediate, invalidated, now)
        return True

    def _say_not_ready(self) -> None:
        qp = self._qp
        self._restart()  # a NAK acknowledges what is before it
        self._nak = syndrome.rnr_nak(qp.config.min_rnr_timer)
        self._nak_sent = True  # what comes behind it is no sequence error
        qp.count("not-ready")
        qp.answer_soon()

    def _invalidate(self, rkey: int) -> None:
        if not self._qp.invalidate(rkey):
            raise _Refused(NakCode.REMOTE_ACCESS_ERROR, f"rkey {rkey:#010x} cannot be invalidated")

    def _memory_of(self, data: memoryview, access: int) -> memoryview:
        """The memory of ours that the RETH of a packet means."""
        reth = decode_reth(data, BTH_BYTES)
        if not reth.length:
            return _NOWHERE
        return self._qp.resolve(reth.rkey, reth.virtual_address, reth.length, access)

    def _end_message(self, layout: Layout, immediate: int | None, invalidated: int | None, now: int) -> None:
        receive = self._receive
        self._target = None
        if receive is None:
            return
        self._receive = None
        qp = self._qp
        receive.length = self._received
        receive.operation = layout.operation
        receive.immediate = immediate
        receive.invalidated_rkey = invalidated
        qp.complete_receive(receive, WorkStatus.SUCCESS, "", now)

    def _too_long(self, now: int) -> None:
        receive = self._receive
        self._receive = None
        if receive is not None:
            self._qp.complete_receive(receive, WorkStatus.LOCAL_LENGTH_ERROR, "the message is longer", now)

    def _refuse(self, code: NakCode, reason: str, now: int) -> None:
        """The requester made an error: RC tells it and is in an error itself; UC drops the message (section 9.9.3)."""
        qp = self._qp
        qp.count("refusals")
        if not self._reliable:
            self._abandon()
            self.expected += 1
            return
        self._nak = syndrome.nak(code)
        self._nak_sent = True
        self._refusal = reason
        if not self._responses:  # else what was executed before is answered first
            self.answer(now)

    # --- READ and atomic operations ------------------------------------------------------------------------

    def _read(self, number: int, data: memoryview) -> int:
        """Take on a READ; how many packets its response has."""
        qp = self._qp
        if len(data) > BTH_BYTES + RETH_BYTES:
            raise _Refused(NakCode.INVALID_REQUEST, "a READ request with data")
        view = self._memory_of(data, Access.REMOTE_READ)
        packets = max(1, (len(view) + qp.mtu - 1) // qp.mtu)
        if self._responses is None:
            self._responses = deque()
        responses = self._responses
        if number < self.expected:  # asked for again: what is under way of it is of no use
            for response in [one for one in responses if number < one.number + one.packets]:
                responses.remove(response)
        if len(responses) >= qp.config.most_reads:  # who asks for more has had an answer to what was asked again
            for response in [one for one in responses if one.again]:
                responses.remove(response)
            if len(responses) >= qp.config.most_reads:
                raise _Refused(NakCode.INVALID_REQUEST, f"more than {qp.config.most_reads} READs under way")
        responses.append(PendingResponse(number, view, packets, number < self.expected))
        qp.wake()
        return packets

    def _atomic(self, layout: Layout, data: memoryview) -> None:
        qp = self._qp
        header = decode_atomic_eth(data, BTH_BYTES)
        if len(data) != BTH_BYTES + ATOMIC_ETH_BYTES or header.virtual_address % ATOMIC_BYTES:
            raise _Refused(NakCode.INVALID_REQUEST, "an atomic operation with data, or on an address that is not even")
        room = qp.resolve(header.rkey, header.virtual_address, ATOMIC_BYTES, Access.REMOTE_ATOMIC)
        original = int.from_bytes(room, "little")
        if layout.operation is Operation.FETCH_ADD:
            room[:] = ((original + header.swap_or_add) & _WORD_MASK).to_bytes(ATOMIC_BYTES, "little")
        elif original == header.compare:
            room[:] = header.swap_or_add.to_bytes(ATOMIC_BYTES, "little")
        if self._atomics is None:
            self._atomics = {}
        while len(self._atomics) >= qp.config.most_reads:
            del self._atomics[next(iter(self._atomics))]
        self._atomics[self.expected] = original
        self.msn = (self.msn + 1) & _PSN_MASK
        self._answer_atomic(self.expected, original)
        self._executed_with_response(1)

    def _executed_with_response(self, packets: int) -> None:
        """A READ or an atomic operation was executed, whose response has so many packets."""
        if self.expected != self._responses_end:
            self._responses_begin = self.expected
        self.expected += packets
        self._responses_end = self.expected

    def _answer_atomic(self, number: int, original: int) -> None:
        """Answers go out in the order of the requests: behind the READs that are being answered."""
        responses = self._responses
        if not responses:
            self._qp.emit(self._atomic_acknowledgement(number, original))
        elif len(responses) < 2 * self._qp.config.most_reads:  # who has more under way asks again too often
            responses.append(PendingResponse(number, _NOWHERE, 1, number < self.expected, original))

    def _atomic_acknowledgement(self, number: int, original: int) -> Outgoing:
        bth = encode_bth(_ATOMIC_ACKNOWLEDGE, self._qp.remote_qpn, number & _PSN_MASK)
        header = bth + Aeth(syndrome.ack(), self.msn).encode() + encode_atomic_ack(original)
        return self._qp.answer_datagram(header)

    @property
    def has_response(self) -> bool:
        """Tell whether the answer to a READ waits to be sent."""
        return bool(self._responses)

    def next_packet(self, now: int) -> Outgoing:
        """The next packet of the oldest response; `has_response` has said that there is one."""
        responses = self._responses
        assert responses
        response = responses[0]
        qp = self._qp
        if response.original >= 0:
            self._end_response()
            return self._atomic_acknowledgement(response.number, response.original)
        start = response.sent * qp.mtu
        payload = response.data[start : start + qp.mtu]
        first = response.sent == 0
        number = response.number + response.sent
        response.sent += 1
        last = response.sent == response.packets
        extension = Aeth(syndrome.ack(), self.msn).encode() if first or last else b""
        if first:
            opcode = _READ_RESPONSE_ONLY if last else _READ_RESPONSE_FIRST
        else:
            opcode = _READ_RESPONSE_LAST if last else _READ_RESPONSE_MIDDLE
        padding = -len(payload) & 3
        header = encode_bth(opcode, qp.remote_qpn, number & _PSN_MASK, False, padding)
        if extension:
            header += extension
        if last:
            self._end_response()
        return qp.data_datagram(header, payload, padding, now)

    def _end_response(self) -> None:
        responses = self._responses
        assert responses
        responses.popleft()
        if not responses and (self._ack_is_due or self._nak >= 0):
            self._qp.answer_soon()

    # --- answers ------------------------------------------------------------------------------------------

    def ack_soon(self) -> None:
        """Acknowledge when the packets that arrived together have been handled."""
        if not self._ack_is_due:
            self._ack_is_due = True
            self._qp.answer_soon()

    def answer(self, now: int) -> None:
        """Send the acknowledgement that is due, unless a response goes before it, which will come back to this."""
        if self._responses:
            return
        qp = self._qp
        if self._ack_is_due:
            self._ack_is_due = False
            if self._kept:
                qp.emit(self._selective_acknowledgement())
            elif self._nak < 0:  # else the NAK acknowledges what is before it
                qp.emit(self._acknowledgement(self._arrived - 1, syndrome.ack()))
        if self._nak >= 0:
            qp.emit(self._acknowledgement(self.expected, self._nak))
            self._nak = -1
            if self._refusal:
                qp.fail(None, WorkStatus.FLUSHED, self._refusal, now)

    def _acknowledgement(self, number: int, value: int) -> Outgoing:
        bth = encode_bth(_ACKNOWLEDGE, self._marked_qpn(), number & _PSN_MASK)
        self._acknowledged = self.expected
        return self._qp.answer_datagram(bth + encode_aeth(value, self.msn))

    def _marked_qpn(self) -> int:
        """The requester's queue pair, with the bit that says that a packet was marked."""
        marked, qp = self.marking, self._qp
        if not qp.control.precise_marks:
            self.marking = False
        return qp.remote_qpn | BECN if marked else qp.remote_qpn

    def _selective_acknowledgement(self) -> Outgoing:
        bitmap = 0
        assert self._kept is not None
        for number in self._kept:
            if number - self.expected < 8 * BITMAP_BYTES:
                bitmap |= 1 << number - self.expected
        bth = encode_bth(_SELECTIVE_ACKNOWLEDGE, self._marked_qpn(), (self.expected - 1) & _PSN_MASK)
        return self._qp.answer_datagram(
            bth + Aeth(syndrome.ack(), self.msn).encode() + bitmap.to_bytes(BITMAP_BYTES, "little")
        )

    def flush(self) -> None:
        """Forget what has begun: the queue pair is in an error, or being reset."""
        self._abandon()
        self._kept = None
        self._responses = None
        self._ack_is_due = False
        self._nak = -1
        self._refusal = ""
