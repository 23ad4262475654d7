"""Readings of the lab and the machine around the traffic of a run: counters, queues, pauses and CPU time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import PLAIN_QUEUE_PACKETS
from testbed.lab.core.plan.user_space.uet import ETHERNET_BYTES
from testbed.record.samples import MarkingCurve, PortLoad, Series
from testbed.record.subnet_counters import SubnetLoad
from testbed.run.machine.cpu import CpuTimes, CpuUse, cpu_use, read_cpu_times
from testbed.run.placed.lab import LiveLab
from testbed.run.scale_up.loads import watch_switches

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps
    from testbed.lab.features.scale_up.counters.reading import DomainReading
    from testbed.lab.observe.dropped import Dropped
    from testbed.lab.observe.port_table import PortTable
    from testbed.lab.observe.sampler import Sampler, Samples
    from testbed.lab.observe.telemetry import Snapshot

INTERVAL_NS = 10_000_000
"""The time between two samples of the queues."""
PORT_INTERVAL_NS = 100_000_000
"""The time between two samples of what all ports of the lab have sent."""
MOST_POINTS = 400
"""The most points of a curve that goes into the record."""
MOST_CURVES = 8
"""The most curves of a kind: those of the fullest queues, those of the busiest links."""
_COLUMNS = ("queues.bytes", "queues.out_bytes")
_SENT = "queues.out_bytes"


@dataclass(slots=True)
class Observation:
    """Observations during one run, filled when the watch ends. Without `qos:` there are no queues to look into.

    `table`, `samples` and `marking` are of the networks that the workload is in; `sent`, `dropped`, `guarded`, `growth`
    and `port_samples` of all networks of the lab.
    """

    networks: tuple[str, ...] | None = None
    """The networks of the lab that were watched; None: all."""
    begin_ns: int = 0
    """When the watch began, by CLOCK_MONOTONIC."""
    elapsed_s: float = 0.0
    """The time that the watch lasted."""
    traffic_ns: tuple[int, int] | None = None
    """When traffic began and was over, by CLOCK_MONOTONIC, where that is known to be less than the watch: workers are
    told to begin some tenths of a second ahead. Shares of time and percentiles of queues are of the traffic alone."""
    cpu: CpuUse | None = field(default_factory=lambda: CpuUse(busy=0.0, steal=0.0, softirq=0.0))
    """None where the machine's time is not the lab's."""
    sent: Mapping[tuple[str, str], PortCounters] = field(default_factory=dict)
    """The packets and bytes that each port has sent and dropped meanwhile."""
    dropped: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """The packets that the queues of ports without QoS have dropped meanwhile."""
    guarded: Mapping[tuple[str, str, str], int] | None = None
    """The packets that guards, policies, borders and managed nodes have stopped meanwhile, by switch, port and guard as
    `lab.observe.dropped.read_dropped` has them; None for a lab that is not really there."""
    scale_up: Sequence[DomainReading] = ()
    """The counters of scale-up domains' switches, where transfers inside them are frames."""
    subnet: SubnetLoad | None = None
    """The counters of an InfiniBand subnet, where that carried the run."""
    growth: Snapshot | None = None
    samples: Samples | None = None
    table: PortTable | None = None
    port_samples: Samples | None = None
    """The bytes that queues have sent, at longer intervals; and where that is not too much, what else of ports is kept
    beside a record."""
    port_table: PortTable | None = None
    """The ports that `port_samples` are of."""
    full_queue_s: float = 0.0
    """The time for which a full queue is sent at the slowest port without classes, s of the lab (`full_queue_s`)."""
    marking: list[MarkingCurve] = field(default_factory=list)
    """A curve of each class that had packets which allowed a mark."""

    cpu_before: CpuTimes = field(default_factory=read_cpu_times)
    """The machine's time when it began to count."""

    def count_cpu_from_now(self) -> None:
        """Leave the machine's time until now out of `cpu`: what began then is what figures are of."""
        self.cpu_before = read_cpu_times()

    @property
    def lost_packets(self) -> int:
        """Return the packets that are known to have been lost meanwhile, at queues and on wires.

        What guards stop is not among them: it is no part of a flow that they let pass.
        """
        lost = sum(sent.tx_dropped for sent in self.sent.values()) + sum(self.dropped.values())
        return lost + (0 if self.growth is None else int(self.growth.dropped().sum()))

    @property
    def traffic_s(self) -> float:
        """Return the time in which there was traffic, s."""
        return self.elapsed_s if self.traffic_ns is None else (self.traffic_ns[1] - self.traffic_ns[0]) / 1e9

    def longest_wait_s(self) -> float:
        """Return how long a packet waited in the deepest queue that a switch had, s of the lab, at its port's rate; of
        ports whose depth nobody counts, how long one may wait.

        What is late by more was not queued: a host that asks for a neighbour's address holds packets as well.
        """
        if self.growth is None or self.table is None:
            return self.full_queue_s
        deepest = self.growth.queues["max_bytes"].max(axis=1)[self.table.switch]
        return float((8 * deepest / self.table.rate_bps[self.table.switch]).max(initial=self.full_queue_s))

    def loads(self, lab: LiveLab, tiers: Mapping[str, str]) -> list[PortLoad]:
        """Return what every port of the fabric carried; `tiers` says what its link is to the fabric, by
        "node:interface"."""
        numbers = {} if self.table is None else {self.table.place(n): n for n in range(1, self.table.count + 1)}
        none = PortCounters()
        found = []
        for port in lab.plan.ports:
            place = f"{port.node}:{port.name}"
            if place not in tiers:
                continue
            sent = self.sent.get((port.node, port.name), none)
            capacity = port.rate_bps * self.traffic_s / 8
            marks, paused, deepest = self._queues(numbers.get(place))
            found.append(
                PortLoad(
                    node=port.node,
                    interface=port.name,
                    peer=port.peer,
                    tier=tiers[place],
                    rate_bps=port.rate_bps,
                    tx_bytes=sent.tx_bytes,
                    tx_dropped=sent.tx_dropped,
                    utilisation=sent.tx_bytes / capacity if capacity > 0 else 0.0,
                    ce_packets=marks,
                    paused_us=paused,
                    queue_max_bytes=deepest,
                    network=port.network,
                )
            )
        return found

    def _queues(self, number: int | None) -> tuple[int, int, int]:
        """The CE marks, the paused microseconds and the deepest queue of a port, over its classes."""
        if number is None or self.growth is None:
            return 0, 0, 0
        queues, pauses = self.growth.queues[number], self.growth.pauses[number]
        return int(queues["ce_packets"].sum()), int(pauses["paused_ns"].sum()) // 1000, int(queues["max_bytes"].max())

    def depths(self) -> dict[tuple[int, int], NDArray[np.uint64]]:
        """Samples of the depth of each queue of a switch that ever held anything, in bytes, by (port, priority)."""
        if self.samples is None or self.table is None:
            return {}
        depths = self.samples.columns["queues.bytes"]
        return {
            queue: depths[:, index]
            for index, queue in enumerate(self.samples.queues)
            if self.table.switch[queue[0]] and depths[:, index].any()
        }

    def depths_in_traffic(self) -> dict[tuple[int, int], NDArray[np.uint64]]:
        """Return `depths` of the time in which there was traffic."""
        depths = self.depths()
        if self.samples is None or self.traffic_ns is None:
            return depths
        times, (begin, end) = self.samples.times_ns, self.traffic_ns
        within = (times >= begin) & (times <= end)
        return {queue: depth[within] for queue, depth in depths.items()} if within.any() else depths

    def series(self) -> list[Series]:
        """Curves for the report: the depths of the fullest queues and the use of the busiest links between switches."""
        if self.samples is None or self.table is None or len(self.samples) < 2:
            return []
        table = self.table
        at_s = (self.samples.times_ns - self.begin_ns) / 1e9
        depths = self.depths()
        fullest = sorted(depths, key=lambda queue: -int(depths[queue].max()))[:MOST_CURVES]
        found = []
        for port, priority in fullest:
            place, name = table.place(port), table.class_name(port, priority)
            keep = _thinned(len(at_s))
            samples = depths[port, priority].astype(np.float64)
            means = np.add.reduceat(samples, keep) / np.diff([*keep, len(samples)])
            found.append(
                Series(
                    name=f"queue:{place}:{name}",
                    title=f"Queue of {place}, class {name}",
                    unit="byte",
                    at_s=_rounded(at_s[keep]),
                    values=[round(float(value), 1) for value in means],
                    least=np.minimum.reduceat(samples, keep).tolist(),
                    most=np.maximum.reduceat(samples, keep).tolist(),
                )
            )
        return found + self._utilisations(at_s)

    def _utilisations(self, at_s: NDArray[np.float64]) -> list[Series]:
        assert self.samples is not None and self.table is not None
        table = self.table
        sent: dict[int, NDArray[np.float64]] = {}
        for index, (port, _) in enumerate(self.samples.queues):
            if table.switch[port] and table.peer[port] and table.switch[table.peer[port]]:
                column = self.samples.columns["queues.out_bytes"][:, index].astype(np.float64)
                sent[port] = sent[port] + column if port in sent else column
        keep = _thinned(len(at_s))
        if len(keep) < 2:
            return []
        busiest = sorted(sent, key=lambda port: -(sent[port][-1] - sent[port][0]))[: 2 * MOST_CURVES]
        found = []
        for port in busiest:
            rates = 8 * np.diff(sent[port][keep]) / np.diff(at_s[keep]) / table.rate_bps[port]
            place = table.place(port)
            found.append(
                Series(
                    name=f"utilisation:{place}",
                    title=f"Utilisation of {place}",
                    unit="share",
                    at_s=_rounded(at_s[keep][1:]),
                    values=[round(float(rate), 4) for rate in rates],
                )
            )
        return found


