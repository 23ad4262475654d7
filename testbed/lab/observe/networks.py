"""A line for each network of a deployed lab, what it consists of and how it is now: `inspect --all-networks`.

Scale-up domains that the file states have a line below: they have no ports that the others' columns could count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.base.errors import DriverError, LabNotFound, TestbedError
from testbed.base.linux.port_counters import PlainQueue
from testbed.base.rows import column, short
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.sessions import ESTABLISHED, UP, read_sessions
from testbed.lab.core.model import Lab, NodeKind
from testbed.lab.features.management.services_apply import read_services
from testbed.lab.features.scale_up.sizing import measure_scale_up
from testbed.lab.features.scale_up.view import domains_text
from testbed.lab.observe.lab_reader import LabReader, LabReading
from testbed.lab.observe.telemetry import signed

Port = tuple[str, str]
"""Node and interface."""
_SUMMED = (
    *("switches", "nics", "links", "sessions", "sessions_up", "services", "services_up"),
    *("sent_bytes", "dropped_packets", "guarded_packets"),
)


TABLE = (
    *("network", "design", "carried_by", "switches", "hosts", "targets", "nics", "links", "rates", "mtus", "tenants"),
    *("sessions", "services", "sent_bytes", "dropped_packets", "guarded_packets", "queue_bytes"),
)
"""The fields of a row that a table has, in its order: what a network is made of comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRow:
    """A network: what it consists of, and how it is now."""

    network: str
    design: str
    carried_by: str = column(heading="over")
    switches: int
    hosts: int
    targets: int
    nics: int = column(heading="NICs")
    links: int
    tenants: int
    sessions: int = column(text=lambda row: _of(row.sessions_up, row.sessions))
    sessions_up: int = column(in_table=False)
    rates: Sequence[str] = column(heading="rate", text=lambda row: ", ".join(row.rates))
    mtus: Sequence[int] = column(heading="MTU", text=lambda row: ", ".join(map(str, row.mtus)))
    services: int = column(text=lambda row: _of(row.services_up, row.services))
    services_up: int = column(in_table=False)
    sent_bytes: int = column(heading="sent", text=lambda row: short(row.sent_bytes, "B"))
    dropped_packets: int = column(heading="dropped")
    guarded_packets: int = column(heading="guarded")
    queue_bytes: int = column(heading="queue now", text=lambda row: row.fullest_queue)
    queue_port: str = column(in_table=False)

    @property
    def fullest_queue(self) -> str:
        """Return the bytes that wait in the fullest queue, and where."""
        return f"{short(self.queue_bytes, 'B')} {self.queue_port}" if self.queue_bytes else "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNetworks:
    """The networks of a lab at one moment.

    `sessions` has, by network, how many BGP sessions are up with their BFD peers; `sent_bytes`, `dropped_packets` (by
    queues and wires) and `waiting_bytes` are of each port, `guarded_packets` what guards and policies dropped there,
    and at the wires between tenants, whose ports are named TENANT:WIRE.
    `services` says of each service on each node whether it answers.
    """

    sessions: Mapping[str, int] = field(default_factory=dict)
    services: Sequence[bool] = ()
    sent_bytes: Mapping[Port, int] = field(default_factory=dict)
    dropped_packets: Mapping[Port, int] = field(default_factory=dict)
    waiting_bytes: Mapping[Port, int] = field(default_factory=dict)
    guarded_packets: Mapping[Port, int] = field(default_factory=dict)


def scale_up_summary(lab: Lab) -> dict[str, Any] | None:
    """Tell what joins GPUs beside all networks, as JSON data. Pure. None where the file states no domain."""
    sizing = measure_scale_up(lab) if lab.scale_up.stated else None
    if sizing is None or not sizing.domains:
        return None
    return {
        "preset": lab.scale_up.preset,
        "by": lab.scale_up.by.value,
        "domains": len(sizing.domains),
        "gpus": sizing.gpus,
        "planes": lab.scale_up.planes,
        "links": sizing.gpus * lab.scale_up.links,
        "gpu_rate_bps": lab.scale_up.rate.bps,
    }


def scale_up_line(lab: Lab) -> str:
    """Return the same as a line for people; "" where the file states no domain. Pure."""
    found = scale_up_summary(lab)
    if found is None:
        return ""
    many = "domain" if found["domains"] == 1 else "domains"
    what = domains_text(lab.scale_up, measure_scale_up(lab))
    return (
        f"scale-up, {what}: {found['domains']} {many}, {found['gpus']} GPUs, {found['planes']} planes,"
        f" {lab.scale_up.rate} a GPU each way; transfers by {found['by']} (`inspect scale-up`)"
    )


def planned_sessions(lab: RunningLab, network: str) -> int:
    """Return the number of BGP sessions of a network, counted at both ends; none where another one carries it."""
    return sum(len(speaker.neighbors) for speaker in _speakers(lab, network))


def _speakers(lab: RunningLab, network: str) -> Iterator[Any]:
    return (speaker for speaker in lab.plan.speakers if speaker.network == network)


