"""The traffic of ports while a program ran: of the NICs of its ranks, and of links of switches to those above them.

The share of an uplink is what it sent over the mean of its switch's uplinks: ECMP hashes flows and not bytes, and two
flows of a ring on one uplink are what makes its steps twice as long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import DriverError, TestbedError
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.lab.core.model import NodeKind

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
    from testbed.lab.observe.telemetry import Snapshot

_SNMP = Path("/proc/thread-self/net/snmp")
"""Counters of the calling thread's network namespace (proc(5))."""
_NONE, _NO_QUEUE = PortCounters(), PlainQueue()
Ports = Mapping[tuple[str, str], PortCounters]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTraffic:
    """The traffic of a port. `peer` is the other end ("node:interface").

    `tx_share` and `rx_share` are the bytes over the mean of the uplinks of its switch, in that direction; 0.0 for a NIC
    and where nothing went. Marks are None for ports without QoS.
    """

    node: str
    interface: str
    peer: str
    tx_bytes: int
    rx_bytes: int
    tx_share: float
    rx_share: float
    dropped_packets: int
    marked_packets: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The counters of all ports at a moment."""

    ports: Ports
    queues: Mapping[tuple[str, str], PlainQueue]
    paths: Snapshot | None


class TrafficWatch:
    """The traffic of a lab, as it is seen in one network, since this was made."""

    def __init__(self, lab: RunningLab, hosts: Iterable[str]) -> None:
        self._lab = lab
        self._hosts = list(dict.fromkeys(hosts))
        self._before = self._read()
        self._sent_again = read_sent_again(lab, self._hosts)

    def _read(self) -> _Reading:
        paths: Snapshot | None = None
        if self._lab.plan.qos is not None:
            from testbed.lab.observe.telemetry import take_snapshot

            with closing(self._lab.maps()) as maps:
                paths = take_snapshot(maps)
        return _Reading(ports=self._lab.counters(), queues=self._lab.plain_queues(), paths=paths)

    def sent_again(self) -> int | None:
        """The segments that the hosts' TCP has sent again; None where a host cannot be asked."""
        now = read_sent_again(self._lab, self._hosts)
        return None if now is None or self._sent_again is None else now - self._sent_again

    def read(self, nics: Sequence[PortPlan]) -> tuple[tuple[PortTraffic, ...], tuple[PortTraffic, ...]]:
        """Return what these NICs carried, and what every uplink did; nothing of a lab that is gone."""
        try:
            now = self._read()
        except (TestbedError, OSError):
            return (), ()
        carried = _Carried(self._lab.plan, self._before, now)
        wires = {(nic.node, nic.name): nic for nic in nics}
        return (
            tuple(carried.row(nic) for nic in wires.values()),
            _with_shares([carried.row(port) for port in uplinks(self._lab.model, self._lab.plan)]),
        )


class _Carried:
    """The growth of the counters of ports between two readings."""

    def __init__(self, plan: LabPlan, before: _Reading, now: _Reading) -> None:
        self._before = before
        self._now = now
        self._numbers = plan.port_numbers if now.paths is not None else {}
        self._marks: Sequence[int] = ()
        self._drops: Sequence[int] = ()
        if now.paths is not None and before.paths is not None:
            grown = now.paths.since(before.paths)
            self._marks = grown.queues["ce_packets"].sum(axis=1).tolist()
            self._drops = grown.dropped().sum(axis=1).tolist()

    def row(self, port: PortPlan) -> PortTraffic:
        key = (port.node, port.name)
        grown = self._now.ports.get(key, _NONE).since(self._before.ports.get(key, _NONE))
        queue, queue_before = self._now.queues.get(key, _NO_QUEUE), self._before.queues.get(key, _NO_QUEUE)
        number = self._numbers.get(f"{port.node}:{port.name}")
        dropped = grown.tx_dropped + queue.dropped_packets - queue_before.dropped_packets
        return PortTraffic(
            node=port.node,
            interface=port.name,
            peer=port.peer,
            tx_bytes=max(0, grown.tx_bytes),
            rx_bytes=max(0, grown.rx_bytes),
            tx_share=0.0,
            rx_share=0.0,
            dropped_packets=max(0, dropped) + (0 if number is None else self._drops[number]),
            marked_packets=None if number is None else self._marks[number],
        )


def uplinks(lab: Lab, plan: LabPlan) -> list[PortPlan]:
    """Return the ports of switches that lead to a switch of a higher tier; to any, from one that knows no tier and has
    hosts."""
    switches = {node.name: node for node in lab.nodes if node.kind is NodeKind.SWITCH}
    edge = {nic.peer.partition(":")[0] for host in plan.hosts for nic in host.nics}
    found = []
    for port in plan.ports:
        here, above = switches.get(port.node), switches.get(port.peer.partition(":")[0])
        if here is None or above is None:
            continue
        if here.role is not None and above.role is not None:
            leads_up = above.role.tier > here.role.tier
        else:
            leads_up = here.name in edge and above.name not in edge
        if leads_up:
            found.append(port)
    return found


def _with_shares(rows: Sequence[PortTraffic]) -> tuple[PortTraffic, ...]:
    by_switch: dict[str, list[PortTraffic]] = defaultdict(list)
    for row in rows:
        by_switch[row.node].append(row)
    sent = {node: sum(row.tx_bytes for row in of_it) / len(of_it) for node, of_it in by_switch.items()}
    received = {node: sum(row.rx_bytes for row in of_it) / len(of_it) for node, of_it in by_switch.items()}
    return tuple(
        replace(
            row,
            tx_share=round(row.tx_bytes / sent[row.node], 3) if sent[row.node] else 0.0,
            rx_share=round(row.rx_bytes / received[row.node], 3) if received[row.node] else 0.0,
        )
        for row in rows
    )


def read_sent_again(lab: RunningLab, hosts: Iterable[str]) -> int | None:
    """Return the segments that TCP has sent again in these hosts since they were made; None where one is gone."""

    def read() -> int:
        total = 0
        for host in hosts:
            enter_namespace(lab.namespace(host))
            total += segments_sent_again(_SNMP.read_text())
        return total

    try:
        return syscalls.in_thread(read)
    except (DriverError, OSError):
        return None


def segments_sent_again(text: str) -> int:
    """Read `RetransSegs` (RFC 4022) of the file `net/snmp`, which has a line of names and one of values for TCP."""
    lines = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    names, values = lines[0], lines[1]
    return int(values[names.index("RetransSegs")])
