"""Queues over simulated time: samples of their depth and of what they have sent, thinned where a run is long."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from testbed.lab.observe.port_table import PortTable
from testbed.lab.observe.sampler import MOST_QUEUES, Samples
from testbed.protocols.simulation import ClassQueue
from testbed.run.simulated.fabric import SimulatedFabric

MOST_SAMPLES = 2_048
"""With one more, every other sample goes and the interval doubles."""


class QueueSampler:
    """Takes a sample every `interval_ns` from the time of `begin` on, until `end`.

    A queue that nothing ever entered is left out of what `samples` returns.
    """

    def __init__(self, fabric: SimulatedFabric, table: PortTable, interval_ns: int) -> None:
        self._network = fabric.network
        self._interval_ns = max(1, interval_ns)
        self._times: list[int] = []
        self._depths: list[list[int]] = []
        self._sent: list[list[int]] = []
        self._over = False
        self._queues: list[tuple[int, int]] = []
        self._sources: list[ClassQueue] = []
        for number in range(1, table.count + 1):
            port = self._network.outputs.get(table.place(number))
            if port is None or not table.switch[number]:
                continue
            several = int(table.present[number].sum()) > 1
            for queue in port.queues:
                if not (several and queue.priority == int(table.control_class[number])):
                    self._queues.append((number, queue.priority))
                    self._sources.append(queue)

    def begin(self) -> None:
        if 0 < len(self._sources) <= MOST_QUEUES:
            self._tick(self._network.now)

    def end(self) -> None:
        """Take the last sample."""
        if self._times and not self._over:
            self._over = True
            self._take(self._network.now)

    def samples(self) -> Samples | None:
        """Return what was sampled; None where there is no queue to be sampled, or there are too many."""
        if not self._times:
            return None
        return Samples(
            times_ns=np.array(self._times, np.int64),
            columns={"queues.bytes": _rows(self._depths), "queues.out_bytes": _rows(self._sent)},
            queues=tuple(self._queues),
            complete=True,
        )

    def _tick(self, now: int) -> None:
        if self._over:
            return
        self._take(now)
        if len(self._times) > MOST_SAMPLES:
            self._times, self._depths, self._sent = self._times[::2], self._depths[::2], self._sent[::2]
            self._interval_ns *= 2
        self._network.at(now + self._interval_ns, self._tick)

    def _take(self, now: int) -> None:
        self._times.append(now)
        self._depths.append([queue.bytes for queue in self._sources])
        self._sent.append([queue.out_bytes for queue in self._sources])


def _rows(rows: list[list[int]]) -> NDArray[np.uint64]:
    return np.array(rows, np.uint64)
