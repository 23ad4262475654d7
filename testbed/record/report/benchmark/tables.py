"""Tables of a results sheet, in Markdown, and the figures of a point in units of the real fabric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.record.record import PointResult, RunResult
from testbed.record.report.benchmark.drafts import NOT_MEASURED, ObservationPoint
from testbed.record.report.scenario.nccl_table import whole_runs

_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\|<`[*"})
_STRATEGIES = {
    "flow": "ECMP",
    "kernel": "ECMP (hash of the kernel)",
    "flowlet": "DLB (flowlet)",
    "spray": "packet spray",
    "adaptive": "DLB (adaptive)",
    "static": "static routes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A KPI of one point: its text in `unit`, and where it was observed; the text is `NOT_MEASURED` where it was not.

    `remark` says what it is, where that is not the draft's definition to the letter.
    """

    kpi: str
    unit: str
    text: str = NOT_MEASURED
    observed: ObservationPoint | None = None
    remark: str = ""


def figure(kpi: str, unit: str, value: float | None, observed: ObservationPoint, remark: str = "") -> Figure:
    """Return a KPI with its value in `unit`; one that is None was not measured."""
    if value is None:
        return Figure(kpi=kpi, unit=unit)
    return Figure(kpi=kpi, unit=unit, text=number(value), observed=observed, remark=remark)


def number(value: float | None) -> str:
    """Four significant digits, without an exponent where people write none."""
    if value is None:
        return NOT_MEASURED
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table of Markdown, followed by an empty one."""
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(cell(value) for value in line)} |" for line in lines] + [""]


def cell(value: object) -> str:
    """Text of a record, which may come from a stranger, as a cell: one line, and no mark-up of its own."""
    text = number(value) if isinstance(value, float) else str(value)
    return " ".join(text.split()).translate(_MARKS) or "-"


def figure_rows(figures: Iterable[Figure]) -> list[tuple[str, str, str, str, str]]:
    """The rows of figures in a table of `FIGURE_COLUMNS`."""
    return [(one.kpi, one.unit, one.text, str(one.observed or "-"), one.remark or "-") for one in figures]


FIGURE_COLUMNS = ("KPI", "Unit", "Value", "Observation Point", "Remark")


def heading(point: PointResult, count: int) -> list[str]:
    """The heading of what is of one point of a matrix; nothing where there is one point alone."""
    return [f"#### Point {cell(point.name)}", ""] if count > 1 else []


def median(point: PointResult, metric: str) -> float | None:
    """Return the median of a metric over a point's runs, in the lab's units; None where none measured it."""
    return next((one.median for one in point.metrics if one.name == metric), None)


def real_rate(point: PointResult, metric: str) -> float | None:
    """Return the median of a rate in the real fabric."""
    found = median(point, metric)
    return None if found is None else found * point.lab.k


def real_time(point: PointResult, metric: str) -> float | None:
    """Return the median of a time in the real fabric, in seconds."""
    found = median(point, metric)
    return None if found is None or point.lab.k <= 0 else found / point.lab.k


def times(value: float | None, factor: float) -> float | None:
    """Return a value in another unit; None stays None."""
    return None if value is None else value * factor


def real_seconds(point: PointResult) -> float:
    """Return how long the runs that count took, in the time of the real fabric."""
    runs = whole_runs(point)
    return sum(run.elapsed_s for run in runs) / point.lab.k if point.lab.k > 0 else 0.0


def per_second(point: PointResult, counts: Iterable[float | None]) -> float | None:
    """Return how many there were in each second of the real fabric, of counts of each run; None where none counted."""
    known = [count for count in counts if count is not None]
    seconds = real_seconds(point)
    return sum(known) / seconds if known and seconds > 0 else None


def counted(point: PointResult, counter: str) -> list[float | None]:
    """Return a counter of the transport in each run, over all channels; None where no channel has it."""
    return [_of_run(run, counter) for run in whole_runs(point)]


def _of_run(run: RunResult, counter: str) -> float | None:
    known = [channel.counters[counter] for channel in run.channels if counter in channel.counters]
    return float(sum(known)) if known else None


def strategy(point: PointResult) -> str:
    """Return how a point's switches spread load, in the draft's words; what a record does not say is `not recorded`."""
    mode = point.lab.load_balancing
    return _STRATEGIES.get(mode, mode) if mode else "not recorded"


def transport_name(point: PointResult) -> str:
    """Return the transport of a point, as the draft calls it."""
    kind = str(point.transport.get("kind", "not recorded"))
    service = point.transport.get("mode")
    return {"roce": "RoCEv2 RC", "rdma": "RoCEv2 RC (soft-RoCE)", "uet": f"UET {str(service or 'rud').upper()}"}.get(
        kind, kind.upper()
    )
