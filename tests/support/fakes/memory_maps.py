"""The data path's maps and its ring of events in plain memory, without a kernel."""

from collections.abc import Sequence

import numpy as np

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import MAPS, LabMaps, RingMemory

_HEADER_BYTES = 8
"""The size of the header of a record of the ring (kernel Documentation/bpf/ringbuf.rst)."""


def maps_in_memory(ports: int, *, profiles: int = 8, buffers: int = 8) -> LabMaps:
    """Maps that are all zero; `ports` are numbered 1..ports."""
    sizes = {"lab": 1, "profiles": profiles, "ports": ports + 1, "buffers": buffers}
    return LabMaps({name: np.zeros(sizes.get(name, (ports + 1) * CLASSES), kind) for name, kind in MAPS.items()})


def queue_index(port: int, priority: int) -> int:
    """The index of a queue in the maps."""
    return port * CLASSES + priority


def ring_in_memory(records: Sequence[bytes], size: int = 1 << 16) -> RingMemory:
    """A ring that holds `records`. Raises `ValueError` for more than it takes."""
    written = b"".join(
        (len(record).to_bytes(4, "little") + bytes(4) + record).ljust(-(-len(record) // 8) * 8 + _HEADER_BYTES, b"\0")
        for record in records
    )
    if len(written) > size:
        raise ValueError(f"{len(written)} bytes of records in a ring of {size}")
    data = np.zeros(2 * size, "u1")
    data[: len(written)] = np.frombuffer(written, "u1")
    return RingMemory(np.zeros(1, "<u8"), np.array([len(written)], "<u8"), data)
