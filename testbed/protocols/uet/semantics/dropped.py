"""Deferrable messages that a target has let go, and which of the packets that arrive are still theirs.

All packets of such a message are answered DROPPED, in whatever order they arrive. Its ID is free for another message
as soon as they are acknowledged, and comes again after 65,535 messages at the latest; so the ID alone does not tell
whose a packet is. Its PSN does: messages do not interleave on a PDC (UE Specification 1.0, section 3.5.7).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from testbed.protocols.uet.packets.codes import RequestBit
from testbed.protocols.uet.packets.psn import psn_add, psn_distance
from testbed.protocols.uet.packets.ses import StandardRequest

_SOM: Final = int(RequestBit.SOM)
_MOST: Final = 256
"""Messages of one PDC that are remembered: the latest ones."""


class _Dropped(NamedTuple):
    header: StandardRequest
    """The header of the first of its packets that arrived."""
    psn: int
    """The PSN of the same packet."""
    last_psn: int
    """The PSN of its last packet, if it is sent whole; its initiator may stop before that."""


class DroppedMessages:
    """The messages of one PDC that were let go."""

    def __init__(self) -> None:
        self._messages: dict[int, _Dropped] = {}

    def add(self, header: StandardRequest, psn: int, length: int) -> None:
        """Remember a message by the first of its packets to arrive, which has `length` bytes of it."""
        messages = self._messages
        at = 0 if header.flags & _SOM else header.message_offset
        # Only its last packet is shorter than the others, and that one leaves nothing to come.
        packets = -(-(header.request_length - at - length) // max(length, 1))
        messages.pop(header.message_id, None)
        messages[header.message_id] = _Dropped(header, psn, psn_add(psn, min(packets, 0x7FFF_FFFF)))
        if len(messages) > _MOST:
            del messages[next(iter(messages))]

    def owns(self, header: StandardRequest, psn: int) -> bool:
        """Tell whether a packet is one of a message that was let go; if it begins another, that one is forgotten."""
        dropped = self._messages.get(header.message_id)
        if dropped is None:
            return False
        first = dropped.header
        if (
            header.opcode is first.opcode
            and header.job_id == first.job_id
            and header.buffer_offset == first.buffer_offset  # the restart tokens
            and psn_distance(psn, dropped.last_psn) <= 0
            and not (header.flags & _SOM and psn_distance(psn, dropped.psn) > 0)
        ):
            return True
        del self._messages[header.message_id]
        return False
