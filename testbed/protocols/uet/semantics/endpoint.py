"""The endpoint of a process of a job: its operations, its posted receives and its completion queue.

The vocabulary is libfabric's. An operation returns at once; it ends when it appears in `completions`.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.atomics import COMPARE_OPCODES, Amo
from testbed.protocols.uet.matching import ReceiveQueue, UnexpectedMessage
from testbed.protocols.uet.memory import RemoteBuffer
from testbed.protocols.uet.packets.codes import AmoOpcode, Mode, Opcode, ReturnCode
from testbed.protocols.uet.semantics.incoming import IncomingMessage
from testbed.protocols.uet.semantics.messages import (
    FetchedValue,
    Message,
    MessageHeader,
    ReadMessage,
    Target,
    atomic_extension,
)
from testbed.protocols.uet.semantics.operations import Operation, OpKind
from testbed.protocols.uet.semantics.owner import SemanticsOwner

if TYPE_CHECKING:
    from testbed.protocols.uet.semantics.target import TargetSemantics

LONGEST_MESSAGE: Final = (1 << 32) - 1
"""`request_length` has 32 bits."""
_FETCHING_ONLY: Final = frozenset({AmoOpcode.READ})


class SendKind(StrEnum):
    """The ways in which a SEND goes out."""

    EAGER = "eager"
    """Whole, at once."""
    RENDEZVOUS = "rendezvous"
    """One packet; the target reads the rest when it has a receive for it."""
    DEFERRABLE = "deferrable"
    """Whole, but a target without a receive lets it go and asks for it later."""


Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview


class TaggedMessage(NamedTuple):
    """The message of a tagged send (fi_tagged(3))."""

    data: Buffer
    tag: int
    """64 bits."""
    header_data: int | None = None
    """64 bits for the completion of the receive. A deferred send does not carry them."""


def _view(buffer: Buffer) -> memoryview:
    view = memoryview(buffer).cast("B")
    if len(view) > LONGEST_MESSAGE:
        raise UsageError(f"a message has at most {LONGEST_MESSAGE} bytes, not {len(view)}")
    return view


def _writable_view(buffer: WritableBuffer) -> memoryview:
    view = _view(buffer)
    if view.readonly:
        raise UsageError("what is received, read or fetched needs a buffer that can be written")
    return view


class Endpoint:
    """Made by `Fep.endpoint`. Every operation raises `UsageError` for what can never work, having done nothing."""

    def __init__(self, fep: SemanticsOwner, semantics: TargetSemantics, address: FepAddress) -> None:
        self.address = address
        self.completions: deque[Operation] = deque()
        """Operations that have ended, oldest first: the completion queue."""
        self._fep = fep
        self._semantics = semantics
        config = fep.config
        limits = {"max_unexpected": config.max_unexpected, "max_unexpected_bytes": config.max_unexpected_bytes}
        self.untagged = ReceiveQueue(**limits)
        self.tagged = ReceiveQueue(**limits)
        self.initiator = address.pid_on_fep << 12 | address.resource_index

    # --- messages ----------------------------------------------------------------------------------------

    def send(
        self,
        to: FepAddress,
        data: Buffer,
        now: int,
        *,
        mode: Mode = Mode.RUD,
        header_data: int | None = None,
        how: SendKind = SendKind.EAGER,
        context: object = None,
    ) -> Operation:
        """Send a message to the oldest receive that the peer has posted. UUD: one packet, at most once."""
        payload = _view(data)
        operation = Operation(OpKind.SEND, self.completions, context, now, payload)
        if how is SendKind.EAGER:
            self._start(operation, to, MessageHeader(Opcode.SEND, 0, 0, header_data), payload, mode, now)
        else:
            self._defer(operation, to, payload, how, mode, now)
        return operation

    def tsend(
        self,
        to: FepAddress,
        message: TaggedMessage,
        now: int,
        *,
        mode: Mode = Mode.RUD,
        how: SendKind = SendKind.EAGER,
        context: object = None,
    ) -> Operation:
        """Send a message to the oldest receive of its tag."""
        data, tag, header_data = message
        payload = _view(data)
        operation = Operation(OpKind.TSEND, self.completions, context, now, payload)
        operation.tag = tag
        if how is SendKind.EAGER:
            header = MessageHeader(Opcode.TAGGED_SEND, tag, 0, header_data)
            self._start(operation, to, header, payload, mode, now)
        else:
            self._defer(operation, to, payload, how, mode, now)
        return operation

    def _start(
        self, operation: Operation, to: FepAddress, header: MessageHeader, payload: memoryview, mode: Mode, now: int
    ) -> None:
        """Send a message whole, at once."""
        target = self._target(to)
        if mode == Mode.UUD:
            self._semantics.send_datagram(operation, target, header, payload, now)
        elif mode == Mode.RUDI:
            if header.opcode is not Opcode.WRITE:
                raise UsageError("RUDI is for idempotent operations: WRITE and READ")
            remote_buffer = RemoteBuffer(header.match_bits, header.buffer_offset)
            self._semantics.rudi.write(operation, target, payload, remote_buffer)
        else:
            pdc = self._fep.submit(to.ip, self.address.job_id, mode, now)
            self._fep.start(pdc, Message(self._fep.transfers(pdc), operation, target, header, payload), now)

    def _defer(
        self, operation: Operation, to: FepAddress, payload: memoryview, how: SendKind, mode: Mode, now: int
    ) -> None:
        """Send a message when its target has a receive for it."""
        if mode not in (Mode.RUD, Mode.ROD):
            raise UsageError(f"a {how.value} send needs RUD or ROD")
        deferred = self._semantics.deferred
        if how is SendKind.RENDEZVOUS:
            deferred.rendezvous(self, operation, self._target(to), payload, mode, now)
        else:
            deferred.deferrable(operation, self._target(to), payload, mode, now)

    def _target(self, to: FepAddress) -> Target:
        return Target(to.ip, self.address.job_id, to.pid_on_fep, to.resource_index, to.relative, self.initiator)

    def recv(
        self, buffer: WritableBuffer, now: int, *, source: FepAddress | None = None, context: object = None
    ) -> Operation:
        """Post a buffer for the next message of `send`; `source`: of this endpoint alone."""
        view = _writable_view(buffer)
        operation = Operation(OpKind.RECV, self.completions, context, now, view)
        self._posted(operation, self.untagged.post(view, operation, initiator=self._initiator_of(source)), now)
        return operation

    def trecv(
        self,
        buffer: WritableBuffer,
        tag: int,
        now: int,
        *,
        ignore: int = 0,
        source: FepAddress | None = None,
        context: object = None,
    ) -> Operation:
        """Post a buffer for the next message of a tag; bits of `ignore` match anything."""
        view = _writable_view(buffer)
        operation = Operation(OpKind.TRECV, self.completions, context, now, view)
        operation.tag = tag
        posted = self.tagged.post(view, operation, tag, ignore, self._initiator_of(source))
        self._posted(operation, posted, now)
        return operation

    def peek(self, tag: int, *, ignore: int = 0, source: FepAddress | None = None) -> UnexpectedMessage | None:
        """Return the tagged message that a receive posted now would take, left where it is (FI_PEEK of fi_tagged(3)).

        None, too, where it has not arrived whole: its header data may be missing.
        """
        found = self.tagged.peek(tag, ignore, self._initiator_of(source))
        if found is None:
            return None
        message = found.content
        assert isinstance(message, IncomingMessage)
        return found if message.received >= message.total and message.deferral is None else None

    def claim(self, found: UnexpectedMessage) -> None:
        """Take a message that `peek` has found out of the queue: for `take`, or for nobody."""
        self.tagged.discard(found)

    def take(
        self, claimed: UnexpectedMessage, buffer: WritableBuffer, now: int, *, context: object = None
    ) -> Operation:
        """Receive a message that was claimed."""
        operation = Operation(OpKind.TRECV, self.completions, context, now, _writable_view(buffer))
        operation.tag = claimed.tag
        self._semantics.take_unexpected(claimed, operation, now)
        return operation

    def _initiator_of(self, source: FepAddress | None) -> int | None:
        if source is None:
            return None
        return self._semantics.initiator_number(source.ip, source.pid_on_fep << 12 | source.resource_index)

    def _posted(self, operation: Operation, unexpected: UnexpectedMessage | None, now: int) -> None:
        """Give a receive the message that came before it, if there is one: else it is posted."""
        if unexpected is not None:
            self._semantics.take_unexpected(unexpected, operation, now)

    def cancel(self, operation: Operation, now: int) -> bool:
        """Take back a posted receive; False if it has met a message."""
        queue = self.tagged if operation.kind is OpKind.TRECV else self.untagged
        if queue.cancel(operation) is None:
            return False
        operation.complete(ReturnCode.CANCELLED, 0, now)
        return True

    # --- remote memory -----------------------------------------------------------------------------------

    def write(
        self,
        to: FepAddress,
        data: Buffer,
        remote_buffer: RemoteBuffer,
        now: int,
        *,
        mode: Mode = Mode.RUD,
        header_data: int | None = None,
        context: object = None,
    ) -> Operation:
        """Write into the peer's memory. With `header_data` the peer gets a completion too."""
        payload = _view(data)
        operation = Operation(OpKind.WRITE, self.completions, context, now, payload)
        header = MessageHeader(Opcode.WRITE, remote_buffer.key, remote_buffer.offset, header_data)
        self._start(operation, to, header, payload, mode, now)
        return operation

    def read(
        self,
        to: FepAddress,
        buffer: WritableBuffer,
        remote_buffer: RemoteBuffer,
        now: int,
        *,
        mode: Mode = Mode.RUD,
        context: object = None,
    ) -> Operation:
        """Read from the peer's memory into `buffer`."""
        view = _writable_view(buffer)
        operation = Operation(OpKind.READ, self.completions, context, now, view)
        target = self._target(to)
        if mode == Mode.RUDI:
            self._semantics.rudi.read(operation, target, view, remote_buffer)
        elif mode == Mode.UUD:
            raise UsageError("UUD has no READ: nothing would come back")
        else:
            pdc = self._fep.submit(to.ip, self.address.job_id, mode, now)
            transfers = self._fep.transfers(pdc)
            window = pdc.sender.window if self._fep.config.medium_reads else None
            self._fep.start(pdc, ReadMessage(transfers, operation, target, view, remote_buffer, window), now)
            pdc.arm(transfers.expect(now))
        return operation

    def atomic(
        self,
        to: FepAddress,
        amo: Amo,
        remote_buffer: RemoteBuffer,
        now: int,
        *,
        fetch: WritableBuffer | None = None,
        mode: Mode = Mode.RUD,
        context: object = None,
    ) -> Operation:
        """An atomic operation on the peer's memory; with `fetch` the old value comes back into it."""
        payload = _view(amo.operand)
        if mode not in (Mode.RUD, Mode.ROD):
            raise UsageError("atomic operations need RUD or ROD: they must happen exactly once")
        if len(payload) > self._fep.payload_bytes:
            raise UsageError(f"an atomic operation is one packet: at most {self._fep.payload_bytes} bytes")
        total = len(payload)
        if amo.opcode in COMPARE_OPCODES:
            if not 0 < len(amo.compare) == total <= 16:
                raise UsageError(f"{amo.opcode.name} needs a compare value as long as its operand, of 16 bytes at most")
            payload = memoryview(b"")  # both values are in the extension header
        elif amo.opcode in _FETCHING_ONLY and fetch is None:
            raise UsageError(f"{amo.opcode.name} needs a buffer to fetch into")
        kind = OpKind.ATOMIC if fetch is None else OpKind.FETCH_ATOMIC
        view = None if fetch is None else _writable_view(fetch)
        operation = Operation(kind, self.completions, context, now, view)
        opcode = Opcode.ATOMIC if fetch is None else Opcode.FETCHING_ATOMIC
        extension = atomic_extension(amo)
        header = MessageHeader(opcode, remote_buffer.key, remote_buffer.offset, None, extension, total)
        pdc = self._fep.submit(to.ip, self.address.job_id, mode, now)
        transfers = self._fep.transfers(pdc)
        pending = None if view is None else FetchedValue(transfers, operation, view)
        message = Message(transfers, operation, self._target(to), header, payload, pending=pending)
        self._fep.start(pdc, message, now)
        if view is not None:
            pdc.arm(transfers.expect(now))
        return operation

    def close(self, now: int) -> None:
        """Give up the posted receives, and the name."""
        for queue in (self.untagged, self.tagged):
            for posted in queue.cancel_all():
                operation = posted.context
                assert isinstance(operation, Operation)
                operation.complete(ReturnCode.CANCELLED, 0, now)
        self._semantics.deferred.closed(self)
        self._fep.remove_endpoint(self)
