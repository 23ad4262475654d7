"""Operations: what a user asks for, and at its end the completion that tells how it went.

The vocabulary is libfabric's (fi_msg(3), fi_tagged(3), fi_rma(3), fi_atomic(3), fi_cq(3)).
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.packets.codes import ReturnCode


class OpKind(StrEnum):
    SEND = "send"
    TSEND = "tsend"
    RECV = "recv"
    TRECV = "trecv"
    WRITE = "write"
    READ = "read"
    ATOMIC = "atomic"
    FETCH_ATOMIC = "fetch-atomic"
    REMOTE_WRITE = "remote-write"
    """A peer's WRITE with header data has arrived whole."""


class Operation:
    """An operation under way; it is put into the completion queue of its endpoint when it has ended.

    `status` is None until then, and OK for success.
    """

    def __init__(
        self, kind: OpKind, queue: deque[Operation], context: object, now: int, buffer: memoryview | None = None
    ) -> None:
        self.kind = kind
        self.context = context
        """Whatever the user gave."""
        self.status: ReturnCode | None = None
        self.error = ""
        """More about a failure."""
        self.length = 0
        """Bytes sent or received."""
        self.excess = 0
        """The bytes for which a receive that is too short for its message had no room."""
        self.source: FepAddress | None = None
        """The sender of what a receive took, as far as the packets tell."""
        self.tag = 0
        """A receive that has met its message has that of the message."""
        self.header_data: int | None = None
        self.buffer = buffer
        self.started_ns = now
        self.finished_ns = 0
        self._queue = queue

    @property
    def done(self) -> bool:
        return self.status is not None

    @property
    def ok(self) -> bool:
        return self.status is ReturnCode.OK

    def complete(self, status: ReturnCode, length: int, now: int, error: str = "") -> None:
        """End it; a second end changes nothing."""
        if self.status is not None:
            return
        self.status = status
        self.length = length
        self.finished_ns = now
        self.error = error
        self._queue.append(self)

    def __repr__(self) -> str:
        status = "under way" if self.status is None else self.status.name
        return f"<{self.kind.value} {self.length} B {status}{': ' + self.error if self.error else ''}>"
