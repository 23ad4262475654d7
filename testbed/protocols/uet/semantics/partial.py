"""Messages that have begun to arrive at one endpoint and are not whole yet: how much is kept of them, and how long.

Anybody who may write a memory region, or knows an endpoint, can begin messages and never end them. So what is kept of
all of them together is bounded by bytes, and each by the time for which nothing of it arrives. Messages do not
interleave on a PDC (UE Specification 1.0, section 3.5.7), and a lost packet of one is repeated sooner than that; so a
PDC one of whose messages stands still is broken, and ends with it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from testbed.protocols.uet.delivery.pdc import Pdc

if TYPE_CHECKING:
    from testbed.protocols.uet.semantics.incoming import IncomingMessage
    from testbed.protocols.uet.semantics.owner import SemanticsOwner

EACH_BYTES: Final = 768
"""The bytes that are kept of a message beside its data."""
_LOOKED_AT: Final = 64
"""Messages among which one is chosen to be let go."""


class PartialMessages:
    """The messages of one endpoint that are not whole, at most `max_incoming_bytes` and one message more."""

    __slots__ = ("_config", "_due", "_fep", "_kept", "bytes")

    def __init__(self, fep: SemanticsOwner) -> None:
        self._fep = fep
        self._config = fep.config
        self._kept: OrderedDict[IncomingMessage, tuple[Pdc, int]] = OrderedDict()
        """Whose they are, and their bytes."""
        self.bytes = 0
        self._due = 0
        """When the next look at their age is due, if there are any."""

    def __len__(self) -> int:
        return len(self._kept)

    def has_room(self, now: int) -> bool:
        """Tell whether one more may begin; for it, one is let go of which nothing has come for a time-out."""
        if self.bytes < self._config.max_incoming_bytes:
            return True
        oldest: IncomingMessage | None = None
        for _ in range(min(len(self._kept), _LOOKED_AT)):
            message = next(iter(self._kept))
            self._kept.move_to_end(message)
            if oldest is None or message.heard < oldest.heard:
                oldest = message
        if oldest is None or now - oldest.heard < self._config.rto_ns:
            return False
        self._let_go(oldest, now)
        return True

    def add(self, message: IncomingMessage, pdc: Pdc, now: int) -> None:
        """It has begun to arrive."""
        if not self._kept:
            self._due = now + self._config.patience_ns
        buffered = message.buffered_bytes
        self._kept[message] = (pdc, EACH_BYTES + buffered)
        self.bytes += EACH_BYTES + buffered
        message.partial = self
        message.heard = now

    def lose(self, message: IncomingMessage) -> None:
        """It has ended, and is not whole: its initiator or its PDC has given up, or nothing of it came for long."""
        self._fep.count("incomplete-message")
        self.remove(message)

    def remove(self, message: IncomingMessage) -> None:
        """It is whole, or has ended otherwise."""
        _, size = self._kept.pop(message)
        self.bytes -= size
        message.partial = None

    def _let_go(self, message: IncomingMessage, now: int) -> None:
        pdc, _ = self._kept[message]
        pdc.fail("a message on it has stood still for too long", now)

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is to be called; None for never."""
        return self._due if self._kept else None

    def handle_timer(self, now: int) -> None:
        """Let go of messages of which nothing has come for the patience of an operation, or half as long again."""
        if not self._kept or self._due > now:
            return
        self._due = now + self._config.patience_ns // 2
        silent = [message for message in self._kept if now - message.heard >= self._config.patience_ns]
        for message in silent:
            if message.partial is self:  # its PDC may have ended with the one before
                self._let_go(message, now)
