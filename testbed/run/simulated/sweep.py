"""Whole scenarios on the simulator: all runs of all points, judged and recorded as those of emulated labs are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from testbed.base.errors import ScenarioError
from testbed.base.interrupt import Interrupt
from testbed.record.record import Backend, Environment
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.simulated.processes import ForkedRuns, Job, RunnerOf, cores
from testbed.run.simulated.support import check_supported, simulated_approximations
from testbed.run.sweep.beside_record import keep_labs
from testbed.run.sweep.point_runs import PointOutcome, RunOutcome
from testbed.run.sweep.points import Sweep
from testbed.run.sweep.progress import Phase, Progress, ProgressListener, ignore_progress
from testbed.run.sweep.published import PublishedRun
from testbed.run.sweep.runner import RecordOptions, SweepOutcome, SweepSoFar, Try, measure_and_keep, run_points


def run_simulated(
    sweep: Sweep,
    options: RecordOptions,
    on_progress: ProgressListener = ignore_progress,
    *,
    processes: int | None = None,
    runner_of: RunnerOf | None = None,
    environment: Environment | None = None,
) -> SweepOutcome:
    """Run every point on the simulator, in as many processes as there are cores (or `processes`); or have them run by
    what `runner_of` makes, such as the machines of a pool. `environment` is that of this machine, where it is known.

    The outcome has the record; what stopped the scenario on the way is its `failure`, and an interrupt is told by the
    record's `incomplete`. Raises `ScenarioError` for what cannot be simulated, and `SpecError` for labs that cannot be
    planned or cannot carry the workload, before anything runs.
    """
    check_supported(sweep)
    if options.prove_scale:
        raise ScenarioError("--prove-scale: a simulation has no time scale", hint="leave --backend out")
    so_far = SweepSoFar(
        sweep.scenario, sweep.points, options.previous, options.command, Backend.SIMULATION, environment
    )
    journal = options.journal(sweep.points)
    keep_labs(options.directory, sweep.labs.values())
    told = PublishedRun(sweep, options.directory, on_progress, backend=Backend.SIMULATION)
    number = cores() if processes is None else processes
    made = runner_of or (lambda points, on_share: ForkedRuns(points, on_share, number))
    runner = _SimulatedPoints(sweep, so_far, told, made)
    with told:
        return measure_and_keep(journal, lambda interrupt: run_points(so_far, runner, interrupt, journal))


class _SimulatedPoints:
    """Runs points side by side. Raises `SpecError` with what is wrong of all those that are left of a sweep."""

    larger_k = None

    def __init__(self, sweep: Sweep, so_far: SweepSoFar, on_progress: ProgressListener, runner_of: RunnerOf) -> None:
        prepared = sweep.prepare(so_far.left, lambda point: SimulatedPoint(point, sweep.lab_of(point)))
        self._points = {one.point.index: one for one in prepared}
        self._of_all = len(sweep.points)
        self._on_progress = on_progress
        self._runner = runner_of(self._points.__getitem__, self._on_share)
        so_far.machines = self._runner.machines
        self.cut_short = ""

    def outcomes(self, tries: Sequence[Try], interrupt: Interrupt) -> Iterator[PointOutcome]:
        jobs = [
            Job(point=one.point.index, run=run) for one in tries for run in range(1, one.point.scenario.repeat.runs + 1)
        ]
        done: defaultdict[int, dict[int, RunOutcome]] = defaultdict(dict)
        for job, outcome in self._runner.run(jobs, interrupt):
            done[job.point][job.run] = outcome
            runs = self._points[job.point].scenario.repeat.runs
            self._tell(Phase.RUN, job, job.run, runs)
            if len(done[job.point]) == runs:
                yield self._outcome(job.point, done[job.point])
        for index, of_point in done.items():
            if len(of_point) < self._points[index].scenario.repeat.runs:
                yield self._outcome(index, of_point)
        if interrupt.requested:
            self.cut_short = f"interrupted after {sum(map(len, done.values()))} of {len(jobs)} runs"

    def _outcome(self, index: int, runs: dict[int, RunOutcome]) -> PointOutcome:
        point = self._points[index]
        return point.outcome([runs[run] for run in sorted(runs)], simulated_approximations(point.lab, point.scenario))

    def _on_share(self, job: Job, share: float) -> None:
        self._tell(Phase.TRAFFIC, job, share, 1.0)

    def _tell(self, phase: Phase, job: Job, done: float, total: float) -> None:
        point = self._points[job.point].point
        self._on_progress(
            Progress(
                phase=phase,
                run=job.run,
                runs=point.scenario.repeat.runs,
                done=done,
                total=total,
                point=job.point,
                points=self._of_all,
                message=point.name,
            )
        )
