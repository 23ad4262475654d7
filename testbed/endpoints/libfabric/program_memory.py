"""The memory of a program on a host, reached by copies (/proc/pid/mem, proc(5)).

The descriptor is that of the program's memory, not of its process ID: after its end reads and writes fail, whoever has
the ID by then.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, Self

from testbed.endpoints.libfabric.wire import Place

_OFFSETS = 1 << 63
_MAPPED_BYTES = 1 << 16
_MOST_MAPS = Path("/proc/sys/vm/max_map_count")
_USUAL_MOST_MAPS = 65_530


class PlacedMemory(Protocol):
    """Memory that is read and written by address. Both raise `OSError` where there is none, or no longer."""

    def load(self, address: int, length: int) -> bytes:
        """Return a copy of `length` bytes."""

    def store(self, address: int, data: memoryview) -> None:
        """Copy `data` there."""

    def close(self) -> None:
        """Let go of it."""


class ProgramMemory:
    """The memory of the process `pid`, as this process numbers it. Raises `OSError` where that is out of reach."""

    def __init__(self, pid: int) -> None:
        self._fd = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def load(self, address: int, length: int) -> bytes:
        _check(address, length)
        found = os.pread(self._fd, length, address) if length else b""
        if len(found) != length:
            raise OSError(errno.EFAULT, f"{length} bytes at {address:#x}, of which {len(found)} can be read")
        return found

    def store(self, address: int, data: memoryview) -> None:
        _check(address, len(data))
        written = 0
        while written < len(data):
            step = os.pwrite(self._fd, data[written:], address + written)
            if step <= 0:
                raise OSError(errno.EFAULT, f"{len(data)} bytes at {address:#x} cannot be written")
            written += step

    def close(self) -> None:
        fd, self._fd = self._fd, -1  # whoever keeps a region must not reach what has the number next
        os.close(fd)


def _check(address: int, length: int) -> None:
    if address + length > _OFFSETS:
        raise OSError(errno.EFAULT, f"no program has memory at {address:#x}")


class ProgramRegion:
    """Places of a program's memory, one behind the other (`testbed.protocols.uet.memory.CopiedMemory`)."""

    def __init__(self, memory: PlacedMemory, places: Sequence[Place]) -> None:
        self._memory = memory
        self._places = tuple(places)
        self.size = sum(length for _, length in self._places)

    def load(self, offset: int, length: int) -> bytearray:
        found = bytearray()
        for address, part in self._parts(offset, length):
            found += self._memory.load(address, part)
        return found

    def store(self, offset: int, data: memoryview) -> None:
        done = 0
        for address, part in self._parts(offset, len(data)):
            self._memory.store(address, data[done : done + part])
            done += part

    def _parts(self, offset: int, length: int) -> list[Place]:
        """The places of a stretch of it, which lies inside."""
        if len(self._places) == 1:
            return [(self._places[0][0] + offset, length)]
        found: list[Place] = []
        for address, size in self._places:
            if offset < size and length:
                part = min(size - offset, length)
                found.append((address + offset, part))
                length -= part
                offset = 0
            else:
                offset -= min(offset, size)
        return found


class _Mapping(mmap.mmap):
    """Anonymous memory of this process alone, which the kernel joins with such memory beside it where it can."""

    live = 0
    """The number that there are."""

    def __new__(cls, length: int) -> Self:
        _Mapping.live += 1  # one that fails is deleted, too
        return super().__new__(cls, -1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def __del__(self) -> None:
        _Mapping.live -= 1


@cache
def most_mappings() -> int:
    """Return how many mappings receives may have: half of those that the kernel lets a process have (proc_sys_vm(5),
    max_map_count), since memory of other kinds is mapped, too, and a process that has all of them breaks anywhere."""
    try:
        return int(_MOST_MAPS.read_text()) // 2
    except (OSError, ValueError):
        return _USUAL_MOST_MAPS // 2


def room_for(length: int) -> memoryview:
    """Return memory to receive into. Of much of it, pages come to be when they are written.

    Raises `MemoryError`, also where so many large receives wait that the kernel would soon map no more.
    """
    if length < _MAPPED_BYTES:
        return memoryview(bytearray(length))
    if _Mapping.live >= most_mappings():
        raise MemoryError(f"{_Mapping.live} large receives wait already")
    try:
        return memoryview(_Mapping(length))
    except OSError as error:
        raise MemoryError(f"no room for {length} bytes") from error
