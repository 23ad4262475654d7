"""Anti-replay window: which packet counters of one sender have been accepted already.

Source: the sliding window of RFC 4303, section 3.4.3 and appendix A2, without extended sequence numbers; its
layout is that of RFC 6479.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from testbed.protocols.errors import UsageError

DEFAULT_WINDOW: Final = 4096
"""Counters behind the newest one that are still told apart.

A sender counts over all its destinations, so the window is worth a time rather than a number of packets of one
receiver: at 45,000 packets/s it lasts 90 ms, many round trips of reordering.
"""


class ReplayVerdict(IntEnum):
    FRESH = 0
    SEEN = 1
    TOO_OLD = 2
    """Behind the window, so nobody can say."""


_FRESH: Final = ReplayVerdict.FRESH
_BLOCK_SHIFT: Final = 6
_BLOCK_MASK: Final = (1 << _BLOCK_SHIFT) - 1


class ReplayWindow:
    """The newest counter accepted, and which of those behind it were: a ring of blocks of bits, one more than the
    window spans, so that it moves on without being shifted (RFC 6479)."""

    def __init__(self, size: int = DEFAULT_WINDOW) -> None:
        if size < 1:
            raise UsageError(f"a replay window of {size} counters")
        self._size = size
        self._newest = -1
        self._blocks = [0] * (-(-size // (1 << _BLOCK_SHIFT)) + 1)
        """Bit i of block b, counted round: counter 64 b + i."""

    def verdict(self, counter: int) -> ReplayVerdict:
        """Return what `accept` would answer; nothing is recorded."""
        age = self._newest - counter
        if age < 0:
            return ReplayVerdict.FRESH
        if age >= self._size:
            return ReplayVerdict.TOO_OLD
        blocks = self._blocks
        seen = blocks[(counter >> _BLOCK_SHIFT) % len(blocks)] >> (counter & _BLOCK_MASK) & 1
        return ReplayVerdict.SEEN if seen else ReplayVerdict.FRESH

    def accept(self, counter: int) -> ReplayVerdict:
        """Records `counter` (not negative) if it is FRESH. Only for packets whose ICV has been verified."""
        newest = self._newest
        blocks = self._blocks
        count = len(blocks)
        block = counter >> _BLOCK_SHIFT
        bit = 1 << (counter & _BLOCK_MASK)
        if counter > newest:
            latest = newest >> _BLOCK_SHIFT
            if block != latest:
                # A jump past the window may be one of 2**48 counters.
                for stale in range(max(latest, block - count) + 1, block + 1):
                    blocks[stale % count] = 0
            blocks[block % count] |= bit
            self._newest = counter
            return _FRESH
        if newest - counter >= self._size:
            return ReplayVerdict.TOO_OLD
        if blocks[block % count] & bit:
            return ReplayVerdict.SEEN
        blocks[block % count] |= bit
        return _FRESH
