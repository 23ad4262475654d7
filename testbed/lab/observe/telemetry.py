"""Reads what the ports have counted: a copy of the maps at one moment, the difference of two, and what both say.

Everything here works on whole columns, so that the 2,560 ports of a large lab cost milliseconds; only what is shown
becomes a value of `testbed.lab.core.model.telemetry`.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.base.datapath.maps import LabMaps, Records
from testbed.lab.core.model.telemetry import (
    Amount,
    BufferTelemetry,
    DropCause,
    LinkTelemetry,
    QueueTelemetry,
    SprayTelemetry,
)
from testbed.lab.observe.port_table import PortTable

_OF_THE_MOMENT = frozenset(
    {"bytes", "max_bytes", "used_bytes", "size_bytes", "xoff", "xoff_bytes", "xon_bytes", "limit_bytes", "xoff_ns"}
    | {"paused_since", "asked_since", "closed", "storm", "ignored", "pad"}
)
"""Fields that a difference takes from the later reading; all others only grow."""

_COPIES = 100
"""Attempts at a queue whose counters change while they are read."""

QUEUE_DROPS = {
    DropCause.TAIL: "tail",
    DropCause.BUFFER: "buffer",
    DropCause.WRED: "wred",
    DropCause.HEADROOM: "headroom",
    DropCause.PURGED: "purged",
}
"""The fields of a queue (`<name>_packets`, `<name>_bytes`) that count drops."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Snapshot:
    """The counters of all ports at `time_ns` (CLOCK_MONOTONIC), or their growth over the `seconds` before it.

    `queues`, `ingress` and `pauses` have the shape (ports + 1, CLASSES) and the fields of
    `testbed.base.datapath.maps`; paused times include the pause that lasts. `seconds` is None for counters since the
    deploy.
    """

    time_ns: int
    seconds: float | None
    queues: Records
    ingress: Records
    pauses: Records
    buffers: Records

    @property
    def active(self) -> NDArray[np.bool_]:
        """Queues that saw anything: a packet either way, a drop, a pause frame."""
        seen = self.queues["in_packets"] | self.queues["out_packets"] | self.queues["bytes"]
        seen = seen | self.queues["trimmed_packets"] | self.queues["purged_packets"]
        seen |= self.ingress["in_packets"] | self.ingress["lost_packets"] | self.ingress["policed_packets"]
        seen |= self.ingress["pause_frames"] | self.ingress["malformed_frames"]
        seen |= self.pauses["xoff_sent"] | self.pauses["paused_ns"]
        return np.asarray(seen != 0)

    def dropped(self) -> NDArray[np.uint64]:
        """Packets lost at each queue, on the wire to its port, and by the cap there."""
        total = self.ingress["lost_packets"] + self.ingress["policed_packets"]
        for name in QUEUE_DROPS.values():
            total += self.queues[f"{name}_packets"]
        return np.asarray(total)

    def since(self, before: Snapshot) -> Snapshot:
        """Return what was counted after `before`, an earlier reading of the same maps.

        Counters that went back count 0.
        """
        return Snapshot(
            time_ns=self.time_ns,
            seconds=max(0, self.time_ns - before.time_ns) / 1e9,
            queues=_growth(self.queues, before.queues),
            ingress=_growth(self.ingress, before.ingress),
            pauses=_growth(self.pauses, before.pauses),
            buffers=self.buffers,
        )


def take_snapshot(maps: LabMaps, *, now_ns: int | None = None) -> Snapshot:
    """Copy the maps. The counters of one queue belong together, but queues are some milliseconds apart where traffic
    is running.

    `now_ns` (CLOCK_MONOTONIC, default: now) is what pauses that last are counted up to.
    """
    time_ns = time.monotonic_ns() if now_ns is None else now_ns
    pauses = maps.by_port("pauses").copy()
    for total, since in (("paused_ns", "paused_since"), ("asked_ns", "asked_since")):
        start = pauses[since].astype(np.int64)
        pauses[total] += np.where(start > 0, np.maximum(time_ns - start, 0), 0).astype(np.uint64)
    return Snapshot(
        time_ns=time_ns,
        seconds=None,
        queues=_copy_whole(maps.by_port("queues")),
        ingress=maps.by_port("ingress").copy(),
        pauses=pauses,
        buffers=maps.buffers.copy(),
    )


