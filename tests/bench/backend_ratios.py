"""The simulation over the emulation, for each point of scenarios that both can run.

    .venv/bin/python tests/bench/backend_ratios.py -o DIRECTORY [SCENARIO.yml ...]

As root, on a quiet machine. Without a scenario, all shipped ones are run. What is in the directory is not run again, so
that the same command goes on where it was interrupted, and `--table` prints what there is; `--emulations 3` makes as
many of each and takes their median, and `--emulated results/steady` takes what `run --steady` has left there instead. A
scenario that the simulator refuses is listed with its reason. Times are those of the real fabric. With `-f csv`, both
values of every metric are printed.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError
from testbed.report.comparison.compare import compare_records
from testbed.results import Backend, Outcome, Record, load_record
from testbed.results.steady import find_steadiness

SCENARIOS = Path(__file__).parents[2] / "scenarios"
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
    """A metric of a point on both backends; `valid`: the trust checks let an emulation stand."""

    scenario: str
    point: str
    metric: str
    emulated: float
    simulated: float
    valid: bool

    @property
    def ratio(self) -> float:
        """Simulation over emulation; 1 where there is nothing on either side."""
        if self.emulated == self.simulated:
            return 1.0
        return self.simulated / self.emulated if self.emulated else float("inf")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", type=Path, help="files; all shipped ones without")
    parser.add_argument("-o", "--results", type=Path, required=True, help="where records are, and go")
    parser.add_argument("--emulations", type=int, default=1, help="of each scenario (default 1)")
    parser.add_argument("--emulated", type=Path, help="records of `run --steady`, instead of new emulations")
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds of one run (default 1200)")
    parser.add_argument("--table", action="store_true", help="run nothing, print what there is")
    parser.add_argument("-f", "--format", choices=("table", "csv"), default="table")
    options = parser.parse_args(arguments)
    files = options.scenarios or sorted(SCENARIOS.glob("*.yml"))
    pairs: list[Pair] = []
    there = {} if options.emulated is None else _emulated(options.emulated)
    for file in files:
        directory = options.results / file.stem
        if not options.table:
            why = _run(file, directory, 0 if options.emulated else options.emulations, options.timeout)
            if why:
                print(f"{file.stem}: {why}", file=sys.stderr, flush=True)
        made = [record for place in sorted(directory.glob("emulation-*")) if (record := _record(place)) is not None]
        found = list(_pairs(file.stem, _record(directory / "simulation"), there.get(file.stem, made)))
        pairs += found
        if options.format == "table":
            _print_rows(found)
    if options.format == "csv":
        _write_csv(pairs)
    else:
        _print_summary(pairs)
    return 0


# --- running ----------------------------------------------------------------------------------------------


def _run(file: Path, directory: Path, emulations: int, timeout_s: float) -> str:
    """Make the records that are missing. Returns why there are none, or fewer, "" where all are there."""
    places = [(Backend.SIMULATION, directory / "simulation")]
    places += [(Backend.EMULATION, directory / f"emulation-{number + 1}") for number in range(emulations)]
    refused = directory / "refused.txt"
    if refused.exists():
        return refused.read_text().strip()
    for backend, place in places:
        if _record(place) is not None:
            continue
        shutil.rmtree(place, ignore_errors=True)
        print(f"{file.stem}: {backend.value}", file=sys.stderr, flush=True)
        argv = [sys.executable, "-m", "testbed", "run", str(file), "--backend", backend.value, "-q", "--no-report"]
        try:
            done = subprocess.run(
                [*argv, "-o", str(place)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{backend.value} took more than {timeout_s:g} s"
        if _record(place) is None:
            why = done.stderr.strip().splitlines()[:2] or [f"exit {done.returncode}"]
            if backend is Backend.SIMULATION:
                directory.mkdir(parents=True, exist_ok=True)
                refused.write_text("\n".join(why) + "\n")
            return f"{backend.value} left no record: {' '.join(why)}"
    return ""


def _record(place: Path) -> Record | None:
    """The whole record in a directory of results, if there is one."""
    for found in sorted(place.glob("*/")):
        try:
            record = load_record(found)
        except (TestbedError, OSError):
            continue
        if not record.incomplete:
            return record
    return None


def _emulated(parent: Path) -> dict[str, list[Record]]:
    """By scenario, the records of whole emulated runs that lie anywhere below a directory."""
    found: dict[str, list[Record]] = {}
    for one in find_steadiness([parent]):
        for run in one.runs if one.backend is Backend.EMULATION else ():
            for place in parent.rglob(f"{one.scenario}-steady-*/{run.directory}"):
                record = load_record(place)
                if not record.incomplete:
                    found.setdefault(one.scenario, []).append(record)
    return found


# --- comparing --------------------------------------------------------------------------------------------


def _pairs(scenario: str, simulated: Record | None, emulated: Sequence[Record]) -> Iterator[Pair]:
    """Each metric of each point that both have: the median over all emulations, valid ones where there are any."""
    valid = [record for record in emulated if record.verdict.outcome is not Outcome.INVALID]
    if simulated is None or not emulated:
        return
    base: dict[tuple[str, str], list[float]] = {}
    other: dict[tuple[str, str], float] = {}
    for record in valid or emulated:
        for change in compare_records(record, simulated, metrics=("all",), force=True).changes:
            if change.metric in BANDS and change.base and change.other:
                base.setdefault((change.point, change.metric), []).append(statistics.median(change.base))
                other[change.point, change.metric] = statistics.median(change.other)
    for (point, metric), values in base.items():
        yield Pair(
            scenario=scenario,
            point=point,
            metric=metric,
            emulated=statistics.median(values),
            simulated=other[point, metric],
            valid=bool(valid),
        )


# --- printing ---------------------------------------------------------------------------------------------


def _print_rows(pairs: Sequence[Pair]) -> None:
    by_point: dict[tuple[str, str, bool], dict[str, float]] = {}
    for pair in pairs:
        by_point.setdefault((pair.scenario, pair.point, pair.valid), {})[pair.metric] = pair.ratio
    for (scenario, point, valid), ratios in by_point.items():
        cells = "  ".join(f"{metric} {ratios[metric]:.3f}" for metric in BANDS if metric in ratios)
        name = " ".join(filter(None, (scenario, point)))
        print(f"{name:60} {cells}{'' if valid else '  (no valid emulation)'}", flush=True)


def _print_summary(pairs: Sequence[Pair]) -> None:
    print()
    for metric, bands in BANDS.items():
        of_metric = [pair for pair in pairs if pair.metric == metric and pair.valid]
        if not of_metric:
            continue
        counts = [f"{sum(abs(p.ratio - 1) <= band for p in of_metric)} within {band:.0%}" for band in bands]
        print(f"{metric}: of {len(of_metric)} points {', '.join(counts)}")
        for pair in sorted(of_metric, key=lambda p: -abs(p.ratio - 1)):
            if abs(pair.ratio - 1) > bands[-1]:
                name = " ".join(filter(None, (pair.scenario, pair.point)))
                print(f"  {name}: {pair.ratio:.3f} ({pair.simulated:g} over {pair.emulated:g})")


def _write_csv(pairs: Sequence[Pair]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(("scenario", "point", "metric", "emulated", "simulated", "ratio", "valid"))
    for pair in pairs:
        values = (pair.emulated, pair.simulated, round(pair.ratio, 4), pair.valid)
        writer.writerow((pair.scenario, pair.point, pair.metric, *values))


if __name__ == "__main__":
    sys.exit(main())
