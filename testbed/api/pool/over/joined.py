"""Puts together what several machines have seen of one lab, as one machine would have seen all of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.api.pool.over.clocks import ClockReading
from testbed.api.pool.over.run_messages import BY_BUFFER, BY_PORT, PackedSamples, PartSeen
from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import MAPS
from testbed.daemons.portd.client import LabStatus
from testbed.daemons.portd.histogram import Latency
from testbed.lab.observe.port_table import PortTable, tabulate_ports
from testbed.lab.observe.reconcile import Balance, Reconciliation
from testbed.lab.observe.sampler import Samples
from testbed.lab.observe.telemetry import Snapshot
from testbed.record.samples import MarkingCurve
from testbed.run.machine.cpu import CpuUse, SoftnetCounts
from testbed.run.measuring.measured import Measured
from testbed.run.placed.lab import LiveLab
from testbed.run.trust.evidence import PortReading

_A_TIME = "_since"
"""The end of the names of columns that have times of the machine's clock, 0 for none."""


def join_watched(
    watched: Mapping[str, PartSeen],
    clocks: Mapping[str, ClockReading],
    places: Mapping[str, str],
    lab: LiveLab,
    measured: Measured,
) -> None:
    """Put into `measured` what machines, by name, have seen; `places` is the machine of each node, and `lab` the whole
    lab, seen in the networks of the workload. Raises `ValueError` for what no machine of this lab sees.

    Of the machine itself the worst counts: its busiest processors, its latest wake-ups.
    """
    seen, parts = measured.observation, list(watched.values())
    seen.cpu = _worst_cpu(part.cpu for part in parts)
    seen.sent = {(node, name): counters for part in parts for node, name, counters in part.sent}
    seen.dropped = {(node, name): packets for part in parts for node, name, packets in part.dropped}
    seen.guarded = {(node, port, guard): count for part in parts for node, port, guard, count in part.guarded}
    if lab.whole.plan.tables is not None:
        whole = seen.port_table = tabulate_ports(lab.whole.plan)
        seen.table = tabulate_ports(lab.plan) if lab.plan.qos is not None else None
        seen.growth = _growth(watched, whole, places, seen.begin_ns + round(seen.elapsed_s * 1e9))
        seen.samples = _samples(watched, clocks, lambda part: part.samples)
        seen.port_samples = _samples(watched, clocks, lambda part: part.port_samples)
        seen.marking = _marking(part.marking for part in parts)
        balances = [part.balance for part in parts if part.balance is not None]
        if balances:
            pausing = _pausing([part.pausing for part in parts if part.pausing is not None])
            measured.ports = PortReading(balance=_balance(balances), pausing=pausing)
    measured.lateness = max(
        (part.lateness for part in parts if part.lateness is not None), key=lambda one: one.p99_ns, default=None
    )
    squeezed, dropped = (sum(getattr(part.softnet, name) for part in parts) for name in ("squeezed", "dropped"))
    measured.softnet = (SoftnetCounts(dropped=0, squeezed=0), SoftnetCounts(dropped=dropped, squeezed=squeezed))
    measured.touches = [event for part in parts for event in part.touches]


def _worst_cpu(uses: Iterable[CpuUse | None]) -> CpuUse | None:
    known = [use for use in uses if use is not None]
    if not known:
        return None
    return CpuUse(**{name: max(getattr(use, name) for use in known) for name in ("busy", "steal", "softirq")})


