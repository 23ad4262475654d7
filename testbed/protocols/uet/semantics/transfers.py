"""The state of semantics for one PDC: message IDs, who waits for data, what has begun to arrive, and for how long."""

from __future__ import annotations

from typing import Final

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import NextHeader, ReturnCode
from testbed.protocols.uet.packets.responses import Response, ResponseData, ResponseDataSmall
from testbed.protocols.uet.packets.ses import decode_ses
from testbed.protocols.uet.semantics.dropped import DroppedMessages
from testbed.protocols.uet.semantics.incoming import IncomingMessage, ReadResponses
from testbed.protocols.uet.semantics.messages import Message, Pending, ReadMessage

LAST_MESSAGE_ID: Final = 0xFFFF


def check_response(next_header: NextHeader, data: bytes | memoryview, offset: int) -> None:
    """Raises `DecodeError` where an ACK's response is none: to take it for an acknowledgement would lose the answer."""
    header, at = decode_ses(next_header, data, offset)
    if isinstance(header, (ResponseData, ResponseDataSmall)) and len(data) - at != header.payload_length:
        raise DecodeError(at, f"{len(data) - at} bytes follow, not {header.payload_length}")


class PdcTransfers:
    """The state that semantics keeps for one PDC."""

    def __init__(self, payload_bytes: int, patience_ns: int) -> None:
        self.payload_bytes = payload_bytes
        self._patience_ns = patience_ns
        self._next_id = 0
        self._ids: set[int] | None = None
        """Message IDs in use; None: none, as on most PDCs at most times (an empty set has 200 bytes)."""
        self._deadline = 0
        self.pending: dict[int, Pending] = {}
        """Initiator: reads and fetching atomics that wait for data, by message ID."""
        self.short_reads: dict[int, ReadMessage] = {}
        """Initiator: reads without a message ID that wait for data, by the PSN of their request."""
        self.incoming: dict[int, IncomingMessage] = {}
        """Target: messages that have begun to arrive, by message ID."""
        self.responses: ReadResponses | None = None
        """Target: None before the first read that does not fit into ACKs."""
        self.dropped: DroppedMessages | None = None
        """Target: None before the first message that is let go."""

    @property
    def waiting(self) -> bool:
        return bool(self.pending or self.short_reads)

    def new_message_id(self) -> int:
        """1 to 65535, not in use."""
        ids = self._ids
        if ids is None:
            ids = self._ids = set()
        number = self._next_id
        for _ in range(LAST_MESSAGE_ID):
            number = number % LAST_MESSAGE_ID + 1
            if number not in ids:
                break
        self._next_id = number
        ids.add(number)
        return number

    def release(self, message_id: int) -> None:
        ids = self._ids
        if ids is not None:
            ids.discard(message_id)
            if not ids:
                self._ids = None

    def on_response(
        self, message: Message | ReadMessage, next_header: NextHeader, response: bytes | memoryview, now: int
    ) -> None:
        """An SES response that an ACK carries for one of the message's packets."""
        header, offset = decode_ses(next_header, response, 0)  # `check_response` has found it good
        if isinstance(header, Response):
            if header.return_code not in (ReturnCode.OK, ReturnCode.NULL):
                message.refuse(ReturnCode(header.return_code))
        elif isinstance(header, (ResponseData, ResponseDataSmall)):
            if isinstance(header, ResponseData):
                at, waiting = header.message_offset, self.pending.get(message.message_id)
            else:
                at, waiting = 0, self.short_reads.get(header.original_request_psn)
            if waiting is not None:
                data = response[offset : offset + header.payload_length]
                waiting.on_data(at, data, ReturnCode(header.return_code), now)

    def expect(self, now: int) -> int:
        """Something came or was asked for: the time by which the next thing must come."""
        self._deadline = now + self._patience_ns
        return self._deadline

    def handle_timer(self, now: int) -> int:
        if not self.waiting and not self.incoming:
            self._deadline = 0
        elif self._deadline and self._deadline <= now:
            self._deadline = 0
            self.fail("the peer has gone silent", now)
        return self._deadline

    def renumber(self, by: int) -> None:
        """All packets sent so far have other PSNs now, so much higher modulo 2**32 (NEW_START_PSN)."""
        self.short_reads = {read.renumber(by): read for read in self.short_reads.values()}

    def fail(self, reason: str, now: int) -> None:
        """End everything that still waits."""
        pending = [*self.pending.values(), *self.short_reads.values()]
        self.pending, self.short_reads = {}, {}
        for item in pending:
            item.failed(reason, now)
        incoming, self.incoming = self.incoming, {}
        for message in incoming.values():
            message.abort(ReturnCode.UNDELIVERABLE, reason, now)
