"""Trust checks over all runs: the worst value of each, and where it was broken."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.record.record import Check, PointResult, Record, RunResult
from testbed.record.report.scenario.figures import every_run, point_label


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRow:
    """One check by name. `said` is what it said where it was nearest to its limit, or beyond."""

    name: str
    title: str
    worst: Check
    where: str
    """Point and run of `worst`."""
    runs: int
    broken: int


def trust_rows(record: Record) -> list[TrustRow]:
    """Return the rows in the order of their first appearance, broken ones first."""
    found: dict[str, list[tuple[PointResult, RunResult, Check]]] = {}
    for point, run in every_run(record):
        for check in run.checks:
            found.setdefault(check.name, []).append((point, run, check))
    rows = []
    for name, checks in found.items():
        point, run, worst = max(checks, key=lambda item: (not item[2].ok, _strain(item[2])))
        where = f"{point_label(point)}, run {run.index}" if len(record.points) > 1 else f"run {run.index}"
        rows.append(
            TrustRow(
                name=name,
                title=worst.title,
                worst=worst,
                where=where,
                runs=len(checks),
                broken=sum(not check.ok for _, _, check in checks),
            )
        )
    return sorted(rows, key=lambda row: row.broken == 0)


def _strain(check: Check) -> float:
    """Return how far into its limit a value is: 1 is at it."""
    return abs(check.value / check.limit) if check.limit else abs(check.value)
