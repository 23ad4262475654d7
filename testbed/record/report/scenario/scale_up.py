"""What the planes of each scale-up domain carried as frames during a run, as the texts of tables' rows."""

from __future__ import annotations

from testbed.record.record import RunResult
from testbed.record.report.scenario.figures import MISSING, format_bytes, format_time
from testbed.record.report.scenario.networks import Cell
from testbed.record.samples import PlaneLoad, ScaleUpLoad

SCALE_UP_COLUMNS = (
    "Domain",
    "Plane",
    "Data frames",
    "Bytes",
    "Sent again",
    "Dropped",
    "Pauses",
    "Longest wait",
    "Worst buffer",
)


def scale_up_rows(run: RunResult) -> list[tuple[Cell, ...]]:
    """Return a line for each plane of each domain, and one for a domain whose switch could not be asked.

    A line has a cell for each of `SCALE_UP_COLUMNS`.
    """
    rows: list[tuple[Cell, ...]] = []
    for load in run.scale_up:
        rows += [_row(load, plane) for plane in load.planes] or [_unknown(load)]
    return rows


def latency_notes(run: RunResult) -> list[str]:
    """Return, for each domain, how long its transactions took, and what of that is this machine's."""
    return [_latency(load) for load in run.scale_up]


def _unknown(load: ScaleUpLoad) -> tuple[Cell, ...]:
    """Return what is said of a domain of whose links nothing is known."""
    return (Cell(text=load.domain, remark=load.problem), *[Cell(text=MISSING)] * (len(SCALE_UP_COLUMNS) - 1))


def _row(load: ScaleUpLoad, plane: PlaneLoad) -> tuple[Cell, ...]:
    lost = f"{plane.wire_losses:,} lost on wires" if plane.wire_losses else ""
    down = f"{plane.downs} times a link down" if plane.downs else ""
    return (
        Cell(text=load.domain, remark=load.problem),
        Cell(text=str(plane.plane), remark=down),
        Cell(text=f"{plane.frames:,}"),
        Cell(text=format_bytes(plane.bytes)),
        Cell(text=f"{plane.replays:,}"),
        Cell(text=f"{plane.drops:,}", remark=lost),
        Cell(text=f"{plane.pauses:,}"),
        Cell(text=format_time(plane.xmit_wait_s)),
        Cell(text=format_bytes(plane.buffer_peak_bytes), remark=f"of {format_bytes(plane.buffer_bytes)}"),
    )


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
