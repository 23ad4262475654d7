"""How operations end, for those who wait: the error of a failed one, the queue of ended ones, and the room for more."""

from __future__ import annotations

import asyncio
from collections import deque

from testbed.protocols.errors import TransportError, UsageError
from testbed.protocols.uet.packets.codes import RETURN_CODE_MEANINGS, ReturnCode
from testbed.protocols.uet.semantics.operations import Operation

UNSOLICITED = 65_536
"""Completions of nothing that was posted here (a peer's writes with header data) that a queue keeps."""


class CompletionError(TransportError):
    """An operation has failed; `code` says why, as UE Specification 1.0, section 3.4 lists the causes."""

    def __init__(self, operation: Operation) -> None:
        code = operation.status or ReturnCode.NULL
        reason = operation.error or RETURN_CODE_MEANINGS[code]
        super().__init__(f"{operation.kind.value}: {code.name} (0x{code:02x}): {reason}")
        self.operation = operation
        self.code = code


class Depth:
    """This tells how many more operations may begin; who waits is served in order."""

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
