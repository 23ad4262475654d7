"""Packet sequence numbers: 32 bits, compared in serial number arithmetic (RFC 1982)."""

from __future__ import annotations

from typing import Final

PSN_MASK: Final = 0xFFFF_FFFF
_HALF: Final = 0x8000_0000


def psn_add(psn: int, count: int) -> int:
    """`count` (of either sign) after `psn`."""
    return (psn + count) & PSN_MASK


def psn_distance(later: int, earlier: int) -> int:
    """Return how far `later` is ahead of `earlier`: -2**31 to 2**31 - 1, negative where it is behind."""
    return ((later - earlier + _HALF) & PSN_MASK) - _HALF
