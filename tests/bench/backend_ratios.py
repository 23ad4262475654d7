"""The simulation over the emulation, for each point of scenarios that both can run, from what `run --steady` left.

    for file in scenarios/*.yml; do ./lab run $file --steady 10 -q -o results/steady; done
    for file in scenarios/*.yml; do ./lab run $file --steady 10 -q -o results/steady --backend simulation; done
    .venv/bin/python tests/bench/backend_ratios.py results/steady

The simulator refuses some scenarios, and says why. A ratio is that of the means over all runs that broke no trust
check, with its interval of 95 %: queues and pauses of a fabric under DCQCN lie far apart from run to run on either
side, and one run of each says nothing. Times are those of the real fabric. With `-f csv`, both means of every metric
are printed.

Source of the interval: the delta method for a ratio of means (Casella and Berger, Statistical Inference, 2nd edition,
section 5.5.4) with the degrees of freedom of Welch (Biometrika 34, 1947).
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.record.record import Backend, Record
from testbed.record.report.comparison.compare import compare_records
from testbed.record.report.steadiness.rows import student_upper_tail
from testbed.record.steady import STEADY_FILE, load_steadiness
from testbed.record.store import load_record

BANDS = {
    "jct": (0.05, 0.10),
    "tail_fct": (0.05, 0.10),
    "queue_p50": (0.15,),
    "queue_p99": (0.15,),
    "pause_frames": (0.25,),
    "pause_time": (0.25,),
    "ecn_mark_ratio": (0.15,),
}
"""By metric: how far from 1 a ratio is to lie, the first in nine of ten points, the last in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A metric of a point on both backends: its values, one of each run."""

    scenario: str
    point: str
    metric: str
    emulated: Sequence[float]
    simulated: Sequence[float]

    @property
    def ratio(self) -> float:
        """The mean of the simulations over that of the emulations; 1 where there is nothing on either side."""
        emulated, simulated = statistics.fmean(self.emulated), statistics.fmean(self.simulated)
        if emulated == simulated:
            return 1.0
        return simulated / emulated if emulated else math.inf

    @property
    def half_width(self) -> float:
        """Half of the interval of 95 % around the ratio; without end where a side has a single run."""
        parts = []
        for values in (self.emulated, self.simulated):
            mean = statistics.fmean(values)
            if len(values) < 2 or not mean:
                return math.inf
            parts.append((statistics.variance(values) / len(values) / mean**2, len(values) - 1))
        total = sum(part for part, _ in parts)
        if not total:
            return 0.0
        degrees = total**2 / sum(part**2 / freedom for part, freedom in parts)
        return self.ratio * math.sqrt(total) * _quantile(max(1, int(degrees)))

    def beyond(self, band: float) -> bool:
        """Whether the ratio itself lies outside of the band."""
        return abs(self.ratio - 1) > band

    def surely_beyond(self, band: float) -> bool:
        """Whether its whole interval does."""
        return abs(self.ratio - 1) - self.half_width > band


def _quantile(degrees: int) -> float:
    """Student's t that is exceeded once in forty times."""
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_upper_tail(middle, degrees) > 0.025 else (low, middle)
    return high


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where `run --steady` left its runs, of both backends")
    parser.add_argument("-f", "--format", choices=("table", "csv"), default="table")
    options = parser.parse_args(arguments)
    pairs = list(_pairs(_records(options.directory)))
    if options.format == "csv":
        _write_csv(pairs)
    else:
        _print_rows(pairs)
        _print_summary(pairs)
    return 0


# --- comparing --------------------------------------------------------------------------------------------


def _records(parent: Path) -> Mapping[str, Mapping[Backend, Sequence[Record]]]:
    """By scenario and backend, the records of all whole runs that lie anywhere below a directory."""
    found: dict[str, dict[Backend, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted(parent.rglob(STEADY_FILE)):
        steadiness = load_steadiness(file)
        records = (load_record(file.parent / run.directory) for run in steadiness.runs)
        found[steadiness.scenario][steadiness.backend] += [record for record in records if not record.incomplete]
    return found


def _trusted(record: Record) -> set[str]:
    """The points whose runs broke no trust check."""
    return {point.name for point in record.points if all(check.ok for run in point.runs for check in run.checks)}


def _pairs(records: Mapping[str, Mapping[Backend, Sequence[Record]]]) -> Iterator[Pair]:
    """Each metric of each point that both have."""
    for scenario, by_backend in records.items():
        emulations, simulations = by_backend.get(Backend.EMULATION, ()), by_backend.get(Backend.SIMULATION, ())
        if not emulations or not simulations:
            continue
        values: dict[tuple[str, str], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
        for side, those in enumerate((emulations, simulations)):
            for record in those:
                trusted = _trusted(record)
                pair = (record, simulations[0]) if side == 0 else (emulations[0], record)
                for change in compare_records(*pair, metrics=("all",), force=True).changes:
                    here = change.other if side else change.base
                    if change.metric in BANDS and here and change.point in trusted:
                        values[change.point, change.metric][side].append(statistics.median(here))
        for (point, metric), (emulated, simulated) in values.items():
            if emulated and simulated:
                yield Pair(scenario=scenario, point=point, metric=metric, emulated=emulated, simulated=simulated)


# --- printing ---------------------------------------------------------------------------------------------


def _print_rows(pairs: Sequence[Pair]) -> None:
    by_point: dict[tuple[str, str], dict[str, Pair]] = defaultdict(dict)
    for pair in pairs:
        by_point[pair.scenario, pair.point][pair.metric] = pair
    for names, found in by_point.items():
        cells = "  ".join(
            f"{metric} {found[metric].ratio:.3f} ±{found[metric].half_width:.3f}" for metric in BANDS if metric in found
        )
        runs = max((len(pair.emulated), len(pair.simulated)) for pair in found.values())
        print(f"{' '.join(filter(None, names)):60} {runs[0]}/{runs[1]}  {cells}")


def _print_summary(pairs: Sequence[Pair]) -> None:
    print()
    for metric, bands in BANDS.items():
        of_metric = [pair for pair in pairs if pair.metric == metric]
        if not of_metric:
            continue
        counts = [f"{sum(not pair.beyond(band) for pair in of_metric)} within {band:.0%}" for band in bands]
        sure = sum(pair.surely_beyond(bands[-1]) for pair in of_metric)
        print(f"{metric}: of {len(of_metric)} points {', '.join(counts)}; {sure} surely beyond {bands[-1]:.0%}")
        for pair in sorted(of_metric, key=lambda p: -abs(p.ratio - 1)):
            if pair.beyond(bands[-1]):
                name = " ".join(filter(None, (pair.scenario, pair.point)))
                emulated, simulated = statistics.fmean(pair.emulated), statistics.fmean(pair.simulated)
                unsure = "" if pair.surely_beyond(bands[-1]) else ", which its runs do not tell from 1 so far"
                print(f"  {name}: {pair.ratio:.3f} ±{pair.half_width:.3f} ({simulated:g} over {emulated:g}){unsure}")


def _write_csv(pairs: Sequence[Pair]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(("scenario", "point", "metric", "emulated", "simulated", "ratio", "half_width", "runs"))
    for pair in pairs:
        means = (statistics.fmean(pair.emulated), statistics.fmean(pair.simulated))
        ratio = (round(pair.ratio, 4), round(pair.half_width, 4), f"{len(pair.emulated)}/{len(pair.simulated)}")
        writer.writerow((pair.scenario, pair.point, pair.metric, *means, *ratio))


if __name__ == "__main__":
    sys.exit(main())
