"""The views of what `stats` read: documents with units in their keys, and tables for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.base.linux.port_counters import PortCounters
from testbed.base.rows import short
from testbed.lab.core.model.telemetry import Amount, DropCause, LinkTelemetry, QueueTelemetry, SprayTelemetry
from testbed.lab.observe.reconcile import Balance, Reconciliation

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_AMOUNTS = ("offered", "enqueued", "sent", "forwarded", "trimmed", "received")
_PLAIN = (
    "ce_packets",
    "ce_among_packets",
    "ect_packets",
    "queue_bytes",
    "queue_max_bytes",
    "received_ce_packets",
    "corrupted_packets",
    "held_bytes",
    "held_max_bytes",
    "pause_frames_received",
    "pause_frames_sent",
    "malformed_frames",
    "paused_us",
    "peer_paused_us",
    "watchdog_events",
    "paused",
)
_PLACE = ("node", "interface", "class", "priority", "lossless")

QUEUE_COLUMNS = (
    "time_ns",
    *_PLACE,
    *(f"{name}_{unit}" for name in _AMOUNTS for unit in ("packets", "bytes")),
    *(f"dropped_{cause}_{unit}" for cause in DropCause for unit in ("packets", "bytes")),
    *_PLAIN,
    "ce_share",
    "sent_bps",
)
PORT_COLUMNS = ("node", "interface", *(field.name for field in dataclasses.fields(PortCounters)))


def _place(row: QueueTelemetry) -> dict[str, Any]:
    values = (row.node, row.interface, row.class_name, row.priority, row.lossless)
    return dict(zip(_PLACE, values, strict=True))


def _rate_bps(row: QueueTelemetry, seconds: float | None) -> float | None:
    return round(row.sent.bytes * 8 / seconds, 1) if seconds else None


def queue_document(row: QueueTelemetry, seconds: float | None) -> dict[str, Any]:
    """Put a queue into JSON data; `seconds` is the span that was measured, None since the deploy."""
    document = _place(row)
    for name in _AMOUNTS:
        document |= {f"{name}_{unit}": value for unit, value in dataclasses.asdict(getattr(row, name)).items()}
    document["drops"] = {cause.value: dataclasses.asdict(amount) for cause, amount in row.drops.items()}
    document |= {name: getattr(row, name) for name in _PLAIN}
    document["ce_share"] = row.ce_share
    document["depth_packets"] = list(row.depth)
    if seconds:
        document["sent_bps"] = _rate_bps(row, seconds)
    return document


def flat_queue(row: QueueTelemetry, time_ns: int, seconds: float | None) -> dict[str, Any]:
    """Put a queue into one row of `QUEUE_COLUMNS`."""
    flat = queue_document(row, seconds)
    for cause, amount in flat.pop("drops").items():
        flat |= {f"dropped_{cause}_{unit}": value for unit, value in amount.items()}
    return {"time_ns": time_ns, **flat}


def link_documents(rows: Sequence[LinkTelemetry]) -> list[dict[str, Any]]:
    return [{**dataclasses.asdict(row), "utilisation": round(row.utilisation, 5)} for row in rows]


def spray_documents(rows: Sequence[SprayTelemetry]) -> list[dict[str, Any]]:
    return [
        {
            "node": row.node,
            "class": row.class_name,
            "priority": row.priority,
            "interfaces": list(row.interfaces),
            "sent_packets": [amount.packets for amount in row.sent],
            "sent_bytes": [amount.bytes for amount in row.sent],
            "max_over_mean_bytes": round(row.max_over_mean_bytes, 4),
            "max_over_mean_packets": round(row.max_over_mean_packets, 4),
        }
        for row in rows
    ]


def totals_document(rows: Sequence[QueueTelemetry]) -> dict[str, Any]:
    """Sum over the queues that are shown."""
    sent = sum((row.sent for row in rows), Amount())
    return {
        "queues": len(rows),
        "sent_packets": sent.packets,
        "sent_bytes": sent.bytes,
        "drops": {
            cause.value: dataclasses.asdict(sum((row.drops[cause] for row in rows), Amount())) for cause in DropCause
        },
        "lossless_dropped_packets": sum(row.dropped.packets for row in rows if row.lossless),
        "ce_packets": sum(row.ce_packets for row in rows),
        "trimmed_packets": sum(row.trimmed.packets for row in rows),
        "pause_frames_received": sum(row.pause_frames_received for row in rows),
        "pause_frames_sent": sum(row.pause_frames_sent for row in rows),
        "paused_us": sum(row.paused_us for row in rows),
    }


def reconciliation_document(result: Reconciliation) -> dict[str, Any]:
    return {
        "verdict": result.balance.value,
        "checked": result.checked,
        "imbalances": [{**dataclasses.asdict(item), "state": item.state.value} for item in result.imbalances],
        "switches": [
            {
                "node": item.node,
                "class": item.class_name,
                "priority": item.priority,
                "in_packets": item.in_packets,
                "forwarded_packets": item.forwarded_packets,
                "trimmed_packets": item.trimmed_packets,
                "rest_packets": item.rest_packets,
            }
            for item in result.switches
        ],
    }


_WORTH_A_WORD = 0.001
_SPREAD_PACKETS = 1000
"""The spread of fewer packets says more about chance than about balancing."""


# --- tables ------------------------------------------------------------------------------------------


def short_time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}" if microseconds < size * 1000 else f"{microseconds / size:.0f} s"
    return f"{microseconds:.0f} us" if microseconds else ""


def _drops(row: QueueTelemetry) -> str:
    return ", ".join(f"{short(amount.packets)} {cause}" for cause, amount in row.drops.items() if amount.packets)


def _marks(row: QueueTelemetry) -> str:
    share = row.ce_share
    return f"{short(row.ce_packets)}{'' if share is None else f' ({share:.1%})'}" if row.ce_packets else ""


_COLUMNS: tuple[tuple[str, str, bool], ...] = (
    ("port", "left", True),
    ("class", "left", True),
    ("packets", "right", True),
    ("bytes", "right", True),
    ("rate", "right", False),
    ("queue", "right", True),
    ("max", "right", True),
    ("dropped", "left", False),
    ("CE marked", "right", False),
    ("trimmed", "right", False),
    ("pauses in/out", "right", False),
    ("paused", "right", False),
    ("peer paused", "right", False),
    ("watchdog", "right", False),
)
"""Heading, side, and whether it is shown where every row's cell is empty."""


