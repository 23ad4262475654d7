"""The initiator's side of operations: messages that are sent, reads, and what waits for data to come back.

Source: UE Specification 1.0, section 3.4 (headers, tables 3-8 and 3-9) and 3.5.7. All packets of a message use one PDC,
and messages do not interleave on it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.atomics import COMPARE_OPCODES, Amo
from testbed.protocols.uet.delivery.window import NOMINAL_HEADER_BYTES, SendWindow, TxPacket
from testbed.protocols.uet.memory import RemoteBuffer
from testbed.protocols.uet.packets.codes import NextHeader, Opcode, RequestBit, ResponseOpcode, ReturnCode
from testbed.protocols.uet.semantics.operations import Operation

if TYPE_CHECKING:
    from testbed.protocols.uet.semantics.transfers import PdcTransfers

_SES_REL: Final = int(RequestBit.REL)
_STANDARD: Final = struct.Struct("!BBHIHHQIQQI")
_MEDIUM: Final = struct.Struct("!BBHIHHQIQ")
_ATOMIC: Final = struct.Struct("!BBBB")
_SOM: Final = int(RequestBit.SOM)
_EOM: Final = int(RequestBit.EOM)
_HD: Final = int(RequestBit.HD)
_STD: Final = NextHeader.REQUEST_STD
_MED: Final = NextHeader.REQUEST_MEDIUM
_OK: Final = ReturnCode.OK
_DEFAULT_RESPONSE: Final = int(ResponseOpcode.DEFAULT_RESPONSE)


class Pending(Protocol):
    """An operation of the initiator that data comes back for."""

    message_id: int
    operation: Operation

    def on_data(self, offset: int, data: bytes | memoryview, status: ReturnCode, now: int) -> None: ...

    def failed(self, reason: str, now: int) -> None: ...


class Target:
    """The destination of an operation: its IP address and header fields, and who it is from."""

    def __init__(
        self, ip: str, job_id: int, pid_on_fep: int, resource_index: int, relative: bool, initiator: int
    ) -> None:
        self.ip = ip
        self.job_id = job_id
        self.pid_on_fep = pid_on_fep
        self.resource_index = resource_index
        self.relative = int(_SES_REL) if relative else 0
        self.initiator = initiator


def encode_single(opcode: Opcode, target: Target, place: RemoteBuffer, length: int) -> bytes:
    """The standard header of a message of one packet that is on no PDC. Raises `UsageError`."""
    flags = target.relative | _SOM | _EOM
    address = (target.job_id, target.pid_on_fep, target.resource_index, place.offset, target.initiator, place.key)
    try:
        return _STANDARD.pack(opcode, flags, 0, *address, 0, length)
    except struct.error as error:
        raise UsageError(f"{place} cannot be encoded: {error}") from None


class MessageHeader(NamedTuple):
    """The fields of a message's SES headers beside its destination (tables 3-8 and 3-9)."""

    opcode: Opcode
    match_bits: int = 0
    """The tag; in its place a WRITE and an atomic operation have their memory key, a deferral its tokens."""
    buffer_offset: int = 0
    header_data: int | None = None
    extension: bytes = b""
    """Extension header, encoded."""
    request_length: int | None = None
    """None: the length of the payload."""


