"""Reads what all ports of a lab have counted, of the data path's maps and of the kernel, as columns.

It is its own beside `testbed.lab.observe`, whose snapshots copy every counter of every queue: twice a second, of 4,096
ports, that would be a tenth of a CPU. Here a few columns are gathered from shared memory, and plain ports are asked by
sockets that stay open.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.api.console.counters.link_statistics import (
    RX_BYTES,
    RX_DROPPED,
    RX_ERRORS,
    TX_BYTES,
    TX_DROPPED,
    QueueReader,
    read_statistics,
)
from testbed.api.console.counters.quantities import UNKNOWN, Totals
from testbed.base.cleanup import on_failure
from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import INGRESS, PAUSE, QUEUE, LabMaps
from testbed.base.linux.rtnetlink import RouteSocket
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
"""The queues of a plain port are read at each fourth reading."""


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
        with on_failure(self.close):
            if lab.plan.tables is not None and any(found):
                self._maps = lab.maps()
                self._queued = _QueuedPorts(self._maps, tabulate_ports(lab.plan), np.array(found, np.int64))
            if not all(found):
                plain = {place: port for place, port in enumerate(self.ports) if not found[place]}
                self._plain = _PlainPorts(lab, plain, len(self.ports))

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
    columns = {name: np.full(ports, UNKNOWN, np.int64) for name in names}
    return Totals(time_ns=np.full(ports, time.monotonic_ns(), np.int64), **columns)


class _QueuedPorts:
    """The ports that the data path serves. `numbers` has their numbers by place in the plan, 0 for plain ones."""

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
        self._paused = np.zeros(len(self.places), np.int64)
        self._paused_before: NDArray[np.int64] | None = None

    def read_into(self, totals: Totals) -> None:
        """Write what these ports have counted into their places."""
        now_ns = time.monotonic_ns()
        totals.time_ns[self.places] = now_ns
        queues = self._queues[self._rows[:, None], _QUEUE].astype(np.int64)
        ingress = self._sums(self._ingress[self._rows[:, None], _INGRESS].astype(np.int64))
        paused, since = self._pauses[self._rows[:, None], _PAUSE].astype(np.int64).T
        paused += np.where(since > 0, np.maximum(now_ns - since, 0), 0)
        waiting, sent, left, entered, marked = queues[:, :5].T
        markable = np.where(self._leaving, left, entered)
        totals.sent_bytes[self.places] = self._sums(sent)
        totals.queue_bytes[self.places] = np.maximum(self._sums(waiting), 0)
        totals.marked_packets[self.places] = self._sums(marked)
        totals.markable_packets[self.places] = self._sums(markable)
        totals.paused_ns[self.places] = self._most_paused(paused)
        lost, policed, corrupted = ingress.T
        malformed = self._malformed[self._first].astype(np.int64)
        totals.lost_packets[self.places] = self._sums(queues[:, 5:].sum(axis=1)) + self._at_peers(lost + policed)
        totals.corrupted_packets[self.places] = self._at_peers(corrupted + malformed)

    def _most_paused(self, paused: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add up what the class of each port was paused that was paused longest since the reading before.

        The longest of all that classes were paused since the deploy would hide one that is paused now behind another.
        """
        if self._paused_before is not None:
            self._paused += np.maximum.reduceat(np.maximum(paused - self._paused_before, 0), self._starts)
        self._paused_before = paused
        return self._paused

    def _sums(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum the values of each port's classes."""
        return np.asarray(np.add.reduceat(values, self._starts, axis=0))

    def _at_peers(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what was counted at the other end of each port's link; 0 where that counts nothing."""
        return np.where(self._peers >= 0, values[self._peers], 0)


class _PlainPorts:
    """The ports that only the kernel counts. Their sockets stay open, one for each network namespace that is asked.

    What one end of a link receives is what the other one sent, so not all namespaces have to be asked: those of some
    nodes, most often the leaves, have an end of every link.
    """

    def __init__(self, lab: RunningLab, ports: dict[int, PortPlan], number: int) -> None:
        """`ports` are the plain ones by their place in the plan, which has `number` of all kinds."""
        by_name = {(port.node, port.name): at for at, port in ports.items()}
        self._peers = np.full(number, -1, np.int64)
        for at, port in ports.items():
            node, _, name = port.peer.partition(":")
            self._peers[at] = by_name.get((node, name), -1)
        of_places: dict[str, dict[int, int]] = {}
        for at, port in ports.items():
            of_places.setdefault(port.place, {})[port.ifindex] = at
        self._asked = _cover({place: set(found.values()) for place, found in of_places.items()}, self._peers)
        self._indexes = {place: _index(found) for place, found in of_places.items()}
        self._sockets = open_inside(lab.name, {place: place for place in of_places}, lambda _: RouteSocket())
        self._reader = QueueReader()
        self._turn = 0
        self._waiting, self._dropped = np.zeros(number, np.int64), np.zeros(number, np.int64)
        self._ports = np.array(sorted(ports), np.int64)

    def read_into(self, totals: Totals) -> None:
        """Write what these ports have counted into their places."""
        lost, corrupted = np.zeros(len(self._peers), np.int64), np.zeros(len(self._peers), np.int64)
        for place in self._asked:
            ifindexes, counters = read_statistics(self._sockets[place])
            now_ns, index = time.monotonic_ns(), self._indexes[place]
            at = np.where(ifindexes < len(index), index[np.minimum(ifindexes, len(index) - 1)], -1)
            at, counters = at[at >= 0], counters[at >= 0]
            peers = self._peers[at]
            there, others = peers[peers >= 0], counters[peers >= 0]
            totals.time_ns[there] = totals.time_ns[at] = now_ns
            totals.sent_bytes[there] = others[:, RX_BYTES]
            lost[there] += others[:, RX_DROPPED]
            corrupted[there] = others[:, RX_ERRORS]
            totals.sent_bytes[at] = counters[:, TX_BYTES]
            lost[at] += counters[:, TX_DROPPED]
        self._read_queues()
        ports = self._ports
        totals.corrupted_packets[ports] = corrupted[ports]
        totals.lost_packets[ports] = lost[ports] + self._dropped[ports]
        totals.queue_bytes[ports] = self._waiting[ports]

    def _read_queues(self) -> None:
        """Read the queues of some namespaces, and of others the next time: the kernel tells much of each."""
        self._turn = (self._turn + 1) % QUEUES_EVERY
        for number, (place, route) in enumerate(self._sockets.items()):
            if number % QUEUES_EVERY != self._turn:
                continue
            index = self._indexes[place]
            for ifindex, waiting, dropped in self._reader.read(route):
                if ifindex < len(index) and (at := index[ifindex]) >= 0:
                    self._waiting[at], self._dropped[at] = waiting, dropped

    def close(self) -> None:
        """Close the sockets."""
        for route in self._sockets.values():
            route.close()


def _index(ports: dict[int, int]) -> NDArray[np.int64]:
    """Return the place of each port by the index of its interface; -1 for one that is no port."""
    found = np.full(max(ports) + 1, -1, np.int64)
    for ifindex, at in ports.items():
        found[ifindex] = at
    return found


def _cover(places: dict[str, set[int]], peers: NDArray[np.int64]) -> list[str]:
    """Return places that have an end of every link, a few of them: the one with most links that are left comes next."""
    left = {at for ports in places.values() for at in ports}
    found = []
    while left:
        place = max(places, key=lambda name: len(places[name] & left))
        found.append(place)
        left -= places[place]
        left -= {int(peers[at]) for at in places[place]}
    return found
