"""What the planes of each scale-up domain carried as frames during a run, as the texts of tables' rows."""

from __future__ import annotations

from collections.abc import Callable

from testbed.record.record import RunResult
from testbed.record.report.scenario.figures import MISSING, format_bytes, format_time
from testbed.record.report.scenario.networks import Cell
from testbed.record.samples import PlaneLoad, ScaleUpLoad


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
