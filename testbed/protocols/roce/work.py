"""Work requests: what a user posts to a queue pair, and how it ended.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, section 10.7 (work requests) and 10.10.3 (the
status of completions; numbers as in `ibv_wc_status` of libibverbs).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from enum import IntEnum
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.roce.packets.opcodes import Operation

LONGEST_MESSAGE: Final = 1 << 31
"""Bytes (section 9.7.7)."""
ATOMIC_BYTES: Final = 8
Buffer = bytes | bytearray | memoryview


class WorkStatus(IntEnum):
    """The end of a work request."""

    SUCCESS = 0
    LOCAL_LENGTH_ERROR = 1
    """A receive was too short for its message, or a message too long for its queue pair."""
    LOCAL_QP_OPERATION_ERROR = 2
    FLUSHED = 5
    """The queue pair is in an error; this request was not executed, or not known to be."""
    REMOTE_INVALID_REQUEST = 9
    REMOTE_ACCESS_ERROR = 10
    REMOTE_OPERATION_ERROR = 11
    RETRY_EXCEEDED = 12
    """The peer did not answer, however often it was asked."""
    RNR_RETRY_EXCEEDED = 13
    """The peer had no receive posted, however often it was asked."""


class RemoteBuffer:
    """A place in the registered memory of a peer."""

    def __init__(self, virtual_address: int, rkey: int) -> None:
        self.virtual_address: Final[int] = virtual_address
        """64 bits."""
        self.rkey: Final[int] = rkey
        """32 bits."""


def byte_view(buffer: Buffer) -> memoryview:
    """A buffer as a row of bytes. Raises `UsageError` if it has gaps, or is longer than a message may be."""
    view = memoryview(buffer)
    if not view.contiguous:
        raise UsageError("the memory of a work request must be contiguous")
    view = view.cast("B")
    if len(view) > LONGEST_MESSAGE:
        raise UsageError(f"a message has at most {LONGEST_MESSAGE} bytes, not {len(view)}")
    return view


def writable_view(buffer: Buffer) -> memoryview:
    """A buffer that something arrives in, as a row of bytes. Raises `UsageError`."""
    view = byte_view(buffer)
    if view.readonly:
        raise UsageError("what is received or read needs a buffer that can be written")
    return view


def _atomic_view(buffer: Buffer) -> memoryview:
    view = writable_view(buffer)
    if len(view) != ATOMIC_BYTES:
        raise UsageError(f"an atomic operation fetches {ATOMIC_BYTES} bytes, not {len(view)}")
    return view


class WorkRequest:
    """A request of a `SendQueue`, whose methods make it; it has ended when `status` is not None."""

    def __init__(self, operation: Operation, data: memoryview, remote: RemoteBuffer | None, context: object) -> None:
        self.operation: Final[Operation] = operation
        self.has_response: Final[bool] = operation >= Operation.READ_REQUEST
        """It ends with data of the peer, not with an acknowledgement."""
        self.data: Final[memoryview] = data
        """The bytes that are sent or written, or the memory that is read into."""
        self.remote: Final[RemoteBuffer | None] = remote
        self.context: Final[object] = context
        """Whatever its user wants back with it."""
        self.immediate: int | None = None
        self.invalidate: int | None = None
        """An rkey of the peer's that is invalid once the message has arrived."""
        self.swap_or_add: int = 0
        self.compare: int = 0
        self.fence: bool = False
        """It begins when the READs and atomic operations before it have ended (section 10.8.3.3)."""
        self.status: WorkStatus | None = None
        self.error: str = ""
        """Why, where `status` does not say enough."""
        self.original: int = 0
        """The value that an atomic operation found."""
        self.finished_ns: int = 0
        # Of a datagram: whom it is for.
        self.remote_ip: str = ""
        self.remote_qpn: int = 0
        self.remote_qkey: int = 0
        # Of the requester: which packets it has, by their number in the life of the queue pair; the next request.
        self.first: int = 0
        self.packets: int = 1
        self.successor: WorkRequest | None = None
        self.received: int = 0
        """Packets of its response that have arrived without a gap."""

    @property
    def ok(self) -> bool:
        return self.status is WorkStatus.SUCCESS

    @property
    def length(self) -> int:
        """Bytes of its message."""
        return len(self.data)

    @property
    def end(self) -> int:
        """The number of the packet after its last."""
        return self.first + self.packets