def _copy_whole(records: Records) -> Records:
    """Copy records that others write meanwhile, so that the fields of each are of one moment: one that changes while it
    is copied is copied again. One that never stands still is taken as it is after `_COPIES`."""
    copied = records.copy()
    kept, live = words(copied), words(records)
    for place in map(tuple, np.argwhere((kept != live).any(axis=-1)).tolist()):
        for _ in range(_COPIES):
            kept[place] = live[place]
            if np.array_equal(kept[place], live[place]):
                break
    return copied


def reset_maxima(maps: LabMaps) -> None:
    """Let every maximum start anew from what is queued now. The maps must be writable."""
    for records, now in ((maps.queues, "bytes"), (maps.ingress, "bytes"), (maps.buffers, "used_bytes")):
        records["max_bytes"] = records[now]


def words(records: Records) -> NDArray[np.uint64]:
    """Records of 8-byte multiples as rows of words: the memory itself, one more dimension."""
    return records.view("<u8").reshape(*records.shape, -1)


def columns(dtype: np.dtype[np.void], *names: str) -> list[int]:
    """Which words of a record the 8-byte fields `names` are."""
    fields: Any = dtype.fields
    return [fields[name][1] // 8 for name in names]


def _growth(after: Records, before: Records) -> Records:
    later, earlier = words(after), words(before)
    grown = later - np.minimum(later, earlier)
    fields: Any = after.dtype.fields
    kept = sorted({offset // 8 for name, (_, offset, *_rest) in fields.items() if name in _OF_THE_MOMENT})
    grown[..., kept] = later[..., kept]
    return np.asarray(grown.view(after.dtype).reshape(after.shape))


# --- what is shown ---------------------------------------------------------------------------------------


def queue_rows(table: PortTable, snapshot: Snapshot, chosen: NDArray[np.bool_]) -> list[QueueTelemetry]:
    """The chosen queues, in the order of ports and priorities."""
    return [_queue_row(table, snapshot, int(port), int(priority)) for port, priority in np.argwhere(chosen)]


def _queue_row(table: PortTable, snapshot: Snapshot, port: int, priority: int) -> QueueTelemetry:
    queue, ingress, pause = (
        dict(zip(records.dtype.names or (), records[port, priority].item(), strict=True))
        for records in (snapshot.queues, snapshot.ingress, snapshot.pauses)
    )

    def amount(record: dict[str, Any], name: str) -> Amount:
        return Amount(packets=record[f"{name}_packets"], bytes=record[f"{name}_bytes"])

    return QueueTelemetry(
        port=port,
        node=table.nodes[port],
        interface=table.interfaces[port],
        priority=priority,
        class_name=table.class_name(port, priority),
        lossless=bool(table.lossless[port, priority]),
        offered=amount(queue, "in"),
        enqueued=amount(queue, "enqueued"),
        sent=amount(queue, "out"),
        forwarded=amount(queue, "forwarded"),
        drops={
            **{cause: amount(queue, name) for cause, name in QUEUE_DROPS.items()},
            DropCause.WIRE: amount(ingress, "lost"),
            DropCause.CAP: amount(ingress, "policed"),
        },
        ce_packets=queue["ce_packets"],
        ce_among_packets=queue["out_packets" if table.marked_on_leaving[port, priority] else "enqueued_packets"],
        ect_packets=queue["ect_packets"],
        trimmed=amount(queue, "trimmed"),
        queue_bytes=signed(queue["bytes"]),
        queue_max_bytes=queue["max_bytes"],
        depth=tuple(int(count) for count in queue["depth"]),
        received=amount(ingress, "in"),
        received_ce_packets=ingress["ce_packets"],
        corrupted_packets=ingress["corrupted_packets"],
        held_bytes=signed(ingress["bytes"]),
        held_max_bytes=ingress["max_bytes"],
        pause_frames_received=ingress["pause_frames"],
        pause_frames_sent=pause["xoff_sent"] + pause["xon_sent"],
        malformed_frames=ingress["malformed_frames"],
        paused_us=pause["paused_ns"] / 1e3,
        peer_paused_us=pause["asked_ns"] / 1e3,
        watchdog_events=pause["watchdog_events"],
        paused=pause["paused_since"] != 0,
    )


def signed(word: int) -> int:
    """A depth that was taken from more than added to is below zero, not 2^64."""
    return word - 2**64 if word >= 2**63 else word


def utilisation(table: PortTable, growth: Snapshot) -> NDArray[np.float64]:
    """Return, by port, the share of its lab rate that it sent at, over the span of `growth`.

    0 where there is no span.
    """
    sent_bits = growth.queues["out_bytes"].sum(axis=1, dtype=np.float64) * 8
    room = table.rate_bps * (growth.seconds or 0.0)
    return np.asarray(np.divide(sent_bits, room, out=np.zeros(len(sent_bits)), where=room > 0))


def link_rows(table: PortTable, growth: Snapshot, chosen: NDArray[np.bool_]) -> list[LinkTelemetry]:
    """Each chosen port's direction of its link."""
    shares = utilisation(table, growth)
    sent = growth.queues["out_bytes"].sum(axis=1)
    return [
        LinkTelemetry(
            node=table.nodes[port],
            interface=table.interfaces[port],
            peer=table.place(int(table.peer[port])),
            rate_bps=int(table.rate_bps[port]),
            seconds=growth.seconds or 0.0,
            sent_bytes=int(sent[port]),
            utilisation=float(shares[port]),
        )
        for port in np.flatnonzero(chosen.any(axis=1)).tolist()
    ]


def spray_rows(table: PortTable, counters: Snapshot, *, down: Collection[int] = ()) -> list[SprayTelemetry]:
    """Return how evenly each class that a switch sent up went over its equal uplinks. Ports that are `down` do not
    count."""
    sent = words(counters.queues)[..., columns(counters.queues.dtype, "out_packets", "out_bytes")]
    rows = []
    for group in table.uplinks:
        ports = [port for port in group.ports if port not in down]
        if len(ports) < 2:
            continue
        of_group = sent[ports].astype(np.float64)
        totals = of_group[..., 1].sum(axis=0)
        for priority in np.flatnonzero(totals).tolist():
            packets, sizes = of_group[:, priority, 0], of_group[:, priority, 1]
            rows.append(
                SprayTelemetry(
                    node=group.node,
                    class_name=table.class_name(ports[0], priority),
                    priority=priority,
                    interfaces=tuple(table.interfaces[port] for port in ports),
                    sent=tuple(
                        Amount(packets=int(number), bytes=int(size))
                        for number, size in zip(packets, sizes, strict=True)
                    ),
                    max_over_mean_bytes=float(sizes.max() / sizes.mean()),
                    max_over_mean_packets=float(packets.max() / packets.mean()) if packets.any() else 1.0,
                )
            )
    return rows


def silent_uplinks(table: PortTable, counters: Snapshot) -> frozenset[int]:
    """Uplinks that sent nothing while their equals did: whether they are down decides what the spread means."""
    sent = counters.queues["out_packets"].sum(axis=1)
    return frozenset(
        port for group in table.uplinks if sent[list(group.ports)].any() for port in group.ports if not sent[port]
    )


def buffer_rows(table: PortTable, snapshot: Snapshot) -> list[BufferTelemetry]:
    """The shared buffer of each switch."""
    first: dict[int, str] = {}
    for port in range(1, table.count + 1):
        if table.buffer[port]:
            first.setdefault(int(table.buffer[port]), table.nodes[port])
    return [
        BufferTelemetry(
            node=node,
            used_bytes=signed(int(snapshot.buffers[index]["used_bytes"])),
            max_bytes=int(snapshot.buffers[index]["max_bytes"]),
            size_bytes=int(snapshot.buffers[index]["size_bytes"]),
        )
        for index, node in sorted(first.items())
    ]
