"""Messages under way on one PDC: at the initiator those that it sends and reads, at the target those that arrive.

Source: UE Specification 1.0, section 3.4 (headers, tables 3-8 to 3-11) and 3.5.7 (responses with data). All packets
of a message use one PDC, and messages do not interleave on it.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from ..addressing import FepAddress
from ..codes import AmoOpcode, AmoType, NextHeader, Opcode, RequestBit, ResponseOpcode, ReturnCode
from ..delivery.window import NOMINAL_HEADER_BYTES, TxPacket
from ..errors import DecodeError
from ..matching import UnexpectedMessage
from ..memory import MemoryRegion
from ..responses import Response, ResponseData, ResponseDataSmall
from ..ses import decode_ses
from .operations import Operation

if TYPE_CHECKING:
    from .deferred import Deferral
    from .endpoint import Endpoint

_SES_DC = int(RequestBit.DC)
_SES_REL = int(RequestBit.REL)
_STANDARD = Struct("!BBHIHHQIQQI")
_MEDIUM = Struct("!BBHIHHQIQ")
_ATOMIC = Struct("!BBBB")
_RESPONSE_DATA = Struct("!BBHIHHII")
_SOM, _EOM, _HD = int(RequestBit.SOM), int(RequestBit.EOM), int(RequestBit.HD)
_STD, _MED = NextHeader.REQUEST_STD, NextHeader.REQUEST_MEDIUM
MESSAGE_ID_MASK = 0xFFFF
_DROPPED_KEPT = 256
_MOST_RESPONSES = 1 << 16
"""Packets of data that wait on one PDC to go back."""


class Pending(Protocol):
    """An operation of the initiator that data comes back for."""

    message_id: int
    operation: Operation

    def on_data(self, offset: int, data: bytes | memoryview, status: ReturnCode, now: int) -> None: ...

    def failed(self, reason: str, now: int) -> None: ...


class Target:
    """Where an operation goes, in header fields, and who it is from."""

    __slots__ = ("initiator", "job_id", "pid_on_fep", "relative", "resource_index")

    def __init__(self, job_id: int, pid_on_fep: int, resource_index: int, relative: bool, initiator: int) -> None:
        self.job_id = job_id
        self.pid_on_fep = pid_on_fep
        self.resource_index = resource_index
        self.relative = int(_SES_REL) if relative else 0
        self.initiator = initiator


class Message:
    """A SEND, TAGGED_SEND, WRITE or ATOMIC: a `PacketSource` of its packets.

    `match` is the tag or the memory key, `address` the offset in the remote memory.
    """

    __slots__ = (
        "_acked",
        "_address",
        "_code",
        "_extension",
        "_flags",
        "_header_data",
        "_match",
        "_next_header",
        "_packets",
        "_payload_bytes",
        "_sent",
        "_sent_packets",
        "_status",
        "_stop_on_deferral",
        "_target",
        "_total",
        "_transfers",
        "_view",
        "message_id",
        "operation",
        "pending",
    )

    def __init__(
        self,
        transfers: PdcTransfers,
        operation: Operation,
        target: Target,
        opcode: Opcode,
        payload: memoryview,
        *,
        match: int = 0,
        address: int = 0,
        header_data: int | None = None,
        extension: bytes = b"",
        total: int | None = None,
        delivery_complete: bool = False,
        pending: Pending | None = None,
        stop_on_deferral: bool = False,
    ) -> None:
        self._transfers = transfers
        self.operation = operation
        self._target = target
        self._code = int(opcode)
        self._view = payload
        self._match = match
        self._address = address
        self._header_data = header_data or 0
        self._extension = extension
        self._total = len(payload) if total is None else total
        self._flags = target.relative | (_HD if header_data is not None else 0)
        if delivery_complete:
            self._flags |= _SES_DC
        self._payload_bytes = transfers.payload_bytes
        self._sent = 0
        self._sent_packets = 0
        self._acked = 0
        self._packets = max(-(-len(payload) // self._payload_bytes), 1)
        self._status = ReturnCode.OK
        self._stop_on_deferral = stop_on_deferral
        self.message_id = 0
        self.pending = pending
        """Waits for data that comes back; it ends the operation then."""
        medium = (
            self._packets == 1
            and not extension
            and opcode in (Opcode.SEND, Opcode.TAGGED_SEND, Opcode.WRITE)
            and not (opcode == Opcode.WRITE and header_data is not None)
        )
        self._next_header = _MED if medium else _STD

    @property
    def exhausted(self) -> bool:
        return self._sent_packets == self._packets

    @property
    def remaining_bytes(self) -> int:
        return (self._packets - self._sent_packets) * NOMINAL_HEADER_BYTES + len(self._view) - self._sent

    def next_packet(self) -> TxPacket | None:
        number = self._sent_packets
        if number == self._packets:
            return None
        target = self._target
        if self._next_header is _MED:
            self._sent_packets = 1
            total = self._total
            where = self._header_data if self._flags & _HD else self._address
            body = _MEDIUM.pack(
                self._code,
                self._flags | _SOM | _EOM,
                total,
                target.job_id,
                target.pid_on_fep,
                target.resource_index,
                where,
                target.initiator,
                self._match,
            )
            self._sent = total
            return TxPacket(self, NextHeader.REQUEST_MEDIUM, body, self._view)
        if number == 0:
            self.message_id = self._transfers.new_message_id()
            if self.pending is not None:
                self.pending.message_id = self.message_id
                self._transfers.pending[self.message_id] = self.pending
        self._sent_packets = number + 1
        offset = self._sent
        payload = self._view[offset : offset + self._payload_bytes]
        self._sent = offset + len(payload)
        flags = self._flags
        if number == 0:
            flags |= _SOM
            word = self._header_data
        else:
            flags &= ~_HD
            word = len(payload) << 32 | offset
        if number + 1 == self._packets:
            flags |= _EOM
        body = _STANDARD.pack(
            self._code,
            flags,
            self.message_id,
            target.job_id,
            target.pid_on_fep,
            target.resource_index,
            self._address,
            target.initiator,
            self._match,
            word,
            self._total,
        )
        return TxPacket(self, NextHeader.REQUEST_STD, body + self._extension, payload)

    def packet_acked(self, packet: TxPacket, next_header: NextHeader, response: bytes | memoryview, now: int) -> None:
        self._acked += 1
        if len(response) and response[0] & 0x3F != ResponseOpcode.DEFAULT_RESPONSE:
            self._transfers.on_response(self, next_header, response, now)
        if self._acked == self._packets:
            self._transfers.release(self.message_id)
            if self.pending is None or self._status is not ReturnCode.OK:
                self._end(now)

    def refuse(self, status: ReturnCode) -> None:
        """The target's answer to one packet is an error; the first one counts."""
        if self._status is ReturnCode.OK:
            self._status = status
        if self._stop_on_deferral and status is ReturnCode.DROPPED:
            self._packets = self._sent_packets

    def _end(self, now: int) -> None:
        if self.pending is not None:
            self._transfers.pending.pop(self.message_id, None)
        length = self._total if self._status is ReturnCode.OK else 0
        self.operation.complete(self._status, length, now)

    def failed(self, reason: str, now: int) -> None:
        self._transfers.release(self.message_id)
        if self.pending is not None:
            self._transfers.pending.pop(self.message_id, None)
        self.operation.complete(ReturnCode.UNDELIVERABLE, 0, now, reason)