def _growth(
    watched: Mapping[str, PartSeen], table: PortTable, places: Mapping[str, str], time_ns: int
) -> Snapshot | None:
    """Each port's counters, as its machine has them."""
    if any(part.growth is None for part in watched.values()):
        return None
    buffers = max((part.growth[BY_BUFFER].shape[0] for part in watched.values() if part.growth), default=0)
    found: dict[str, NDArray[Any]] = {name: np.zeros((table.count + 1, CLASSES), MAPS[name]) for name in BY_PORT}
    found[BY_BUFFER] = np.zeros(buffers, MAPS[BY_BUFFER])
    for machine, part in watched.items():
        own = [number for number, node in enumerate(table.nodes) if node and places[node] == machine]
        switches = sorted({int(table.buffer[number]) for number in own} - {0})
        for name, rows in (*((name, own) for name in BY_PORT), (BY_BUFFER, switches)):
            assert part.growth is not None
            counted = part.growth[name].unpack(MAPS[name])
            if rows and (rows[-1] >= len(counted) or counted.shape[1:] != found[name].shape[1:]):
                raise ValueError(f"{machine} counts other ports than the lab has there")
            found[name][rows] = counted[rows]
    seconds = max((part.seconds for part in watched.values()), default=0.0)
    return Snapshot(time_ns=time_ns, seconds=seconds, **found)


def _samples(
    watched: Mapping[str, PartSeen],
    clocks: Mapping[str, ClockReading],
    of: Callable[[PartSeen], PackedSamples | None],
) -> Samples | None:
    """Samples of all machines at the times of the first one's, on our clock.

    Machines sample each by itself: of another one, each has what it saw last by then.
    """
    packed = {machine: part for machine, watch in watched.items() if (part := of(watch)) is not None}
    if len(packed) != len(watched) or not packed:
        return None
    parts = [_on_our_clock(part.unpack(), clocks[machine].ahead_ns) for machine, part in packed.items()]
    first = parts[0]
    if any(part.columns.keys() != first.columns.keys() or not len(part) for part in parts):
        return None
    rows = [np.maximum(np.searchsorted(part.times_ns, first.times_ns, "right") - 1, 0) for part in parts]
    return Samples(
        times_ns=first.times_ns,
        columns={
            name: np.hstack([part.columns[name][row] for part, row in zip(parts, rows, strict=True)])
            for name in first.columns
        },
        queues=tuple(queue for part in parts for queue in part.queues),
        complete=all(part.complete for part in parts),
    )


def _on_our_clock(samples: Samples, ahead_ns: int) -> Samples:
    def moved(column: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return np.where(column > 0, column.astype(np.int64) - ahead_ns, 0).clip(0).astype(np.uint64)

    columns = {name: moved(column) if name.endswith(_A_TIME) else column for name, column in samples.columns.items()}
    return replace(samples, times_ns=samples.times_ns - ahead_ns, columns=columns)


def _marking(curves: Iterable[Sequence[MarkingCurve]]) -> list[MarkingCurve]:
    """The curves of one class with the same limits and marker together, whichever machine has their queues."""
    found: dict[tuple[Any, ...], MarkingCurve] = {}
    for curve in (one for part in curves for one in part):
        key = (curve.class_name, curve.marker, curve.kmin_bytes, curve.kmax_bytes, curve.pmax)
        before = found.get(key)
        found[key] = (
            curve
            if before is None
            else replace(
                before,
                queues=before.queues + curve.queues,
                packets=[a + b for a, b in zip(before.packets, curve.packets, strict=True)],
                marked=[a + b for a, b in zip(before.marked, curve.marked, strict=True)],
            )
        )
    return list(found.values())


def _balance(balances: Sequence[Reconciliation]) -> Reconciliation:
    checked: dict[str, int] = {}
    for balance in balances:
        for name, count in balance.checked.items():
            checked[name] = checked.get(name, 0) + count
    order = (Balance.BROKEN, Balance.MOVING, Balance.RECONCILED)
    return Reconciliation(
        balance=min((one.balance for one in balances), key=order.index),
        checked=checked,
        imbalances=tuple(one for balance in balances for one in balance.imbalances),
        switches=tuple(one for balance in balances for one in balance.switches),
    )


def _pausing(found: Sequence[LabStatus]) -> LabStatus | None:
    """The time in which pauses were obeyed: of all machines together, and as late as on the latest."""
    if not found:
        return None
    reactions = [one.reaction for one in found]
    latest = {name: max(getattr(one, name) for one in reactions) for name in ("p50_ns", "p99_ns", "max_ns")}
    return replace(found[0], reaction=Latency(count=sum(one.count for one in reactions), **latest))