def _cells(row: QueueTelemetry, seconds: float | None) -> list[tuple[str, str]]:
    """Make the texts and styles of a row, in the order of `_COLUMNS`."""
    rate = _rate_bps(row, seconds)
    frames = row.pause_frames_received or row.pause_frames_sent
    return [
        (row.place, ""),
        (row.class_name, ""),
        (short(row.sent.packets), ""),
        (short(row.sent.bytes, "B"), ""),
        (short(rate, "bit/s") if rate is not None else "", ""),
        (short(row.queue_bytes, "B") if row.queue_bytes else "0", "bold" if row.queue_bytes else "dim"),
        (short(row.queue_max_bytes, "B") if row.queue_max_bytes else "0", ""),
        (_drops(row), "bold red" if row.lossless else "yellow"),
        (_marks(row), ""),
        (short(row.trimmed.packets) if row.trimmed else "", "yellow"),
        (f"{short(row.pause_frames_received)}/{short(row.pause_frames_sent)}" if frames else "", "magenta"),
        (("closed " if row.paused else "") + short_time(row.paused_us), "bold magenta" if row.paused else "magenta"),
        (short_time(row.peer_paused_us), "magenta"),
        (short(row.watchdog_events) if row.watchdog_events else "", "bold red"),
    ]


def queue_table(rows: Sequence[QueueTelemetry], seconds: float | None, *, title: str, room: int | None) -> Table:
    """Make a table with one line a queue. Columns that are empty everywhere are left out."""
    from rich.text import Text

    shown = rows if room is None else _busiest(rows, room)
    lines = [_cells(row, seconds) for row in shown]
    wanted = [always or any(line[at][0] for line in lines) for at, (_, _, always) in enumerate(_COLUMNS)]
    table = new_table(title)
    for (heading, side, _), keep in zip(_COLUMNS, wanted, strict=True):
        if keep:
            table.add_column(heading, justify="right" if side == "right" else "left", no_wrap=heading == "port")
    for line in lines:
        table.add_row(*(Text(text, style=style) for (text, style), keep in zip(line, wanted, strict=True) if keep))
    if len(shown) < len(rows):
        table.caption = f"and {len(rows) - len(shown)} more: choose with NODE, NODE:IF or --class"
    return table


