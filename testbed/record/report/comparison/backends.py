"""The figures of simulated runs beside those of emulated ones: a row for each metric of each point that both have.

Medians over valid runs are compared, in the real fabric's time: a lab's clock runs k times as long. A run counts that
came to its end and broke no trust check. Where both backends have runs of the same seeds, these alone are compared:
they have the same traffic, and the same hashes.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.base.errors import RecordError
from testbed.base.rows import column
from testbed.record.catalogue import definition_of
from testbed.record.record import Backend, PointResult, Record
from testbed.record.report.comparison.compare import real_values
from testbed.record.store import RECORD_FILE, load_record

METRICS = ("jct", "tail_fct", "queue_p50", "queue_p99", "pause_frames", "pause_time")
"""The metrics that are compared where nothing else is asked for."""
WITHIN = (0.05, 0.10, 0.15, 0.25)
"""The distances from 1 by which the summary counts ratios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRow:
    """One metric of one point, as it was emulated and simulated: medians of so many valid runs, in the real fabric's
    time. `ratio` is simulated over emulated; None where the emulated one is 0."""

    scenario: str
    point: str
    metric: str
    unit: str
    emulated: float = column(value=lambda row: float(f"{row.emulated:.4g}"))
    emulated_runs: int = column("n_emulated", heading="n")
    simulated: float = column(value=lambda row: float(f"{row.simulated:.4g}"))
    simulated_runs: int = column("n_simulated", heading="n'")
    ratio: float | None = column(value=lambda row: None if row.ratio is None else round(row.ratio, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The points of a metric, and how many of their ratios are no farther from 1 than each of `WITHIN`."""

    metric: str
    points: int
    within: tuple[int, ...]


_Key = tuple[str, str, str, str]
"""A scenario, a point of it, a metric, and the workload as JSON: a file may have changed between two records."""
_Seeded = tuple[int, float]
"""The seed of a run, and its value."""


def records_below(paths: Sequence[Path]) -> Iterator[Record]:
    """Read the records that these are, or that lie anywhere below them. Raises `RecordError`."""
    for path in paths:
        found = sorted(path.rglob(RECORD_FILE)) if path.is_dir() else [path]
        if not found:
            raise RecordError(
                f"there is no record below {path}", hint="testbed run SCENARIO.yml --steady 10 makes some"
            )
        for file in found:
            yield load_record(file)


def backend_rows(records: Iterator[Record], metrics: Sequence[str] = METRICS) -> list[BackendRow]:
    """Return the rows of all points that records of both backends have, in the order of their names."""
    values: Mapping[Backend, dict[_Key, list[_Seeded]]] = {backend: defaultdict(list) for backend in Backend}
    for record in records:
        found, workload = values[record.environment.backend], workload_of(record)
        for point in record.points:
            for metric in metrics:
                found[record.scenario.name, point.name, metric, workload] += _valid_values(point, metric)
    emulated, simulated_ = values[Backend.EMULATION], values[Backend.SIMULATION]
    return [
        _row(key, *_of_same_seeds(emulated[key], simulated_[key]))
        for key in sorted(emulated, key=lambda key: (metrics.index(key[2]), key))
        if emulated[key] and simulated_.get(key)
    ]


def workload_of(record: Record) -> str:
    """Return the workload of a record, as JSON: that of the file, which may have changed between two records."""
    return json.dumps(record.scenario.workload, sort_keys=True, default=str)


def _valid_values(point: PointResult, metric: str) -> list[_Seeded]:
    found = [(run.seed, run.metrics.get(metric)) for run in point.runs if run.is_valid]
    seeds, values = [seed for seed, value in found if value is not None], [one for _, one in found if one is not None]
    return list(zip(seeds, real_values(values, _unit(metric), point), strict=True))


def _of_same_seeds(emulated: Sequence[_Seeded], simulated: Sequence[_Seeded]) -> tuple[list[float], list[float]]:
    """Return the values of runs whose seeds both have; those of all runs where there is no such seed."""
    sides = (emulated, simulated)
    seeds = set.intersection(*({seed for seed, _ in side} for side in sides))
    ours, theirs = ([value for seed, value in side if not seeds or seed in seeds] for side in sides)
    return ours, theirs


def _unit(metric: str) -> str:
    definition = definition_of(metric)
    return "" if definition is None else definition.unit.value


def _row(key: _Key, emulated: Sequence[float], simulated: Sequence[float]) -> BackendRow:
    scenario, point, metric, _ = key
    ours, theirs = statistics.median(emulated), statistics.median(simulated)
    return BackendRow(
        scenario=scenario,
        point=point,
        metric=metric,
        unit=_unit(metric),
        emulated=ours,
        emulated_runs=len(emulated),
        simulated=theirs,
        simulated_runs=len(simulated),
        ratio=1.0 if ours == theirs else theirs / ours if ours else None,
    )


def agreement(rows: Sequence[BackendRow]) -> list[Agreement]:
    """Return for each metric how many points agree within each of `WITHIN`; points where both are 0 say nothing."""
    found = []
    for metric in dict.fromkeys(row.metric for row in rows):
        told = [row for row in rows if row.metric == metric and (row.emulated or row.simulated)]
        within = [sum(row.ratio is not None and abs(row.ratio - 1) <= limit for row in told) for limit in WITHIN]
        found.append(Agreement(metric=metric, points=len(told), within=tuple(within)))
    return found


def backends_markdown(rows: Sequence[BackendRow]) -> str:
    """Return how many points agree, and a table of their ratios with a column for each metric, in Markdown."""
    metrics = list(dict.fromkeys(row.metric for row in rows))
    lines = [
        "| metric | points | " + " | ".join(f"within {limit:.0%}" for limit in WITHIN) + " |",
        "|---|---|" + "---|" * len(WITHIN),
        *(f"| `{one.metric}` | {one.points} | {' | '.join(map(str, one.within))} |" for one in agreement(rows)),
        "",
        "| scenario | point | runs | " + " | ".join(f"`{metric}`" for metric in metrics) + " |",
        "|---|---|---|" + "---|" * len(metrics),
    ]
    points: dict[tuple[str, str], dict[str, BackendRow]] = defaultdict(dict)
    for row in rows:
        points[row.scenario, row.point][row.metric] = row
    for (scenario, point), found in sorted(points.items()):
        first = next(iter(found.values()))
        cells = [f"`{scenario}`", f"`{point}`" if point else "", f"{first.emulated_runs}, {first.simulated_runs}"]
        cells += [_ratio(found.get(metric)) for metric in metrics]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _ratio(row: BackendRow | None) -> str:
    if row is None or not (row.emulated or row.simulated):
        return ""
    return f"0 to {row.simulated:.3g}" if row.ratio is None else f"{row.ratio:.3g}"
