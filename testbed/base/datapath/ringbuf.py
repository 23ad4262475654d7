"""The memory of the BPF ring buffer of events. Source: kernel Documentation/bpf/ringbuf.rst.

It is read by the pause agent's native side (`daemons/portd/native/ring.h`).
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.base.datapath import bpf


class RingMemory:
    """`fd` becomes readable when there are records; it stays the caller's. `data` is the ring twice in a row."""

    def __init__(self, consumed: NDArray[Any], produced: NDArray[Any], data: NDArray[Any], fd: int = -1) -> None:
        self.consumed, self.produced, self.data, self.fd = consumed, produced, data, fd

    @property
    def size(self) -> int:
        return len(self.data) // 2

    @classmethod
    def open(cls, fd: int) -> RingMemory:
        """That of the map `fd`, whose one consumer we are."""
        size, page = bpf.map_entries(fd), mmap.PAGESIZE
        consumer = mmap.mmap(fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        # The kernel maps data pages twice in a row, so that no record is ever in two pieces.
        producer = mmap.mmap(fd, page + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        return cls(
            np.frombuffer(consumer, "<u8", 1),
            np.frombuffer(producer, "<u8", 1),
            np.frombuffer(producer, "u1", 2 * size, offset=page),
            fd,
        )