def read_live(lab: RunningLab) -> LiveNetworks:
    """Ask a lab's routing daemons, services and ports. Raises `TestbedError` where its counters cannot be read."""
    readings = LabReader(lab.state, only=lab.name).read()
    if not readings:
        raise LabNotFound(f"{lab.name} is gone")
    (reading,) = readings
    if reading.problem:
        raise TestbedError(reading.problem)
    sent, dropped, waiting = _counted(reading, lab.plain_queues())
    guarded: dict[Port, int] = {}
    for (node, port, _), (packets, _) in reading.dropped.items():
        guarded[node, port] = guarded.get((node, port), 0) + packets
    return LiveNetworks(
        sessions={name: _sessions_up(lab, name) for name in lab.model.network_names},
        services=[status.state == "running" for status in read_services(lab)],
        sent_bytes=sent,
        dropped_packets=dropped,
        waiting_bytes=waiting,
        guarded_packets=guarded,
    )


def _sessions_up(lab: RunningLab, network: str) -> int:
    """Return the number of sessions that are established, with their BFD peers where they have some; none of a silent
    daemon's."""
    up = 0
    for speaker in _speakers(lab, network):
        try:
            sessions = read_sessions(speaker, lab.run_directory(speaker.node))
        except DriverError:
            continue
        up += sum(session.state == ESTABLISHED and session.bfd in ("", UP) for session in sessions)
    return up


def _counted(
    reading: LabReading, plain: Mapping[Port, PlainQueue]
) -> tuple[dict[Port, int], dict[Port, int], dict[Port, int]]:
    """Bytes that each port sent, packets lost at it, and bytes that wait in its fullest queue."""
    sent = {port: counters.tx_bytes for port, counters in (reading.ports or {}).items()}
    dropped = {port: counters.tx_dropped for port, counters in (reading.ports or {}).items()}
    waiting: dict[Port, int] = {}
    for port, queue in plain.items():
        dropped[port] = dropped.get(port, 0) + queue.dropped_packets
        waiting[port] = queue.waiting_bytes
    table, snapshot = reading.table, reading.snapshot
    if table is not None and snapshot is not None:
        out, lost = snapshot.queues["out_bytes"].sum(axis=1), snapshot.dropped().sum(axis=1)
        for number in range(1, table.count + 1):
            port = table.nodes[number], table.interfaces[number]
            sent[port], dropped[port] = int(out[number]), int(lost[number])
            waiting[port] = max(signed(int(depth)) for depth in snapshot.queues["bytes"][number])
    return sent, dropped, waiting


def network_rows(lab: Lab, live: LiveNetworks, planned: Mapping[str, int]) -> list[NetworkRow]:
    """Make a row for each network, in their order. Pure. `planned` is how many sessions each is to have.

    What a carried network has of its own are its hosts' links: the switches and those between them are its carrier's.
    """
    kinds = {node.name: node.kind for node in lab.nodes}
    designs = {network.name: network.design for network in lab.networks}
    tenants = () if lab.overlay is None else lab.overlay.tenants
    rows = []
    for name in lab.network_names:
        carrier = lab.carrier_of(name)
        links = [link for link in lab.links if link.network == name]
        ports = [end for link in links for end in (link.a, link.b)]
        switching = {
            node.name
            for node in lab.nodes
            if node.kind in (NodeKind.SWITCH, NodeKind.BRIDGE) and node.network == carrier
        }
        managed = lab.management is not None and lab.management.name == name
        ends = [port for port in ports if port.node not in switching]
        services = live.services if managed else ()
        places = [(port.node, port.interface) for port in ports]
        wires = [
            place for place in live.guarded_packets if place[0] in switching and ":" in place[1] and carrier == name
        ]
        fullest = max(places, key=lambda place: live.waiting_bytes.get(place, 0))
        queue_bytes = live.waiting_bytes.get(fullest, 0)
        rows.append(
            NetworkRow(
                network=name,
                design=designs.get(name, lab.design) or "hand-written",
                carried_by="" if carrier == name else carrier,
                switches=0 if carrier != name else len(switching),
                hosts=len({port.node for port in ends if kinds[port.node] is NodeKind.HOST}),
                targets=len({port.node for port in ends if kinds[port.node] is NodeKind.STORAGE}),
                nics=len(ends),
                links=len(links),
                tenants=sum(
                    not tenant.network and any(subnet.network == name for subnet in tenant.subnets)
                    for tenant in tenants
                ),
                sessions=planned[name],
                sessions_up=live.sessions.get(name, 0),
                rates=[str(rate) for rate in sorted({link.rate for link in links}, key=lambda rate: -rate.bps)],
                mtus=sorted({link.mtu_bytes for link in links}),
                services=len(services),
                services_up=sum(services),
                sent_bytes=sum(live.sent_bytes.get(place, 0) for place in places),
                dropped_packets=sum(live.dropped_packets.get(place, 0) for place in places),
                guarded_packets=sum(live.guarded_packets.get(place, 0) for place in (*places, *wires)),
                queue_bytes=queue_bytes,
                queue_port=":".join(fullest) if queue_bytes else "",
            )
        )
    return rows


def total_row(lab: Lab, rows: Sequence[NetworkRow]) -> NetworkRow:
    """Make the line of all networks: a host, target or tenant that is in several of them counts once. Pure."""
    worst = max(rows, key=lambda row: row.queue_bytes)
    tenants = () if lab.overlay is None else lab.overlay.tenants
    return NetworkRow(
        network="total",
        design="",
        carried_by="",
        hosts=len(lab.hosts),
        targets=len(lab.targets),
        tenants=sum(not tenant.network for tenant in tenants),
        rates=[],
        mtus=[],
        queue_bytes=worst.queue_bytes,
        queue_port=worst.queue_port,
        **{name: sum(getattr(row, name) for row in rows) for name in _SUMMED},
    )


def _of(up: int, planned: int) -> str:
    return f"{up}/{planned}" if planned else ""
