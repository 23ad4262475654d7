"""The path of a flow as `testbed trace` shows it: the ports by which it leaves nodes, with queue and counters."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.base.names import known_names_hint
from testbed.base.rows import column, for_programs, short
from testbed.base.units import Rate
from testbed.lab.core.deploy.links.changes import LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.observe.flow_path import FlowHop, FlowPath
from testbed.lab.observe.port_table import NothingSelected, PortTable, tabulate_ports
from testbed.lab.observe.telemetry import Snapshot, queue_rows, take_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class _HopCounters:
    """Counts of a port, or of the queue of a flow's class at it, since the deploy; `queue_bytes` wait there now."""

    queue_bytes: int = 0
    sent_packets: int = 0
    sent_bytes: int = 0
    dropped_packets: int = 0
    marked_packets: int | None = None
    traffic_class: str = ""


def _size(name: str) -> Callable[[Any], str]:
    return lambda row: "" if getattr(row, name) is None else short(getattr(row, name), "B")


def _rate(name: str) -> Callable[[Any], str]:
    def text(row: Any) -> str:
        value = getattr(row, name)
        return "" if value is None else str(Rate(value)) if value else "0"

    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """A port that the flow leaves a node by. Queue and counters are those of its traffic class there, where ports have
    some, else of the port. `load_bps` is what the whole port sent in the span that was measured, in lab units."""

    hop: int
    node: str
    came_in: str = column(heading="in")
    interface: str = column(heading="out")
    peer: str = column(heading="to")
    way: str = column(heading="chosen by")
    ways: int = for_programs()
    certain: bool = for_programs()
    traffic_class: str = column("class", sparse=True)
    queue_bytes: int = column(heading="queue", text=_size("queue_bytes"))
    sent_packets: int = column(heading="sent")
    dropped_packets: int = column(heading="dropped")
    marked_packets: int | None = column(heading="marked", optional=True)
    rate_bps: int = column(heading="lab rate", text=_rate("rate_bps"))
    load_bps: int | None = column(heading="load", optional=True, text=_rate("load_bps"))


def trace_rows(lab: RunningLab, path: FlowPath, *, class_name: str | None, over_s: float) -> list[TraceRow]:
    """Make a row for each port of a path, of the queue of a traffic class, or of that of packets without a DSCP.

    With `over_s` what each port sends is measured for so long. Raises `NothingSelected` for a class that no port has.
    """
    ports = list(dict.fromkeys(hop.port for hop in path.hops))
    readings = _Readings(lab.whole, ports, class_name)
    with LinkControl(lab.whole) as links:
        rates = {_key(port): links.rate_bps(_key(port)) or port.rate_bps for port in ports}
    now, began = readings.read(), time.monotonic()
    loads: dict[str, int] = {}
    if over_s:
        before = now
        time.sleep(over_s)
        now, seconds = readings.read(), time.monotonic() - began
        loads = {key: round(8 * (total - before[key][1]) / seconds) for key, (_, total) in now.items()}
    return [_row(hop, now[_key(hop.port)][0], rates, loads.get(_key(hop.port))) for hop in path.hops]


def _row(hop: FlowHop, load: _HopCounters, rates: Mapping[str, int], load_bps: int | None) -> TraceRow:
    one_of = f", {'1' if hop.is_certain else 'any'} of {hop.ways}" if hop.ways > 1 else ""
    return TraceRow(
        hop=hop.number,
        node=hop.port.node,
        came_in=hop.came_in.partition(":")[2],
        interface=hop.port.name,
        peer=hop.port.peer,
        way=f"{hop.by}{one_of}",
        ways=hop.ways,
        certain=hop.is_certain,
        traffic_class=load.traffic_class,
        queue_bytes=load.queue_bytes,
        sent_packets=load.sent_packets,
        dropped_packets=load.dropped_packets,
        marked_packets=load.marked_packets,
        rate_bps=rates[_key(hop.port)],
        load_bps=load_bps,
    )


def _key(port: PortPlan) -> str:
    return f"{port.node}:{port.name}"


class _Readings:
    """Reads the counters of some ports: of the maps where they have queues there, else of the kernel."""

    def __init__(self, lab: RunningLab, ports: Sequence[PortPlan], class_name: str | None) -> None:
        self._lab = lab
        self._ports = ports
        self._numbers = lab.plan.port_numbers
        self._table = tabulate_ports(lab.plan) if lab.plan.tables is not None else None
        profiles = () if lab.plan.tables is None else lab.plan.tables.profiles
        named = [{item.name: item.priority for item in profile.classes} for profile in profiles]
        self._priority = [
            names.get(class_name or "", profile.class_of_dscp[0])
            for names, profile in zip(named, profiles, strict=True)
        ]
        if class_name is not None and not any(class_name in names for names in named):
            known = sorted({name for names in named for name in names})
            raise NothingSelected(
                f"{lab.name} has no traffic class {class_name!r}", hint=known_names_hint(class_name, known)
            )

    def read(self) -> dict[str, tuple[_HopCounters, int]]:
        """The load of each port by its name, and all bytes that it has sent."""
        queued = [port for port in self._ports if _key(port) in self._numbers]
        plain = [port for port in self._ports if _key(port) not in self._numbers]
        found = dict(self._of_kernel(plain)) if plain else {}
        if queued and self._table is not None:
            with contextlib.closing(self._lab.maps()) as maps:
                snapshot = take_snapshot(maps)
            found |= dict(self._of_maps(queued, self._table, snapshot))
        return found

    def _of_maps(
        self, ports: Sequence[PortPlan], table: PortTable, snapshot: Snapshot
    ) -> Iterator[tuple[str, tuple[_HopCounters, int]]]:
        totals = snapshot.queues["out_bytes"].sum(axis=1)
        for port in ports:
            number = self._numbers[_key(port)]
            chosen = np.zeros(table.present.shape, bool)
            chosen[number, self._priority[int(table.profile[number])]] = True
            (row,) = queue_rows(table, snapshot, chosen)
            load = _HopCounters(
                queue_bytes=row.queue_bytes,
                sent_packets=row.sent.packets,
                sent_bytes=row.sent.bytes,
                dropped_packets=row.dropped.packets,
                marked_packets=row.ce_packets,
                traffic_class=row.class_name,
            )
            yield _key(port), (load, int(totals[number]))

    def _of_kernel(self, ports: Sequence[PortPlan]) -> Iterator[tuple[str, tuple[_HopCounters, int]]]:
        counters, queues = self._lab.counters(), self._lab.plain_queues()
        for port in ports:
            sent, queue = counters[port.node, port.name], queues.get((port.node, port.name))
            load = _HopCounters(
                queue_bytes=0 if queue is None else queue.waiting_bytes,
                sent_packets=sent.tx_packets,
                sent_bytes=sent.tx_bytes,
                dropped_packets=sent.tx_dropped + (0 if queue is None else queue.dropped_packets),
            )
            yield _key(port), (load, sent.tx_bytes)
