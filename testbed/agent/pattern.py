"""Data that a receiver can check without having been sent a copy: a pattern of a seed and of the place in it."""

from __future__ import annotations

from functools import lru_cache
from random import Random

SEED_LIMIT = 1 << 32
PERIOD = 65_521
"""Bytes after which a pattern repeats: a prime, so that data that lands a packet or a page off is found out."""


@lru_cache(maxsize=8)
def _period(seed: int) -> bytes:
    return Random(seed).randbytes(PERIOD)


def make_pattern(seed: int, length: int, start: int = 0) -> bytes:
    """Bytes `start` to `start + length` of the pattern of `seed`."""
    period = _period(seed)
    begin = start % PERIOD
    copies = -(-(begin + length) // PERIOD)
    return (period * copies)[begin : begin + length]


def first_difference(data: memoryview, seed: int, start: int = 0) -> int | None:
    """Where `data` begins to differ from the pattern; None: nowhere."""
    for at in range(0, len(data), PERIOD):
        part = data[at : at + PERIOD]
        wanted = make_pattern(seed, len(part), start + at)
        if part != wanted:
            return at + next(index for index, byte in enumerate(part) if byte != wanted[index])
    return None
