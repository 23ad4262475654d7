"""Regions of memory that is reached by copies: what a request reads, writes and changes there."""

import errno
import struct

import pytest
from wire_pair import JOB, WirePair

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.memory import Access, AccessRefused, RemoteBuffer
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Mode, ReturnCode

ALL = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
BIG = bytes(number % 253 for number in range(50_000))
KEY = 5


class Copied:
    """Memory elsewhere."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.content = bytearray(size)
        self.stores: list[tuple[int, int]] = []
        self.is_gone = False

    def load(self, offset: int, length: int) -> bytearray:
        if self.is_gone:
            raise OSError(errno.EIO, "gone")
        return self.content[offset : offset + length]

    def store(self, offset: int, data: memoryview) -> None:
        if self.is_gone:
            raise OSError(errno.EIO, "gone")
        self.stores.append((offset, len(data)))
        self.content[offset : offset + len(data)] = data


@pytest.fixture
def copied() -> Copied:
    return Copied(100_000)


def pair_with(copied: Copied, access: Access = ALL, base: int = 0) -> WirePair:
    pair = WirePair()
    pair.b.register_copied(copied, access, JOB, base=base, key=KEY)
    return pair


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD, Mode.RUDI])
def test_a_write_is_stored_once_it_is_whole(copied: Copied, mode: Mode) -> None:
    pair = pair_with(copied)
    write = pair.ea.write(pair.to_b, BIG, RemoteBuffer(KEY, 100), pair.now, mode=mode)
    pair.run(write)
    assert write.ok
    assert copied.content[100 : 100 + len(BIG)] == BIG
    if mode is not Mode.RUDI:  # whose packets are requests of their own
        assert copied.stores == [(100, len(BIG))]


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD, Mode.RUDI])
def test_a_read_is_of_what_is_there(copied: Copied, mode: Mode) -> None:
    pair = pair_with(copied)
    copied.content[: len(BIG)] = BIG
    into = bytearray(len(BIG))
    read = pair.ea.read(pair.to_b, into, RemoteBuffer(KEY), pair.now, mode=mode)
    pair.run(read)
    assert read.ok and into == BIG


def test_an_atomic_operation_changes_what_is_there(copied: Copied) -> None:
    pair = pair_with(copied)
    copied.content[8:16] = struct.pack("<q", 41)
    old = bytearray(8)
    amo = Amo(AmoOpcode.SUM, AmoType.INT64, struct.pack("<q", 1))
    done = pair.ea.atomic(pair.to_b, amo, RemoteBuffer(KEY, 8), pair.now, fetch=old)
    pair.run(done)
    assert done.ok and struct.unpack("<q", old) == (41,)
    assert struct.unpack("<q", copied.content[8:16]) == (42,)
    read = pair.ea.atomic(
        pair.to_b, Amo(AmoOpcode.READ, AmoType.INT64, bytes(8)), RemoteBuffer(KEY, 8), pair.now, fetch=old
    )
    pair.run(read)
    assert struct.unpack("<q", old) == (42,)
    assert len(copied.stores) == 1


def test_offsets_begin_at_the_base(copied: Copied) -> None:
    base = 0x7F00_0000_1000
    pair = pair_with(copied, base=base)
    write = pair.ea.write(pair.to_b, b"here", RemoteBuffer(KEY, base + 7), pair.now)
    below = pair.ea.write(pair.to_b, b"here", RemoteBuffer(KEY, base - 1), pair.now)
    above = pair.ea.write(pair.to_b, b"here", RemoteBuffer(KEY, base + copied.size - 3), pair.now)
    pair.run(write, below, above)
    assert copied.content[7:11] == b"here"
    assert [write.status, below.status, above.status] == [
        ReturnCode.OK,
        ReturnCode.AT_OUT_OF_RANGE,
        ReturnCode.AT_OUT_OF_RANGE,
    ]


def test_memory_that_is_gone_fails_the_operation(copied: Copied) -> None:
    pair = pair_with(copied)
    copied.is_gone = True
    into = bytearray(8)
    amo = Amo(AmoOpcode.SUM, AmoType.INT64, bytes(8))
    operations = [
        pair.ea.write(pair.to_b, BIG, RemoteBuffer(KEY), pair.now),
        pair.ea.read(pair.to_b, into, RemoteBuffer(KEY), pair.now),
        pair.ea.atomic(pair.to_b, amo, RemoteBuffer(KEY), pair.now),
        pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now, mode=Mode.RUDI),
    ]
    pair.run(*operations)
    assert {operation.status for operation in operations} == {ReturnCode.HOST_UNSUCCESS_CMPL}


def test_a_write_whose_region_ends_meanwhile_is_stored_nowhere(copied: Copied) -> None:
    pair = pair_with(copied)
    write = pair.ea.write(pair.to_b, BIG, RemoteBuffer(KEY), pair.now)
    first, *rest = pair.take(pair.a)
    pair.give(first)
    pair.b.retire(KEY)
    for datagram in rest:
        pair.give(datagram)
    pair.run(write)
    assert write.status is ReturnCode.BAD_MKEY
    assert copied.stores == []


def test_what_a_write_keeps_until_it_is_whole_counts(copied: Copied) -> None:
    pair = pair_with(copied)
    pair.ea.write(pair.to_b, BIG, RemoteBuffer(KEY), pair.now)
    pair.give(pair.take(pair.a)[0])
    assert pair.b.semantics.partial.bytes > len(BIG)


def test_keys_and_access_are_those_of_other_regions(copied: Copied) -> None:
    pair = pair_with(copied, access=Access.REMOTE_READ)
    with pytest.raises(UsageError, match="taken"):
        pair.b.register(bytearray(8), ALL, JOB, KEY)
    with pytest.raises(AccessRefused):
        pair.b.memory.resolve(KEY, JOB, 0, 8, Access.REMOTE_WRITE)
    assert len(pair.b.memory.resolve(KEY, JOB, 0, 8, Access.REMOTE_READ)) == 8


def test_no_memory_is_allocated_for_a_write_beyond_the_limit() -> None:
    """A header may say 4 GiB, of a region that a program has mapped and never used."""
    huge = Copied(0)
    huge.size = 1 << 40
    pair = WirePair(max_incoming_bytes=10_000)
    region = pair.b.register_copied(huge, ALL, JOB, key=KEY)
    with pytest.raises(AccessRefused) as refused:
        region.view(0, (1 << 32) - 1, Access.REMOTE_WRITE, pair.b.config.max_incoming_bytes)
    assert refused.value.return_code is ReturnCode.UNSUPPORTED_SIZE


def test_a_write_beyond_the_limit_is_refused_for_good(copied: Copied) -> None:
    pair = WirePair(max_incoming_bytes=10_000)
    pair.b.register_copied(copied, ALL, JOB, key=KEY)
    large = pair.ea.write(pair.to_b, BIG[:10_001], RemoteBuffer(KEY), pair.now)
    fitting = pair.ea.write(pair.to_b, BIG[:10_000], RemoteBuffer(KEY), pair.now)
    pair.run(large, fitting)
    assert (large.status, fitting.status) == (ReturnCode.UNSUPPORTED_SIZE, ReturnCode.OK)
    assert copied.stores == [(0, 10_000)]
