"""A whole scenario on the simulator: all runs of all points, judged and recorded as those of emulated labs are."""

from __future__ import annotations

from testbed.base.errors import PlanError, ScenarioError, WorkloadError
from testbed.base.interrupt import Interrupt
from testbed.record.record import Backend
from testbed.run.emulated.point import PointOutcome
from testbed.run.emulated.progress import Phase, Progress, ProgressListener, ignore_progress
from testbed.run.simulated.approximations import simulated_approximations
from testbed.run.simulated.point import RunOutcome, SimulatedPoint
from testbed.run.simulated.processes import Job, cores, run_jobs
from testbed.run.simulated.support import check_supported
from testbed.run.sweep.points import Point
from testbed.run.sweep.prepared import Sweep
from testbed.run.sweep.recorded import RecordOptions, SweepOutcome
from testbed.run.sweep.runner import ScenarioStopped, SweepSoFar


def run_simulated(
    sweep: Sweep,
    options: RecordOptions,
    on_progress: ProgressListener = ignore_progress,
    *,
    processes: int | None = None,
) -> SweepOutcome:
    """Run every point on the simulator, in as many processes as there are cores (or `processes`).

    The outcome has the record; what stopped the scenario on the way is its `failure`, and an interrupt is told by the
    record's `incomplete`. Raises `ScenarioError` for what cannot be simulated, and `SpecError` for labs that cannot be
    planned or cannot carry the workload, before anything runs.
    """
    check_supported(sweep)
    if options.prove_scale:
        raise ScenarioError("--prove-scale: a simulation has no time scale", hint="leave --backend out")
    return _SimulatedSweep(sweep, options, on_progress).run(cores() if processes is None else processes)


class _SimulatedSweep:
    """What is known of the points, and what has been measured so far."""

    def __init__(self, sweep: Sweep, options: RecordOptions, on_progress: ProgressListener) -> None:
        self._sweep = sweep
        self._options = options
        self._on_progress = on_progress
        self._journal = options.journal()
        self._so_far = SweepSoFar(
            sweep.scenario, sweep.points, options.previous, options.command, backend=Backend.SIMULATION
        )
        self._points = {point.index: point for point in sweep.points if not self._so_far.has(point)}
        self._simulated = self._prepare()
        self._outcomes: dict[int, dict[int, RunOutcome]] = {index: {} for index in self._points}
        self._left = len(self._points)
        """Points of which not all runs have been done."""

    def _prepare(self) -> dict[int, SimulatedPoint]:
        """Plan every point's lab and make its traffic. Raises `SpecError` with what is wrong of all points."""
        unfit: list[tuple[Point, PlanError | WorkloadError]] = []
        found: dict[int, SimulatedPoint] = {}
        for index, point in self._points.items():
            try:
                found[index] = SimulatedPoint(point, self._sweep.lab_of(point))
            except PlanError as error:
                unfit.append((point, error))
            except ScenarioError as error:
                if not isinstance(error.__cause__, WorkloadError):
                    raise
                unfit.append((point, error.__cause__))
        if unfit:
            raise self._sweep.reader.explain([(point.scenario, error) for point, error in unfit])
        return found

    def run(self, processes: int) -> SweepOutcome:
        jobs = [
            Job(point=index, run=run)
            for index, point in self._points.items()
            for run in range(1, point.scenario.repeat.runs + 1)
        ]
        with Interrupt() as interrupt:
            run_jobs(
                jobs,
                self._simulated.__getitem__,
                interrupt,
                processes=processes,
                on_share=self._on_share,
                on_done=self._on_done,
            )
            if interrupt.requested and not self._so_far.incomplete:
                done = sum(len(outcomes) for outcomes in self._outcomes.values())
                self._so_far.incomplete = f"interrupted after {done} of {len(jobs)} runs"
        for index in self._points:
            if self._outcomes[index] and not self._is_whole(index):
                self._add(index)
        record = self._so_far.record(self._so_far.incomplete)
        if self._journal is not None:
            self._journal.write(record)
        failure = self._so_far.failure
        return SweepOutcome(record=record, failure=None if failure is None else ScenarioStopped(failure, record))

    # --- what comes of runs ------------------------------------------------------------------------------

    def _on_share(self, job: Job, share: float) -> None:
        self._tell(Phase.TRAFFIC, job, share, 1.0)

    def _on_done(self, job: Job, outcome: RunOutcome) -> bool:
        self._outcomes[job.point][job.run] = outcome
        runs = self._points[job.point].scenario.repeat.runs
        self._tell(Phase.RUN, job, job.run, runs)
        if self._is_whole(job.point):
            self._add(job.point)
            self._left -= 1
            if self._left:
                self._so_far.keep(self._points[job.point], self._journal)
        return outcome.failure is None and not outcome.interrupted

    def _is_whole(self, index: int) -> bool:
        return len(self._outcomes[index]) == self._points[index].scenario.repeat.runs

    def _add(self, index: int) -> None:
        """Hand the runs that there are of a point to the record."""
        point, simulated = self._points[index], self._simulated[index]
        outcomes = [self._outcomes[index][run] for run in sorted(self._outcomes[index])]
        runs = [outcome.result for outcome in outcomes if outcome.result is not None]
        outcome = PointOutcome(
            result=simulated.result(runs),
            failure=next((one.failure for one in outcomes if one.failure is not None), None),
            interrupted=any(one.interrupted for one in outcomes),
        )
        self._so_far.add(point, outcome, index, simulated_approximations(simulated.lab, point.scenario))

    def _tell(self, phase: Phase, job: Job, done: float, total: float) -> None:
        point = self._points[job.point]
        self._on_progress(
            Progress(
                phase=phase,
                run=job.run,
                runs=point.scenario.repeat.runs,
                done=done,
                total=total,
                point=job.point,
                points=len(self._sweep.points),
                message=point.name,
            )
        )
