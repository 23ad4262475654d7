"""Tables of what networks, their tenants and the planes of scale-up domains carried during a run, as texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from testbed.record.record import RunResult
from testbed.record.report.scenario.figures import MISSING, format_bytes, format_time, format_value
from testbed.record.samples import NetworkLoad, PlaneLoad, ScaleUpLoad, TenantLoad

TENANT_NONE = "in no tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`text` is what counts, `remark` is where it was or what it is beside; "" for none."""

    text: str
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLine:
    """A line of the table of networks: a cell for each of `COLUMNS`."""

    cells: tuple[Cell, ...]
    payload: tuple[Cell, ...] = ()
    """The bytes that the workload's receivers in it got, by tenant, where an older record has no more of them."""


def network_rows(run: RunResult) -> list[NetworkLine]:
    """Return a line for each network of the lab; none where the record has none."""
    return [
        NetworkLine(cells=tuple(cell(load) for _, cell in _NETWORK), payload=tuple(_payload(load)))
        for load in run.networks
    ]


def tenant_rows(run: RunResult) -> list[tuple[Cell, ...]]:
    """Return a line for each tenant in each network: a cell for each of `TENANT_COLUMNS`."""
    return [
        (Cell(text=network.name), *(cell(load) for _, cell in _TENANT))
        for network in run.networks
        for load in network.tenants
    ]


def _payload(load: NetworkLoad) -> Iterator[Cell]:
    if not load.tenants and set(load.payload_bytes) - {""}:
        for tenant, received in load.payload_bytes.items():
            yield Cell(text=format_bytes(received), remark=tenant or TENANT_NONE)


def _frames(count: int) -> str:
    return f"{count:,} {'frame' if count == 1 else 'frames'}"


def _by_cause(packets: Mapping[str, int] | None) -> Cell:
    if packets is None:
        return Cell(text=MISSING)
    return Cell(
        text=f"{sum(packets.values()):,}", remark=", ".join(f"{count:,} {cause}" for cause, count in packets.items())
    )


def _use(share: float) -> str:
    return format_value(share, "share")


def _peak(share: float | None) -> str:
    return "" if share is None else f"peak {_use(share)}"


def _busiest(load: NetworkLoad) -> str:
    return ", ".join(word for word in (_peak(load.busiest_peak_utilisation), load.busiest_port) if word)


def _count(number: int | None) -> str:
    return MISSING if number is None else f"{number:,}"


def _queue(load: NetworkLoad | TenantLoad) -> Cell:
    return Cell(text=format_bytes(load.queue_max_bytes), remark=f"{load.queue_port} {load.queue_class}".strip())


def _pauses(load: NetworkLoad) -> Cell:
    return Cell(text=_count(load.pause_frames), remark=format_time(load.paused_s) if load.paused_s else "")


_NETWORK: tuple[tuple[str, Callable[[NetworkLoad], Cell]], ...] = (
    ("Network", lambda load: Cell(text=load.name, remark=f"over {load.carrier}" if load.carrier else "")),
    ("Bytes in", lambda load: Cell(text=format_bytes(load.entered_bytes))),
    ("Bytes out", lambda load: Cell(text=format_bytes(load.delivered_bytes))),
    ("Use of all ports", lambda load: Cell(text=_use(load.utilisation), remark=_peak(load.peak_utilisation))),
    ("Busiest port", lambda load: Cell(text=_use(load.busiest_utilisation), remark=_busiest(load))),
    ("Worst queue", _queue),
    ("Lost packets", lambda load: _by_cause(load.drops)),
    ("Guarded", lambda load: _by_cause(load.guarded)),
    ("ECN marks", lambda load: Cell(text=_count(load.ce_packets))),
    ("Pauses", _pauses),
)
_TENANT: tuple[tuple[str, Callable[[TenantLoad], Cell]], ...] = (
    ("Tenant", lambda load: Cell(text=load.name or TENANT_NONE)),
    ("Bytes in", lambda load: Cell(text=format_bytes(load.entered_bytes), remark=_frames(load.entered_frames))),
    ("Bytes out", lambda load: Cell(text=format_bytes(load.delivered_bytes), remark=_frames(load.delivered_frames))),
    ("Payload", lambda load: Cell(text=format_bytes(load.payload_bytes))),
    ("Use of its ports", lambda load: Cell(text=_use(load.utilisation))),
    ("Busiest port", lambda load: Cell(text=_use(load.busiest_utilisation), remark=load.busiest_port)),
    ("Worst queue", _queue),
    ("Lost packets", lambda load: _by_cause(load.drops)),
    ("Guarded", lambda load: _by_cause(load.guarded)),
)
COLUMNS = tuple(title for title, _ in _NETWORK)
TENANT_COLUMNS = ("Network", *(title for title, _ in _TENANT))


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
        "guarded": load.guarded,
        "tenants": [{"tenant": tenant.name or None, **_tenant_json(tenant)} for tenant in load.tenants],
    }


