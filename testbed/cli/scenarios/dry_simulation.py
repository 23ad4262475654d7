"""The preview of scenarios that are to be simulated, which `run --backend simulation --dry-run` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.base.rows import column
from testbed.base.units import ByteCount
from testbed.cli.options import Format
from testbed.cli.output import duration, emit
from testbed.run.simulated.outlook import SimulatedOutlook, foresee_simulated, together_s
from testbed.run.simulated.processes import cores
from testbed.run.sweep.points import Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPointRow:
    """A point of a scenario as its simulation is foreseen."""

    file: str = column(in_table=False)
    scenario: str
    point: str
    lab: str
    nodes: str
    workload: str
    ranks: int
    transfers: int
    bytes: str
    hops: int
    memory: str
    runs: int
    estimate: str


def print_dry_simulation(sweeps: Sequence[Sweep], form: Format) -> None:
    """Print points with the hops, memory and CPU time of their runs. Raises `SpecError` where a lab cannot carry its
    workload."""
    foreseen = [(sweep, foresee_simulated(sweep)) for sweep in sweeps]
    rows = [_row(sweep, one) for sweep, points in foreseen for one in points]
    emit(rows, SimulatedPointRow, form, document=[_document(sweep, points) for sweep, points in foreseen])
    if form is not Format.TABLE:
        return
    every = [one for _, points in foreseen for one in points]
    runs, at_once = sum(one.runs for one in every), min(cores(), sum(one.runs for one in every))
    memory = sum(sorted((one.memory_bytes for one in every for _ in range(one.runs)), reverse=True)[:at_once])
    elapsed_s = sum(together_s(points) for _, points in foreseen)
    print(
        f"{_count(len(every), 'point')}, {_count(runs, 'run')}, {_count(at_once, 'process', 'processes')}:"
        f" {sum(one.hops * one.runs for one in every):,} hops, at most {ByteCount(_rounded(memory))} of memory, about"
        f" {duration(elapsed_s)} where nothing is lost; a hop was measured here, and nothing was touched"
    )


def _row(sweep: Sweep, one: SimulatedOutlook) -> SimulatedPointRow:
    return SimulatedPointRow(
        file=sweep.scenario.source,
        scenario=sweep.scenario.name,
        point=one.name,
        lab=one.lab,
        nodes=f"{one.hosts} + {one.switches}",
        workload=one.workload,
        ranks=one.ranks,
        transfers=one.transfers,
        bytes=str(ByteCount(one.bytes)),
        hops=one.hops,
        memory=str(ByteCount(_rounded(one.memory_bytes))),
        runs=one.runs,
        estimate=duration(one.estimated_s),
    )


def _document(sweep: Sweep, points: Sequence[SimulatedOutlook]) -> dict[str, Any]:
    return {
        "scenario": sweep.scenario.name,
        "file": sweep.scenario.source,
        "points": [one.as_json() for one in points],
        "runs": sum(one.runs for one in points),
        "estimated_s": together_s(points),
    }


def _rounded(size_bytes: int) -> int:
    """Return an estimate to the megabyte."""
    return round(size_bytes / 10**6) * 10**6


def _count(number: int, noun: str, nouns: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {nouns or noun + 's'}"
