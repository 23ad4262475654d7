"""Contents by offset and seed: any part of them is the same as that part of all, and what differs is found."""

from random import Random

import pytest

from testbed.endpoints.storage.pattern import BLOCK, Pattern, merge_ranges

MIB = 1 << 20


def contents(seed: int, offset: int, length: int) -> bytes:
    view = memoryview(bytearray(length))
    Pattern(seed).fill(view, offset)
    return bytes(view)


@pytest.mark.parametrize("length", [1, 7, BLOCK, BLOCK + 1, MIB, MIB + BLOCK, 2 * MIB + 5])
@pytest.mark.parametrize("offset", [0, 1, BLOCK - 1, BLOCK, 512, MIB - 3])
def test_any_part_is_the_same_as_of_all(offset: int, length: int) -> None:
    whole = contents(5, 0, 4 * MIB)
    assert contents(5, offset, length) == whole[offset : offset + length]
    assert Pattern(5).differences(memoryview(whole)[offset : offset + length], offset) == []


def test_no_block_is_another() -> None:
    whole = contents(5, 0, MIB) + contents(6, 0, MIB) + contents(5, 1 << 40, MIB)
    assert len({whole[at : at + BLOCK] for at in range(0, len(whole), BLOCK)}) == 3 * MIB // BLOCK


@pytest.mark.parametrize("length", [512, BLOCK, 9 * BLOCK + 512, (300 << 10) * 5])
def test_what_was_filled_is_moved_to_another_place(length: int) -> None:
    pattern = Pattern(7)
    moved, filled = memoryview(bytearray(length)), memoryview(bytearray(length))
    pattern.fill(moved, 0)
    for offset in (BLOCK, 1 << 40, 0):
        pattern.move(moved, offset)
        pattern.fill(filled, offset)
        assert moved == filled


def test_each_changed_byte_is_found() -> None:
    source = Random(1)
    pattern = Pattern(9)
    for _ in range(100):
        offset, length = source.randrange(3 * MIB), source.choice([1, 100, BLOCK, 9000, 2 * MIB])
        view = memoryview(bytearray(length))
        pattern.fill(view, offset)
        at = source.randrange(length)
        view[at] ^= 1 << source.randrange(8)
        ((begin, size),) = pattern.differences(view, offset)
        assert begin <= offset + at < begin + size
        assert size <= BLOCK and begin >= offset and begin + size <= offset + length


def test_torn_write_is_told_as_a_range() -> None:
    view = memoryview(bytearray(contents(1, 0, 8 * BLOCK)))
    view[2 * BLOCK + 100 : 5 * BLOCK] = bytes(3 * BLOCK - 100)
    assert Pattern(1).differences(view, 0) == [(2 * BLOCK, 3 * BLOCK)]


@pytest.mark.parametrize(
    ("ranges", "merged"),
    [
        ([], []),
        ([(8, 4), (0, 4)], [(0, 4), (8, 4)]),
        ([(0, 4), (4, 4)], [(0, 8)]),
        ([(0, 10), (2, 3), (9, 5)], [(0, 14)]),
    ],
)
def test_ranges(ranges: list[tuple[int, int]], merged: list[tuple[int, int]]) -> None:
    assert merge_ranges(ranges) == merged