def _tenant_json(load: TenantLoad) -> dict[str, Any]:
    return {key: value for key, value in asdict(load).items() if key != "name"}


def scale_up_rows(run: RunResult) -> list[tuple[Cell, ...]]:
    """Return a line for each plane of each domain, and one for a domain whose switch could not be asked.

    A line has a cell for each of `SCALE_UP_COLUMNS`.
    """
    rows: list[tuple[Cell, ...]] = []
    for load in run.scale_up:
        domain = Cell(text=load.domain, remark=load.problem)
        unknown = [Cell(text=MISSING)] * len(_PLANE)
        rows += [(domain, *(cell(plane) for _, cell in _PLANE)) for plane in load.planes] or [(domain, *unknown)]
    return rows


def latency_notes(run: RunResult) -> list[str]:
    """Return, for each domain, how long its transactions took, and what of that is this machine's."""
    return [_latency(load) for load in run.scale_up]


def _down(plane: PlaneLoad) -> Cell:
    return Cell(text=str(plane.plane), remark=f"{plane.downs} times a link down" if plane.downs else "")


def _dropped(plane: PlaneLoad) -> Cell:
    lost = f"{plane.wire_losses:,} lost on wires" if plane.wire_losses else ""
    return Cell(text=f"{plane.drops:,}", remark=lost)


def _buffer(plane: PlaneLoad) -> Cell:
    return Cell(text=format_bytes(plane.buffer_peak_bytes), remark=f"of {format_bytes(plane.buffer_bytes)}")


_PLANE: tuple[tuple[str, Callable[[PlaneLoad], Cell]], ...] = (
    ("Plane", _down),
    ("Data frames", lambda plane: Cell(text=f"{plane.frames:,}")),
    ("Bytes", lambda plane: Cell(text=format_bytes(plane.bytes))),
    ("Sent again", lambda plane: Cell(text=f"{plane.replays:,}")),
    ("Dropped", _dropped),
    ("Pauses", lambda plane: Cell(text=f"{plane.pauses:,}")),
    ("Longest wait", lambda plane: Cell(text=format_time(plane.xmit_wait_s))),
    ("Worst buffer", _buffer),
)
SCALE_UP_COLUMNS = ("Domain", *(title for title, _ in _PLANE))


def _latency(load: ScaleUpLoad) -> str:
    floor = ""
    if load.rtt_floor_real_s is not None:
        floor = f"; rtt_floor_real {load.rtt_floor_real_s * 1e9:.3g} ns is this machine's part of them"
    failed = f", {load.failed:,} of {load.transfers:,} transfers failed" if load.failed else ""
    stalled = f", and nothing moved for {format_time(load.stall_s)}" if load.stalled else ""
    if load.latency_p50_s is None:
        return f"{load.domain}: no times of transactions were measured{failed}{stalled}"
    return (
        f"{load.domain}: transactions took {_multiple(load, load.latency_p50_s)} (P50) and"
        f" {_multiple(load, load.latency_p999_s)} (P99.9) modelled round trips{floor}{failed}{stalled}"
    )


def _multiple(load: ScaleUpLoad, latency_s: float | None) -> str:
    return MISSING if latency_s is None else f"{latency_s / load.rtt_s:.2f}"
