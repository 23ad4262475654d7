"""A lab's maps as arrays: shared memory with the eBPF programs, so that reading a counter is reading memory.

The maps are pinned in a directory of the BPF file system that belongs to the lab. Arrays of `open` are the kernel's
own memory: copy what must stay as it is.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.base.datapath import bpf
from testbed.base.datapath.abi import CLASSES, EVENTS_MAP
from testbed.base.datapath.layout import MAPS

Records = NDArray[np.void]
"""An array of one of the structures of `layout`."""


class LabMaps:
    """The maps of one lab. Arrays are indexed by port number; those of queues by `port * CLASSES + priority`."""

    def __init__(self, arrays: dict[str, Records], events: int = -1) -> None:
        self._arrays = arrays
        self._events = events
        self.lab = arrays["lab"]
        self.profiles = arrays["profiles"]
        self.ports = arrays["ports"]
        self.buffers = arrays["buffers"]
        self.queues = arrays["queues"]
        self.ingress = arrays["ingress"]
        self.pauses = arrays["pauses"]
        self.curves = arrays["curves"]

    @classmethod
    def open(cls, directory: Path, *, writable: bool = False) -> LabMaps:
        """The maps pinned in `directory`. Raises `DriverError` where they are gone."""
        arrays = {}
        for name, kind in MAPS.items():
            fd = bpf.get_pinned(directory / name)
            try:
                count = bpf.map_entries(fd)
                protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
                size = -(-count * kind.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
                memory = mmap.mmap(fd, size, mmap.MAP_SHARED, protection)
            finally:
                os.close(fd)
            arrays[name] = np.frombuffer(memory, kind, count)
        return cls(arrays, bpf.get_pinned(directory / EVENTS_MAP))

    def by_port(self, name: str) -> Any:
        """`queues`, `ingress`, `pauses` or `curves` as an array of shape (ports + 1, CLASSES)."""
        return self._arrays[name].reshape(-1, CLASSES)

    def events_fd(self) -> int:
        """Descriptor of the ring buffer of events, for `RingBuffer`; it stays ours."""
        return self._events

    def close(self) -> None:
        if self._events >= 0:
            os.close(self._events)
            self._events = -1
