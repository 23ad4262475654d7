"""The memory of a program by address; this process is the program."""

import ctypes
import os
from pathlib import Path

import pytest

from testbed.endpoints.libfabric import program_memory
from testbed.endpoints.libfabric.program_memory import ProgramMemory, ProgramRegion, room_for


@pytest.fixture
def memory() -> ProgramMemory:
    return ProgramMemory(os.getpid())


def test_bytes_are_read_and_written_by_address(memory: ProgramMemory) -> None:
    place = ctypes.create_string_buffer(b"what is here", 10_000)
    address = ctypes.addressof(place)
    assert memory.load(address, 12) == b"what is here"
    memory.store(address + 9_000, memoryview(b"x" * 1000))
    assert place.raw[8_999:] == b"\0" + b"x" * 1000
    assert memory.load(address, 0) == b""
    memory.close()


@pytest.mark.parametrize("address", [0, 1 << 46, (1 << 63) - 1, (1 << 64) - 1])
def test_what_is_no_memory_is_an_error(memory: ProgramMemory, address: int) -> None:
    with pytest.raises(OSError):
        memory.load(address, 8)
    with pytest.raises(OSError):
        memory.store(address, memoryview(b"12345678"))
    memory.close()


def test_a_process_that_is_none_has_no_memory() -> None:
    with pytest.raises(OSError):
        ProgramMemory(1 << 22 | 1)


def test_a_region_is_its_places_one_behind_the_other(memory: ProgramMemory) -> None:
    places = [ctypes.create_string_buffer(size) for size in (3, 5, 4)]
    region = ProgramRegion(memory, [(ctypes.addressof(place), len(place)) for place in places])
    assert region.size == 12
    region.store(2, memoryview(b"abcdefgh"))
    assert [place.raw for place in places] == [b"\0\0a", b"bcdef", b"gh\0\0"]
    assert region.load(1, 9) == b"\0abcdefgh"
    assert region.load(12, 0) == b""
    memory.close()


@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 1 << 20])
def test_room_is_as_long_as_asked_for(length: int) -> None:
    room = room_for(length)
    assert len(room) == length and not room.readonly and room.format == "B"


def test_large_receives_have_half_of_what_the_kernel_maps_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    most = program_memory._Mapping.live + 3
    monkeypatch.setattr(program_memory, "most_mappings", lambda: most)
    rooms = [room_for(1 << 16) for _ in range(3)]
    with pytest.raises(MemoryError, match="large receives wait"):
        room_for(1 << 16)
    assert len(room_for(1000)) == 1000, "small ones need no mapping of their own"
    rooms.pop()
    room_for(1 << 16)


def test_mappings_are_joined_by_the_kernel() -> None:
    maps = Path("/proc/self/maps")
    before = len(maps.read_text().splitlines())
    rooms = [room_for(1 << 16) for _ in range(1000)]
    assert len(maps.read_text().splitlines()) - before < 100
    del rooms