def full_queue_s(plan: LabPlan) -> float:
    """Return how long a packet waits at most in the queue of a port without classes, of the slowest of these ports, s
    of the lab; 0 where all have classes, whose depth is counted."""
    counted = plan.port_numbers
    plain = (port for port in plan.ports if f"{port.node}:{port.name}" not in counted)
    return max(
        (8 * PLAIN_QUEUE_PACKETS * (port.mtu_bytes + ETHERNET_BYTES) / port.rate_bps for port in plain), default=0
    )


@contextlib.contextmanager
def observe(lab: LiveLab, whole: LiveLab) -> Iterator[Observation]:
    """Watches a lab while the body runs, and fills the observation when it has ended.

    `lab` is seen in the networks of the workload, whose queues are watched closely; `whole` is all of it.
    """
    found = Observation(full_queue_s=full_queue_s(lab.plan))
    with contextlib.ExitStack() as stack:
        before, sampler, ports, maps, marks = None, None, None, None, None
        if whole.plan.tables is not None:
            from testbed.lab.observe.port_table import tabulate_ports
            from testbed.lab.observe.sampler import MOST_QUEUES, Sampler
            from testbed.lab.observe.telemetry import reset_maxima, take_snapshot
            from testbed.run.measuring.marking import watch_marks

            maps = _writable_maps(whole, stack)
            reset_maxima(maps)
            if lab.plan.qos is not None:
                found.table = tabulate_ports(lab.plan)
                chosen = _worth_sampling(found.table)
                if 0 < int(chosen.sum()) <= MOST_QUEUES:
                    sampler = Sampler(maps, found.table, columns=_COLUMNS, chosen=chosen, interval_ns=INTERVAL_NS)
            found.port_table = tabulate_ports(whole.plan)
            ports = _port_sampler(maps, found.port_table)
            before = take_snapshot(maps)
            if found.table is not None:
                marks = watch_marks(maps, whole.plan.tables, found.table)
        guards = _guards(whole)
        switched = watch_switches(whole)
        queues, counters = whole.plain_queues(), whole.counters()
        found.count_cpu_from_now()
        found.begin_ns = time.monotonic_ns()
        for each in (sampler, ports):
            if each is not None:
                stack.enter_context(each)
        try:
            yield found
        finally:
            found.elapsed_s = (time.monotonic_ns() - found.begin_ns) / 1e9
            if sampler is not None:
                sampler.stop()
                found.samples = sampler.since()
            if ports is not None:
                ports.stop()
                ports.tick()
                found.port_samples = ports.since()
            found.cpu = cpu_use(found.cpu_before, read_cpu_times())
            none = PortCounters()
            found.sent = {key: now.since(counters.get(key, none)) for key, now in whole.counters().items()}
            found.dropped = {key: _dropped_since(queues.get(key), now) for key, now in whole.plain_queues().items()}
            found.guarded = _stopped_since(guards, _guards(whole))
            found.scale_up = switched()
            if maps is not None and before is not None:
                found.growth = take_snapshot(maps).since(before)
            if marks is not None:
                found.marking = marks()


