"""RUDI: idempotent operations without a PDC: every request is answered by one response, which is its acknowledgement.

At least once, no order, no duplicates removed, not congestion controlled; the initiator repeats what is not answered in
time. Source: UE Specification 1.0, sections 3.5.7 (mode) and table 3-39 (header).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.delivery.receiver import encode_nack, trimming_code
from testbed.protocols.uet.errors import UnsupportedRequest
from testbed.protocols.uet.memory import Access, AccessRefused, RemoteBuffer
from testbed.protocols.uet.packets.acks import Nack
from testbed.protocols.uet.packets.codes import NackFlag, NextHeader, Opcode, PdsType, ReturnCode
from testbed.protocols.uet.packets.pds import RudiPacket
from testbed.protocols.uet.packets.responses import Response, ResponseData
from testbed.protocols.uet.packets.ses import (
    MediumRequest,
    SmallRequest,
    StandardRequest,
    decode_ses,
    request_identity,
)
from testbed.protocols.uet.paths import PathKind, make_paths
from testbed.protocols.uet.semantics.answers import encode_data_response, encode_response
from testbed.protocols.uet.semantics.messages import Target, encode_single
from testbed.protocols.uet.semantics.operations import Operation
from testbed.protocols.uet.semantics.owner import SemanticsOwner

_NACK_RUDI: Final = int(NackFlag.RUDI)
WINDOW: Final = 64
"""Packets under way in all, for want of congestion control."""


class _Request:
    """One packet of an operation."""

    def __init__(self, transfer: _Transfer, remote: str, body: bytes, payload: memoryview, offset: int) -> None:
        self.transfer = transfer
        self.remote = remote
        self.body = body
        self.payload = payload
        self.offset = offset
        self.retries = 0
        """Time-outs."""
        self.nacks = 0
        self.transmissions = 0
        self.deadline = 0

    @property
    def reads(self) -> bool:
        return self.body[0] & 0x3F == Opcode.READ


class _Transfer:
    """An operation and how much of it is answered."""

    def __init__(self, operation: Operation, packets: int) -> None:
        self.operation = operation
        self.packets = packets
        self.received = 0


class RudiChannel:
    """Both sides of RUDI at one FEP."""

    def __init__(self, fep: SemanticsOwner) -> None:
        self._fep = fep
        self._next_id = fep.random.getrandbits(32)  # not to be guessed by who cannot see our packets
        self._waiting: deque[_Request] = deque()
        self._under_way: dict[int, _Request] = {}
        config = fep.config
        self._paths = make_paths(PathKind.OBLIVIOUS, config.entropies, fep.random, config.base_rtt_ns)

    def next_entropy(self, now: int) -> int:
        """A path for a packet that nobody reports about."""
        return self._paths.next_entropy(now)

    # --- initiator ---------------------------------------------------------------------------------------

    def write(self, operation: Operation, target: Target, payload: memoryview, remote_buffer: RemoteBuffer) -> None:
        """WRITE, packet by packet."""
        self._start(operation, target, Opcode.WRITE, payload, remote_buffer)

    def read(self, operation: Operation, target: Target, buffer: memoryview, remote_buffer: RemoteBuffer) -> None:
        """READ, packet by packet."""
        self._start(operation, target, Opcode.READ, buffer, remote_buffer)

    def _start(
        self,
        operation: Operation,
        target: Target,
        opcode: Opcode,
        buffer: memoryview,
        remote_buffer: RemoteBuffer,
    ) -> None:
        step = self._fep.payload_bytes
        transfer = _Transfer(operation, max(-(-len(buffer) // step), 1))
        for number in range(transfer.packets):
            offset = number * step
            part = buffer[offset : offset + step]
            place = RemoteBuffer(remote_buffer.key, remote_buffer.offset + offset)
            header = encode_single(opcode, target, place, len(part))
            self._waiting.append(_Request(transfer, target.ip, header, part, offset))

    def transmit(self, now: int, out: list[Outgoing], limit: int) -> None:
        """Append new requests while the window has room."""
        while self._waiting and len(out) < limit and len(self._under_way) < WINDOW:
            request = self._waiting.popleft()
            if request.transfer.operation.done:
                continue
            self._next_id = (self._next_id + 1) & 0xFFFF_FFFF
            self._under_way[self._next_id] = request
            out.append(self._datagram(self._next_id, request, now))

    def _datagram(self, packet_id: int, request: _Request, now: int) -> Outgoing:
        retx = request.transmissions > 0
        request.transmissions += 1
        request.deadline = now + (self._fep.config.rto_ns << request.retries)
        packet = RudiPacket(
            type=PdsType.RUDI_REQ,
            next_header=NextHeader.REQUEST_STD,
            flags=0x10 if retx else 0,
            packet_id=packet_id,
        )
        payload = b"" if request.reads else request.payload
        priority = Priority.RETRANSMISSION if retx else Priority.DATA
        return Outgoing(
            request.remote, self._paths.next_entropy(now), priority, packet.encode() + request.body, payload
        )

    def on_nack(self, nack: Nack, incoming: Incoming, now: int) -> None:
        """An early word that a request was lost: it is sent again at once, but not for ever."""
        request = self._under_way.get(nack.nack_psn)
        if request is None or request.remote != incoming.remote or request.nacks >= self._fep.config.max_nack_retx:
            self._fep.count("stray-nack")
            return
        request.nacks += 1
        self._fep.emit(self._datagram(nack.nack_psn, request, now))

    def next_timer(self) -> int | None:
        """Return when the oldest unanswered request is to be repeated."""
        if not self._under_way:
            return None
        return min(request.deadline for request in self._under_way.values())

    def handle_timer(self, now: int) -> None:
        """Repeat what is due; give up what was repeated too often."""
        for packet_id, request in list(self._under_way.items()):
            if request.transfer.operation.done:
                del self._under_way[packet_id]
            elif request.deadline <= now:
                if request.retries >= self._fep.config.max_rto_retx:
                    del self._under_way[packet_id]
                    reason = f"no response after {request.retries + 1} time-outs"
                    request.transfer.operation.complete(ReturnCode.UNDELIVERABLE, 0, now, reason)
                    continue
                request.retries += 1
                self._fep.count("timeout")
                self._fep.emit(self._datagram(packet_id, request, now))

    # --- what arrives ------------------------------------------------------------------------------------

    def on_packet(
        self, packet: RudiPacket, incoming: Incoming, data: bytes | memoryview, offset: int, now: int
    ) -> None:
        """A request or a response."""
        if packet.type == PdsType.RUDI_REQ:
            if incoming.trimmed:
                self._fep.emit(encode_nack(trimming_code(incoming), packet.packet_id, 0, 0, incoming, _NACK_RUDI))
                return
            body = self._execute(packet, data, offset)
            flags_out = (packet.flags & 0x10) | (0x20 if incoming.ce else 0)
            answer = RudiPacket(
                type=PdsType.RUDI_RESP, next_header=body[0], flags=flags_out, packet_id=packet.packet_id
            )
            self._fep.emit(
                Outgoing(incoming.remote, incoming.entropy, Priority.CONTROL, answer.encode() + body[1], body[2])
            )
            return
        request = self._under_way.get(packet.packet_id)
        if request is None or request.remote != incoming.remote or incoming.trimmed:
            self._fep.count("stray-response")
            return
        header, at = decode_ses(packet.next_header, data, offset)
        if not isinstance(header, (Response, ResponseData)):
            raise DecodeError(offset, "a RUDI response that is no response")
        good = header.return_code in (ReturnCode.OK, ReturnCode.NULL)
        if good and request.reads:
            payload = data[at:]
            if not isinstance(header, ResponseData) or len(payload) != len(request.payload):
                raise DecodeError(at, f"not the {len(request.payload)} bytes that were asked for")
            if not request.transfer.operation.done:
                request.payload[:] = payload
        del self._under_way[packet.packet_id]
        transfer = request.transfer
        operation = transfer.operation
        if not good:
            operation.complete(header.return_code, 0, now)
            return
        transfer.received += 1
        if transfer.received == transfer.packets:
            operation.complete(ReturnCode.OK, 0 if operation.buffer is None else len(operation.buffer), now)

    def _execute(
        self, packet: RudiPacket, data: bytes | memoryview, offset: int
    ) -> tuple[NextHeader, bytes, bytes | memoryview]:
        """The response to a request: its header, and data of a READ. Raises `DecodeError`, having done nothing.

        Nothing in the mode asks for a message ID, so that medium and small headers will do as well. What answers a READ
        with one of these has the packet ID in the place of the PSN, as a NACK has it (table 3-40).
        """
        try:
            header, at = decode_ses(packet.next_header, data, offset)
        except UnsupportedRequest as unsupported:
            message_id, job_id = request_identity(packet.next_header, data, offset)
            return self._refusal(unsupported.return_code, message_id, job_id)
        if not isinstance(header, (StandardRequest, MediumRequest, SmallRequest)):
            raise DecodeError(offset, "a RUDI request that is no request")
        message_id = header.message_id if isinstance(header, StandardRequest) else 0
        length = header.request_length
        access = Access.REMOTE_READ
        if header.opcode == Opcode.WRITE:
            access = Access.REMOTE_WRITE
            if len(data) - at != length:
                raise DecodeError(offset, f"{len(data) - at} bytes follow, not {length}")
        elif header.opcode != Opcode.READ:
            return self._refusal(ReturnCode.UNSUPPORTED_OP, message_id, header.job_id)
        elif length > self._fep.payload_bytes:
            return self._refusal(ReturnCode.UNSUPPORTED_SIZE, message_id, header.job_id)
        try:
            region = self._fep.memory.find(header.memory_key, header.job_id)
            view = region.view(header.buffer_offset, length, access)
            if access is Access.REMOTE_WRITE:
                view[:] = data[at:]
                region.keep(header.buffer_offset, view)
        except AccessRefused as refusal:
            return self._refusal(refusal.return_code, message_id, header.job_id)
        if access is Access.REMOTE_READ:
            return *encode_data_response(header, packet.packet_id, 0, 0, length), bytes(view)
        return NextHeader.RESPONSE, encode_response(ReturnCode.OK, message_id, header.job_id, 0), b""

    def _refusal(self, code: ReturnCode, message_id: int, job_id: int) -> tuple[NextHeader, bytes, bytes]:
        self._fep.count(f"refused-{code.name.lower().replace('_', '-')}")
        return NextHeader.RESPONSE, encode_response(code, message_id, job_id, 0), b""
