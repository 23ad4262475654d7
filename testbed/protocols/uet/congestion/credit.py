"""Credit of UET, as delivery knows it: the base classes of a source that spends it and a destination that grants it.

The wire fields are the specification's (UE Specification 1.0, section 3.6.14). A controller that grants credit
overrides the methods of both; the base classes neither ask for any nor grant any.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from testbed.protocols.datagram import Incoming
from testbed.protocols.open_classes import mypyc_attr

CREDIT_UNIT_BYTES: Final = 256
"""Unit of credit and credit_target on the wire."""
CREDIT_MASK: Final = 0xFFFFFF
"""Both are counters of 24 bits that wrap."""
CREDIT_HALF: Final = 0x800000
"""A counter that seems to have moved this far or further has moved back: it is an old one."""
CREDIT_SHIFT: Final = 8
"""The counter is in the upper 24 bits of a CREDIT packet's payload, as in the credit state of an ACK (table 3-75);
credit_target in the lower 24 of a CREDIT_REQ's, as in a request (behind ccc_id). The notes on table 3-38 give the
widths only, and no public implementation reads either."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SourceCredit:
    """The credit of one source, in bytes: it may send while it has some."""

    def __init__(self, credit: int) -> None:
        self.credit: int = credit
        """May be below 0, since the last packet may overdraw it."""

    def can_send(self) -> bool:
        """Tell whether a packet may be sent, of whatever size."""
        return self.credit > 0

    def on_send(self, size: int) -> None:
        """A packet of `size` bytes was sent, the first time or again."""
        self.credit -= size

    def on_feedback(self) -> None:
        """Credit, an ACK or a NACK arrived: there is a receiver that schedules us."""

    def on_credit(self, now: int, counter: int) -> None:
        """`counter` is the cumulative credit (24 bits) of a CREDIT packet or ACK_CC."""

    def on_timeout(self, now: int) -> None:
        """The RTO of a packet fired."""

    def on_refusal(self) -> None:
        """All that was under way was refused before the destination knew us."""

    def credit_target(self, backlog_bytes: int, retransmit_bytes: int, cwnd: float | None) -> int:
        """24-bit credit_target: how far the destination's counter should go for all that waits to be sent.

        `cwnd` is the window of the source where it has one, too.
        """
        return 0

    def next_request_time(self) -> int | None:
        """Return when a source that has something to send should ask with CREDIT_REQ; None while it need not."""
        return None

    def on_request(self, now: int) -> None:
        """A CREDIT_REQ was sent."""


@mypyc_attr(allow_interpreted_subclasses=True)
class CreditGrants:
    """The grants of one destination to its sources. Times in ns; `next_grant_time` is the timer.

    `grant` says what to send: one CREDIT (or ACK_CC) per source and call.
    """

    def on_target(self, sender: Hashable, credit_target: int, now: int) -> None:
        """A request with a credit_target (24 bits) arrived."""

    def on_trimmed(self, sender: Hashable, size: int, now: int) -> None:
        """A packet of `size` bytes of this source was trimmed: it spent its credit, and will be sent again."""

    def on_arrival(self, incoming: Incoming, now: int) -> None:
        """A request of some source has arrived, whole or trimmed."""

    def on_request(self, sender: Hashable, credit_target: int, now: int) -> None:
        """A CREDIT_REQ arrived."""

    def remove(self, sender: Hashable) -> None:
        """The source has gone, or was never here."""

    def credit_of(self, sender: Hashable) -> int:
        """The 24-bit cumulative counter of a source."""
        return 0

    def next_grant_time(self) -> int | None:
        """Return when `grant` has something to say; None if nobody is to be granted anything."""
        return None

    def grant(self, now: int) -> list[tuple[Hashable, int]]:
        """Grants what is due: sources and their cumulative counters of 24 bits."""
        return []
