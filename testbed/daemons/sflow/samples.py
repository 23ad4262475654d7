"""Reading the packets that the data path samples, and those that it drops, from its ring; and turning both on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testbed.base.cleanup import closed_at_end
from testbed.base.datapath import bpf
from testbed.base.datapath.abi import CLASSES, SAMPLES_MAP, SampleFate
from testbed.base.datapath.maps import SAMPLE, LabMaps, RingMemory

_BUSY, _DISCARDED = 1 << 31, 1 << 30
"""Bits of a record's length (BPF_RINGBUF_BUSY_BIT and _DISCARD_BIT of linux/bpf.h)."""
_RECORD_HEAD = 8
DROP_GAP_NS = 10_000_000
"""At most one dropped packet in so long is told of, over all switches of a lab: sFlow's own limit is a rate, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPacket:
    """A packet that a switch port sent or dropped. `port` and `queue` are those of egress, but for a cap's drop, which
    is at `port` as it came in; `came_in` is the port that it came in by, 0 for none. `depth_bytes` were queued before
    it."""

    port: int
    queue: int
    came_in: int
    depth_bytes: int
    length: int
    fate: SampleFate
    header: bytes


class SampleRing:
    """The one reader of a lab's ring of samples. What it has taken is the kernel's again."""

    def __init__(self, memory: RingMemory) -> None:
        self._memory = memory

    def take(self) -> Iterator[SampledPacket]:
        """Yield what is there now, oldest first."""
        memory = self._memory
        position, end = int(memory.consumed[0]), int(memory.produced[0])
        while position < end:
            at = position % memory.size
            length = int(memory.data[at : at + 4].view("<u4")[0])
            if length & _BUSY:
                break
            size = length & ~_DISCARDED
            if not length & _DISCARDED and size >= SAMPLE.itemsize:
                record = memory.data[at + _RECORD_HEAD : at + _RECORD_HEAD + SAMPLE.itemsize].copy().view(SAMPLE)[0]
                yield _packet(record)
            position += -(-(size + _RECORD_HEAD) // 8) * 8
            memory.consumed[0] = position


def _packet(record: np.void) -> SampledPacket:
    queue, ingress = int(record["queue"]), int(record["ingress"])
    return SampledPacket(
        port=queue // CLASSES,
        queue=queue % CLASSES,
        came_in=ingress // CLASSES,
        depth_bytes=int(record["depth"]),
        length=int(record["length"]),
        fate=SampleFate(int(record["fate"])),
        header=bytes(record["header"][: int(record["captured"])]),
    )


class DataPath:
    """The data path of a lab as telemetry has it: its samples, and the counters that go with them."""

    def __init__(self, maps: LabMaps, ring: SampleRing) -> None:
        self._maps = maps
        self._ring = ring

    @classmethod
    def open(cls, directory: Path) -> DataPath:
        """That whose maps are pinned in `directory`. Raises `DriverError` where they are gone."""
        maps = LabMaps.open(directory, writable=True, with_room=True)  # for ports that the lab gets later
        with closed_at_end(bpf.get_pinned(directory / SAMPLES_MAP)) as descriptor:
            ring = SampleRing(RingMemory.open(descriptor))
        return cls(maps, ring)

    def begin(self, sampling: int) -> None:
        """Have one packet in `sampling` told of, and dropped ones; what is there from before is left out."""
        for _ in self._ring.take():
            pass
        self._maps.lab["sample_below"][0] = min((1 << 32) // sampling, (1 << 32) - 1)
        self._maps.lab["drop_gap_ns"][0] = DROP_GAP_NS

    def end(self) -> None:
        """Have nothing told any more."""
        self._maps.lab["sample_below"][0] = 0
        self._maps.lab["drop_gap_ns"][0] = 0

    def take(self) -> Iterator[SampledPacket]:
        """Yield what was sampled since."""
        return self._ring.take()

    @property
    def lost_samples(self) -> int:
        """The samples that the ring had no room for."""
        return int(self._maps.lab["lost_samples"][0])

    @property
    def untold_drops(self) -> int:
        """The dropped packets that nobody was told of."""
        return int(self._maps.lab["untold_drops"][0])

    def admitted_packets(self, port: int) -> int:
        """Return the packets that a port has taken to be sent so far: the pool that samples are drawn from."""
        return int(self._maps.by_port("queues")[port]["enqueued_packets"].sum())

    def dropped_packets(self, port: int) -> tuple[int, int]:
        """Return the packets that a port has dropped: as they came in, and before it sent them."""
        ingress = self._maps.by_port("ingress")[port]
        return int(ingress["policed_packets"].sum()), _dropped(self._maps.by_port("queues")[port])

    def close(self) -> None:
        self._maps.close()


def _dropped(queues: np.ndarray[Any, Any]) -> int:
    """Return the packets that never entered the queues of a port."""
    return sum(int(queues[f"{cause}_packets"].sum()) for cause in ("tail", "buffer", "wred", "headroom"))
