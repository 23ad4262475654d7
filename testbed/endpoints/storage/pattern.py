"""Contents that follow from their place: every byte from its offset and a seed, so that what is read can be checked.

Each block of 4 KiB begins with its offset and the seed; the rest is the same in all blocks of a seed. So a block in the
wrong place, of another writer, torn or never written is found, and a whole buffer is made or checked at the speed of
memory.
"""

from __future__ import annotations

import random
from array import array
from typing import Final

BLOCK: Final = 4096
_STAMP_BYTES: Final = 16
_TILE_BLOCKS: Final = 256


class Pattern:
    """The contents of a seed. Offsets and lengths are in bytes, and may be any."""

    def __init__(self, seed: int) -> None:
        self.seed = seed & (1 << 64) - 1
        rest = random.Random(seed).randbytes(BLOCK - _STAMP_BYTES)
        self._tile = memoryview((bytes(8) + self.seed.to_bytes(8, "little") + rest) * _TILE_BLOCKS)
        self._expected = bytearray(self._tile)
        """Compared by memcmp, which two memoryviews are not: they take 100 times as long."""

    def fill(self, view: memoryview, offset: int) -> None:
        """Write into `view` what belongs at `offset`."""
        at = 0
        while at < len(view):
            begin = offset + at
            inside = begin % BLOCK
            length = min(len(self._tile) - inside, len(view) - at)
            part = view[at : at + length]
            if inside or length % BLOCK:
                part[:] = self._stamped(begin - inside, inside + length)[inside : inside + length]
            else:
                part[:] = self._tile[:length]
                self._stamp(part, begin)
            at += length

    def move(self, view: memoryview, offset: int) -> None:
        """Make what `fill` wrote at the begin of a block into what belongs at `offset`, that of another one.

        The stamps of its blocks alone are written, which takes a hundredth of the time of `fill`.
        """
        self._stamp(view, offset)

    def differences(self, view: memoryview, offset: int) -> list[tuple[int, int]]:
        """Return the places where `view`, read at `offset`, is not what belongs there: ranges of offset and length, by
        blocks."""
        found: list[tuple[int, int]] = []
        at = 0
        while at < len(view):
            begin = offset + at
            inside = begin % BLOCK
            length = min(len(self._tile) - inside, len(view) - at)
            expected = self._stamped(begin - inside, inside + length)
            if length < len(expected):
                expected = expected[inside : inside + length]
            part = view[at : at + length]
            if expected != part:
                found += self._in_blocks(part, expected, begin)
            at += length
        return merge_ranges(found)

    @staticmethod
    def _in_blocks(part: memoryview, expected: bytearray, begin: int) -> list[tuple[int, int]]:
        found = []
        at = 0
        while at < len(part):
            length = min(BLOCK - (begin + at) % BLOCK, len(part) - at)
            if expected[at : at + length] != part[at : at + length]:
                found.append((begin + at, length))
            at += length
        return found

    def _stamped(self, begin: int, length: int) -> bytearray:
        """So many bytes from the beginning of a block on, and more; until the next call."""
        self._stamp(memoryview(self._expected)[: -(-length // BLOCK) * BLOCK], begin)
        return self._expected

    @staticmethod
    def _stamp(view: memoryview, begin: int) -> None:
        """Write into each block of `view` where it is."""
        view.cast("Q")[:: BLOCK // 8] = memoryview(array("Q", range(begin, begin + len(view), BLOCK)))


def merge_ranges(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of offset and length in order, with those that touch or overlap made one."""
    merged: list[tuple[int, int]] = []
    for offset, length in sorted(ranges):
        if merged and offset <= sum(merged[-1]):
            first = merged[-1][0]
            merged[-1] = (first, max(sum(merged[-1]), offset + length) - first)
        else:
            merged.append((offset, length))
    return merged
