"""The sums that the counters of a lab must keep: each law reads its places at once and says how far off they are.

Differences are of packets and of bytes, left side minus right side of the law's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import INGRESS, PAUSE, QUEUE, LabMaps
from testbed.lab.observe.port_table import PortTable
from testbed.lab.observe.telemetry import columns, words

Places = NDArray[np.intp]
Words = NDArray[np.uint64]
Differences = NDArray[np.int64]


class Law(ABC):
    """One conservation law. `places` are indexes that `read` and `place` understand."""

    name: str
    places_are: str

    def __init__(self, maps: LabMaps, table: PortTable) -> None:
        self._table = table
        self._queues = words(maps.queues)
        self._ingress = words(maps.ingress)
        self._pauses = words(maps.pauses)
        self._buffers = words(maps.buffers)
        self.places = self._find()

    def _find(self) -> Places:
        """Find the places that saw anything: queues, if the law has no others."""
        return np.flatnonzero(self._queues.any(axis=1))

    @abstractmethod
    def read(self, places: Places) -> Words:
        """The counters of the places, one row each, as they are now."""

    @abstractmethod
    def difference(self, values: Words) -> Differences:
        """Return the difference of rows that `read` gave: (packets, bytes)."""

    def place(self, index: int) -> str:
        """A place for people."""
        port, priority = divmod(index, CLASSES)
        return f"{self._table.place(port)} {self._table.class_name(port, priority)}"


def _pairs(*names: str) -> list[str]:
    return [f"{name}_{unit}" for name in names for unit in ("packets", "bytes")]


class Admission(Law):
    """A law: all that is offered to a queue is enqueued or dropped, for one cause."""

    name = "in = enqueued + dropped"
    places_are = "queues"
    _columns = columns(QUEUE, *_pairs("in", "enqueued", "tail", "buffer", "wred", "headroom"))

    def read(self, places: Places) -> Words:
        return np.asarray(self._queues[places[:, None], self._columns])

    def difference(self, values: Words) -> Differences:
        amounts = values.astype(np.int64).reshape(len(values), -1, 2)
        return np.asarray(amounts[:, 0] - amounts[:, 1:].sum(axis=1))


class Storage(Law):
    """A law: all that is enqueued leaves, is purged or still waits.

    Waiting packets are not counted: they go with their bytes.
    """

    name = "enqueued = out + purged + queued"
    places_are = "queues"
    _columns = columns(QUEUE, *_pairs("enqueued", "out", "purged"), "bytes")

    def read(self, places: Places) -> Words:
        return np.asarray(self._queues[places[:, None], self._columns])

    def difference(self, values: Words) -> Differences:
        amounts = values.astype(np.int64)
        waiting = amounts[:, 6]
        left = amounts[:, 0:2] - amounts[:, 2:4] - amounts[:, 4:6]
        packets = np.where((left[:, 0] < 0) | ((left[:, 0] == 0) != (waiting == 0)), left[:, 0], 0)
        return np.stack([packets, left[:, 1] - waiting], axis=1)


class LinkLaw(Law):
    """A law: all that leaves a port comes in at its peer, is lost by the emulated wire, or is above the cap there. All
    classes together: ends may differ.

    A MAC control frame that took the way through the queue, as no pause agent sends it, ends at the peer uncounted
    but for `malformed_frames`, or for more `pause_frames` than the agent sent.
    """

    name = "out = in + dropped at the peer"
    places_are = "links"

    _out = columns(QUEUE, *_pairs("out"))
    _in = columns(INGRESS, *_pairs("in", "lost", "policed"), "malformed_frames", "pause_frames")
    _sent = columns(PAUSE, "xoff_sent", "xon_sent")

    def _find(self) -> Places:
        table, classes = self._table, np.arange(CLASSES)
        ports = np.flatnonzero(table.peer)
        out = self._queues[ports[:, None] * CLASSES + classes][..., self._out[0]].any(axis=1)
        came = self._ingress[table.peer[ports][:, None] * CLASSES + classes][..., self._in[:5:2]].any(axis=(1, 2))
        return np.asarray(ports[out | came])

    def read(self, places: Places) -> Words:
        # downstream first: what arrives between the two is then not taken for a packet out of nowhere
        here = (places[:, None] * CLASSES + np.arange(CLASSES))[..., None]
        there = (self._table.peer[places][:, None] * CLASSES + np.arange(CLASSES))[..., None]
        came = self._ingress[there, self._in]
        sent = self._pauses[here, self._sent]
        out = self._queues[here, self._out]
        return np.asarray(np.concatenate([out, came, sent], axis=2).reshape(len(places), -1))

    def difference(self, values: Words) -> Differences:
        each = values.astype(np.int64).reshape(len(values), CLASSES, -1)
        total = each.sum(axis=1)
        off = total[:, 0:2] - total[:, 2:4] - total[:, 4:6] - total[:, 6:8]
        foreign = total[:, 8] + np.maximum(each[..., 9] - each[..., 10] - each[..., 11], 0).sum(axis=1)
        explained = (off[:, 0] > 0) & (off[:, 0] <= foreign)
        return np.asarray(np.where(explained[:, None], 0, off))

    def place(self, index: int) -> str:
        return f"{self._table.place(index)} -> {self._table.place(int(self._table.peer[index]))}"


class BufferLaw(Law):
    """A switch's shared buffer holds what its queues hold, and its ingress accounts no more than that."""

    name = "buffer = queues >= held for ingress ports"
    places_are = "buffers"

    _queued = columns(QUEUE, "bytes")
    _held = columns(INGRESS, "bytes")

    def _find(self) -> Places:
        self._ports = {
            int(index): (np.flatnonzero(self._table.buffer == index)[:, None] * CLASSES + np.arange(CLASSES)).ravel()
            for index in np.unique(self._table.buffer)
            if index
        }
        return np.array(sorted(self._ports), np.intp)

    def read(self, places: Places) -> Words:
        width = 1 + 2 * max(len(self._ports[int(place)]) for place in places)
        rows = np.zeros((len(places), width), np.uint64)
        for row, place in zip(rows, places, strict=True):
            queues = self._ports[int(place)]
            row[0] = self._buffers[place, 0]
            row[1 : 1 + len(queues)] = self._queues[queues, self._queued[0]]
            row[width - len(queues) :] = self._ingress[queues, self._held[0]]
        return rows

    def difference(self, values: Words) -> Differences:
        amounts = values.astype(np.int64)
        middle = 1 + (amounts.shape[1] - 1) // 2
        queued, held = amounts[:, 1:middle].sum(axis=1), amounts[:, middle:].sum(axis=1)
        off = amounts[:, 0] - queued
        too_much = np.where((held > queued) | (held < 0), queued - held, 0)
        return np.stack([np.zeros(len(off), np.int64), np.where(off != 0, off, too_much)], axis=1)

    def place(self, index: int) -> str:
        return self._table.nodes[int(self._ports[index][0]) // CLASSES]


def all_laws(maps: LabMaps, table: PortTable) -> list[Law]:
    return [Admission(maps, table), Storage(maps, table), LinkLaw(maps, table), BufferLaw(maps, table)]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SwitchCounts:
    """The packets of a switch by priority, over all its ports.

    `comparable`: its ports put a packet into the same class.
    """

    node: str
    names: tuple[str, ...]
    received: NDArray[np.int64]
    forwarded: NDArray[np.int64]
    trimmed: NDArray[np.int64]
    comparable: bool

    def class_name(self, priority: int) -> str:
        return self.names[priority]


def count_switches(maps: LabMaps, table: PortTable) -> list[SwitchCounts]:
    """Packets in and forwarded, with those of ports that are gone. Forwarded is read first, so that traffic meanwhile
    only adds to what came in."""
    queues = words(maps.by_port("queues"))
    forwarded = queues[..., columns(QUEUE, "forwarded_packets")[0]].astype(np.int64)
    received = words(maps.by_port("ingress"))[..., columns(INGRESS, "in_packets")[0]].astype(np.int64)
    trimmed = queues[..., columns(QUEUE, "trimmed_packets")[0]].astype(np.int64)
    of_node: dict[str, list[int]] = {}
    for port in np.flatnonzero(table.switch).tolist():
        of_node.setdefault(table.nodes[port], []).append(port)
    counts = []
    for node, ports in of_node.items():
        profiles = [maps.profiles[index] for index in sorted(set(maps.ports[ports]["profile"].tolist()))]
        same = all((each["class_of_dscp"] == profiles[0]["class_of_dscp"]).all() for each in profiles)
        gone = np.array(maps.gone.get(node, np.zeros((3, CLASSES))), np.int64)
        cut = trimmed[ports].sum(axis=0) + gone[2]
        cut[int(profiles[0]["trimmed_class"])] -= cut.sum()
        counts.append(
            SwitchCounts(
                node=node,
                names=tuple(table.class_name(ports[0], priority) for priority in range(CLASSES)),
                received=received[ports].sum(axis=0) + gone[0],
                forwarded=forwarded[ports].sum(axis=0) + gone[1],
                trimmed=cut,
                comparable=same and len({int(each["trimmed_class"]) for each in profiles}) == 1,
            )
        )
    return counts
