"""Probes of one PDC: the round trip on the control class, and the proof to a new target that we hear it.

Source: UE Specification 1.0, section 3.6.13.7 (a probe follows the first ACK). The target counts the PDC as unconfirmed
until a packet names the PDCID that its ACK told, and ends it after New_PDC_Time. The first probe does that; so it is
sent again, after time-outs that double, until a probe is answered.

A probe also asks for what is in flight where no packet does. On a class of its own it overtakes data that waits in
queues; so its PSN is the latest one sent, and where that has yet to arrive, the target acknowledges once more when all
up to it is there. Its payload is where the SACK bitmap of the answer is to begin (table 3-38).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.protocols.uet.delivery.round_trips import LONGEST_RTO_NS
from testbed.protocols.uet.packets.codes import ControlType
from testbed.protocols.uet.packets.psn import PSN_MASK

if TYPE_CHECKING:
    from testbed.protocols.uet.delivery.pdc import Pdc


class Probing:
    """The probes of one PDC that are under way."""

    def __init__(self, pdc: Pdc) -> None:
        self._pdc = pdc
        self._number = -1
        self._sent_at = -1
        self._due = 0
        """When a probe that must be answered is sent again; 0: none must."""
        self._tries = 0

    def send(self, now: int) -> None:
        """Ask for the round trip on the control class. The answer to an earlier probe does not count any more."""
        self._sent_at = now
        # The first number is that of the time, as this knows none of those that were answered before.
        self._number = number = (self._number + 1 if self._number >= 0 else now >> 10) & 0xFFFF
        pdc = self._pdc
        window = pdc.sender.window
        latest = (window.next_psn - 1) & PSN_MASK
        pdc.send_control(ControlType.PROBE, latest, now, payload=window.cack_psn, opaque=number)

    def confirm(self, now: int) -> None:
        """Send probes until one is answered: the target is to know that we hear it."""
        self.send(now)
        wait = self._pdc.config.rto_ns << self._tries
        self._due = now + (wait if wait < LONGEST_RTO_NS else LONGEST_RTO_NS)
        self._pdc.arm(self._due)

    def answered(self, number: int, now: int) -> int:
        """A probe was answered: its round trip in ns, or -1 where it is not the latest one."""
        self._due = 0
        if self._sent_at < 0 or number != self._number:
            return -1
        rtt = now - self._sent_at
        self._sent_at = -1
        return rtt

    def handle_timer(self, now: int) -> int:
        """Send again what was not answered; when to come again, 0 for never."""
        if 0 < self._due <= now:
            self._due = 0
            self._tries += 1
            if self._tries <= self._pdc.config.max_rto_retx:  # else it is dead, and nothing is left to be said to it
                self.confirm(now)
        return self._due
