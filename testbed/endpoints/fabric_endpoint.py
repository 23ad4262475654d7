"""An endpoint under asyncio: operations that are awaited, or posted and told by the completion queue."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, Unpack

from testbed.protocols.errors import TransportError, UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.memory import RemoteBuffer
from testbed.protocols.uet.packets.codes import RETURN_CODE_MEANINGS, Mode, ReturnCode
from testbed.protocols.uet.semantics.endpoint import Buffer, Endpoint, SendKind, TaggedMessage, WritableBuffer
from testbed.protocols.uet.semantics.operations import Operation, OpKind

UNSOLICITED = 65_536
"""Completions of nothing that was posted here (a peer's writes with header data) that a queue keeps."""
Peer = FepAddress | str
"""`10.0.0.2` (process 0, resource index 1) or `ip/pid/ri`, of the endpoint's own job; or any address."""


class ModeOption(TypedDict, total=False):
    """The delivery of an operation: reliably and in any order, where nothing is said."""

    mode: Mode


class WriteOptions(ModeOption, total=False):
    """With `header_data` (64 bits), the peer is told of what arrives."""

    header_data: int | None


class TaggedSendOptions(ModeOption, total=False):
    """`how` a message that finds no receive is treated: `SendKind.EAGER`, where nothing is said."""

    how: SendKind


class SendOptions(WriteOptions, TaggedSendOptions, total=False):
    """The options of a message without a tag."""


class TaggedReceiveOptions(TypedDict, total=False):
    """Bits of `ignore` match any tag; `source` is the one endpoint whose messages count, None for any."""

    ignore: int
    source: FepAddress | None


class CompletionError(TransportError):
    """An operation has failed; `code` says why, as UE Specification 1.0, section 3.4 lists the causes."""

    def __init__(self, operation: Operation) -> None:
        code = operation.status or ReturnCode.NULL
        reason = operation.error or RETURN_CODE_MEANINGS[code]
        super().__init__(f"{operation.kind.value}: {code.name} (0x{code:02x}): {reason}")
        self.operation = operation
        self.code = code


class Depth:
    """The room for more operations under way; who waits is served in order."""

    __slots__ = ("_free", "_waiting", "size")

    def __init__(self, size: int) -> None:
        if size < 1:
            raise UsageError(f"a depth of {size} operations")
        self.size = size
        self._free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Take a place if one is free and nobody waits for it."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Take a place when there is one."""
        if self.take_now():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give()  # it had come, too late
            raise

    def give(self) -> None:
        """Give a place back: to who has waited longest."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._free += 1


class CompletionQueue:
    """Operations that have ended, oldest first: `async for operation in queue`. It ends when the endpoint is closed.

    Several tasks may read it; each operation goes to one of them.
    """

    def __init__(self) -> None:
        self.overruns = 0
        """Completions of peers' writes that were lost because nobody read them."""
        self._ended: deque[tuple[Operation, Depth | None]] = deque()
        self._unsolicited = 0
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ended)

    def put(self, operation: Operation, depth: Depth | None) -> None:
        """`depth`: where the operation keeps its place until it is read; None: nowhere."""
        if depth is None:
            if self._unsolicited >= UNSOLICITED:
                self.overruns += 1
                return
            self._unsolicited += 1
        self._ended.append((operation, depth))
        self._changed.set()

    def read(self) -> Operation | None:
        """The oldest, if there is one."""
        if not self._ended:
            return None
        operation, depth = self._ended.popleft()
        if depth is None:
            self._unsolicited -= 1
        else:
            depth.give()
        return operation

    def end(self) -> None:
        """No more operations are started."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> CompletionQueue:
        return self

    async def __anext__(self) -> Operation:
        while True:
            operation = self.read()
            if operation is not None:
                return operation
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()


@dataclass(slots=True, eq=False)
class _UnderWay:
    """An operation that has not ended: the place it takes, and who awaits it."""

    depth: Depth
    future: asyncio.Future[None] | None
    abandoned: bool = False
    """Its task was cancelled."""


class FabricEndpoint:
    """Made by `Domain.endpoint`. Every operation has two forms.

    `await endpoint.send(...)` waits for room among the operations under way, then for the end, and returns the
    completed `Operation` (length, source, header_data); it raises `CompletionError` with the return code if it failed.
    `endpoint.post_send(...)` returns at once; the `completion_queue` tells the operation when it has ended, well or
    not, and it keeps its place until it is read there. Without room it raises `BlockingIOError` (FI_EAGAIN).

    Both raise `UsageError` for what can never work. Buffers must not change until the operation has ended, and are
    referenced until then. A task that is cancelled while it waits takes its posted receive back; any other operation,
    and a receive that has met its message already, goes on to its end and is told by the completion queue.
    """

    def __init__(self, core: Endpoint, touch: Callable[[], None], *, transmit_depth: int, receive_depth: int) -> None:
        """`touch` is called when it has been given work."""
        self.address = core.address
        self._touch = touch
        self.completion_queue = CompletionQueue()
        """Completions of posted operations, and of peers' writes with header data."""
        self.is_closed = False
        self._core = core
        self._transmits = Depth(transmit_depth)
        self._receives = Depth(receive_depth)
        self._peers: dict[str, FepAddress] = {}
        self._under_way: dict[Operation, _UnderWay] = {}

    @property
    def under_way(self) -> int:
        """Operations that have not ended, posted receives included."""
        return len(self._under_way)

    # --- messages ----------------------------------------------------------------------------------------

    async def send(self, to: Peer, data: Buffer, **how: Unpack[SendOptions]) -> Operation:
        """Send a message to the oldest receive that the peer has posted."""
        return await self._do(self._transmits, self._core.send, self._peer(to), data, **how)

    def post_send(self, to: Peer, data: Buffer, *, context: object = None, **how: Unpack[SendOptions]) -> Operation:
        """`send`, without waiting."""
        return self._post(self._transmits, self._core.send, self._peer(to), data, context=context, **how)

    async def tsend(
        self, to: Peer, data: Buffer, tag: int, *, header_data: int | None = None, **how: Unpack[TaggedSendOptions]
    ) -> Operation:
        """Send a message to the oldest receive of this tag (64 bits)."""
        message = TaggedMessage(data, tag, header_data)
        return await self._do(self._transmits, self._core.tsend, self._peer(to), message, **how)

    def post_tsend(
        self,
        to: Peer,
        data: Buffer,
        tag: int,
        *,
        header_data: int | None = None,
        context: object = None,
        **how: Unpack[TaggedSendOptions],
    ) -> Operation:
        """`tsend`, without waiting."""
        message = TaggedMessage(data, tag, header_data)
        return self._post(self._transmits, self._core.tsend, self._peer(to), message, context=context, **how)

    async def recv(self, buffer: WritableBuffer) -> Operation:
        """Receive the next message of `send` into `buffer`."""
        return await self._do(self._receives, self._core.recv, buffer)

    def post_recv(self, buffer: WritableBuffer, *, context: object = None) -> Operation:
        """`recv`, without waiting."""
        return self._post(self._receives, self._core.recv, buffer, context=context)

    async def trecv(self, buffer: WritableBuffer, tag: int, **which: Unpack[TaggedReceiveOptions]) -> Operation:
        """Receive the next message of a tag; bits of `ignore` match anything. `source`: of this endpoint alone."""
        return await self._do(self._receives, self._core.trecv, buffer, tag, **which)

    def post_trecv(
        self, buffer: WritableBuffer, tag: int, *, context: object = None, **which: Unpack[TaggedReceiveOptions]
    ) -> Operation:
        """`trecv`, without waiting."""
        return self._post(self._receives, self._core.trecv, buffer, tag, context=context, **which)

    def cancel(self, operation: Operation) -> bool:
        """Take back a posted receive, which ends with CANCELLED; False if it has met a message."""
        cancelled = self._core.cancel(operation, time.monotonic_ns())
        self._touch()
        return cancelled

    # --- remote memory -----------------------------------------------------------------------------------

    async def write(
        self, to: Peer, data: Buffer, remote_buffer: RemoteBuffer, **how: Unpack[WriteOptions]
    ) -> Operation:
        """Write into the peer's memory. With `header_data` the peer's completion queue tells it."""
        return await self._do(self._transmits, self._core.write, self._peer(to), data, remote_buffer, **how)

    def post_write(
        self,
        to: Peer,
        data: Buffer,
        remote_buffer: RemoteBuffer,
        *,
        context: object = None,
        **how: Unpack[WriteOptions],
    ) -> Operation:
        """`write`, without waiting."""
        peer = self._peer(to)
        return self._post(self._transmits, self._core.write, peer, data, remote_buffer, context=context, **how)

    async def read(
        self, to: Peer, buffer: WritableBuffer, remote_buffer: RemoteBuffer, **how: Unpack[ModeOption]
    ) -> Operation:
        """Read from the peer's memory into `buffer`."""
        return await self._do(self._transmits, self._core.read, self._peer(to), buffer, remote_buffer, **how)

    def post_read(
        self,
        to: Peer,
        buffer: WritableBuffer,
        remote_buffer: RemoteBuffer,
        *,
        context: object = None,
        **how: Unpack[ModeOption],
    ) -> Operation:
        """`read`, without waiting."""
        peer = self._peer(to)
        return self._post(self._transmits, self._core.read, peer, buffer, remote_buffer, context=context, **how)

    async def atomic(self, to: Peer, amo: Amo, remote_buffer: RemoteBuffer, **how: Unpack[ModeOption]) -> Operation:
        """An atomic operation on the peer's memory."""
        return await self._do(self._transmits, self._core.atomic, self._peer(to), amo, remote_buffer, **how)

    async def fetch_atomic(
        self, to: Peer, amo: Amo, result: WritableBuffer, remote_buffer: RemoteBuffer, **how: Unpack[ModeOption]
    ) -> Operation:
        """An atomic operation whose old value comes back into `result`."""
        peer = self._peer(to)
        return await self._do(self._transmits, self._core.atomic, peer, amo, remote_buffer, fetch=result, **how)

    def post_atomic(
        self,
        to: Peer,
        amo: Amo,
        remote_buffer: RemoteBuffer,
        *,
        result: WritableBuffer | None = None,
        context: object = None,
        **how: Unpack[ModeOption],
    ) -> Operation:
        """`atomic`, or with `result` `fetch_atomic`, without waiting."""
        options = {"fetch": result, "context": context, **how}
        return self._post(self._transmits, self._core.atomic, self._peer(to), amo, remote_buffer, **options)

    # --- life of operations ------------------------------------------------------------------------------

    def _peer(self, to: Peer) -> FepAddress:
        if isinstance(to, FepAddress):
            return to
        found = self._peers.get(to)
        if found is None:
            job_id = self.address.job_id
            found = FepAddress.parse(to, job_id) if "/" in to else FepAddress(to, job_id=job_id)
            self._peers[to] = found
        return found

    def _post(self, depth: Depth, start: Callable[..., Operation], *arguments: object, **options: object) -> Operation:
        if not depth.take_now():
            raise BlockingIOError(f"{depth.size} operations are under way, or ended and not read")
        return self._start(depth, None, start, arguments, options)

    async def _do(
        self, depth: Depth, start: Callable[..., Operation], *arguments: object, **options: object
    ) -> Operation:
        await depth.take()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        operation = self._start(depth, future, start, arguments, options)
        try:
            await future
        except asyncio.CancelledError:
            self._abandon(operation)
            raise
        if not operation.ok:
            raise CompletionError(operation)
        return operation

    def _start(
        self,
        depth: Depth,
        future: asyncio.Future[None] | None,
        start: Callable[..., Operation],
        arguments: tuple[object, ...],
        options: dict[str, object],
    ) -> Operation:
        try:
            if self.is_closed:
                raise UsageError(f"{self.address} is closed")
            operation = start(*arguments, time.monotonic_ns(), **options)
        except BaseException:
            depth.give()
            raise
        self._under_way[operation] = _UnderWay(depth, future)
        self._touch()
        return operation

    def _abandon(self, operation: Operation) -> None:
        entry = self._under_way.get(operation)
        if entry is None:  # it had ended, and its task did not come to know
            if operation.status is not ReturnCode.CANCELLED:
                self.completion_queue.put(operation, None)
            return
        entry.abandoned = True
        if operation.kind in (OpKind.RECV, OpKind.TRECV):
            self.cancel(operation)

    def collect(self) -> None:
        """Hand out what has ended."""
        completions = self._core.completions
        while completions:
            operation = completions.popleft()
            entry = self._under_way.pop(operation, None)
            if entry is None:
                self.completion_queue.put(operation, None)
            elif entry.future is None:
                self.completion_queue.put(operation, entry.depth)
            else:
                entry.depth.give()
                if not entry.future.done():
                    entry.future.set_result(None)
                elif entry.abandoned and operation.status is not ReturnCode.CANCELLED:
                    self.completion_queue.put(operation, None)
        if self.is_closed and not self._under_way:
            self.completion_queue.end()

    def close(self) -> None:
        """Take back posted receives, and take no more operations; others go on to their end."""
        if self.is_closed:
            return
        self.is_closed = True
        self._core.close(time.monotonic_ns())
        self._touch()

    def give_up(self, reason: str) -> None:
        """End every operation at once, with CANCELLED."""
        now = time.monotonic_ns()
        for operation in list(self._under_way):
            operation.complete(ReturnCode.CANCELLED, 0, now, reason)
        self.collect()
