"""Receipts of one direction of a PDC: which PSNs, up to where without a gap, and which responses are still kept.

Source: UE Specification 1.0, sections 3.5.11 (CACK, SACK) and 3.5.20 (guaranteed delivery and CLEAR).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from testbed.protocols.uet.packets.codes import NextHeader
from testbed.protocols.uet.packets.psn import psn_add, psn_distance

SACK_BITS: Final = 64


class StoredResponse(NamedTuple):
    """A guaranteed response, kept until the peer has cleared it."""

    next_header: NextHeader
    body: bytes


class ReceiveTracker:
    """PSNs received so far, from `start_psn` on.

    `contiguous` is the highest PSN up to which all have been received; `bitmap` has those above it (bit 0: the next).
    """

    def __init__(self, start_psn: int) -> None:
        self.contiguous = psn_add(start_psn, -1)
        self.bitmap = 0
        self._held: dict[int, StoredResponse] = {}
        self._lowest = 0
        """The lowest PSN in `_held`, if there is any."""

    @property
    def cack_psn(self) -> int:
        """CACK_PSN: all up to here are received, and no response up to here waits for its CLEAR."""
        if self._held and psn_distance(self._lowest, self.contiguous) <= 0:
            return (self._lowest - 1) & 0xFFFF_FFFF
        return self.contiguous

    def has(self, psn: int) -> bool:
        """Tell whether this PSN was received (or lies so far behind that it must have been)."""
        offset = psn_distance(psn, self.contiguous)
        return offset <= 0 or bool(self.bitmap >> (offset - 1) & 1)

    def add(self, psn: int) -> bool:
        """Note that `psn` arrived. False if it had before."""
        offset = psn_distance(psn, self.contiguous)
        if offset == 1 and not self.bitmap:
            self.contiguous = psn
            return True
        if offset <= 0:
            return False
        bit = 1 << (offset - 1)
        if self.bitmap & bit:
            return False
        bitmap = self.bitmap | bit
        if bitmap & 1:
            gap = ~bitmap
            ones = (gap & -gap).bit_length() - 1
            self.contiguous = psn_add(self.contiguous, ones)
            bitmap >>= ones
        self.bitmap = bitmap
        return True

    @property
    def out_of_order(self) -> int:
        """Return how many PSNs are received above a gap (OOO_Count, table 3-74)."""
        return self.bitmap.bit_count()

    @property
    def highest(self) -> int:
        """The highest PSN received."""
        return psn_add(self.contiguous, self.bitmap.bit_length())

    def sack(self, psn: int) -> tuple[int, int]:
        """Base PSN and bitmap of 64 PSNs for an ACK of `psn`.

        The 64 after CACK_PSN, or those that end with `psn` where it lies beyond them (but not beyond what was received:
        a probe may name any PSN). What is received above a CACK_PSN that waits for a CLEAR is shown too.
        """
        cack_psn = self.cack_psn
        ahead = psn_distance(self.contiguous, cack_psn)
        bitmap = self.bitmap << ahead | (1 << ahead) - 1
        first = 1
        offset = min(psn_distance(psn, cack_psn), bitmap.bit_length())
        if offset > SACK_BITS:
            first = offset - SACK_BITS + 1
        return psn_add(cack_psn, first), bitmap >> (first - 1) & 0xFFFF_FFFF_FFFF_FFFF

    def hold(self, psn: int, response: StoredResponse) -> None:
        """Keep the guaranteed response of `psn` until it is cleared."""
        if not self._held or psn_distance(psn, self._lowest) < 0:
            self._lowest = psn
        self._held[psn] = response

    def held(self, psn: int) -> StoredResponse | None:
        return self._held.get(psn)

    @property
    def holds(self) -> int:
        """Return how many guaranteed responses are kept."""
        return len(self._held)

    def clear(self, clear_psn: int) -> None:
        """The peer has all responses up to `clear_psn`: forget them. What was never received is not cleared by it."""
        held = self._held
        if not held:
            return
        psn = self._lowest
        while psn_distance(psn, clear_psn) <= 0:
            held.pop(psn, None)
            if not held:
                return
            # No further than to the next one that is kept, which lies within the window.
            psn = (psn + 1) & 0xFFFF_FFFF
            while psn not in held:
                psn = (psn + 1) & 0xFFFF_FFFF
        self._lowest = psn
