"""The consumer's side of a BPF ring buffer, over its memory. Source: kernel Documentation/bpf/ringbuf.rst."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator

from testbed.datapath import bpf

_U64 = struct.Struct("=Q")
_U32 = struct.Struct("=I")
_BUSY, _DISCARD = 1 << 31, 1 << 30
_HEADER_BYTES = 8


class RingBuffer:
    """Records in the order in which they were reserved. `fileno` becomes readable when there are some."""

    def __init__(self, fd: int) -> None:
        """`fd` is the map's descriptor; it stays the caller's."""
        self._fd = fd
        self._size = bpf.map_entries(fd)
        page = mmap.PAGESIZE
        self._consumer = mmap.mmap(fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        # Data pages are mapped twice in a row, so that no record is ever in two pieces.
        self._producer = mmap.mmap(fd, page + 2 * self._size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        self._position = _U64.unpack_from(self._consumer)[0]

    def fileno(self) -> int:
        return self._fd

    def read(self) -> Iterator[bytes]:
        """All records there are now. One that is not yet committed ends the reading."""
        mask = self._size - 1
        while self._position < _U64.unpack_from(self._producer)[0]:
            offset = mmap.PAGESIZE + (self._position & mask)
            header = _U32.unpack_from(self._producer, offset)[0]
            if header & _BUSY:
                return
            length = header & ~(_BUSY | _DISCARD)
            start = offset + _HEADER_BYTES
            record = None if header & _DISCARD else self._producer[start : start + length]
            self._position += (length + _HEADER_BYTES + 7) & ~7
            _U64.pack_into(self._consumer, 0, self._position)
            if record is not None:
                yield record

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()
