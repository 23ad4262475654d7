"""One TCP connection of NVMe/TCP: cuts the stream into PDUs, puts data where they belong, and queues what is sent.

Host and controller share it. Bytes come in by two steps, so that bulk data are copied by the kernel alone:
`receive_buffers` names the memory into which the next bytes of the stream go, `on_received` says how many came. While
the data of an H2CData or C2HData are on their way, the first of these buffers is their destination itself; all else
goes through a small staging buffer, in which a PDU is whole before it is looked at. What may be staged is bounded by
`most_staged`: a longer PDU ends the connection.

A peer that breaks the protocol is told so by a termination PDU (`FatalError` has its FES), after which nothing is
received any more, and the connection is `finished` once that PDU is out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.nvme.codes import PduType
from testbed.protocols.nvme.commands import Buffer
from testbed.protocols.nvme.data_structures import IN_CAPSULE_BYTES
from testbed.protocols.nvme.digest import DIGEST_BYTES, compute_digest, encode_digest
from testbed.protocols.nvme.pdu import (
    COMMON_BYTES,
    FatalError,
    Field,
    Header,
    Layout,
    Termination,
    TransferHeader,
    check_header_digest,
    decode_header,
    decode_termination,
    decode_transfer,
    encode_pdu,
    encode_termination,
    invalid_field,
)

STAGING_BYTES: Final = 32 * 1024
_MOST_HEAD: Final = 512
"""Headers with digests and padding are shorter."""
_BULK_BYTES: Final = 64 * 1024
MOST_BUFFERS: Final = 64
"""So many buffers are handed out to be sent at once."""


class Connection(ABC):
    """The parts of a connection that both ends have. Times in ns."""

    allowed: frozenset[PduType]
    """The PDUs that may come."""
    terminates: PduType
    """The termination that this end sends."""

    def __init__(self, most_in_capsule: int = IN_CAPSULE_BYTES) -> None:
        self.receiving: Layout = Layout()
        self.sending: Layout = Layout()
        self.error: FatalError | None = None
        """The peer's breach of the protocol."""
        self.terminated: Termination | None = None
        """Our breach of the protocol, as the peer says."""
        self.closed: bool = False
        """Nothing is received any more, and nothing new is sent."""
        self.unsent_bytes: int = 0
        self.sent_bytes: int = 0
        self._most_in_capsule: Final[int] = most_in_capsule
        self._staging: Final[memoryview] = memoryview(bytearray(max(STAGING_BYTES, most_in_capsule + _MOST_HEAD)))
        self._staged_from = 0
        self._staged_to = 0
        self._header: Header | None = None
        self._transfer: TransferHeader | None = None
        self._place: memoryview = memoryview(b"")
        self._placed = 0
        self._digest = 0
        self._out: deque[memoryview] = deque()

    # --- bytes in -----------------------------------------------------------------------------------------

    def receive_buffers(self) -> list[memoryview]:
        """Return the buffers into which the next bytes of the stream go, in this order; empty where no more are
        wanted."""
        if self.closed:
            return []
        if self._staged_to == self._staged_from:
            self._staged_from = self._staged_to = 0
        elif len(self._staging) - self._staged_to < _MOST_HEAD or self._needs_room():
            rest = self._staged_to - self._staged_from
            self._staging[:rest] = bytes(self._staging[self._staged_from : self._staged_to])
            self._staged_from, self._staged_to = 0, rest
        free = self._staging[self._staged_to :]
        missing = len(self._place) - self._placed
        if missing > _BULK_BYTES:
            return [self._place[self._placed :], free[:_MOST_HEAD]]  # What is staged of the next one is copied.
        return [self._place[self._placed :], free] if missing else [free]

    def _needs_room(self) -> bool:
        header = self._header
        return header is not None and self._transfer is None and self._staged_from + header.plen > len(self._staging)

    def on_received(self, count: int, now: int) -> None:
        """So many bytes have come into `receive_buffers`."""
        if self.closed:
            return
        direct = min(count, len(self._place) - self._placed)
        if direct:
            self._take_data(self._placed, direct)
        self._staged_to += count - direct
        if self._staged_to > len(self._staging):
            raise UsageError("more bytes than there was room for")
        try:
            while not self.closed and self._advance(now):
                pass
        except FatalError as error:
            self.terminate(error)

    def receive(self, data: Buffer, now: int) -> None:
        """Take bytes that are in memory already; they are copied."""
        view = memoryview(data)
        while view and (buffers := self.receive_buffers()):
            count = 0
            for buffer in buffers:
                part = view[count : count + len(buffer)]
                buffer[: len(part)] = part
                count += len(part)
            self.on_received(count, now)
            view = view[count:]

    def _take_data(self, at: int, count: int) -> None:
        if self._header is not None and self._header.data_digest:
            self._digest = compute_digest(self._place[at : at + count], self._digest)
        self._placed = at + count

    def _advance(self, now: int) -> bool:
        """Handle what is next in the stream; tell whether there may be more."""
        staged = self._staged_to - self._staged_from
        header = self._header
        if header is None:
            if staged < COMMON_BYTES:
                return False
            common = self._staging[self._staged_from : self._staged_from + COMMON_BYTES]
            header = decode_header(common, self.allowed, self.receiving, self._most_data(common[0]))
            self._header = header
        if header.kind not in (PduType.H2C_DATA, PduType.C2H_DATA):
            return self._advance_whole(header, staged, now)
        if self._transfer is None:
            if staged < header.pdo:
                return False
            self._begin_placing(header)
            staged = self._staged_to - self._staged_from
        if self._placed < len(self._place):
            return False
        return self._finish_placing(header, staged, now)

    def _most_data(self, kind: int) -> int:
        return self._most_in_capsule if kind == PduType.CAPSULE_CMD else self.most_data()

    def _advance_whole(self, header: Header, staged: int, now: int) -> bool:
        if header.plen > len(self._staging):
            raise invalid_field(Field.PLEN, f"PLEN {header.plen}")
        if staged < header.plen:
            return False
        pdu = self._staging[self._staged_from : self._staged_from + header.plen]
        check_header_digest(pdu, header)
        data = pdu[header.pdo : header.pdo + header.data] if header.pdo else pdu[:0]
        good = True
        if header.data_digest:
            good = encode_digest(compute_digest(data)) == pdu[-DIGEST_BYTES:]
        if header.kind in (PduType.H2C_TERM_REQ, PduType.C2H_TERM_REQ):
            self.terminated = decode_termination(pdu)
            self.close(f"the peer ends the connection: {self.terminated.name}")
            return False
        self.on_pdu(header, pdu, data, good, now)
        self._staged_from += header.plen
        self._header = None
        return True

    def _begin_placing(self, header: Header) -> None:
        pdu = self._staging[self._staged_from : self._staged_from + header.pdo]
        check_header_digest(pdu, header)
        transfer = decode_transfer(pdu)
        if transfer.length != header.data:
            raise invalid_field(Field.DATA_LENGTH, f"DATAL {transfer.length} in a PDU with {header.data} bytes")
        self._place = self.place_data(header, transfer)
        self._placed = 0
        self._digest = 0
        self._transfer = transfer
        self._staged_from += header.pdo
        count = min(self._staged_to - self._staged_from, len(self._place))
        self._place[:count] = self._staging[self._staged_from : self._staged_from + count]
        self._staged_from += count
        self._take_data(0, count)

    def _finish_placing(self, header: Header, staged: int, now: int) -> bool:
        good = True
        if header.data_digest:
            if staged < DIGEST_BYTES:
                return False
            found = self._staging[self._staged_from : self._staged_from + DIGEST_BYTES]
            good = encode_digest(self._digest) == found
            self._staged_from += DIGEST_BYTES
        transfer = self._transfer
        assert transfer is not None
        self._header = self._transfer = None
        self._place = self._staging[:0]
        self._placed = 0
        self.on_data(header, transfer, good, now)
        return True

    # --- what an end does with them ----------------------------------------------------------------------

    @abstractmethod
    def most_data(self) -> int:
        """The bytes of data that an H2CData or C2HData may bring."""

    @abstractmethod
    def on_pdu(self, header: Header, pdu: memoryview, data: memoryview, data_good: bool, now: int) -> None:
        """A PDU without data, or with data in the capsule, is whole. The memory is used again afterwards."""

    @abstractmethod
    def place_data(self, header: Header, transfer: TransferHeader) -> memoryview:
        """Return the memory for the data of a PDU, as long as they are. Raises `FatalError`."""

    @abstractmethod
    def on_data(self, header: Header, transfer: TransferHeader, data_good: bool, now: int) -> None:
        """The data are where `place_data` has said."""

    @abstractmethod
    def on_closed(self, reason: str) -> None:
        """The connection has ended, for a reason in words."""

    # --- bytes out ----------------------------------------------------------------------------------------

    def send_pdu(self, kind: PduType, body: bytes, data: Buffer = b"", flags: int = 0) -> None:
        """Queue a PDU; `data` are not copied, and must stay as they are until they are sent."""
        view = memoryview(data)
        if view and self.sending.data_digest:
            view = memoryview(bytes(view))  # What is written into it meanwhile must not belie its digest.
        self._queue(encode_pdu(kind, body, self.sending, data=len(view), flags=flags))
        if view:
            self._queue(view)
            if self.sending.data_digest:
                self._queue(encode_digest(compute_digest(view)))

    def _queue(self, data: Buffer) -> None:
        self._out.append(memoryview(data))
        self.unsent_bytes += len(data)

    def buffers_to_send(self) -> list[memoryview]:
        """The next bytes of the stream to the peer, in pieces as they are in memory."""
        if len(self._out) <= MOST_BUFFERS:
            return list(self._out)
        return [self._out[index] for index in range(MOST_BUFFERS)]

    def on_sent(self, count: int) -> None:
        """So many bytes of `buffers_to_send` are on their way."""
        self.unsent_bytes -= count
        self.sent_bytes += count
        while count:
            first = self._out[0]
            if count < len(first):
                self._out[0] = first[count:]
                return
            count -= len(first)
            self._out.popleft()

    def take_to_send(self) -> bytes:
        """All bytes that are to be sent, copied, as sent."""
        data = b"".join(self._out)
        self.on_sent(len(data))
        return data

    # --- the end ------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """It is closed, and the peer has been told why: the socket can go."""
        return self.closed and not self._out

    def terminate(self, error: FatalError) -> None:
        """End the connection because of what the peer does, and tell it."""
        if self.closed:
            return
        self.error = error
        offending = bytes(self._staging[self._staged_from : min(self._staged_to, self._staged_from + _MOST_HEAD)])
        if self._header is not None:
            offending = offending[: self._header.hlen]
        # What is queued goes first: amid the data of a PDU, this would be taken for data.
        self._queue(encode_termination(self.terminates, error, offending))
        self._close(str(error))

    def close(self, reason: str) -> None:
        """End the connection, as the stream has ended or nobody needs it; nothing more is sent."""
        if not self.closed:
            self._out.clear()
            self.unsent_bytes = 0
            self._close(reason)

    def _close(self, reason: str) -> None:
        self.closed = True
        self._place = self._staging[:0]
        self._placed = 0
        self.on_closed(reason)
