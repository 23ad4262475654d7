"""The host's end of a connection, which is one queue: submits commands, moves their data, takes their completions.

States: it has sent ICReq and waits for ICResp; it has sent Connect and waits for its completion; it is `live`; it is
closed. A request belongs to the queue from `submit` until it is in `ended`, with its completion, or as lost when the
connection ended first: what a lost request has done nobody knows. A request is only said to have gone well when the
controller says so, and has had all data of a write or given all data of a read.

Sources: NVMe over TCP Transport Specification 1.0; NVM Express Base Specification 2.0, on queues over fabrics.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from testbed.protocols.errors import UsageError
from testbed.protocols.nvme.codes import FatalErrorStatus, PduFlag, PduType, Status
from testbed.protocols.nvme.commands import Buffer, ConnectData, Cqe, Sqe, connect_command, decode_cqe, encode_sqe
from testbed.protocols.nvme.config import HostConfig
from testbed.protocols.nvme.connection import Connection
from testbed.protocols.nvme.pdu import (
    COMMON_BYTES,
    TO_HOST,
    FatalError,
    Field,
    Header,
    Initialize,
    Layout,
    TransferHeader,
    decode_initialize,
    decode_transfer,
    invalid_field,
    sequence_error,
)

_LEAST_MAXH2CDATA: Final = 4096
_MOST_C2H_DATA: Final = 1 << 30
"""A C2HData may be as long as what was asked for, which is checked in its place."""
_CONNECT_IN_CAPSULE: Final = 8192
"""Fabrics and administration commands may always bring so many bytes (TCP, the rules of in-capsule data)."""


class HostRequest:
    """A command on its way. `tag` is the submitter's own."""

    __slots__ = (
        "asked", "begun", "cid", "data", "lost", "place", "r2t_ends", "received", "result", "sqe", "status", "tag",
        "timed_out",
    )  # fmt: skip

    def __init__(self, sqe: Sqe, *, data: Buffer = b"", place: Buffer = b"", tag: Any = None) -> None:
        """`data` go to the controller, and must stay as they are until it ended; `place` is filled by it."""
        self.sqe = sqe
        self.data: memoryview = memoryview(data)
        self.place: memoryview = memoryview(place)
        self.tag = tag
        self.cid: int = -1
        self.status: int = Status.SUCCESS
        """When it has ended: SCT and SC, with DNR above."""
        self.result: int = 0
        """Dwords 0 and 1 of its completion."""
        self.lost: bool = False
        """The connection ended before its completion came."""
        self.begun: int | None = None
        """When it was first known to be submitted."""
        self.timed_out: bool = False
        """The association was given up because this command, or another one of it, took too long."""
        self.received: int = 0
        self.asked: int = 0
        """R2Ts have asked for so many bytes."""
        self.r2t_ends: deque[int] = deque()
        """The position up to which the stream to the controller must be sent for each R2T that is under way."""

    @property
    def good(self) -> bool:
        return not self.lost and self.status & 0x7FF == 0


