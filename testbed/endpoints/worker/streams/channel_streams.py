"""The two ends of a channel over a stream: what is written, what is read, and where it goes.

Each transfer is a header (step number, length) and its bytes. Where a later step of the source waits for a transfer's
end, the receiver answers its last byte with the step's number; the kernel's own acknowledgement may be late by
40 ms (TCP_DELACK_MIN). Nothing here waits, and no byte is touched by Python alone.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.program import Endpoint, Step
from testbed.endpoints.worker.streams.rsocket import RSocket
from testbed.endpoints.worker.streams.tcp_socket import TcpSocket
from testbed.endpoints.worker.traffic import Listener
from testbed.workload.steps import Combine

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers

HEADER = Struct("!II")
ACKNOWLEDGEMENT = Struct("!I")
TURN_BYTES = 1 << 20
"""After so many bytes of one channel the others have their turn."""
CHUNK_BYTES = 1 << 18
_NOTHING = memoryview(b"")


Stream = TcpSocket | RSocket
"""A connection whose calls never wait. All of them may raise `OSError`."""


class SendingEnd:
    """Writes transfers in the order in which they are given to it.

    `traffic` is sent, over and over, where a transfer has no data of its own.
    """

    def __init__(
        self,
        connection: Stream,
        to: Endpoint,
        *,
        traffic: memoryview,
        buffers: CollectiveBuffers | None,
        listener: Listener,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.connection = connection
        self.peer = to
        self._clock_ns = clock_ns
        self.sent_bytes = 0
        self._traffic = traffic
        self._buffers = buffers
        self._listener = listener
        self._queue: deque[Step] = deque()
        self._header = _NOTHING
        self._data: memoryview | None = None
        """The rest of the present transfer's own data; None: it has none."""
        self._left = 0
        self._answers: dict[int, Step] = {}
        """Transfers whose end the receiver tells."""
        self._partial = b""

    @property
    def waiting(self) -> bool:
        """Tell whether there is something to be written."""
        return bool(self._queue or self._left or self._header)

    def put(self, step: Step) -> None:
        self._queue.append(step)

    def write(self) -> None:
        """Write what the kernel takes. Raises `OSError`."""
        room = TURN_BYTES
        while room > 0:
            if not self._left and not self._header and not self._next():
                return
            data = self._traffic if self._data is None else self._data
            try:
                written = self.connection.sendmsg((self._header, data[: min(self._left, CHUNK_BYTES)]))
            except BlockingIOError:
                return
            of_header = min(written, len(self._header))
            self._header = self._header[of_header:]
            written -= of_header
            self._left -= written
            self.sent_bytes += written
            room -= written
            if self._data is not None:
                self._data = self._data[written:]
            if not self._left and not self._header:
                self._finish()

    def _next(self) -> bool:
        if not self._queue:
            return False
        step = self._queue[0]
        self._header = memoryview(HEADER.pack(step.number, step.size_bytes))
        self._left = step.size_bytes
        self._data = None
        if step.piece is not None:
            assert self._buffers is not None
            self._data = self._buffers.outgoing(step)
        return True

    def _finish(self) -> None:
        step = self._queue.popleft()
        if step.acknowledged:
            self._answers[step.number] = step
        else:
            self._listener.on_sent(step, self._clock_ns())

    def read(self) -> None:
        """Read what the receiver answers. Raises `OSError`, and `TrafficError` where it has closed."""
        try:
            data = self.connection.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise TrafficError(f"{self.peer} has closed its connection")
        data = self._partial + data
        now = self._clock_ns()
        whole = len(data) - len(data) % ACKNOWLEDGEMENT.size
        for (number,) in ACKNOWLEDGEMENT.iter_unpack(data[:whole]):
            # An answer may overtake the return of the call that wrote the last byte, never the writing itself.
            step = self._answers.pop(number, None)
            if step is None:
                raise TrafficError(f"{self.peer} acknowledges step {number}, which it was not sent")
            self._listener.on_sent(step, now)
        self._partial = data[whole:]


class ReceivingEnd:
    """Reads transfers and puts them where they belong. `scratch` may be shared by all ends of a process."""

    def __init__(
        self,
        connection: Stream,
        origin: Endpoint,
        steps: Mapping[int, Step],
        *,
        scratch: memoryview,
        buffers: CollectiveBuffers | None,
        listener: Listener,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.connection = connection
        self.peer = origin
        self._clock_ns = clock_ns
        self._steps = dict(steps)
        """By number, those that are still to come."""
        self._scratch = scratch
        self._buffers = buffers
        self._listener = listener
        self._step: Step | None = None
        self._done = 0
        """Bytes of the present transfer that are where they belong."""
        self._kept = b""
        """The beginning of a header, or of an element."""
        self._answers = b""

    @property
    def waiting(self) -> bool:
        """Tell whether there is something to be written."""
        return bool(self._answers)

    def write(self) -> None:
        """Write answers. Raises `OSError`."""
        if self._answers:
            try:
                written = self.connection.send(self._answers)
            except BlockingIOError:
                return
            self._answers = self._answers[written:]

    def read(self) -> None:
        """Read what has arrived. Raises `OSError`, and `TrafficError` for what makes no sense."""
        room = TURN_BYTES
        while room > 0:
            try:
                count = self._read_once()
            except BlockingIOError:
                break
            if count == 0:
                raise TrafficError(f"{self.peer} has closed its connection")
            room -= count
        self.write()

    def _read_once(self) -> int:
        step = self._step
        if step is not None and not self._kept:
            left = step.size_bytes - self._done
            # Much is left of it: straight to where it belongs, without looking for the next header.
            if left >= CHUNK_BYTES and step.piece is None:
                # tcp(7): with MSG_TRUNC the kernel drops the bytes instead of copying them
                count = self.connection.recv_into(self._scratch, min(left, len(self._scratch)), socket.MSG_TRUNC)
                self._took(step, count)
                return count
            if step.piece is not None and step.piece.combine is not Combine.REDUCE:
                assert self._buffers is not None
                count = self.connection.recv_into(self._buffers.landing(step)[self._done :])
                self._took(step, count)
                return count
        kept = len(self._kept)
        self._scratch[:kept] = self._kept

        count = self.connection.recv_into(self._scratch[kept:])
        if count:
            self._kept = b""
            self._consume(self._scratch[: kept + count])
        return count

    def _consume(self, data: memoryview) -> None:
        while data:
            if self._step is None:
                if len(data) < HEADER.size:
                    self._kept = bytes(data)
                    return
                self._begin(*HEADER.unpack_from(data))
                data = data[HEADER.size :]
                continue
            step = self._step
            part = data[: step.size_bytes - self._done]
            used = len(part)
            if step.piece is not None:
                assert self._buffers is not None
                if step.piece.combine is Combine.REDUCE:
                    used = self._buffers.add(step, self._done, part)
                    if not used:
                        self._kept = bytes(part)
                        return
                else:
                    self._buffers.landing(step)[self._done : self._done + used] = part
            self._took(step, used)
            data = data[used:]

    def _begin(self, number: int, size_bytes: int) -> None:
        step = self._steps.pop(number, None)
        if step is None or step.size_bytes != size_bytes:
            raise TrafficError(f"{self.peer} sends {size_bytes} bytes of step {number}, which do not belong here")
        self._step = step
        self._done = 0

    def _took(self, step: Step, count: int) -> None:
        self._done += count
        self._listener.on_bytes(count)
        if self._done == step.size_bytes:
            self._step = None
            if step.acknowledged:
                self._answers += ACKNOWLEDGEMENT.pack(step.number)
            self._listener.on_arrived(step, self._clock_ns())
