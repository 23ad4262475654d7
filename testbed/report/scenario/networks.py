"""What each network of the lab carried during a run, as the texts of a table's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.report.scenario.figures import MISSING, format_bytes, format_time, format_value
from testbed.results import NetworkLoad, RunResult

TENANT_NONE = "in no tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`text` is what counts, `remark` is where it was or what it is beside; "" for none."""

    text: str
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRow:
    """A line of the table. `tenants` is what the workload's receivers in it got, by tenant."""

    name: Cell
    entered: Cell
    delivered: Cell
    use: Cell
    busiest: Cell
    queue: Cell
    losses: Cell
    marks: Cell
    pauses: Cell
    tenants: Sequence[Cell]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Those of `COLUMNS`, in their order."""
        return (
            self.name,
            self.entered,
            self.delivered,
            self.use,
            self.busiest,
            self.queue,
            self.losses,
            self.marks,
            self.pauses,
        )


COLUMNS = (
    "Network",
    "Bytes in",
    "Bytes out",
    "Use of all ports",
    "Busiest port",
    "Worst queue",
    "Lost packets",
    "ECN marks",
    "Pauses",
)


def network_rows(run: RunResult) -> list[NetworkRow]:
    """Return a line for each network of the lab; none where the record has none."""
    return [_row(load) for load in run.networks]


def _row(load: NetworkLoad) -> NetworkRow:
    tenants = load.payload_bytes if set(load.payload_bytes) - {""} else {}
    return NetworkRow(
        name=Cell(text=load.name, remark=f"over {load.carrier}" if load.carrier else ""),
        entered=Cell(text=format_bytes(load.entered_bytes)),
        delivered=Cell(text=format_bytes(load.delivered_bytes)),
        use=Cell(text=_use(load.utilisation), remark=_peak(load.peak_utilisation)),
        busiest=Cell(text=_use(load.busiest_utilisation), remark=_busiest(load)),
        queue=Cell(text=format_bytes(load.queue_max_bytes), remark=f"{load.queue_port} {load.queue_class}".strip()),
        losses=Cell(
            text=f"{sum(load.drops.values()):,}",
            remark=", ".join(f"{packets:,} {cause}" for cause, packets in load.drops.items()),
        ),
        marks=Cell(text=_count(load.ce_packets)),
        pauses=Cell(text=_count(load.pause_frames), remark=format_time(load.paused_s) if load.paused_s else ""),
        tenants=[
            Cell(text=format_bytes(received), remark=tenant or TENANT_NONE) for tenant, received in tenants.items()
        ],
    )


def _use(share: float) -> str:
    return format_value(share, "share")


def _peak(share: float | None) -> str:
    return "" if share is None else f"peak {_use(share)}"


def _busiest(load: NetworkLoad) -> str:
    return ", ".join(word for word in (_peak(load.busiest_peak_utilisation), load.busiest_port) if word)


def _count(number: int | None) -> str:
    return MISSING if number is None else f"{number:,}"


def network_json(load: NetworkLoad) -> dict[str, Any]:
    """One network as `summary.json` has it."""
    return {
        "network": load.name,
        "carried_by": load.carrier or None,
        "entered_bytes": load.entered_bytes,
        "delivered_bytes": load.delivered_bytes,
        "sent_bytes": load.sent_bytes,
        "utilisation": load.utilisation,
        "peak_utilisation": load.peak_utilisation,
        "busiest_port": load.busiest_port,
        "busiest_utilisation": load.busiest_utilisation,
        "busiest_peak_utilisation": load.busiest_peak_utilisation,
        "queue_max_bytes": load.queue_max_bytes,
        "queue_port": load.queue_port,
        "queue_class": load.queue_class,
        "drops": load.drops,
        "ce_packets": load.ce_packets,
        "pause_frames": load.pause_frames,
        "paused_s": load.paused_s,
        "payload_bytes": load.payload_bytes,
    }
