"""The places of the bytes of a namespace: in memory, in a sparse file, or nowhere, computed when they are read."""

from __future__ import annotations

import errno
import mmap
import os
from abc import ABC, abstractmethod
from pathlib import Path

from testbed.base.cleanup import on_failure
from testbed.endpoints.storage.pattern import Pattern
from testbed.protocols.nvme.codes import Status

_PAGE = mmap.PAGESIZE
_STATUS_BY_ERRNO = {errno.ENOSPC: Status.CAPACITY_EXCEEDED, errno.EDQUOT: Status.CAPACITY_EXCEEDED}
_ZEROES = memoryview(bytes(1 << 20))


class MediaError(Exception):
    """The medium cannot do it; `status` is what the host is told."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


class Backend(ABC):
    """Offsets and lengths are in bytes, and inside of it. All but `place` raise `MediaError`."""

    read_only = False
    is_transient = False
    """`place` gives memory of its own for each write, which counts against what may be under way."""

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def read(self, offset: int, length: int) -> memoryview:
        """Return what is there; it need not stay the same afterwards."""

    def place(self, offset: int, length: int) -> memoryview:
        """Return memory into which the data of a write go."""
        return memoryview(bytearray(length))

    @abstractmethod
    def write(self, offset: int, data: memoryview) -> None:
        """`data` are in what `place` has given."""

    @abstractmethod
    def zero(self, offset: int, length: int) -> None:
        """From now on there are zeroes."""

    def flush(self) -> None:  # noqa: B027 - memory has nothing to do
        """Have what was written outlive this process."""

    def close(self) -> None:  # noqa: B027
        """Data may still be on their way to a socket: memory goes when nothing refers to it any more."""


class MemoryBackend(Backend):
    """Memory that costs nothing until it is written. It ends with the process."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = memoryview(self._map)

    def read(self, offset: int, length: int) -> memoryview:
        return self._view[offset : offset + length]

    def place(self, offset: int, length: int) -> memoryview:
        return self._view[offset : offset + length]

    def write(self, offset: int, data: memoryview) -> None:
        pass

    def zero(self, offset: int, length: int) -> None:
        end = offset + length
        first, last = -(-offset // _PAGE) * _PAGE, end // _PAGE * _PAGE
        if first < last:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)  # It reads as zeroes, and its memory is free.
            self._clear(offset, first)
            self._clear(last, end)
        else:
            self._clear(offset, end)

    def _clear(self, begin: int, end: int) -> None:
        self._view[begin:end] = bytes(end - begin)


class FileBackend(Backend):
    """A sparse file, made where it is not there; one that is too short is made longer."""

    is_transient = True

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(size)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with on_failure(os.close, self._file):
            if os.fstat(self._file).st_size < size:
                os.ftruncate(self._file, size)

    def read(self, offset: int, length: int) -> memoryview:
        view = memoryview(bytearray(length))
        done = 0
        while done < length:
            try:
                count = os.preadv(self._file, [view[done:]], offset + done)
            except OSError:
                raise MediaError(Status.UNRECOVERED_READ_ERROR) from None
            if not count:
                raise MediaError(Status.UNRECOVERED_READ_ERROR)  # Somebody has cut the file.
            done += count
        return view

    def write(self, offset: int, data: memoryview) -> None:
        done = 0
        while done < len(data):
            try:
                done += os.pwritev(self._file, [data[done:]], offset + done)
            except OSError as error:
                raise _failed(error) from None

    def zero(self, offset: int, length: int) -> None:
        for at in range(0, length, len(_ZEROES)):
            self.write(offset + at, _ZEROES[: min(len(_ZEROES), length - at)])

    def flush(self) -> None:
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise _failed(error) from None

    def close(self) -> None:
        os.close(self._file)


class PatternBackend(Backend):
    """Reads give the contents of a seed (`Pattern`), of any size and without memory. It takes no writes."""

    read_only = True
    is_transient = True

    def __init__(self, size: int, seed: int) -> None:
        super().__init__(size)
        self._pattern = Pattern(seed)

    def read(self, offset: int, length: int) -> memoryview:
        view = memoryview(bytearray(length))
        self._pattern.fill(view, offset)
        return view

    def write(self, offset: int, data: memoryview) -> None:
        raise MediaError(Status.NAMESPACE_IS_WRITE_PROTECTED)

    def zero(self, offset: int, length: int) -> None:
        raise MediaError(Status.NAMESPACE_IS_WRITE_PROTECTED)


def _failed(error: OSError) -> MediaError:
    return MediaError(_STATUS_BY_ERRNO.get(error.errno or 0, Status.WRITE_FAULT))
