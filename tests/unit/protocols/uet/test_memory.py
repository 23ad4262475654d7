"""Registered memory: what a key opens, and the return code of everything it does not."""

from random import Random

import pytest

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.memory import Access, AccessRefused, MemoryTable
from testbed.protocols.uet.packets.codes import ReturnCode

JOB = 7
READ_WRITE = Access.REMOTE_READ | Access.REMOTE_WRITE


def refusal(table: MemoryTable, key: int, job: int, offset: int, length: int, access: Access) -> ReturnCode:
    with pytest.raises(AccessRefused) as caught:
        table.resolve(key, job, offset, length, access)
    return caught.value.return_code


def test_a_write_through_the_view_reaches_the_buffer() -> None:
    buffer = bytearray(b"0123456789")
    table = MemoryTable()
    table.register(buffer, READ_WRITE, JOB, key=1)
    table.resolve(1, JOB, 3, 4, Access.REMOTE_WRITE)[:] = b"wxyz"
    assert buffer == b"012wxyz789"
    assert table.resolve(1, JOB, 2, 3, Access.REMOTE_READ) == b"2wx"


def test_zero_bytes_at_the_very_end_are_inside() -> None:
    table = MemoryTable()
    table.register(bytearray(10), READ_WRITE, JOB, key=1)
    assert len(table.resolve(1, JOB, 10, 0, Access.REMOTE_WRITE)) == 0
    assert refusal(table, 1, JOB, 11, 0, Access.REMOTE_WRITE) == ReturnCode.AT_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 11), (10, 1), (9, 2), (1 << 64, 0), ((1 << 64) - 1, 2), ((1 << 64) - 4, 8), (-1, 1), (4, -1)],
)
def test_nothing_outside_is_reached_and_sums_do_not_wrap(offset: int, length: int) -> None:
    table = MemoryTable()
    table.register(bytearray(10), READ_WRITE, JOB, key=1)
    assert refusal(table, 1, JOB, offset, length, Access.REMOTE_READ) == ReturnCode.AT_OUT_OF_RANGE


def test_unknown_keys_are_bad_keys() -> None:
    assert refusal(MemoryTable(), 1, JOB, 0, 0, Access.REMOTE_READ) == ReturnCode.BAD_MKEY


def test_other_jobs_are_kept_out_unless_any_may_in() -> None:
    table = MemoryTable()
    table.register(bytearray(10), READ_WRITE, JOB, key=1)
    table.register(bytearray(10), READ_WRITE, None, key=2)
    assert refusal(table, 1, JOB + 1, 0, 1, Access.REMOTE_READ) == ReturnCode.BAD_JOB_ID
    assert len(table.resolve(2, JOB + 1, 0, 1, Access.REMOTE_READ)) == 1


@pytest.mark.parametrize("granted", [Access(bits) for bits in range(16)])
def test_a_region_permits_what_it_was_registered_for_and_no_more(granted: Access) -> None:
    table = MemoryTable()
    table.register(bytearray(10), granted, JOB, key=1)
    for asked in (Access(bits) for bits in range(1, 16)):
        if asked & granted == asked:
            assert len(table.resolve(1, JOB, 0, 1, asked)) == 1
        else:
            assert refusal(table, 1, JOB, 0, 1, asked) == ReturnCode.PERM_VIOLATION


def test_permission_is_checked_before_bounds() -> None:
    table = MemoryTable()
    table.register(bytearray(10), Access.REMOTE_READ, JOB, key=1)
    assert refusal(table, 1, JOB, 99, 1, Access.REMOTE_WRITE) == ReturnCode.PERM_VIOLATION


def test_read_only_memory_can_be_read_but_not_registered_for_more() -> None:
    table = MemoryTable()
    table.register(b"constant", Access.REMOTE_READ, JOB, key=1)
    assert table.resolve(1, JOB, 0, 8, Access.REMOTE_READ) == b"constant"
    for access in (Access.REMOTE_WRITE, Access.REMOTE_ATOMIC):
        with pytest.raises(UsageError, match="read-only"):
            table.register(b"constant", access, JOB, key=2)


def test_keys_come_from_the_source_of_randomness() -> None:
    table = MemoryTable()
    expected = Random(5)
    random = Random(5)
    keys = [table.register(bytearray(1), READ_WRITE, JOB, random=random).key for _ in range(3)]
    assert keys == [expected.getrandbits(64) for _ in range(3)]
    assert len(table) == 3
    assert all(key in table for key in keys)


class Stuck(Random):
    """Draws the same key again and again, until it is told of another."""

    draws = 0

    def getrandbits(self, k: int, /) -> int:
        self.draws += 1
        return 5 if self.draws < 4 else 6


def test_a_random_key_that_is_taken_is_drawn_again() -> None:
    table = MemoryTable()
    table.register(bytearray(1), READ_WRITE, JOB, key=5)
    source = Stuck()
    assert table.register(bytearray(1), READ_WRITE, JOB, random=source).key == 6
    assert source.draws == 4


def test_keys_are_unique_and_have_64_bits() -> None:
    table = MemoryTable()
    table.register(bytearray(1), READ_WRITE, JOB, key=(1 << 64) - 1)
    with pytest.raises(UsageError, match="taken"):
        table.register(bytearray(1), READ_WRITE, JOB, key=(1 << 64) - 1)
    for key in (-1, 1 << 64):
        with pytest.raises(UsageError, match="64 bits"):
            table.register(bytearray(1), READ_WRITE, JOB, key=key)
    with pytest.raises(UsageError, match="source of random keys"):
        table.register(bytearray(1), READ_WRITE, JOB)


def test_a_deregistered_region_is_gone_and_knows_it() -> None:
    table = MemoryTable()
    region = table.register(bytearray(1), READ_WRITE, JOB, key=1)
    assert region.registered
    assert table.deregister(1) is region
    assert not region.registered
    assert refusal(table, 1, JOB, 0, 1, Access.REMOTE_READ) == ReturnCode.BAD_MKEY
    with pytest.raises(UsageError, match="no memory"):
        table.deregister(1)
    table.register(bytearray(1), READ_WRITE, JOB, key=1)


def test_memory_of_any_shape_is_a_row_of_bytes() -> None:
    buffer = bytearray(16)
    table = MemoryTable()
    table.register(memoryview(buffer).cast("I", (2, 2)), READ_WRITE, JOB, key=1)
    table.resolve(1, JOB, 4, 4, Access.REMOTE_WRITE)[:] = b"word"
    assert buffer[4:8] == b"word"
    with pytest.raises(UsageError, match="contiguous"):
        table.register(memoryview(buffer)[::2], READ_WRITE, JOB, key=2)


def test_an_empty_region_can_be_registered() -> None:
    table = MemoryTable()
    table.register(b"", Access.REMOTE_READ, JOB, key=1)
    assert len(table.resolve(1, JOB, 0, 0, Access.REMOTE_READ)) == 0


@pytest.mark.parametrize("job", [1 << 24, -1])
def test_values_beyond_their_field_are_refused(job: int) -> None:
    with pytest.raises(UsageError):
        MemoryTable().register(bytearray(10), READ_WRITE, job, key=1)


def test_unknown_access_is_refused() -> None:
    with pytest.raises(UsageError, match="0x10"):
        MemoryTable().register(bytearray(10), Access(0x10), JOB, key=1)
