"""The table of ports, of a lab or of a record at any moment, and that of a lab's queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from testbed.api.console.counters.quantities import QUANTITIES
from testbed.api.console.sources.source import Source
from testbed.api.console.sources.state import LinkWord
from testbed.api.console.tables.table import Nodes, PageTable, TableQuery
from testbed.base.rows import column, measured
from testbed.base.units import Rate
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.telemetry import queue_rows, take_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRow:
    """A port with what it sends, in the units of `counters.quantities`."""

    node: str
    interface: str
    peer: str
    network: str
    state: str
    rate: str
    use: float | None = measured("%")
    queue: int | None = measured("B")
    marks: float | None = measured("%")
    pauses: float | None = measured("%")
    losses: int | None = measured("packets/s")
    errors: int | None = measured("packets/s")
    condition: str = column(sparse=True, default="")


_WORDS = {LinkWord.DOWN: "down", LinkWord.UP: "up", LinkWord.CHANGED: "changed"}


def _port_rows(source: Source, query: TableQuery, nodes: Nodes) -> Iterator[PortRow]:
    shape, moment = source.shape, query.moment or source.now()
    columns = {name: moment.frame.columns[name].tolist() for name in QUANTITIES}
    places, links = list(shape.places), moment.state.links
    for number, place in enumerate(places):
        node, _, interface = place.partition(":")
        if not nodes(node):
            continue
        values = {name: _known(name, column[number]) for name, column in columns.items()}
        peer = int(shape.peer[number])
        yield PortRow(
            node=node,
            interface=interface,
            peer=places[peer] if peer >= 0 else "",
            network=shape.networks[int(shape.network[number])],
            state=_WORDS[LinkWord(links[number])] if number < len(links) else "",
            rate=str(Rate(int(shape.rate_bps[number]))),
            condition=moment.state.conditions.get(place, ""),
            **values,
        )


def _known(name: str, value: int) -> Any:
    """Return a value as people read it: permille as percent, and nothing where it is not measured."""
    if value < 0:
        return None
    return value / 10 if name in ("use", "marks", "pauses") else value


PORTS = PageTable(
    name="ports",
    title="Ports",
    kind=PortRow,
    rows=_port_rows,
    place=lambda row: f"{row.node}:{row.interface}",
    key=lambda row: f"port:{row.node}:{row.interface}",
    of=lambda source: True,
    moments=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue of a port, with what it has counted since the deploy."""

    node: str
    interface: str
    class_name: str = column("class")
    priority: int
    lossless: bool
    queue: int | None = measured("B")
    deepest: int | None = measured("B")
    sent: int | None = measured("packets")
    marked: int | None = measured("packets")
    dropped: int | None = measured("packets")
    trimmed: int | None = measured("packets")
    paused: float | None = measured("ms")
    pauses_received: int | None = measured("frames")
    pauses_sent: int | None = measured("frames")
    is_paused: bool = column("paused now", default=False)


def _queue_rows(source: Source, query: TableQuery, nodes: Nodes) -> Iterator[QueueRow]:
    lab = source.lab
    with closing(lab.maps()) as maps:
        table, snapshot = tabulate_ports(lab.plan), take_snapshot(maps)
        chosen = table.present & snapshot.active
        chosen &= [[nodes(node)] for node in table.nodes]
        for row in queue_rows(table, snapshot, chosen):
            yield QueueRow(
                node=row.node,
                interface=row.interface,
                class_name=row.class_name,
                priority=row.priority,
                lossless=row.lossless,
                queue=row.queue_bytes,
                deepest=row.queue_max_bytes,
                sent=row.sent.packets,
                marked=row.ce_packets,
                dropped=row.dropped.packets,
                trimmed=row.trimmed.packets,
                paused=round(row.paused_us / 1000, 3),
                pauses_received=row.pause_frames_received,
                pauses_sent=row.pause_frames_sent,
                is_paused=row.paused,
            )


QUEUES = PageTable(
    name="queues",
    title="Queues",
    kind=QueueRow,
    rows=_queue_rows,
    place=lambda row: f"{row.node}:{row.interface}",
    key=lambda row: f"port:{row.node}:{row.interface}",
    of=lambda source: source.live and source.lab.plan.tables is not None,
)
