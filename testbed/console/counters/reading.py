"""Reads what all ports of a lab have counted, of the data path's maps and of the kernel, as columns.

It is its own beside `testbed.lab.observe`, whose snapshots copy every counter of every queue: twice a second, of 4,096
ports, that would be a tenth of a CPU. Here a few columns are gathered from shared memory, and plain ports are asked by
sockets that stay open.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import INGRESS, PAUSE, QUEUE, LabMaps
from testbed.base.linux.counters import read_queues, read_statistics
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.console.counters.quantities import UNKNOWN, Totals
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.inside import open_inside
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.observe.port_table import PortTable, tabulate_ports
from testbed.lab.observe.telemetry import QUEUE_DROPS, columns, words

_QUEUE = columns(
    QUEUE,
    "bytes",
    "out_bytes",
    "out_packets",
    "enqueued_packets",
    "ce_packets",
    *(f"{name}_packets" for name in QUEUE_DROPS.values()),
)
_INGRESS = columns(INGRESS, "lost_packets", "policed_packets", "corrupted_packets")
_PAUSE = columns(PAUSE, "paused_ns", "paused_since")
QUEUES_EVERY = 4
"""Queues of plain ports are read at each fourth reading: the kernel tells all of each qdisc, which takes long."""


class LabCounters:
    """Reads the counters of a lab's ports, in the order of its plan. For one thread; `close` lets go of all it holds.

    Raises `DriverError` and `OSError` where the lab goes meanwhile.
    """

    def __init__(self, lab: RunningLab) -> None:
        self.ports: Sequence[PortPlan] = lab.plan.ports
        self.rate_bps = np.array([port.rate_bps for port in self.ports], np.int64)
        numbers = lab.plan.port_numbers
        found = [numbers.get(f"{port.node}:{port.name}", 0) for port in self.ports]
        self._maps: LabMaps | None = None
        self._plain: _PlainPorts | None = None
        self._queued: _QueuedPorts | None = None
        try:
            if lab.plan.tables is not None and any(found):
                self._maps = lab.maps()
                self._queued = _QueuedPorts(self._maps, tabulate_ports(lab.plan), np.array(found, np.int64))
            if not all(found):
                plain = {place: port for place, port in enumerate(self.ports) if not found[place]}
                self._plain = _PlainPorts(lab, plain)
        except BaseException:
            self.close()
            raise

    def read(self) -> Totals:
        """Return the counters of now."""
        totals = _uncounted(len(self.ports))
        if self._queued is not None:
            self._queued.read_into(totals)
        if self._plain is not None:
            self._plain.read_into(totals)
        return totals

    def close(self) -> None:
        """Close the maps and sockets."""
        if self._plain is not None:
            self._plain.close()
        if self._maps is not None:
            self._maps.close()
        self._plain = self._maps = self._queued = None


def _uncounted(ports: int) -> Totals:
    names = (
        "sent_bytes",
        "queue_bytes",
        "marked_packets",
        "markable_packets",
        "paused_ns",
        "lost_packets",
        "corrupted_packets",
    )
    return Totals(time_ns=time.monotonic_ns(), **{name: np.full(ports, UNKNOWN, np.int64) for name in names})


class _QueuedPorts:
    """The ports that the data path serves. `numbers` are those of ports by their place in the plan, 0 for plain ones."""

    def __init__(self, maps: LabMaps, table: PortTable, numbers: NDArray[np.int64]) -> None:
        self.places = np.flatnonzero(numbers)
        chosen = numbers[self.places]
        present = table.present[chosen]
        present[:, 0] |= ~present.any(axis=1)  # a port without a class has a row, so that each port begins one
        which, priorities = np.nonzero(present)
        self._rows = chosen[which] * CLASSES + priorities
        self._starts = np.flatnonzero(np.diff(which, prepend=-1))
        self._first = chosen * CLASSES
        peers = table.peer[chosen]
        place_of = np.full(len(table.nodes), -1, np.int64)
        place_of[chosen] = np.arange(len(chosen))
        self._peers = place_of[peers]
        self._leaving = table.marked_on_leaving.reshape(-1)[self._rows]
        self._queues, self._ingress, self._pauses = map(words, (maps.queues, maps.ingress, maps.pauses))
        self._malformed = maps.ingress["malformed_frames"]

    def read_into(self, totals: Totals) -> None:
        """Write what these ports have counted into their places."""
        queues = self._queues[self._rows[:, None], _QUEUE].astype(np.int64)
        ingress = self._sums(self._ingress[self._rows[:, None], _INGRESS].astype(np.int64))
        paused, since = self._pauses[self._rows[:, None], _PAUSE].astype(np.int64).T
        paused += np.where(since > 0, np.maximum(totals.time_ns - since, 0), 0)
        waiting, sent, left, entered, marked = queues[:, :5].T
        markable = np.where(self._leaving, left, entered)
        totals.sent_bytes[self.places] = self._sums(sent)
        totals.queue_bytes[self.places] = np.maximum(self._sums(waiting), 0)
        totals.marked_packets[self.places] = self._sums(marked)
        totals.markable_packets[self.places] = self._sums(markable)
        totals.paused_ns[self.places] = np.maximum.reduceat(paused, self._starts)
        lost, policed, corrupted = ingress.T
        malformed = self._malformed[self._first].astype(np.int64)
        totals.lost_packets[self.places] = self._sums(queues[:, 5:].sum(axis=1)) + self._at_peers(lost + policed)
        totals.corrupted_packets[self.places] = self._at_peers(corrupted + malformed)

    def _sums(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum the values of each port's classes."""
        return np.asarray(np.add.reduceat(values, self._starts, axis=0))

    def _at_peers(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what was counted at the other end of each port's link; 0 where that counts nothing."""
        return np.where(self._peers >= 0, values[self._peers], 0)


class _PlainPorts:
    """The ports that only the kernel counts. Their sockets stay open, one for each network namespace."""

    def __init__(self, lab: RunningLab, ports: dict[int, PortPlan]) -> None:
        self._places: dict[str, dict[int, int]] = {}
        for place, port in ports.items():
            self._places.setdefault(port.place, {})[port.ifindex] = place
        self._by_name = {(port.node, port.name): place for place, port in ports.items()}
        self._peers = {
            place: self._by_name[node, name]
            for place, port in ports.items()
            for node, _, name in [port.peer.partition(":")]
            if (node, name) in self._by_name
        }
        self._sockets = open_inside(lab.name, {place: place for place in self._places}, lambda _: RouteSocket())
        self._readings = 0
        self._queues: dict[int, tuple[int, int]] = {}

    def read_into(self, totals: Totals) -> None:
        """Write what these ports have counted into their places."""
        with_queues = self._readings % QUEUES_EVERY == 0
        self._readings += 1
        received: dict[int, tuple[int, int]] = {}
        for place, route in self._sockets.items():
            wanted = self._places[place]
            for ifindex, values in read_statistics(route).items():
                at = wanted.get(ifindex)
                if at is None:
                    continue
                _, _, _, sent_bytes, rx_errors, _, rx_dropped, tx_dropped = values
                totals.sent_bytes[at] = sent_bytes
                totals.lost_packets[at] = tx_dropped
                received[at] = rx_errors, rx_dropped
            if with_queues:
                self._read_queues(route, wanted)
        for at, (errors, dropped) in received.items():
            peer = self._peers.get(at)
            if peer is not None:
                totals.corrupted_packets[peer] = errors
                totals.lost_packets[peer] += dropped
        for at, (waiting, dropped) in self._queues.items():
            totals.queue_bytes[at] = waiting
            totals.lost_packets[at] += dropped

    def _read_queues(self, route: RouteSocket, wanted: dict[int, int]) -> None:
        for ifindex, queue in read_queues(route).items():
            at = wanted.get(ifindex)
            if at is not None:
                self._queues[at] = queue.waiting_bytes, queue.dropped_packets

    def close(self) -> None:
        """Close the sockets."""
        for route in self._sockets.values():
            route.close()


def weights_of(ports: Sequence[PortPlan], networks: Sequence[str]) -> NDArray[np.float64]:
    """Return the weight of each port in a mean of all: its rate; 0 for those of other networks than those named."""
    chosen: Any = set(networks)
    return np.array([port.rate_bps if not chosen or port.network in chosen else 0 for port in ports], np.float64)
