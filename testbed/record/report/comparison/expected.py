"""The figures that scenarios expect something of, simulated beside emulated: a row for each expectation at each point.

A figure agrees where the simulation lies among the emulated runs, or near their median. Figures are in the real
fabric's time; those of two points, one over the other, have no time. A point that broke a trust check has no figures.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.base.rows import column
from testbed.record.catalogue import definition_of
from testbed.record.record import Backend, ExpectationResult, Outcome, Record
from testbed.record.report.comparison.backends import WITHIN, workload_of
from testbed.record.report.comparison.compare import real_values

LAB_TIMES = ("blackhole_time_loss", "blackhole_time_rate", "detection_time", "recovery_time")
"""Times that no scale changes: those by which a fault is noticed and made up for."""
LITTLE = 0.01
"""A figure that is less than this share of the most that is allowed says no more than that it is little."""
FAR = WITHIN[-1]
"""A figure that is farther from the emulated ones than this, and not among them, is an exception."""


def _four(value: float) -> float:
    return float(f"{value:.4g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRow:
    """One expectation at one point. `least` and `most` are of the emulated runs, `passes` counts simulated runs that
    met it, and `little` says that all are far below the most that is allowed. `ratio` is simulated over emulated; None
    where the emulated median is 0."""

    scenario: str
    point: str
    metric: str
    limits: str
    emulated: float = column(value=lambda row: _four(row.emulated))
    least: float = column(value=lambda row: _four(row.least))
    most: float = column(value=lambda row: _four(row.most))
    emulated_runs: int = column("n_emulated", heading="n")
    simulated: float = column(value=lambda row: _four(row.simulated))
    simulated_runs: int = column("n_simulated", heading="n'")
    passes: int
    little: bool = column(hidden=True)
    ratio: float | None = column(value=lambda row: None if row.ratio is None else round(row.ratio, 3))

    @property
    def distance(self) -> float:
        """Return how far the simulation is from the emulated runs, as a share of their median; 0 among them, and where
        all are little."""
        if self.little or self.least <= self.simulated <= self.most:
            return 0.0
        return float("inf") if self.ratio is None else abs(self.ratio - 1)


@dataclass(slots=True, kw_only=True)
class _Figures:
    """The figures of one expectation, by backend, and what was said of the simulated ones."""

    limits: str
    values: dict[Backend, list[float]] = field(default_factory=lambda: defaultdict(list))
    passes: int = 0
    little: bool = True


_Key = tuple[str, str, str, str, int]
"""A scenario, its workload as JSON, a metric, a point, and which of several expectations of these it is. Files change,
and another workload is another thing."""


def expected_rows(records: Iterable[Record]) -> list[ExpectedRow]:
    """Return a row for each expectation that was judged on both backends, in the order of the scenarios' names."""
    found: dict[_Key, _Figures] = {}
    for record in records:
        backend = record.environment.backend
        workload = workload_of(record)
        broken = {point.name for point in record.points if not all(run.is_valid for run in point.runs)}
        before: Counter[tuple[str, str]] = Counter()
        for item in record.expectations:
            before[item.metric, item.point] += 1
            doubtful = bool(broken) if " over that of " in item.metric else item.point in broken
            if item.measured is None or item.outcome is Outcome.INVALID or doubtful:
                continue
            key = record.scenario.name, workload, item.metric, item.point, before[item.metric, item.point]
            figures = found.setdefault(key, _Figures(limits=_limits(item)))
            figures.values[backend] += _real(record, item)
            figures.little = figures.little and _is_little(item)
            figures.passes += backend is Backend.SIMULATION and item.outcome is Outcome.PASS
    return [
        _row(key, figures)
        for key, figures in sorted(found.items(), key=lambda one: one[0][0])
        if figures.values[Backend.EMULATION] and figures.values[Backend.SIMULATION]
    ]


def _real(record: Record, item: ExpectationResult) -> list[float]:
    """Return the figure of an expectation in the real fabric's time."""
    definition = definition_of(item.metric)
    point = next((one for one in record.points if one.name == item.point), None)
    if item.measured is None or point is None:
        return []
    if item.metric in LAB_TIMES:
        return [item.measured]
    return real_values([item.measured], "" if definition is None else definition.unit.value, point)


def _is_little(item: ExpectationResult) -> bool:
    """Tell whether a figure that may have no more than so much has hardly anything."""
    most = item.maximum
    return (
        item.minimum is None and bool(most) and item.measured is not None and abs(item.measured) < LITTLE * (most or 0)
    )


def _limits(item: ExpectationResult) -> str:
    low, high = (None if limit is None else f"{limit:.4g}" for limit in (item.minimum, item.maximum))
    if low is None or high is None:
        return f"at least {low}" if high is None else f"at most {high}"
    return low if low == high else f"{low} to {high}"


def _row(key: _Key, figures: _Figures) -> ExpectedRow:
    scenario, _, metric, point, _ = key
    emulated, simulated = figures.values[Backend.EMULATION], figures.values[Backend.SIMULATION]
    ours, theirs = statistics.median(emulated), statistics.median(simulated)
    return ExpectedRow(
        scenario=scenario,
        point=point,
        metric=metric,
        limits=figures.limits,
        emulated=ours,
        least=min(emulated),
        most=max(emulated),
        emulated_runs=len(emulated),
        simulated=theirs,
        simulated_runs=len(simulated),
        passes=figures.passes,
        little=figures.little,
        ratio=1.0 if ours == theirs else theirs / ours if ours else None,
    )


def expected_markdown(rows: Sequence[ExpectedRow]) -> str:
    """Return a table with a line for each scenario, and one of the figures that are far from the emulated ones."""
    of_scenario: Mapping[str, list[ExpectedRow]] = defaultdict(list)
    for row in rows:
        of_scenario[row.scenario].append(row)
    lines = [
        "| scenario | runs | figures | met | among the emulated | "
        + " | ".join(f"within {limit:.0%}" for limit in WITHIN)
        + " | band |",
        "|---|---|---|---|---|" + "---|" * len(WITHIN) + "---|",
    ]
    for scenario, mine in of_scenario.items():
        runs = f"{max(row.emulated_runs for row in mine)}, {max(row.simulated_runs for row in mine)}"
        met = sum(row.passes == row.simulated_runs for row in mine)
        near = [sum(row.distance <= limit for row in mine) for limit in (0.0, *WITHIN)]
        cells = [f"`{scenario}`", runs, str(len(mine)), str(met), *map(str, near), _band(mine)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *_exceptions(rows)]
    return "\n".join(lines) + "\n"


def _band(rows: Sequence[ExpectedRow]) -> str:
    """Return the narrowest of the bands that holds all figures of a scenario."""
    farthest = max(row.distance for row in rows)
    return next((f"{limit:.0%}" for limit in WITHIN if farthest <= limit), "exceptions below")


def _exceptions(rows: Sequence[ExpectedRow]) -> list[str]:
    lines = ["| scenario | figure | limits | emulated | simulated | ratio |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row.distance <= FAR:
            continue
        figure = f"`{row.metric}`" + (f" at `{row.point}`" if row.point else "")
        spread = f"{_four(row.emulated):g} ({_four(row.least):g} to {_four(row.most):g})"
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
        cells = [f"`{row.scenario}`", figure, row.limits, spread, f"{_four(row.simulated):g}", ratio]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines
