"""What a process of a job holds: an endpoint with its operations, its posted receives and its completion queue.

The vocabulary is libfabric's. An operation returns at once; it ends when it appears in `completions`.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING

from testbed.transport.uet.addressing import FepAddress
from testbed.transport.uet.errors import UsageError
from testbed.transport.uet.matching import ReceiveQueue
from testbed.transport.uet.packets.codes import AmoOpcode, AmoType, Mode, Opcode, ReturnCode
from testbed.transport.uet.semantics.messages import FetchedValue, Message, ReadMessage, Target, atomic_extension
from testbed.transport.uet.semantics.operations import Operation, OpKind
from testbed.transport.uet.semantics.owner import SemanticsOwner

if TYPE_CHECKING:
    from testbed.transport.uet.semantics.target import TargetSemantics

LONGEST_MESSAGE = (1 << 32) - 1
"""`request_length` has 32 bits."""
ANY_TAG = (1 << 64) - 1
_FETCHING_ONLY = frozenset({AmoOpcode.READ})
_COMPARING = frozenset(range(AmoOpcode.CSWAP, AmoOpcode.MSWAP + 1))


class SendKind(StrEnum):
    """The ways in which a SEND goes out."""

    EAGER = "eager"
    """Whole, at once."""
    RENDEZVOUS = "rendezvous"
    """One packet; the target reads the rest when it has a receive for it."""
    DEFERRABLE = "deferrable"
    """Whole, but a target without a receive lets it go and asks for it later."""


Buffer = bytes | bytearray | memoryview


def _view(buffer: Buffer) -> memoryview:
    view = memoryview(buffer).cast("B")
    if len(view) > LONGEST_MESSAGE:
        raise UsageError(f"a message has at most {LONGEST_MESSAGE} bytes, not {len(view)}")
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
        if how is not SendKind.EAGER:
            return self._deferred(OpKind.SEND, to, data, None, now, mode, how, context)
        return self._message(OpKind.SEND, Opcode.SEND, to, data, 0, now, mode, header_data, context)

    def tsend(
        self,
        to: FepAddress,
        data: Buffer,
        tag: int,
        now: int,
        *,
        mode: Mode = Mode.RUD,
        header_data: int | None = None,
        how: SendKind = SendKind.EAGER,
        context: object = None,
    ) -> Operation:
        """Send a message to the oldest receive of this tag (64 bits)."""
        if how is not SendKind.EAGER:
            return self._deferred(OpKind.TSEND, to, data, tag, now, mode, how, context)
        return self._message(OpKind.TSEND, Opcode.TAGGED_SEND, to, data, tag, now, mode, header_data, context)

    def _message(
        self,
        kind: OpKind,
        opcode: Opcode,
        to: FepAddress,
        data: Buffer,
        match: int,
        now: int,
        mode: Mode,
        header_data: int | None,
        context: object,
        address: int = 0,
    ) -> Operation:
        payload = _view(data)
        operation = Operation(kind, self.completions, context, now, payload)
        operation.tag = match if kind is OpKind.TSEND else 0
        target = self._target(to)
        if mode == Mode.UUD:
            self._semantics.send_datagram(operation, to, target, opcode, payload, match, header_data, now)
        elif mode == Mode.RUDI:
            if opcode is not Opcode.WRITE:
                raise UsageError("RUDI is for idempotent operations: WRITE and READ")
            self._semantics.rudi.write(operation, to.ip, target, payload, match, address, now)
        else:
            pdc = self._fep.submit(to.ip, self.address.job_id, mode, now)
            message = Message(
                self._fep.transfers(pdc),
                operation,
                target,
                opcode,
                payload,
                match=match,
                address=address,
                header_data=header_data,
            )
            self._fep.start(pdc, message, now)
        return operation

    def _deferred(
        self,
        kind: OpKind,
        to: FepAddress,
        data: Buffer,
        tag: int | None,
        now: int,
        mode: Mode,
        how: SendKind,
        context: object,
    ) -> Operation:
        if mode not in (Mode.RUD, Mode.ROD):
            raise UsageError(f"a {how.value} send needs RUD or ROD")
        payload = _view(data)
        operation = Operation(kind, self.completions, context, now, payload)
        operation.tag = tag or 0
        deferred = self._semantics.deferred
        if how is SendKind.RENDEZVOUS:
            eager = self._fep.payload_bytes
            deferred.rendezvous(self, operation, to, self._target(to), payload, tag, eager, mode, now)
        else:
            deferred.deferrable(self, operation, to, self._target(to), payload, tag, mode, now)
        return operation

    def _target(self, to: FepAddress) -> Target:
        return Target(self.address.job_id, to.pid_on_fep, to.resource_index, to.relative, self.initiator)

    def recv(self, buffer: bytearray | memoryview, now: int, *, context: object = None) -> Operation:
        """Post a buffer for the next message of `send`."""
        return self._receive(OpKind.RECV, self.untagged, buffer, 0, 0, None, now, context)

    def trecv(
        self,
        buffer: bytearray | memoryview,
        tag: int,
        now: int,
        *,
        ignore: int = 0,
        source: FepAddress | None = None,
        context: object = None,
    ) -> Operation:
        """Post a buffer for the next message of a tag; bits of `ignore` match anything."""
        initiator = None
        if source is not None:
            name = source.pid_on_fep << 12 | source.resource_index
            initiator = self._semantics.initiator_number(source.ip, name)
        return self._receive(OpKind.TRECV, self.tagged, buffer, tag, ignore, initiator, now, context)

    def _receive(
        self,
        kind: OpKind,
        queue: ReceiveQueue,
        buffer: bytearray | memoryview,
        tag: int,
        ignore: int,
        initiator: int | None,
        now: int,
        context: object,
    ) -> Operation:
        view = _view(buffer)
        if view.readonly:
            raise UsageError("a receive needs a buffer that can be written")
        operation = Operation(kind, self.completions, context, now, view)
        operation.tag = tag
        unexpected = queue.post(view, operation, tag, ignore, initiator)
        if unexpected is not None:
            self._semantics.take_unexpected(unexpected, operation, now)
        return operation

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
        key: int,
        offset: int,
        now: int,
        *,
        mode: Mode = Mode.RUD,
        header_data: int | None = None,
        context: object = None,
    ) -> Operation:
        """Write into the peer's memory region. With `header_data` the peer gets a completion too."""
        return self._message(OpKind.WRITE, Opcode.WRITE, to, data, key, now, mode, header_data, context, offset)

    def read(
        self,
        to: FepAddress,
        buffer: bytearray | memoryview,
        key: int,
        offset: int,
        now: int,
        *,
        mode: Mode = Mode.RUD,
        context: object = None,
    ) -> Operation:
        """Read from the peer's memory region into `buffer`."""
        view = _view(buffer)
        operation = Operation(OpKind.READ, self.completions, context, now, view)
        target = self._target(to)
        if mode == Mode.RUDI:
            self._semantics.rudi.read(operation, to.ip, target, view, key, offset, now)
        elif mode == Mode.UUD:
            raise UsageError("UUD has no READ: nothing would come back")
        else:
            pdc = self._fep.submit(to.ip, self.address.job_id, mode, now)
            transfers = self._fep.transfers(pdc)
            self._fep.start(pdc, ReadMessage(transfers, operation, target, view, key, offset), now)
            pdc.arm(transfers.expect(now))
        return operation

    def atomic(
        self,
        to: FepAddress,
        opcode: AmoOpcode,
        datatype: AmoType,
        operand: Buffer,
        key: int,
        offset: int,
        now: int,
        *,
        fetch: bytearray | memoryview | None = None,
        compare: bytes = b"",
        mode: Mode = Mode.RUD,
        context: object = None,
    ) -> Operation:
        """An atomic operation on the peer's memory; with `fetch` the old value comes back into it.

        `compare` is for the CSWAP family (the value compared) and MSWAP (the mask).
        """
        payload = _view(operand)
        if mode not in (Mode.RUD, Mode.ROD):
            raise UsageError("atomic operations need RUD or ROD: they must happen exactly once")
        if len(payload) > self._fep.payload_bytes:
            raise UsageError(f"an atomic operation is one packet: at most {self._fep.payload_bytes} bytes")
        if opcode in _COMPARING:
            if not 0 < len(compare) == len(payload) <= 16:
                raise UsageError(f"{opcode.name} needs a compare value as long as its operand, of 16 bytes at most")
            extension, payload = atomic_extension(opcode, datatype, compare, bytes(payload)), memoryview(b"")
            total = len(compare)
        else:
            if opcode in _FETCHING_ONLY and fetch is None:
                raise UsageError(f"{opcode.name} needs a buffer to fetch into")
            extension, total = atomic_extension(opcode, datatype), len(payload)
        kind = OpKind.ATOMIC if fetch is None else OpKind.FETCH_ATOMIC
        view = None if fetch is None else _view(fetch)
        operation = Operation(kind, self.completions, context, now, view)
        pdc = self._fep.submit(to.ip, self.address.job_id, mode, now)
        transfers = self._fep.transfers(pdc)
        message = Message(
            transfers,
            operation,
            self._target(to),
            Opcode.ATOMIC if fetch is None else Opcode.FETCHING_ATOMIC,
            payload,
            match=key,
            address=offset,
            extension=extension,
            total=total,
            pending=None if view is None else FetchedValue(transfers, operation, view),
        )
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
