"""Flows beside packets, for each point of scenarios that both can be: how far apart they are, and how often a run lies
inside the band that runs of other seeds have told.

    .venv/bin/python tests/bench/flow_ratios.py [SCENARIO...] [--hops N] [-f csv]

A point of at most 512 NICs is its own twin. Its packets are run with four seeds, and so are its flows: three make the
band of each metric, and the fourth is the further run that the band is about. Messages are cut so that a run has no
more than so many packets on lines; the table says which.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

from testbed.base.errors import PlanError, ScenarioError, SpecError, WorkloadError
from testbed.record.record import RunResult
from testbed.run.flows.bands import metric_bands
from testbed.run.flows.point import FlowPoint
from testbed.run.flows.support import MOST_PLANNED_LINKS, SHORT_BDPS, check_flows_supported
from testbed.run.flows.twins import MOST_NICS, SEEDS, TwinFlows, TwinRuns, error_text, smallest_message
from testbed.run.placed.traffic import bdp_bytes
from testbed.run.simulated.processes import cores
from testbed.run.simulated.support import check_supported
from testbed.run.sweep.points import Sweep
from testbed.run.sweeps import read_sweep
from testbed.workload.kinds.collectives import KINDS

SCENARIOS = Path(__file__).parents[2] / "scenarios"
HOPS = 1_500_000
COLLECTIVES = frozenset(kind.name for kind in KINDS)
SPEEDS = ("busbw", "jct")
"""The metrics of a collective, of which the first that is there is compared."""
NEAR = 0.05
"""So far the packets of a collective may lie from its flows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A metric of a point: its band as three seeds tell it, and what the fourth one's packets are over its flows."""

    scenario: str
    point: str
    metric: str
    low: float
    high: float
    further: float
    cut_to: int
    bdps: float
    """The bandwidth-delay products that its smallest message has."""
    collective: bool

    @property
    def inside(self) -> bool:
        return self.low <= self.further <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A point that is not measured, and why."""

    scenario: str
    point: str
    why: str


def measure(paths: Sequence[Path], hops: int = HOPS) -> Iterator[Row | Left]:
    """Yield the rows of all points of these scenarios, several at a time."""
    jobs = [(str(path), number, hops) for path in paths for number in range(len(read_sweep(path).points))]
    with ProcessPoolExecutor(cores()) as pool:
        for rows in pool.map(_of_point, jobs):
            yield from rows


@cache
def _sweep(path: str) -> Sweep:
    return read_sweep(Path(path))


def _of_point(job: tuple[str, int, int]) -> list[Row | Left]:
    path, number, hops = job
    whole = _sweep(path)
    sweep = whole.only(number + 1)
    [point] = sweep.points
    name, lab = whole.scenario.name, sweep.lab_of(point)

    def left(why: str) -> list[Row | Left]:
        return [Left(scenario=name, point=point.name, why=why)]

    scenario = point.scenario
    point = replace(point, scenario=replace(scenario, repeat=replace(scenario.repeat, runs=SEEDS + 1)))
    try:
        check_flows_supported(sweep)
        whole_point = FlowPoint(point, lab)
        if len(whole_point.traffic[0].placement.nics) > MOST_NICS or len(lab.links) > MOST_PLANNED_LINKS:
            return left("it is larger than packets can be")
        check_supported(sweep)
        packets = TwinRuns(point, lab, most_hops=hops)
        flows = TwinFlows(point, lab, folds=whole_point.folds, cut_to=packets.cut_to)
    except (ScenarioError, PlanError, SpecError, WorkloadError) as error:
        return left(error_text(error))
    both: list[list[RunResult]] = []
    for runs in (packets, flows):
        outcomes = [runs.run(index, lambda share: False) for index in range(1, SEEDS + 2)]
        bad = [one for one in outcomes if one.failure is not None or one.result is None or not one.result.is_valid]
        if bad:
            return left(f"a run of it is not to be trusted: {bad[0].failure or 'its checks'}")
        both.append([one.result for one in outcomes if one.result is not None])
    theirs, ours = both
    bands = {band.metric: band for band in metric_bands(ours[:SEEDS], theirs[:SEEDS])}
    further = {band.metric: band.ratios[0] for band in metric_bands(ours[SEEDS:], theirs[SEEDS:])}
    collective = scenario.workload.kind in COLLECTIVES
    asked = dict.fromkeys((*(item.metric for item in whole.scenario.expect), *(SPEEDS if collective else SPEEDS[1:])))
    return [
        Row(
            scenario=name,
            point=point.name,
            metric=metric,
            low=bands[metric].low,
            high=bands[metric].high,
            further=further[metric],
            cut_to=packets.cut_to,
            bdps=smallest_message(packets.traffic[0].workload) / bdp_bytes(packets.lab, packets.traffic[0].placement),
            collective=collective and metric in SPEEDS,
        )
        for metric in asked
        if metric in bands and metric in further
    ] or left("it has no metric that flows know")


def inside_share(rows: Sequence[Row]) -> float:
    """Return the share of points of which all metrics lie inside their bands."""
    points: dict[tuple[str, str], bool] = {}
    for row in rows:
        key = row.scenario, row.point
        points[key] = points.get(key, True) and row.inside
    return sum(points.values()) / len(points)


def near_share(rows: Sequence[Row]) -> float:
    """Return the share of collectives whose packets lie near their flows, of those whose messages are not short."""
    points: dict[tuple[str, str], bool] = {}
    for row in rows:
        if row.collective and row.bdps >= SHORT_BDPS:
            key = row.scenario, row.point
            points[key] = points.get(key, True) and abs((row.low + row.high) / 2 - 1) <= NEAR
    return sum(points.values()) / len(points)


def print_rows(found: Iterable[Row | Left]) -> list[Row]:
    """Print the rows as they come, those that are left, and what all amount to; return them."""
    rows: list[Row] = []
    reasons: Counter[tuple[str, str]] = Counter()
    print(f"{'scenario':<28} {'point':<44} {'metric':<18} {'packets over flows':<20} {'a further run':<14} cut to")
    for row in found:
        if isinstance(row, Left):
            reasons[row.scenario, row.why] += 1
            continue
        rows.append(row)
        band = f"{row.low:.3f} to {row.high:.3f}"
        cut, mark = f"{row.cut_to:,} B" if row.cut_to else "", "" if row.inside else " OUTSIDE"
        print(
            f"{row.scenario:<28} {row.point[:44]:<44} {row.metric:<18} {band:<20} {row.further:<14.3f} {cut}{mark}",
            flush=True,
        )
    for (scenario, why), count in reasons.items():
        print(f"left: {scenario} ({count} points): {why}")
    if rows:
        metrics = sum(row.inside for row in rows) / len(rows)
        print(f"{len({(row.scenario, row.point) for row in rows})} points, inside: {inside_share(rows):.1%}")
        print(f"{len(rows)} metrics, inside: {metrics:.1%}")
        if any(row.collective and row.bdps >= SHORT_BDPS for row in rows):
            print(f"collectives of messages that are not short, within {NEAR:.0%}: {near_share(rows):.1%}")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", type=Path, nargs="*", help="files; all that are shipped by default")
    parser.add_argument("--hops", type=int, default=HOPS, help="the most packets on lines in a run")
    parser.add_argument("-f", "--format", choices=("table", "csv"), default="table")
    options = parser.parse_args(arguments)
    found = measure(options.scenarios or sorted(SCENARIOS.glob("*.yml")), options.hops)
    if options.format == "table":
        print_rows(found)
        return 0
    writer = csv.writer(sys.stdout)
    names = [one.name for one in fields(Row)]
    writer.writerow(names)
    writer.writerows([getattr(row, name) for name in names] for row in found if isinstance(row, Row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