def _busiest(rows: Sequence[QueueTelemetry], room: int) -> list[QueueTelemetry]:
    """Keep those worth the room of a small screen, in the order they had: what lost or paused first, then by bytes."""
    worth = sorted(
        range(len(rows)),
        key=lambda at: (bool(rows[at].dropped), rows[at].paused_us > 0, rows[at].sent.bytes),
        reverse=True,
    )
    return [rows[at] for at in sorted(worth[:room])]


def new_table(title: str) -> Table:
    """Make a table without lines, its title and caption at the left."""
    from rich.table import Table

    return Table(
        title=title, title_justify="left", caption_justify="left", header_style="bold", box=None, pad_edge=False
    )


def queue_footer(rows: Sequence[QueueTelemetry], others: Mapping[str, Any], result: Reconciliation) -> Text:
    """Tell spray spread and links where they matter, totals, and whether the counters reconcile."""
    from rich.text import Text

    text = Text()
    text.append(_spread(others["spray"]))
    busy = sorted(others["links"], key=lambda link: -link["utilisation"])[:3]
    if busy and busy[0]["utilisation"] >= _WORTH_A_WORD:
        words = ", ".join(
            f"{link['node']}:{link['interface']} {link['utilisation']:.1%}"
            for link in busy
            if link["utilisation"] >= _WORTH_A_WORD
        )
        text.append(f"busiest links: {words}\n")
    totals = totals_document(rows)
    dropped = [f"{short(amount['packets'])} {cause}" for cause, amount in totals["drops"].items() if amount["packets"]]
    parts = [
        f"{totals['queues']} queues",
        f"{short(totals['sent_packets'])} packets sent",
        f"dropped: {', '.join(dropped)}" if dropped else "none dropped",
        f"{short(totals['ce_packets'])} marked CE",
        f"{short(totals['pause_frames_received'])} pause frames",
    ]
    text.append(f"total: {', '.join(parts)}; ")
    styles = {Balance.RECONCILED: "green", Balance.MOVING: "yellow", Balance.BROKEN: "bold red"}
    text.append(str(result), style=styles[result.balance])
    return text


def _spread(rows: Sequence[Mapping[str, Any]]) -> str:
    """Name the worst switch of each class that sent enough up."""
    sent: dict[str, int] = {}
    for row in rows:
        sent[row["class"]] = sent.get(row["class"], 0) + sum(row["sent_packets"])
    parts = []
    for name, packets in sent.items():
        if packets >= _SPREAD_PACKETS:
            of_class = [row for row in rows if row["class"] == name]
            worst = max(of_class, key=lambda row: float(row["max_over_mean_bytes"]))
            others = f", worst of {len(of_class)} switches" if len(of_class) > 1 else ""
            where = f"{len(worst['interfaces'])} uplinks of {worst['node']}{others}"
            parts.append(f"{name} {worst['max_over_mean_bytes']:.3f} ({where})")
    return f"uplink spread, max/mean of bytes: {'; '.join(parts)}\n" if parts else ""


def port_table(rows: Sequence[Mapping[str, Any]], seconds: float | None, *, title: str, room: int | None) -> Table:
    """Make a table of the kernel's counters of plain ports."""
    from rich.text import Text

    table = new_table(title)
    table.add_column("port", no_wrap=True)
    table.add_column("state")
    for heading in ("received packets", "bytes", "sent packets", "bytes", *(("rate",) if seconds else ()), "dropped"):
        table.add_column(heading, justify="right")
    for row in rows if room is None else rows[:room]:
        dropped = row["rx_dropped"] + row["tx_dropped"]
        rate = (short(row["tx_bytes"] * 8 / seconds, "bit/s"),) if seconds else ()
        table.add_row(
            f"{row['node']}:{row['interface']}",
            Text("up", style="green") if row["up"] else Text("down", style="red"),
            short(row["rx_packets"]),
            short(row["rx_bytes"], "B"),
            short(row["tx_packets"]),
            short(row["tx_bytes"], "B"),
            *rate,
            Text(short(dropped), style="yellow" if dropped else "dim"),
        )
    if room is not None and room < len(rows):
        table.caption = f"and {len(rows) - room} more: choose with NODE or NODE:IF"
    return table