def _port_sampler(maps: LabMaps, table: PortTable) -> Sampler | None:
    """Return a sampler of what ports have sent: of switches alone in a large lab, None in a very large one."""
    from testbed.lab.observe.sampler import MEMORY_BYTES, MOST_QUEUES, Sampler
    from testbed.run.measuring.port_samples import COLUMNS, MOST_WORDS

    for chosen in (table.present, table.present & table.switch[:, None]):
        if 0 < int(chosen.sum()) <= MOST_QUEUES:
            columns = COLUMNS if int(chosen.sum()) * len(COLUMNS) <= MOST_WORDS else (_SENT,)
            memory = MEMORY_BYTES * len(columns)  # of which the kernel gives what is written to
            interval = PORT_INTERVAL_NS
            return Sampler(maps, table, columns=columns, chosen=chosen, interval_ns=interval, memory_bytes=memory)
    return None


def _guards(lab: LiveLab) -> Dropped | None:
    if not isinstance(lab, RunningLab):
        return None
    from testbed.lab.observe.dropped import read_dropped  # simulated runs have no tables of guards to read

    return read_dropped(lab)


def _stopped_since(before: Dropped | None, now: Dropped | None) -> Mapping[tuple[str, str, str], int] | None:
    if before is None or now is None:
        return None
    return {key: packets - before.get(key, (0, 0))[0] for key, (packets, _) in now.items()}


def _dropped_since(before: PlainQueue | None, now: PlainQueue) -> int:
    """The counter has 32 bits."""
    return (now.dropped_packets - (0 if before is None else before.dropped_packets)) % 2**32


def _writable_maps(lab: LiveLab, stack: contextlib.ExitStack) -> LabMaps:
    maps = lab.maps(writable=True)
    stack.callback(maps.close)
    return maps


def _worth_sampling(table: PortTable) -> NDArray[np.bool_]:
    """Chooses the queues of switches without the control class, which BGP and BFD have for themselves where there are
    others."""
    chosen = table.present & table.switch[:, None]
    for port in range(1, table.count + 1):
        if int(chosen[port].sum()) > 1:
            chosen[port, int(table.control_class[port])] = False
    return np.asarray(chosen)


def _thinned(count: int) -> NDArray[np.int64]:
    """The positions of at most `MOST_POINTS` of so many samples, evenly apart."""
    step = max(1, -(-count // MOST_POINTS))
    return np.arange(0, count, step)


def _rounded(values: Sequence[float] | NDArray[np.float64]) -> list[float]:
    return [round(float(value), 6) for value in values]
