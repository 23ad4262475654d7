"""A lab's maps as arrays: shared memory with the eBPF programs, so that reading a counter is reading memory.

The types of their values are made of `programs/layout.h` and, of the rules of queues, `programs/rules.h`, which declare
and explain the fields. All counters grow for ever and are little-endian like every machine we run on. The maps are
pinned in a directory of the BPF file system that belongs to the lab. Arrays of `open` are the kernel's own memory: copy
what must stay as it is.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.base.cleanup import closed_at_end
from testbed.base.datapath import bpf
from testbed.base.datapath.abi import CLASSES, EVENTS_MAP, QUEUE_MAPS

Records = NDArray[np.void]
"""An array of one of the structures."""
_HEADERS = [Path(__file__).parent / "programs" / name for name in ("layout.h", "rules.h")]
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"^#define (\w+) (\d+)\s*$", re.MULTILINE)
_STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.DOTALL | re.MULTILINE)
_FIELDS = re.compile(r"(?:struct )?(\w+) ([^;]+);")
_FIELD = re.compile(r"(\w+)(?:\[(\w+)\])?")
_INTEGERS = {"__u8": "u1", "__u16": "<u2", "__u32": "<u4", "__u64": "<u8"}


def _read_structs(header: str) -> dict[str, np.dtype[np.void]]:
    """The structures of headers in C. They have numbers, and arrays of them and of structures that stand before."""
    text = _COMMENT.sub("", header)
    numbers = {name: int(value) for name, value in _NUMBER.findall(text)}
    found: dict[str, np.dtype[np.void]] = {}
    for name, body in _STRUCT.findall(text):
        fields: list[tuple[Any, ...]] = []
        for kind, declared in _FIELDS.findall(body):
            for field, length in _FIELD.findall(declared):
                what, count = _INTEGERS.get(kind) or found[kind], numbers.get(length) or int(length or 0)
                fields.append((field, what, (count,)) if count else (field, what))
        found[name] = np.dtype(fields)
    return found


STRUCTS = _read_structs("".join(header.read_text() for header in _HEADERS))
"""All structures, by the names of the headers."""
QUEUE, INGRESS, PAUSE, EVENT, SAMPLE = (STRUCTS[name] for name in ("queue", "ingress", "pause", "event", "sample"))

MAPS = {
    "lab": STRUCTS["lab_config"],
    "profiles": STRUCTS["profile"],
    "ports": STRUCTS["port_config"],
    "buffers": STRUCTS["buffer"],
    "queues": QUEUE,
    "ingress": INGRESS,
    "pauses": PAUSE,
    "curves": STRUCTS["curve"],
    "addresses": STRUCTS["address"],
    "egresses": STRUCTS["egress"],
}
"""The array maps by name, one value type each. Those of `abi.QUEUE_MAPS` have CLASSES values a port."""


class LabMaps:
    """The maps of one lab. Arrays are indexed by port number; those of queues by `port * CLASSES + priority`."""

    def __init__(self, arrays: dict[str, Records], events: int = -1) -> None:
        self._arrays = arrays
        self._events = events
        self.gone: Mapping[str, Sequence[Sequence[int]]] = {}
        """Packets of ports that are gone, by their switch: those that came in, were forwarded and trimmed, by class."""
        self.lab = arrays["lab"]
        self.profiles = arrays["profiles"]
        self.ports = arrays["ports"]
        self.buffers = arrays["buffers"]
        self.queues = arrays["queues"]
        self.ingress = arrays["ingress"]
        self.pauses = arrays["pauses"]
        self.curves = arrays["curves"]
        self.addresses = arrays["addresses"]
        self.egresses = arrays["egresses"]

    @classmethod
    def open(cls, directory: Path, *, writable: bool = False, with_room: bool = False) -> LabMaps:
        """The maps pinned in `directory`: of ports those that there are, or `with_room` for others, too. Raises
        `DriverError` where they are gone."""
        arrays = {}
        for name, kind in MAPS.items():
            with closed_at_end(bpf.get_pinned(directory / name)) as fd:
                count = bpf.map_entries(fd)
                protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
                size = -(-count * kind.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
                memory = mmap.mmap(fd, size, mmap.MAP_SHARED, protection)
            arrays[name] = np.frombuffer(memory, kind, count)
        if not with_room:
            ports = 1 + max(np.flatnonzero(arrays["ports"]["ifindex"]).tolist(), default=0)
            arrays["ports"] = arrays["ports"][:ports]
            arrays |= {name: arrays[name][: ports * CLASSES] for name in QUEUE_MAPS}
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


class RingMemory:
    """The memory of a BPF ring buffer (kernel Documentation/bpf/ringbuf.rst): that of events, which the pause agent
    reads, or of samples.

    `fd` becomes readable when there are records; it stays the caller's. `data` is the ring twice in a row.
    """

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