class HostQueue(Connection):
    """Made by `HostController`. Times in ns."""

    allowed = TO_HOST
    terminates = PduType.H2C_TERM_REQ

    def __init__(self, config: HostConfig, qid: int, entries: int, association: ConnectData) -> None:
        """`association`: what Connect says of host and subsystem, and on other queues than 0 of the controller."""
        super().__init__()
        self.config: Final = config
        self.qid: Final[int] = qid
        self.entries: Final[int] = entries
        self.live: bool = False
        self.reason: str = ""
        """Why it has ended."""
        self.refused: bool = False
        """The controller has refused Connect, and would again (DNR)."""
        self.cntlid: int = association.cntlid
        self.in_capsule_bytes: int = _CONNECT_IN_CAPSULE
        self.ended: deque[HostRequest] = deque()
        self._association = association
        self._initialized = False
        self._max_h2c_data = _LEAST_MAXH2CDATA
        self._requests: dict[int, HostRequest] = {}
        """By their identifiers, in the order in which they were submitted."""
        self._fresh: deque[HostRequest] = deque()
        """Requests whose time of submission is not known yet."""
        self._free: deque[int] = deque(range(entries))
        self._tail = 0
        self._head = 0
        offer = Initialize(
            pda=config.hpda,
            header_digest=config.header_digest,
            data_digest=config.data_digest,
            limit=max(config.maxr2t, 1) - 1,
        )
        self._queue(offer.encode(PduType.IC_REQ))

    # --- requests -----------------------------------------------------------------------------------------

    @property
    def outstanding(self) -> int:
        return len(self._requests)

    @property
    def has_room(self) -> bool:
        """Another request can be submitted: a queue is full with one entry less than it has."""
        if self.config.flow_control and (self._tail + 1) % self.entries == self._head:
            return False
        return self.live and not self.closed and len(self._requests) < self.entries - 1

    def submit(self, request: HostRequest) -> None:
        """Send a command. Raises `UsageError` where the queue is full or not live."""
        if not self.has_room:
            raise UsageError(f"queue {self.qid} takes no command now")
        self._submit(request)

    def _submit(self, request: HostRequest) -> None:
        cid = self._free.popleft()
        request.cid = cid
        self._requests[cid] = request
        self._fresh.append(request)
        self._tail = (self._tail + 1) % self.entries
        outgoing, incoming = len(request.data), len(request.place)
        in_capsule = 0 < outgoing <= self.in_capsule_bytes
        body = encode_sqe(request.sqe, cid, outgoing or incoming, in_capsule=in_capsule)
        self.send_pdu(PduType.CAPSULE_CMD, body, request.data if in_capsule else b"")
        if in_capsule:
            request.asked = outgoing

    def note_time(self, now: int) -> None:
        """Tell it the time, which is that of the submission of what was submitted since it was told last."""
        while self._fresh:
            self._fresh.popleft().begun = now

    @property
    def oldest_begun(self) -> int | None:
        """When the oldest command that has not ended was submitted; None where there is none, or nobody knows yet."""
        return next(iter(self._requests.values())).begun if self._requests else None

    def most_data(self) -> int:
        return _MOST_C2H_DATA

    # --- PDUs ---------------------------------------------------------------------------------------------

    def on_pdu(self, header: Header, pdu: memoryview, data: memoryview, data_good: bool, now: int) -> None:
        if header.kind is PduType.IC_RESP:
            self._initialize(decode_initialize(pdu))
        elif not self._initialized:
            raise sequence_error(f"{header.kind.name} before ICResp")
        elif header.kind is PduType.R2T:
            self._send_data(decode_transfer(pdu))
        else:
            self._complete(decode_cqe(pdu, COMMON_BYTES))

    def _initialize(self, answer: Initialize) -> None:
        if self._initialized:
            raise sequence_error("a second ICResp")
        config = self.config
        header_digest, data_digest = answer.header_digest, answer.data_digest
        if header_digest > config.header_digest or data_digest > config.data_digest:
            raise invalid_field(Field.DGST, "a digest that was not asked for")
        if answer.limit < _LEAST_MAXH2CDATA or answer.limit % 4:
            raise invalid_field(Field.MAX, f"MAXH2CDATA {answer.limit}")
        self._max_h2c_data = answer.limit
        self.receiving = Layout(header_digest, data_digest, (config.hpda + 1) * 4)
        self.sending = Layout(header_digest, data_digest, (answer.pda + 1) * 4)
        self._initialized = True
        kato_ms = config.kato_ms if self.qid == 0 else 0
        command = connect_command(self.qid, self.entries, kato_ms, flow_control=config.flow_control)
        self._submit(HostRequest(command, data=self._association.encode()))

    def _complete(self, cqe: Cqe) -> None:
        request = self._requests.get(cqe.cid)
        if request is None:
            raise invalid_field(Field.CQE_CID, f"no command has the identifier {cqe.cid}")
        if self.config.flow_control:
            self._head = cqe.sqhd % self.entries
        request.result = cqe.result
        self._end_request(request, cqe.status)
        if not self.live:
            self.ended.pop()
            self._on_connected(cqe)

    def _on_connected(self, cqe: Cqe) -> None:
        if not cqe.good:
            self.refused = cqe.final
            self.close(f"Connect: {cqe}")
            return
        if self.config.flow_control:
            self._head = self._tail
        self.cntlid = cqe.result & 0xFFFF
        self.live = True

    def _end_request(self, request: HostRequest, status: int) -> None:
        if not request.status:
            request.status = status
        whole = request.received == len(request.place) and request.asked == len(request.data)
        if request.good and not whole:
            request.status = Status.DATA_TRANSFER_ERROR
        del self._requests[request.cid]
        self._free.append(request.cid)
        self.ended.append(request)

    # --- data ---------------------------------------------------------------------------------------------

    def _send_data(self, transfer: TransferHeader) -> None:
        request = self._requests.get(transfer.cid)
        if request is None:
            raise invalid_field(Field.CCCID, f"R2T for command {transfer.cid}, which is not there")
        if not transfer.length or transfer.offset + transfer.length > len(request.data):
            raise FatalError(
                FatalErrorStatus.DATA_TRANSFER_OUT_OF_RANGE,
                Field.DATA_OFFSET,
                f"R2T for {transfer.length} bytes at {transfer.offset} of {len(request.data)}",
            )
        if transfer.offset != request.asked:
            raise sequence_error(f"R2T at {transfer.offset}, not at {request.asked}")
        while request.r2t_ends and request.r2t_ends[0] <= self.sent_bytes:
            request.r2t_ends.popleft()
        if len(request.r2t_ends) >= self.config.maxr2t:
            raise FatalError(
                FatalErrorStatus.DATA_TRANSFER_LIMIT_EXCEEDED, 0, f"more than {self.config.maxr2t} R2Ts of a command"
            )
        request.asked += transfer.length
        end = transfer.offset + transfer.length
        for at in range(transfer.offset, end, self._max_h2c_data):
            part = request.data[at : min(at + self._max_h2c_data, end)]
            body = TransferHeader(transfer.cid, transfer.ttag, at, len(part)).encode()
            self.send_pdu(PduType.H2C_DATA, body, part, PduFlag.LAST if at + len(part) == end else 0)
        request.r2t_ends.append(self.sent_bytes + self.unsent_bytes)

    def place_data(self, header: Header, transfer: TransferHeader) -> memoryview:
        if not self._initialized:
            raise sequence_error("C2HData before ICResp")
        request = self._requests.get(transfer.cid)
        if request is None:
            raise invalid_field(Field.CCCID, f"data for command {transfer.cid}, which is not there")
        end = transfer.offset + transfer.length
        if end > len(request.place):
            raise FatalError(
                FatalErrorStatus.DATA_TRANSFER_OUT_OF_RANGE,
                Field.DATA_OFFSET,
                f"data up to {end}, {len(request.place)} are asked for",
            )
        if transfer.offset != request.received:
            raise sequence_error(f"data at {transfer.offset}, not at {request.received}")
        if header.flags & PduFlag.SUCCESS and (self.config.flow_control or not header.flags & PduFlag.LAST):
            raise invalid_field(Field.FLAGS, "SUCCESS where it may not be")
        return request.place[transfer.offset : end]

    def on_data(self, header: Header, transfer: TransferHeader, data_good: bool, now: int) -> None:
        request = self._requests[transfer.cid]
        request.received += transfer.length
        if not data_good:
            request.status = Status.TRANSIENT_TRANSPORT_ERROR
        if header.flags & PduFlag.SUCCESS:
            self._end_request(request, Status.SUCCESS)

    # --- the end ------------------------------------------------------------------------------------------

    def note_timeout(self) -> None:
        """Note that what is outstanding will be lost because a command took too long."""
        for request in self._requests.values():
            request.timed_out = True

    def on_closed(self, reason: str) -> None:
        """Give up what is outstanding. Before the queue is live that is its own Connect, which nobody has submitted."""
        self.reason = reason
        for request in self._requests.values():
            request.lost = True
        if self.live:
            self.ended += self._requests.values()
        self.live = False
        self._fresh.clear()
        self._requests.clear()