class SendQueue(ABC):
    """Takes work requests: a queue pair, or a destination of dynamic connections.

    `fence`: the request begins when the READs and atomic operations before it have ended; without it what comes later
    may overtake what they find (section 10.8.3.3). Every method raises `UsageError` for memory that cannot be, in a
    state that allows no posting, and with a full queue. After an error a request ends as flushed, at once.
    """

    @abstractmethod
    def _post(self, request: WorkRequest, fence: bool, now: int) -> WorkRequest: ...

    def send(
        self,
        data: Buffer,
        now: int,
        *,
        immediate: int | None = None,
        invalidate: int | None = None,
        fence: bool = False,
        context: object = None,
    ) -> WorkRequest:
        """Send a message to the oldest receive that the peer has posted.

        `immediate` (32 bits) goes with it, or `invalidate`, an rkey of the peer's that is invalid after it.
        """
        if immediate is not None and invalidate is not None:
            raise UsageError("a SEND has immediate data or an rkey to invalidate, not both")
        request = WorkRequest(Operation.SEND, byte_view(data), None, context)
        request.immediate = immediate
        request.invalidate = invalidate
        return self._post(request, fence, now)

    def write(
        self,
        data: Buffer,
        remote: RemoteBuffer,
        now: int,
        *,
        immediate: int | None = None,
        fence: bool = False,
        context: object = None,
    ) -> WorkRequest:
        """Write into the memory of the peer; with `immediate` (32 bits) one of its receives ends, too."""
        request = WorkRequest(Operation.WRITE, byte_view(data), remote, context)
        request.immediate = immediate
        return self._post(request, fence, now)

    def read(
        self, into: Buffer, remote: RemoteBuffer, now: int, *, fence: bool = False, context: object = None
    ) -> WorkRequest:
        """Read from the memory of the peer."""
        return self._post(WorkRequest(Operation.READ_REQUEST, writable_view(into), remote, context), fence, now)

    def compare_swap(
        self,
        into: Buffer,
        remote: RemoteBuffer,
        values: tuple[int, int],
        now: int,
        *,
        fence: bool = False,
        context: object = None,
    ) -> WorkRequest:
        """Write the second value to eight bytes of the peer's if they are the first; what they were goes to `into`."""
        request = WorkRequest(Operation.COMPARE_SWAP, _atomic_view(into), remote, context)
        request.compare, request.swap_or_add = values
        return self._post(request, fence, now)

    def fetch_add(
        self, into: Buffer, remote: RemoteBuffer, add: int, now: int, *, fence: bool = False, context: object = None
    ) -> WorkRequest:
        """Add to eight bytes of the peer's; what they were goes to `into`."""
        request = WorkRequest(Operation.FETCH_ADD, _atomic_view(into), remote, context)
        request.swap_or_add = add
        return self._post(request, fence, now)


class ReceiveRequest:
    """A request of a receive queue: room for one message. It has ended when `status` is not None."""

    def __init__(self, buffer: memoryview, context: object) -> None:
        self.buffer: Final[memoryview] = buffer
        self.context: Final[object] = context
        self.status: WorkStatus | None = None
        self.error: str = ""
        self.length: int = 0
        """Bytes of the message."""
        self.operation: Operation = Operation.SEND
        """SEND, or WRITE for one with immediate data, which has touched another buffer than this one's."""
        self.immediate: int | None = None
        self.invalidated_rkey: int | None = None
        self.finished_ns: int = 0
        self.source_ip: str = ""
        self.source_qpn: int = 0

    @property
    def ok(self) -> bool:
        return self.status is WorkStatus.SUCCESS


Completion = WorkRequest | ReceiveRequest
CompletionQueue = deque[Completion]
"""Requests that have ended, oldest first."""


class PendingResponse:
    """The response of a READ that has not been sent whole, or of an atomic operation that came after one."""

    def __init__(self, number: int, data: memoryview, packets: int, again: bool, original: int = -1) -> None:
        self.number: Final[int] = number
        self.data: Final[memoryview] = data
        self.packets: Final[int] = packets
        self.again: Final[bool] = again
        """It was asked for before."""
        self.original: Final[int] = original
        """The value that an atomic operation found; -1: it is a READ."""
        self.sent: int = 0
