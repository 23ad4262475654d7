"""The target's side of operations: messages that have begun to arrive, and data of reads on its way back.

Source: UE Specification 1.0, section 3.4 and table 3-11 (responses with data).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.delivery.window import NOMINAL_HEADER_BYTES, TxPacket
from testbed.protocols.uet.matching import UnexpectedMessage
from testbed.protocols.uet.memory import AccessRefused, MemoryRegion
from testbed.protocols.uet.packets.codes import NextHeader, Opcode, ReturnCode
from testbed.protocols.uet.packets.ses import RequestHeader
from testbed.protocols.uet.semantics.answers import encode_data_response
from testbed.protocols.uet.semantics.operations import Operation

if TYPE_CHECKING:
    from testbed.protocols.uet.semantics.deferred import Deferral, DeferredSends
    from testbed.protocols.uet.semantics.endpoint import Endpoint
    from testbed.protocols.uet.semantics.partial import PartialMessages

_MESSAGE_ID_MASK: Final = 0xFFFF
_MOST_RESPONSES: Final = 1 << 16
"""Packets of data that wait on one PDC to go back."""


class ReadResponses:
    """Target: data of reads that did not fit into ACKs, on its way back in the return direction."""

    __slots__ = ("_deferred", "_offered", "_packets", "message_id", "remaining_bytes")

    def __init__(self, deferred: DeferredSends) -> None:
        self._deferred = deferred
        self._offered: dict[TxPacket, int] = {}
        """Keys of packets whose data was offered by a rendezvous, which ends with their arrival."""
        self.remaining_bytes = 0
        self._packets: deque[TxPacket] | None = None
        self.message_id = 0

    def add(self, request: RequestHeader, psn: int, offset: int, data: bytes | memoryview, key: int) -> None:
        """Send `data`, which belongs at `offset` of the read of the memory of `key` that `request` is, or a part."""
        self.message_id = (self.message_id + 1) & _MESSAGE_ID_MASK
        next_header, body = encode_data_response(request, psn, self.message_id, offset, len(data))
        self.remaining_bytes += NOMINAL_HEADER_BYTES + len(data)
        if self._packets is None:
            self._packets = deque()
        packet = TxPacket(self, next_header, body, data)
        if self._deferred.offers(key):
            self._offered[packet] = key
        self._packets.append(packet)

    @property
    def full(self) -> bool:
        """An initiator asks for more than it fetches: requests are acknowledged, so that nothing else holds it back."""
        return self._packets is not None and len(self._packets) >= _MOST_RESPONSES

    @property
    def exhausted(self) -> bool:
        return not self._packets

    def next_packet(self) -> TxPacket | None:
        packets = self._packets
        if packets is None:
            return None
        packet = packets.popleft()
        if not packets:
            self._packets = None
        self.remaining_bytes -= NOMINAL_HEADER_BYTES + len(packet.payload)
        return packet

    def packet_acked(self, packet: TxPacket, next_header: NextHeader, response: bytes | memoryview, now: int) -> None:
        key = self._offered.pop(packet, None)
        if key is not None:
            self._deferred.was_read(key, len(packet.payload), now)

    def failed(self, reason: str, now: int) -> None:
        self._packets = None
        self.remaining_bytes = 0
        keys = set(self._offered.values())
        self._offered.clear()
        for key in keys:
            self._deferred.was_lost(key, reason, now)


class IncomingMessage:
    """Target: a message of which packets have arrived, in whatever order."""

    __slots__ = (
        "answer",
        "deferral",
        "endpoint",
        "header_data",
        "heard",
        "job_id",
        "opcode",
        "operation",
        "partial",
        "place",
        "received",
        "region",
        "request_length",
        "source",
        "status",
        "total",
        "unexpected",
        "view",
    )

    def __init__(self, total: int, view: memoryview | None, operation: Operation | None, answer: bytes) -> None:
        self.total = total
        """Bytes that come as its packets."""
        self.request_length = total
        """The length that its headers say: more, for a rendezvous."""
        self.view = view
        """The buffer for its data; None: it is counted only."""
        self.operation = operation
        """The receive that it meets."""
        self.answer = answer
        """Default response to its packets."""
        self.received = 0
        self.status = ReturnCode.OK
        self.header_data: int | None = None
        self.unexpected: UnexpectedMessage | None = None
        """Its place in the unexpected list while no receive has met it."""
        self.opcode = Opcode.SEND
        self.job_id = 0
        self.region: MemoryRegion | None = None
        """The region of a WRITE, of which `view` is a part."""
        self.place = 0
        """The buffer offset of a WRITE in its region."""
        self.endpoint: Endpoint | None = None
        self.source: FepAddress | None = None
        self.deferral: Deferral | None = None
        """The deferral of a rendezvous or deferrable send."""
        self.partial: PartialMessages | None = None
        """The partial messages of its endpoint, while it is one of them."""
        self.heard = 0
        """When the latest packet of it arrived."""

    @property
    def is_refused(self) -> bool:
        """Tell whether it has come to nothing: all of its packets are answered alike, and nobody waits for them."""
        return self.status is not ReturnCode.OK and self.operation is None and self.deferral is None

    def keep(self) -> None:
        """All of a WRITE has arrived: put it into memory that is copied. `status` says so where that fails."""
        region, view = self.region, self.view
        if region is None or region.copied is None or view is None or self.status is not ReturnCode.OK:
            return
        try:
            region.keep(self.place, view)
        except AccessRefused as refusal:
            self.status = refusal.return_code

    @property
    def buffered_bytes(self) -> int:
        """Return what is kept of it until it is whole, beside what lies in a receive or in registered memory."""
        staged = self.region is not None and self.region.copied is not None
        return self.total if staged or self.unexpected is not None else 0

    def revoke(self) -> None:
        """The memory that it goes to is no longer registered: the rest goes nowhere."""
        self.view = None
        self.region = None
        if self.status is ReturnCode.OK:
            self.status = ReturnCode.BAD_MKEY

    def abort(self, status: ReturnCode, reason: str, now: int) -> None:
        """No more of it will arrive."""
        self.status = status
        if self.partial is not None:
            self.partial.lose(self)
        if self.deferral is not None:
            self.deferral.forget()
        if self.operation is not None:
            self.operation.complete(status, 0, now, reason)
        elif self.unexpected is not None and self.endpoint is not None:
            # Else a receive would meet a message that never ends, and its bytes would count for ever.
            if not self.endpoint.tagged.discard(self.unexpected):
                self.endpoint.untagged.discard(self.unexpected)
            self.unexpected = None
