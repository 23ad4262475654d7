"""Counters and queues of simulated ports, as the data path of an emulated lab has them: read, and sampled over time."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
from numpy.typing import NDArray

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import MAPS, LabMaps
from testbed.base.linux.port_counters import PortCounters
from testbed.lab.core.drivers.netlink.port_programs import fill_maps
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.observe.port_table import PortTable
from testbed.lab.observe.sampler import MOST_QUEUES, Samples
from testbed.lab.observe.telemetry import Snapshot
from testbed.protocols.simulation import ClassQueue, OutputPort
from testbed.protocols.simulation.port import DROP_BUFFER, DROP_HEADROOM, DROP_TAIL
from testbed.protocols.simulation.switch import HeldAccount
from testbed.run.placed.lab import LiveLab
from testbed.run.simulated.fabric import SimulatedFabric

QUEUE_FIELDS = (
    "bytes", "max_bytes", "in_packets", "in_bytes", "enqueued_packets", "enqueued_bytes", "out_packets", "out_bytes",
    "wred_packets", "wred_bytes", "ce_packets", "ect_packets", "trimmed_packets", "trimmed_bytes", "forwarded_packets",
    "forwarded_bytes",
)  # fmt: skip
"""Fields that a queue's record has from the simulated queue by the same name."""
DROPS = {"tail": DROP_TAIL, "buffer": DROP_BUFFER, "headroom": DROP_HEADROOM}


def empty_maps(lab: LiveLab) -> LabMaps:
    """Return the maps of a lab with `qos:` in which nothing was counted so far."""
    qos = lab.plan.tables
    assert qos is not None
    ports = len(lab.plan.port_numbers) + 1
    of_ports = {"ports": ports, "queues": ports * CLASSES, "ingress": ports * CLASSES}
    of_ports |= {"pauses": ports * CLASSES, "curves": ports * CLASSES}
    of_ports |= {"addresses": len(qos.destinations), "egresses": len(qos.egresses)}
    counts = {"lab": 1, "profiles": len(qos.profiles), "buffers": len(qos.buffers), **of_ports}
    maps = LabMaps({name: np.zeros(counts[name], kind) for name, kind in MAPS.items()})
    fill_maps(maps, qos, [item for item in lab.plan.operations if isinstance(item, InstallPort)])
    return maps


def count_fabric(fabric: SimulatedFabric, lab: LiveLab) -> LabMaps:
    """Return the maps as they would be had the lab's ports carried what the fabric has carried."""
    maps = empty_maps(lab)
    qos, network = lab.plan.tables, fabric.network
    assert qos is not None
    numbers = lab.plan.port_numbers
    peers = {f"{port.node}:{port.name}": port.peer for port in lab.plan.ports}
    queues, pauses, curves = (maps.by_port(name) for name in ("queues", "pauses", "curves"))
    for name, port in network.outputs.items():
        if name not in numbers:
            continue  # of a network without classes
        number = numbers[name]
        for queue in port.queues:
            if not queue.in_packets and not queue.pauses:
                continue  # as most classes of most ports: nothing was counted
            _count_queue(queues[number, queue.priority], queue)
            if queue.ecn:
                curve = curves[number, queue.priority]
                curve["packets"], curve["marked"] = queue.packets_by_bin, queue.marked_by_bin
            pause = pauses[number, queue.priority]
            pause["xoff_received"] = queue.pauses
            pause["paused_ns"] = port.paused_ns(queue.priority, network.now)
            pause["watchdog_events"], pause["ignored"] = queue.watched.frees, queue.watched.freed
        _count_arrivals(maps, numbers[peers[name]], name, port, fabric)
    for (name, priority), frames in fabric.storms.items():
        if name in numbers:
            pauses[numbers[name], priority]["xoff_sent"] += frames
    for index, buffer in enumerate(qos.buffers):
        found = fabric.buffers.get(buffer.node)
        if found is not None and buffer.node:
            maps.buffers[index]["used_bytes"] = found.used_bytes
            maps.buffers[index]["max_bytes"] = found.max_bytes
    return maps


def counted_since(begin_ns: int, maps: LabMaps, now_ns: int) -> Snapshot:
    """Return what a run has counted, which began with nothing: the memory of the maps itself, which has hundreds of
    megabytes in a large fabric."""
    return Snapshot(
        time_ns=now_ns,
        seconds=max(0, now_ns - begin_ns) / 1e9,
        queues=maps.by_port("queues"),
        ingress=maps.by_port("ingress"),
        pauses=maps.by_port("pauses"),
        buffers=maps.buffers,
    )


def count_ports(fabric: SimulatedFabric, classes: Container[str]) -> dict[tuple[str, str], PortCounters]:
    """Return what each port has sent, and dropped where it is none of those with `classes`, which count that."""
    found = {}
    for name, port in fabric.network.outputs.items():
        node, _, interface = name.partition(":")
        dropped = sum(sum(queue.drops_packets) for queue in port.queues) if name not in classes else 0
        found[node, interface] = PortCounters(tx_bytes=port.line.bytes, tx_packets=port.line.frames, tx_dropped=dropped)
    return found


def _count_queue(record: dict[str, int], queue: ClassQueue) -> None:
    for field in QUEUE_FIELDS:
        record[field] = getattr(queue, field)
    for name, cause in DROPS.items():
        record[f"{name}_packets"] = queue.drops_packets[cause]
        record[f"{name}_bytes"] = queue.drops_bytes[cause]


def _count_arrivals(maps: LabMaps, number: int, name: str, port: OutputPort, fabric: SimulatedFabric) -> None:
    """Count what came in at the far end of a line, whose port has this number, and what the wire has lost."""
    network = fabric.network
    entered = network.inputs.get(name)
    arrivals = network.arrivals_at(name)
    ingress = maps.by_port("ingress")[number]
    for priority, counted in arrivals.by_priority.items() if arrivals is not None else ():
        ingress["in_packets"][priority] = counted.packets
        ingress["in_bytes"][priority] = counted.bytes
        ingress["ce_packets"][priority] = counted.ce_packets
    ingress["lost_packets"][port.queues[0].priority] = port.line.lost_frames + port.line.blackholed
    ingress["lost_bytes"][port.queues[0].priority] = port.line.lost_bytes + port.line.blackholed_bytes
    for account in () if entered is None else entered.accounts:
        if account.xoff_bytes:
            _count_account(ingress[account.priority], maps.by_port("pauses")[number, account.priority], account)


def _count_account(ingress: dict[str, int], pause: dict[str, int], account: HeldAccount) -> None:
    ingress["bytes"], ingress["max_bytes"] = account.bytes, account.max_bytes
    ingress["xoff_events"], ingress["xon_events"] = account.xoff_sent, account.xon_sent
    ingress["xoff"] = account.xoff
    pause["xoff_sent"], pause["xon_sent"] = account.xoff_sent, account.xon_sent


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