class ReadMessage:
    """A READ: request packets that ask for no more than one packet of data each (section 3.5.7)."""

    __slots__ = (
        "_acked",
        "_address",
        "_buffer",
        "_key",
        "_packets",
        "_payload_bytes",
        "_received",
        "_sent_packets",
        "_status",
        "_target",
        "_transfers",
        "message_id",
        "operation",
    )

    def __init__(
        self, transfers: PdcTransfers, operation: Operation, target: Target, buffer: memoryview, key: int, address: int
    ) -> None:
        self._transfers = transfers
        self.operation = operation
        self._target = target
        self._buffer = buffer
        self._key = key
        self._address = address
        self._payload_bytes = transfers.payload_bytes
        self._packets = max(-(-len(buffer) // self._payload_bytes), 1)
        self._sent_packets = 0
        self._acked = 0
        self._received = 0
        self._status = ReturnCode.OK
        self.message_id = 0

    @property
    def exhausted(self) -> bool:
        return self._sent_packets == self._packets

    @property
    def remaining_bytes(self) -> int:
        return (self._packets - self._sent_packets) * NOMINAL_HEADER_BYTES

    def next_packet(self) -> TxPacket | None:
        number = self._sent_packets
        if number == self._packets:
            return None
        if number == 0:
            self.message_id = self._transfers.new_message_id()
            self._transfers.pending[self.message_id] = self
        self._sent_packets = number + 1
        offset = number * self._payload_bytes
        length = min(self._payload_bytes, len(self._buffer) - offset)
        flags = self._target.relative | (_SOM if number == 0 else 0) | (_EOM if number + 1 == self._packets else 0)
        body = _STANDARD.pack(
            Opcode.READ,
            flags,
            self.message_id,
            self._target.job_id,
            self._target.pid_on_fep,
            self._target.resource_index,
            self._address,
            self._target.initiator,
            self._key,
            0 if number == 0 else length << 32 | offset,
            len(self._buffer),
        )
        return TxPacket(self, NextHeader.REQUEST_STD, body)

    def packet_acked(self, packet: TxPacket, next_header: NextHeader, response: bytes | memoryview, now: int) -> None:
        self._acked += 1
        if len(response) and response[0] & 0x3F != ResponseOpcode.DEFAULT_RESPONSE:
            self._transfers.on_response(self, next_header, response, now)
        self._finish(now)

    def refuse(self, status: ReturnCode) -> None:
        if self._status is ReturnCode.OK:
            self._status = status

    def on_data(self, offset: int, data: bytes | memoryview, status: ReturnCode, now: int) -> None:
        """Data that came back, by an ACK or by the return direction."""
        end = offset + len(data)
        if status not in (ReturnCode.OK, ReturnCode.NULL):
            self.refuse(status)
        elif end > len(self._buffer):
            self.refuse(ReturnCode.AT_OUT_OF_RANGE)
        else:
            self._buffer[offset:end] = data
            self._received += len(data)
        self._finish(now)

    def _finish(self, now: int) -> None:
        refused = self._status is not ReturnCode.OK
        if self._acked == self._packets and (refused or self._received >= len(self._buffer)):
            self._transfers.pending.pop(self.message_id, None)
            self._transfers.release(self.message_id)
            self.operation.complete(self._status, 0 if refused else len(self._buffer), now)

    def failed(self, reason: str, now: int) -> None:
        self._transfers.pending.pop(self.message_id, None)
        self._transfers.release(self.message_id)
        self.operation.complete(ReturnCode.UNDELIVERABLE, 0, now, reason)


class FetchedValue:
    """What a fetching atomic waits for: the old value."""

    __slots__ = ("_buffer", "_transfers", "message_id", "operation")

    def __init__(self, transfers: PdcTransfers, operation: Operation, buffer: memoryview) -> None:
        self._transfers = transfers
        self.operation = operation
        self._buffer = buffer
        self.message_id = 0

    def on_data(self, offset: int, data: bytes | memoryview, status: ReturnCode, now: int) -> None:
        self._transfers.pending.pop(self.message_id, None)
        if status not in (ReturnCode.OK, ReturnCode.NULL):
            self.operation.complete(status, 0, now)
        elif len(data) != len(self._buffer):
            self.operation.complete(ReturnCode.UNSUPPORTED_SIZE, 0, now)
        else:
            self._buffer[:] = data
            self.operation.complete(ReturnCode.OK, len(data), now)

    def failed(self, reason: str, now: int) -> None:
        self.operation.complete(ReturnCode.UNDELIVERABLE, 0, now, reason)


def atomic_extension(opcode: AmoOpcode, datatype: AmoType, compare: bytes = b"", swap: bytes = b"") -> bytes:
    """The atomic extension header, with compare and swap values (of up to 16 bytes) where there are any."""
    extension = _ATOMIC.pack(opcode, datatype, 0, 0)
    if compare or swap:
        extension += compare.ljust(16, b"\0") + swap.ljust(16, b"\0")
    return extension


def check_response(next_header: NextHeader, data: bytes | memoryview, offset: int) -> None:
    """Raises `DecodeError` where an ACK's response is none: to take it for an acknowledgement would lose the answer."""
    header, at = decode_ses(next_header, data, offset)
    if isinstance(header, ResponseData | ResponseDataSmall) and len(data) - at != header.payload_length:
        raise DecodeError(at, f"{len(data) - at} bytes follow, not {header.payload_length}")


class ReadResponses:
    """Target: data of reads that did not fit into ACKs, on its way back in the return direction."""

    __slots__ = ("_bytes", "_packets", "message_id")

    def __init__(self) -> None:
        self._bytes = 0
        self._packets: deque[TxPacket] | None = None
        self.message_id = 0

    def add(self, job_id: int, read_message_id: int, offset: int, total: int, data: bytes | memoryview) -> None:
        """Send `data`, which belongs at `offset` of the read."""
        self.message_id = (self.message_id + 1) & MESSAGE_ID_MASK
        body = _RESPONSE_DATA.pack(
            ResponseOpcode.RESPONSE_W_DATA,
            ReturnCode.OK,
            self.message_id,
            job_id,
            read_message_id,
            len(data),
            total,
            offset,
        )
        self._bytes += NOMINAL_HEADER_BYTES + len(data)
        if self._packets is None:
            self._packets = deque()
        self._packets.append(TxPacket(self, NextHeader.RESPONSE_DATA, body, data))

    @property
    def full(self) -> bool:
        """An initiator asks for more than it fetches: requests are acknowledged, so that nothing else holds it back."""
        return self._packets is not None and len(self._packets) >= _MOST_RESPONSES

    @property
    def exhausted(self) -> bool:
        return not self._packets

    @property
    def remaining_bytes(self) -> int:
        return self._bytes

    def next_packet(self) -> TxPacket | None:
        packets = self._packets
        if packets is None:
            return None
        packet = packets.popleft()
        if not packets:
            self._packets = None
        self._bytes -= NOMINAL_HEADER_BYTES + len(packet.payload)
        return packet

    def packet_acked(self, packet: TxPacket, next_header: NextHeader, response: bytes | memoryview, now: int) -> None:
        """The initiator has it; nothing is left to do."""

    def failed(self, reason: str, now: int) -> None:
        self._packets = None
        self._bytes = 0


class PdcTransfers:
    """What semantics keeps for one PDC."""

    __slots__ = (
        "_deadline",
        "_ids",
        "_next_id",
        "_patience_ns",
        "dropped",
        "incoming",
        "payload_bytes",
        "pending",
        "responses",
    )

    def __init__(self, payload_bytes: int, patience_ns: int) -> None:
        self.payload_bytes = payload_bytes
        self._patience_ns = patience_ns
        self._next_id = 0
        self._ids: set[int] | None = None
        """Message IDs in use; None: none, as on most PDCs at most times (an empty set has 200 bytes)."""
        self._deadline = 0
        self.pending: dict[int, Pending] = {}
        """Initiator: reads and fetching atomics that wait for data, by message ID."""
        self.incoming: dict[int, IncomingMessage] = {}
        """Target: messages that have begun to arrive, by message ID."""
        self.responses: ReadResponses | None = None
        """Target: None before the first read that does not fit into ACKs."""
        self.dropped: dict[int, None] = {}
        """Target: the latest deferred messages, of which more packets may arrive."""

    def drop(self, message_id: int) -> None:
        """Answer the rest of a deferred message's packets alike."""
        self.dropped[message_id] = None
        if len(self.dropped) > _DROPPED_KEPT:
            del self.dropped[next(iter(self.dropped))]

    @property
    def waiting(self) -> bool:
        """Whether data is to come back."""
        return bool(self.pending)

    def new_message_id(self) -> int:
        """1 to 65535, not in use."""
        ids = self._ids
        if ids is None:
            ids = self._ids = set()
        number = self._next_id
        for _ in range(MESSAGE_ID_MASK):
            number = number % MESSAGE_ID_MASK + 1
            if number not in ids:
                break
        self._next_id = number
        ids.add(number)
        return number

    def release(self, message_id: int) -> None:
        ids = self._ids
        if ids is not None:
            ids.discard(message_id)
            if not ids:
                self._ids = None

    def on_response(
        self, message: Message | ReadMessage, next_header: NextHeader, response: bytes | memoryview, now: int
    ) -> None:
        """An SES response that an ACK carries for one of the message's packets."""
        header, offset = decode_ses(next_header, response, 0)  # `check_response` has found it good
        if isinstance(header, Response):
            if header.return_code not in (ReturnCode.OK, ReturnCode.NULL):
                message.refuse(ReturnCode(header.return_code))
        elif isinstance(header, ResponseData | ResponseDataSmall):
            waiting = self.pending.get(message.message_id)
            if waiting is not None:
                at = header.message_offset if isinstance(header, ResponseData) else 0
                data = response[offset : offset + header.payload_length]
                waiting.on_data(at, data, ReturnCode(header.return_code), now)

    def expect(self, now: int) -> int:
        """Something came or was asked for: the time by which the next thing must come."""
        self._deadline = now + self._patience_ns
        return self._deadline

    def handle_timer(self, now: int) -> int:
        """End what has waited too long; when to come again, 0 for never."""
        if not self.pending and not self.incoming:
            self._deadline = 0
        elif self._deadline and self._deadline <= now:
            self._deadline = 0
            self.fail("the peer has gone silent", now)
        return self._deadline

    def fail(self, reason: str, now: int) -> None:
        """End everything that still waits."""
        pending, self.pending = self.pending, {}
        for item in pending.values():
            item.failed(reason, now)
        incoming, self.incoming = self.incoming, {}
        for message in incoming.values():
            message.abort(ReturnCode.UNDELIVERABLE, reason, now)


class IncomingMessage:
    """Target: a message of which packets have arrived, in whatever order."""

    __slots__ = (
        "answer",
        "deferral",
        "endpoint",
        "header_data",
        "job_id",
        "opcode",
        "operation",
        "received",
        "region",
        "request_length",
        "source",
        "status",
        "total",
        "unexpected",
        "view",
    )

    def __init__(self, total: int, view: memoryview | None, operation: Operation | None, answer: bytes) -> None:
        self.total = total
        """Bytes that come as its packets."""
        self.request_length = total
        """What its headers say: more, for a rendezvous."""
        self.view = view
        """Where its data goes; None: nowhere, it is counted only."""
        self.operation = operation
        """The receive that it meets."""
        self.answer = answer
        """Default response to its packets."""
        self.received = 0
        self.status = ReturnCode.OK
        self.header_data: int | None = None
        self.unexpected: UnexpectedMessage | None = None
        """Its place in the unexpected list while no receive has met it."""
        self.opcode = Opcode.SEND
        self.job_id = 0
        self.region: MemoryRegion | None = None
        """Of a WRITE: what `view` is a part of."""
        self.endpoint: Endpoint | None = None
        self.source: FepAddress | None = None
        self.deferral: Deferral | None = None
        """Of a rendezvous or deferrable send."""

    def revoke(self) -> None:
        """The memory that it goes to is no longer registered: the rest goes nowhere."""
        self.view = None
        self.region = None
        if self.status is ReturnCode.OK:
            self.status = ReturnCode.BAD_MKEY

    def abort(self, status: ReturnCode, reason: str, now: int) -> None:
        """No more of it will arrive."""
        self.status = status
        if self.operation is not None:
            self.operation.complete(status, 0, now, reason)
        elif self.unexpected is not None and self.endpoint is not None:
            # Else a receive would meet a message that never ends, and its bytes would count for ever.
            if not self.endpoint.tagged.discard(self.unexpected):
                self.endpoint.untagged.discard(self.unexpected)
            self.unexpected = None
