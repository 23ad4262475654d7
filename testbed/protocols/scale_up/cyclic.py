"""The cyclic 20-bit numbers of the link layer: LLR's sequence numbers and CBFC's counters of credits."""

from __future__ import annotations

from typing import Final

CYCLE: Final = 1 << 20
CYCLE_MASK: Final = CYCLE - 1
HALF_CYCLE: Final = CYCLE >> 1
"""One can tell which of two numbers is ahead if they are less than this apart."""


def advance(number: int, by: int = 1) -> int:
    """The number that is `by` further on; negative: back."""
    return (number + by) & CYCLE_MASK


def distance(start: int, end: int) -> int:
    """Return the distance of `end` ahead of `start`, 0 to 2**20 - 1."""
    return (end - start) & CYCLE_MASK
