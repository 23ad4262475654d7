"""Anti-replay window: which packet counters of one sender have been accepted already.

Source: the sliding window of RFC 4303, section 3.4.3 and appendix A2, without extended sequence numbers.
"""

from __future__ import annotations

from enum import IntEnum

from testbed.transport.uet.errors import UsageError

DEFAULT_WINDOW = 4096
"""Counters behind the newest one that are still told apart.

A sender counts over all its destinations, so the window is worth a time rather than a number of packets of one
receiver: at 45,000 packets/s it lasts 90 ms, many round trips of reordering.
"""


class ReplayVerdict(IntEnum):
    FRESH = 0
    SEEN = 1
    TOO_OLD = 2
    """Behind the window, so nobody can say."""


class ReplayWindow:
    """The newest counter accepted, and a bitmap of those behind it: bit i stands for `newest - i`."""

    __slots__ = ("_bitmap", "_mask", "_newest", "_size")

    def __init__(self, size: int = DEFAULT_WINDOW) -> None:
        if size < 1:
            raise UsageError(f"a replay window of {size} counters")
        self._size = size
        self._mask = (1 << size) - 1
        self._newest = -1
        self._bitmap = 0

    def verdict(self, counter: int) -> ReplayVerdict:
        """What `accept` would answer; nothing is recorded."""
        age = self._newest - counter
        if age < 0:
            return ReplayVerdict.FRESH
        if age >= self._size:
            return ReplayVerdict.TOO_OLD
        return ReplayVerdict.SEEN if self._bitmap >> age & 1 else ReplayVerdict.FRESH

    def accept(self, counter: int) -> ReplayVerdict:
        """Records `counter` (not negative) if it is FRESH. Only for packets whose ICV has been verified."""
        advance = counter - self._newest
        if advance > 0:
            # A jump past the window must not shift by its distance: that may be 2**48 bits.
            self._bitmap = (self._bitmap << advance & self._mask) | 1 if advance < self._size else 1
            self._newest = counter
            return ReplayVerdict.FRESH
        if advance <= -self._size:
            return ReplayVerdict.TOO_OLD
        bit = 1 << -advance
        if self._bitmap & bit:
            return ReplayVerdict.SEEN
        self._bitmap |= bit
        return ReplayVerdict.FRESH