class Message:
    """A SEND, TAGGED_SEND, WRITE or ATOMIC: a `PacketSource` of its packets."""

    def __init__(
        self,
        transfers: PdcTransfers,
        operation: Operation,
        target: Target,
        header: MessageHeader,
        payload: memoryview,
        *,
        pending: Pending | None = None,
        stop_on_deferral: bool = False,
    ) -> None:
        opcode, match_bits, buffer_offset, header_data, extension, request_length = header
        self._transfers = transfers
        self.operation = operation
        self._target = target
        self._code = int(opcode)
        self._view = payload
        self._match_bits = match_bits
        self._buffer_offset = buffer_offset
        self._header_data = header_data or 0
        self._extension = extension
        self._total = len(payload) if request_length is None else request_length
        self._flags = target.relative | (_HD if header_data is not None else 0)
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
            where = self._header_data if self._flags & _HD else self._buffer_offset
            body = _MEDIUM.pack(
                self._code,
                self._flags | _SOM | _EOM,
                total,
                target.job_id,
                target.pid_on_fep,
                target.resource_index,
                where,
                target.initiator,
                self._match_bits,
            )
            self._sent = total
            return TxPacket(self, _MED, body, self._view)
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
            self._buffer_offset,
            target.initiator,
            self._match_bits,
            word,
            self._total,
        )
        return TxPacket(self, _STD, body + self._extension if self._extension else body, payload)

    def packet_acked(self, packet: TxPacket, next_header: NextHeader, response: bytes | memoryview, now: int) -> None:
        self._acked += 1
        if len(response) and response[0] & 0x3F != _DEFAULT_RESPONSE:
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
    """A READ: request packets that ask for no more than one packet of data each (section 3.5.7).

    With the window of its PDC, a READ of one packet has a medium header: no message ID, so that its PSN tells what its
    data belongs to (section 3.4, figure 3-80).
    """

    def __init__(
        self,
        transfers: PdcTransfers,
        operation: Operation,
        target: Target,
        buffer: memoryview,
        remote_buffer: RemoteBuffer,
        window: SendWindow | None = None,
    ) -> None:
        self._transfers = transfers
        self.operation = operation
        self._target = target
        self._buffer = buffer
        self._memory_key, self._buffer_offset = remote_buffer
        self._payload_bytes = transfers.payload_bytes
        self._packets = max(-(-len(buffer) // self._payload_bytes), 1)
        self._window = window if self._packets == 1 else None
        self._psn = -1
        """The PSN of its request, once that is sent, if it has a medium header."""
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
        if self._window is not None:
            return self._short_packet(self._window)
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
            self._buffer_offset,
            self._target.initiator,
            self._memory_key,
            0 if number == 0 else length << 32 | offset,
            len(self._buffer),
        )
        return TxPacket(self, _STD, body)

    def _short_packet(self, window: SendWindow) -> TxPacket:
        self._sent_packets = 1
        self._psn = window.next_psn  # which is given to the packet next (see `PacketSource.next_packet`)
        self._transfers.short_reads[self._psn] = self
        target = self._target
        body = _MEDIUM.pack(
            Opcode.READ,
            target.relative | _SOM | _EOM,
            len(self._buffer),
            target.job_id,
            target.pid_on_fep,
            target.resource_index,
            self._buffer_offset,
            target.initiator,
            self._memory_key,
        )
        return TxPacket(self, _MED, body)

    def renumber(self, by: int) -> int:
        """The request of a short read has another PSN now, which comes back: its response names it."""
        self._psn = (self._psn + by) & 0xFFFF_FFFF
        return self._psn

    def packet_acked(self, packet: TxPacket, next_header: NextHeader, response: bytes | memoryview, now: int) -> None:
        self._acked += 1
        if len(response) and response[0] & 0x3F != _DEFAULT_RESPONSE:
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
        elif offset % self._payload_bytes or (len(data) != self._payload_bytes and end != len(self._buffer)):
            # Not what a request packet asked for: the peer's packets are of another size. Taken all the same, bytes
            # would count twice, and the read would end before all have come.
            self.refuse(ReturnCode.UNSUPPORTED_SIZE)
        else:
            self._buffer[offset:end] = data
            self._received += len(data)
        self._finish(now)

    def _finish(self, now: int) -> None:
        refused = self._status is not ReturnCode.OK
        if not refused and 0 < len(self._buffer) <= self._received:
            # All is there, so every request was executed: their acknowledgements may still be on the way, or lost.
            self.operation.complete(ReturnCode.OK, len(self._buffer), now)
        if self._acked == self._packets and (refused or self._received >= len(self._buffer)):
            self._forget()
            self.operation.complete(self._status, 0 if refused else len(self._buffer), now)

    def _forget(self) -> None:
        if self._window is not None:
            self._transfers.short_reads.pop(self._psn, None)
        else:
            self._transfers.pending.pop(self.message_id, None)
            self._transfers.release(self.message_id)

    def failed(self, reason: str, now: int) -> None:
        self._forget()
        self.operation.complete(ReturnCode.UNDELIVERABLE, 0, now, reason)


class FetchedValue:
    """The old value that a fetching atomic waits for."""

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


def atomic_extension(amo: Amo) -> bytes:
    """The atomic extension header, with compare and swap values (of up to 16 bytes) where the operation compares."""
    extension = _ATOMIC.pack(amo.opcode, amo.datatype, 0, 0)
    if amo.opcode in COMPARE_OPCODES:
        extension += amo.compare.ljust(16, b"\0") + bytes(amo.operand).ljust(16, b"\0")
    return extension
