"""The target of operations: what arriving requests do to posted receives and to memory, and what is answered.

Source: UE Specification 1.0, section 3.4 (operations, return codes), table 3-11 (responses), 3.5.7 and 3.5.20 (which
answers are guaranteed: errors, placements in the unexpected list, and data).
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.atomics import AtomicRefused, apply
from testbed.protocols.uet.delivery.pdc import Pdc
from testbed.protocols.uet.delivery.receiver import Answer
from testbed.protocols.uet.errors import UnsupportedRequest
from testbed.protocols.uet.matching import UnexpectedMessage
from testbed.protocols.uet.memory import Access, AccessRefused, RemoteBuffer
from testbed.protocols.uet.packets.codes import (
    AmoOpcode,
    NackCode,
    NextHeader,
    Opcode,
    RequestBit,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)
from testbed.protocols.uet.packets.pds import Uud
from testbed.protocols.uet.packets.responses import Response, ResponseData, ResponseDataSmall
from testbed.protocols.uet.packets.ses import (
    MediumRequest,
    RequestHeader,
    SmallRequest,
    StandardRequest,
    decode_ses,
    request_identity,
)
from testbed.protocols.uet.packets.ses_extensions import AtomicExtension, CswapExtension, RendezvousExtension
from testbed.protocols.uet.semantics.answers import encode_data_response, encode_response, pack_response
from testbed.protocols.uet.semantics.deferred import DeferredSends
from testbed.protocols.uet.semantics.dropped import DroppedMessages
from testbed.protocols.uet.semantics.incoming import IncomingMessage, ReadResponses
from testbed.protocols.uet.semantics.messages import MessageHeader, Target, encode_single
from testbed.protocols.uet.semantics.operations import Operation, OpKind
from testbed.protocols.uet.semantics.owner import SemanticsOwner
from testbed.protocols.uet.semantics.partial import PartialMessages
from testbed.protocols.uet.semantics.rudi import RudiChannel
from testbed.protocols.uet.semantics.transfers import PdcTransfers

_SES_EOM: Final = int(RequestBit.EOM)
_SES_HD: Final = int(RequestBit.HD)
_SES_SOM: Final = int(RequestBit.SOM)
_UNTAGGED: Final = frozenset({Opcode.SEND, Opcode.RENDEZVOUS_SEND, Opcode.DEFERRABLE_SEND})
_TAGGED: Final = frozenset({Opcode.TAGGED_SEND, Opcode.RENDEZVOUS_TSEND, Opcode.DEFERRABLE_TSEND})
_SENDS: Final = _UNTAGGED | _TAGGED
_NO_HEADER: Final = NextHeader.NONE
_WRITE: Final = Opcode.WRITE
_SEND: Final = Opcode.SEND
_TAGGED_SEND: Final = Opcode.TAGGED_SEND
_DONE_WELL: Final = ReturnCode.OK
_RESPONSE_HEADER: Final = NextHeader.RESPONSE
_DEFAULT_RESPONSE: Final = int(ResponseList.EXPECTED) << 6 | int(ResponseOpcode.DEFAULT_RESPONSE)
_OK: Final = int(ReturnCode.OK)
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes
_NOTHING: Final = Answer(NextHeader.NONE, b"")


@lru_cache(maxsize=4096)
def _address_number(remote: str) -> int:
    return int(ip_address(remote))


@lru_cache(maxsize=4096)
def _initiator_address(remote: str, initiator: int, job_id: int) -> FepAddress:
    return FepAddress(remote, initiator >> 12 & 0xFFF, initiator & 0xFFF, job_id)


class TargetSemantics:
    """Executes what peers ask of one FEP."""

    def __init__(self, fep: SemanticsOwner) -> None:
        self._fep = fep
        self.rudi = RudiChannel(fep)
        self.deferred = DeferredSends(fep, self)
        self.partial = PartialMessages(fep)

    @staticmethod
    def initiator_number(remote: str, initiator: int) -> int:
        """A number for {address, initiator ID}, by which receives choose their senders: an ID is a host's own.

        Calculated, not handed out: a stranger may make up as many initiators as he likes.
        """
        return _address_number(remote) << 32 | initiator

    # --- requests on a PDC -------------------------------------------------------------------------------

    def on_request(
        self, pdc: Pdc, psn: int, next_header: NextHeader, data: bytes | memoryview, offset: int, now: int
    ) -> Answer:
        """Execute a request. Raises `DecodeError`, having done nothing, for what is not one."""
        if next_header is _NO_HEADER:
            return _NOTHING
        try:
            header, at = decode_ses(next_header, data, offset)
        except UnsupportedRequest as unsupported:
            message_id, job_id = request_identity(next_header, data, offset)
            return self._refusal(unsupported.return_code, message_id, job_id)
        payload = memoryview(data)[at:]  # a slice of bytes would be a copy of them
        transfers = self._fep.transfers(pdc)
        if isinstance(header, StandardRequest):
            opcode = header.opcode
            if opcode is _WRITE or opcode is _SEND or opcode is _TAGGED_SEND or opcode in _SENDS:
                return self._packet(pdc, transfers, header, psn, payload, offset, now)
            if opcode == Opcode.READ:
                return self._read(pdc, transfers, header, psn, now)
            if opcode in (Opcode.ATOMIC, Opcode.FETCHING_ATOMIC):
                return self._atomic(pdc, transfers, header, psn, payload, now)
            if opcode == Opcode.MSG_ERROR:
                return self._message_error(transfers, header, now)
            if opcode == Opcode.DEFERRABLE_RTR:
                if not self.deferred.restart(pdc.remote, header, now):
                    return self._error(ReturnCode.INITIATOR_ERR, header, header.message_id)
                return self._plain(header, header.message_id)
            if opcode == Opcode.NO_OP:
                if not self.deferred.knows(pdc.remote, header):
                    return self._error(ReturnCode.NO_MATCH, header, header.message_id)
                return self._plain(header, header.message_id)
            return self._error(ReturnCode.UNSUPPORTED_OP, header, header.message_id)
        if isinstance(header, (MediumRequest, SmallRequest)):
            if header.opcode == Opcode.READ:
                return self._read(pdc, transfers, header, psn, now)
            return self._single(pdc, transfers, header, payload, offset, now)
        if isinstance(header, ResponseData):
            waiting = transfers.pending.get(header.read_request_message_id)
            if waiting is not None:
                if len(payload) != header.payload_length:
                    raise DecodeError(offset + 10, f"{len(payload)} bytes follow, not {header.payload_length}")
                transfers.expect(now)
                waiting.on_data(header.message_offset, payload, ReturnCode(header.return_code), now)
            return _NOTHING
        if isinstance(header, ResponseDataSmall):
            waiting = transfers.short_reads.get(header.original_request_psn)
            if waiting is not None:
                if len(payload) != header.payload_length:
                    raise DecodeError(offset + 2, f"{len(payload)} bytes follow, not {header.payload_length}")
                transfers.expect(now)
                waiting.on_data(0, payload, header.return_code, now)
            return _NOTHING
        if isinstance(header, Response):
            return _NOTHING  # an answer without data comes with the ACK
        raise AssertionError(f"no such header: {header}")

    def default_response(self, next_header: NextHeader, data: bytes | memoryview, offset: int) -> Answer:
        """Table 3-43: for a request that was executed before. Raises `DecodeError` for what is not one."""
        if next_header == NextHeader.NONE:
            return _NOTHING
        try:
            header, _ = decode_ses(next_header, data, offset)
        except UnsupportedRequest:
            message_id, job_id = request_identity(next_header, data, offset)
            body = encode_response(ReturnCode.OK, message_id, job_id, 0, opcode=ResponseOpcode.DEFAULT_RESPONSE)
            return Answer(NextHeader.RESPONSE, body)
        if isinstance(header, StandardRequest):
            return self._plain(header, header.message_id)
        if isinstance(header, (MediumRequest, SmallRequest)):
            return self._plain(header, 0)
        return _NOTHING

    def _plain(self, header: RequestHeader, message_id: int) -> Answer:
        body = pack_response(_DEFAULT_RESPONSE, _OK, message_id, header.job_id, header.request_length)
        return Answer(NextHeader.RESPONSE, body)

    @staticmethod
    def no_room(code: NackCode = NackCode.NO_SES_MSG_AVAIL) -> Answer:
        """The packet is refused for now; its sender tries again after NACK_Retx_Time."""
        return Answer(NextHeader.NONE, b"", nack=code)

    def _error(self, code: ReturnCode, header: RequestHeader, message_id: int) -> Answer:
        return self._refusal(code, message_id, header.job_id)

    def _refusal(self, code: ReturnCode, message_id: int, job_id: int) -> Answer:
        self._fep.count(f"refused-{code.name.lower().replace('_', '-')}")
        return Answer(NextHeader.RESPONSE, encode_response(code, message_id, job_id, 0), guaranteed=True)

    # --- SEND, TAGGED_SEND and WRITE ---------------------------------------------------------------------

    def _packet(
        self,
        pdc: Pdc,
        transfers: PdcTransfers,
        header: StandardRequest,
        psn: int,
        payload: bytes | memoryview,
        offset: int,
        now: int,
    ) -> Answer:
        """One packet of a message that may have several; they may arrive in any order."""
        message = transfers.incoming.get(header.message_id)
        length = len(payload)
        first = bool(header.flags & _SES_SOM)
        limit = header.request_length
        if isinstance(header.extension, RendezvousExtension):
            limit = min(limit, header.extension.eager_length)
        if not first and length != header.payload_length:
            raise DecodeError(offset + 32, f"{length} bytes follow, not {header.payload_length}")
        at = 0 if first else header.message_offset
        if at + length > limit:
            raise DecodeError(offset + 36, f"bytes {at} to {at + length} of a message of {limit}")
        fresh = message is None
        if message is None:
            begun = self._first_packet(pdc, transfers, header, psn, length, now)
            if isinstance(begun, Answer):
                return begun
            message = begun
        elif (
            header.request_length != message.request_length
            or header.job_id != message.job_id
            or header.opcode is not message.opcode
            or at + length > message.total
        ):
            raise DecodeError(offset + 40, "not the message of this number that has begun")
        if message.region is not None and not message.region.registered:
            message.revoke()
        if first and header.flags & _SES_HD:
            message.header_data = header.header_data
        view = message.view
        if view is not None and length:
            view[at : at + length] = payload
        message.received += length
        if message.received >= message.total:
            transfers.incoming.pop(header.message_id, None)
            if message.partial is not None:
                self.partial.remove(message)
            self._complete(message, now)
        else:
            message.heard = now
            transfers.expect(now)
        if message.status is not _DONE_WELL:
            return self._error(message.status, header, header.message_id)
        if fresh and message.unexpected is not None:
            body = encode_response(
                ReturnCode.OK, header.message_id, header.job_id, message.total, place=ResponseList.OVERFLOW
            )
            return Answer(NextHeader.RESPONSE, body, guaranteed=True)
        return _new(Answer, (_RESPONSE_HEADER, message.answer, False, None, False))

    def _first_packet(
        self, pdc: Pdc, transfers: PdcTransfers, header: StandardRequest, psn: int, length: int, now: int
    ) -> IncomingMessage | Answer:
        """The message that begins with a packet of `length` bytes; its answer where it is refused or dropped."""
        dropped = transfers.dropped
        if dropped is not None and dropped.owns(header, psn):
            return self._error(ReturnCode.DROPPED, header, header.message_id)
        crowded = len(transfers.incoming) >= self._fep.config.max_messages or not self.partial.has_room(now)
        if crowded or pdc.ended:
            return self.no_room()
        message = self._begin(pdc, header, header.memory_key, now)
        if isinstance(message, Answer):
            return message
        if message.status is ReturnCode.DROPPED:
            if dropped is None:
                dropped = transfers.dropped = DroppedMessages()
            dropped.add(header, psn, length)
            return self._error(ReturnCode.DROPPED, header, header.message_id)
        if (length < message.total or header.opcode in self.deferred.OPCODES) and not message.is_refused:
            self.partial.add(message, pdc, now)
            transfers.incoming[header.message_id] = message
            if len(transfers.incoming) == 1:
                pdc.arm(transfers.expect(now))
        return message

    def _single(
        self,
        pdc: Pdc,
        transfers: PdcTransfers,
        header: MediumRequest | SmallRequest,
        payload: bytes | memoryview,
        offset: int,
        now: int,
    ) -> Answer:
        """A request of one packet, with a medium or small header and all of its data."""
        if header.opcode not in (Opcode.SEND, Opcode.TAGGED_SEND, Opcode.WRITE):
            return self._error(ReturnCode.UNSUPPORTED_OP, header, 0)
        if len(payload) != header.request_length:
            raise DecodeError(offset + 2, f"{len(payload)} bytes follow, not {header.request_length}")
        message = self._begin(pdc, header, header.memory_key, now)
        if isinstance(message, Answer):
            return message
        if isinstance(header, MediumRequest) and header.flags & _SES_HD:
            message.header_data = header.header_data
        if message.view is not None and len(payload):
            message.view[: len(payload)] = payload
        message.received = len(payload)
        self._complete(message, now)
        if message.status is not ReturnCode.OK:
            return self._error(message.status, header, 0)
        if message.unexpected is not None:
            body = encode_response(ReturnCode.OK, 0, header.job_id, message.total, place=ResponseList.OVERFLOW)
            return Answer(NextHeader.RESPONSE, body, guaranteed=True)
        return _new(Answer, (_RESPONSE_HEADER, message.answer, False, None, False))

    def _begin(self, pdc: Pdc, header: RequestHeader, key: int, now: int) -> IncomingMessage | Answer:
        """The first packet of a message that arrives decides where its data goes."""
        total = header.request_length
        message_id = header.message_id if isinstance(header, StandardRequest) else 0
        answer = pack_response(_DEFAULT_RESPONSE, _OK, message_id, header.job_id, total)
        message = IncomingMessage(total, None, None, answer)
        message.opcode = header.opcode
        message.job_id = header.job_id
        message.request_length = total
        if header.opcode == Opcode.WRITE:
            try:
                region = self._fep.memory.find(key, header.job_id)
                most = self._fep.config.max_incoming_bytes  # a header may say 4 GiB, and bring nothing
                message.view = region.view(header.buffer_offset, total, Access.REMOTE_WRITE, most)
                message.region = region
                message.place = header.buffer_offset
            except AccessRefused as refusal:
                message.status = refusal.return_code
            else:
                message.source = self._source(pdc.remote, header)
                message.endpoint = self._fep.find_endpoint(header.job_id, header.pid_on_fep, header.resource_index)
            return message
        endpoint = self._fep.find_endpoint(header.job_id, header.pid_on_fep, header.resource_index)
        if endpoint is None:
            message.status = self._missing(header)
            return message
        message.endpoint = endpoint
        message.source = self._source(pdc.remote, header)
        if header.opcode in self.deferred.OPCODES:
            assert isinstance(header, StandardRequest)
            return self.deferred.begin(pdc, header, message, now)
        tagged = header.opcode in _TAGGED
        queue = endpoint.tagged if tagged else endpoint.untagged
        initiator = 0 if isinstance(header, SmallRequest) else header.initiator
        number = self.initiator_number(pdc.remote, initiator)
        posted = queue.match(key if tagged else 0, number)
        if posted is None:
            message.unexpected = queue.add_unexpected(key if tagged else 0, number, total, message)
            if message.unexpected is None:
                return self.no_room()
            message.view = memoryview(bytearray(total))
            return message
        operation = posted.context
        assert isinstance(operation, Operation)
        if tagged:
            operation.tag = key
        self.meet(message, operation)
        return message

    @staticmethod
    def meet(message: IncomingMessage, operation: Operation) -> None:
        """A message and the receive that it matches."""
        message.operation = operation
        operation.source = message.source
        assert operation.buffer is not None
        if message.total > len(operation.buffer):
            message.status = ReturnCode.TOO_LONG
            operation.excess = message.total - len(operation.buffer)
        else:
            message.view = operation.buffer

    def _missing(self, header: RequestHeader) -> ReturnCode:
        """Which part of the address nobody has."""
        addresses = [endpoint.address for endpoint in self._fep.endpoints]
        if all(address.job_id != header.job_id for address in addresses):
            return ReturnCode.BAD_JOB_ID
        if all((address.job_id, address.pid_on_fep) != (header.job_id, header.pid_on_fep) for address in addresses):
            return ReturnCode.BAD_PID
        return ReturnCode.BAD_INDEX

    @staticmethod
    def _source(remote: str, header: RequestHeader) -> FepAddress:
        return _initiator_address(remote, 0 if isinstance(header, SmallRequest) else header.initiator, header.job_id)

    def _complete(self, message: IncomingMessage, now: int) -> None:
        """All of a message has arrived."""
        message.keep()
        operation = message.operation
        if operation is not None:
            operation.header_data = message.header_data
            length = message.total if message.status is ReturnCode.OK else 0
            operation.complete(message.status, length, now)
        elif message.unexpected is None and message.header_data is not None and message.endpoint is not None:
            notice = Operation(OpKind.REMOTE_WRITE, message.endpoint.completions, None, now)
            notice.source = message.source
            notice.header_data = message.header_data
            notice.complete(message.status, message.total, now)

    def take_unexpected(self, unexpected: UnexpectedMessage, operation: Operation, now: int) -> None:
        """A receive is posted for a message that came before it."""
        message = unexpected.content
        assert isinstance(message, IncomingMessage)
        message.unexpected = None
        operation.tag = unexpected.tag
        whole = message.received >= message.total
        buffered = message.view
        if self.deferred.take(message, operation, now):
            return
        self.meet(message, operation)
        if message.status is ReturnCode.OK and buffered is not None and message.view is not None:
            # What is still to come goes to its place at once; what has come is copied now, gaps and all.
            message.view[: message.total] = buffered
        if whole:
            self._complete(message, now)

    def _message_error(self, transfers: PdcTransfers, header: StandardRequest, now: int) -> Answer:
        """The initiator gives a message up."""
        message = transfers.incoming.pop(header.message_id, None)
        if message is not None:
            message.abort(ReturnCode.INITIATOR_ERR, "its initiator has given it up", now)
        return self._plain(header, header.message_id)

    # --- READ and atomics --------------------------------------------------------------------------------

    def _read(self, pdc: Pdc, transfers: PdcTransfers, header: RequestHeader, psn: int, now: int) -> Answer:
        """The length that a first packet asks for is not in its header: all, or a full packet's if more follow."""
        message_id = header.message_id if isinstance(header, StandardRequest) else 0
        if transfers.responses is not None and transfers.responses.full:
            return self.no_room(NackCode.NO_RESOURCE)
        if not isinstance(header, StandardRequest):
            at, length = 0, header.request_length
        elif header.flags & _SES_SOM:
            at = 0
            whole = bool(header.flags & _SES_EOM)
            length = header.request_length if whole else min(self._fep.payload_bytes, header.request_length)
        else:
            at, length = header.message_offset, header.payload_length
        if length > self._fep.payload_bytes or at + length > header.request_length:
            return self._error(ReturnCode.UNSUPPORTED_SIZE, header, message_id)
        try:
            view = self._fep.memory.resolve(
                header.memory_key, header.job_id, header.buffer_offset + at, length, Access.REMOTE_READ
            )
        except AccessRefused as refusal:
            return self._error(refusal.return_code, header, message_id)
        return self._return(pdc, transfers, header, psn, at, view, now)

    def _return(
        self,
        pdc: Pdc,
        transfers: PdcTransfers,
        header: RequestHeader,
        psn: int,
        at: int,
        data: bytes | memoryview,
        now: int,
    ) -> Answer:
        """Data goes back in the ACK if it is little, else as packets of the return direction."""
        key = header.memory_key
        # What is read of an offered message goes in packets that are acknowledged: by that its sender knows it arrived.
        if len(data) <= self._fep.config.max_ack_data_bytes and not self.deferred.offers(key):
            next_header, body = encode_data_response(header, psn, 0, at, len(data))
            return Answer(next_header, body + bytes(data), guaranteed=True)
        responses = transfers.responses
        if responses is None:
            responses = transfers.responses = ReadResponses(self.deferred)
        fresh = responses.exhausted
        responses.add(header, psn, at, data, key)
        if fresh:
            pdc.submit(responses, now)
        return self._plain(header, header.message_id if isinstance(header, StandardRequest) else 0)

    def _atomic(
        self,
        pdc: Pdc,
        transfers: PdcTransfers,
        header: StandardRequest,
        psn: int,
        payload: bytes | memoryview,
        now: int,
    ) -> Answer:
        if transfers.responses is not None and transfers.responses.full:
            return self.no_room(NackCode.NO_RESOURCE)
        extension = header.extension
        operand, compare = bytes(payload), b""
        if isinstance(extension, CswapExtension):
            operand = extension.swap[: header.request_length]
            compare = extension.compare[: header.request_length]
        if not isinstance(extension, (AtomicExtension, CswapExtension)) or len(operand) != header.request_length:
            return self._error(ReturnCode.AMO_UNSUPPORTED_SIZE, header, header.message_id)
        try:
            region = self._fep.memory.find(header.memory_key, header.job_id)
            target = region.view(header.buffer_offset, len(operand), Access.REMOTE_ATOMIC)
            old = apply(extension.amo_opcode, extension.datatype, target, operand, compare, header.buffer_offset)
            if extension.amo_opcode != AmoOpcode.READ:
                region.keep(header.buffer_offset, target)
        except (AccessRefused, AtomicRefused) as refusal:
            return self._error(refusal.return_code, header, header.message_id)
        if header.opcode == Opcode.FETCHING_ATOMIC:
            return self._return(pdc, transfers, header, psn, 0, old, now)
        return self._plain(header, header.message_id)

    # --- UUD ---------------------------------------------------------------------------------------------

    def send_datagram(
        self,
        operation: Operation,
        target: Target,
        header: MessageHeader,
        payload: memoryview,
        now: int,
    ) -> None:
        """UUD: one packet that nobody acknowledges; the operation ends when it has been handed over."""
        if header.opcode is not Opcode.SEND or header.header_data is not None:
            raise UsageError("UUD carries DATAGRAM_SEND alone, without tag and header data")
        if len(payload) > self._fep.payload_bytes:
            raise UsageError(f"a datagram is one packet: at most {self._fep.payload_bytes} bytes")
        request = encode_single(Opcode.DATAGRAM_SEND, target, RemoteBuffer(0), len(payload))
        head = Uud(next_header=NextHeader.REQUEST_STD).encode() + request
        entropy = self.rudi.next_entropy(now)
        self._fep.emit(Outgoing(target.ip, entropy, Priority.DATA, head, bytes(payload)))
        operation.complete(ReturnCode.OK, len(payload), now)

    def on_datagram(self, packet: Uud, incoming: Incoming, data: bytes | memoryview, offset: int, now: int) -> None:
        """A UUD packet: given to a posted receive, or dropped."""
        header, at = decode_ses(packet.next_header, data, offset)
        payload = data[at:]
        if not isinstance(header, StandardRequest) or header.opcode != Opcode.DATAGRAM_SEND:
            raise DecodeError(offset, "UUD carries DATAGRAM_SEND alone")
        endpoint = self._fep.find_endpoint(header.job_id, header.pid_on_fep, header.resource_index)
        posted = None
        if endpoint is not None and not incoming.trimmed and len(payload) == header.request_length:
            posted = endpoint.untagged.match(0, self.initiator_number(incoming.remote, header.initiator))
        if posted is None:
            self._fep.count("datagram-dropped")
            return
        operation = posted.context
        assert isinstance(operation, Operation) and operation.buffer is not None
        operation.source = self._source(incoming.remote, header)
        if len(payload) > len(operation.buffer):
            operation.complete(ReturnCode.TOO_LONG, 0, now)
            return
        operation.buffer[: len(payload)] = payload
        operation.complete(ReturnCode.OK, len(payload), now)
