"""Whole scenarios as flows: all points, each with the packets of its twin, judged and recorded as those of labs are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from testbed.base.errors import ScenarioError
from testbed.base.interrupt import Interrupt
from testbed.record.record import Backend
from testbed.run.flows.point import FlowPoint
from testbed.run.flows.support import SHORT_BDPS, check_flows_supported, refusal
from testbed.run.flows.twins import SEEDS, Twin, make_twin, smallest_message
from testbed.run.placed.traffic import bdp_bytes
from testbed.run.simulated.processes import Job, cores, run_jobs
from testbed.run.sweep.beside_record import keep_labs
from testbed.run.sweep.point_runs import PointOutcome, RunOutcome
from testbed.run.sweep.points import Sweep
from testbed.run.sweep.progress import Phase, Progress, ProgressListener, ignore_progress
from testbed.run.sweep.published import PublishedRun
from testbed.run.sweep.runner import RecordOptions, SweepOutcome, SweepSoFar, Try, measure_and_keep, run_points


def run_flows(
    sweep: Sweep,
    options: RecordOptions,
    on_progress: ProgressListener = ignore_progress,
    *,
    processes: int | None = None,
) -> SweepOutcome:
    """Run every point as flows, and the packets of its twin in as many processes as there are cores (or `processes`).

    The outcome has the record; what stopped the scenario on the way is its `failure`, and an interrupt is told by the
    record's `incomplete`. Raises `ScenarioError` for what flows cannot tell, and `SpecError` for labs that cannot be
    planned or cannot carry the workload, before anything runs.
    """
    check_flows_supported(sweep)
    if options.prove_scale:
        raise ScenarioError("--prove-scale: flows have no time scale", hint="leave --backend out")
    so_far = SweepSoFar(sweep.scenario, sweep.points, options.previous, options.command, backend=Backend.FLOWS)
    journal = options.journal(sweep.points)
    keep_labs(options.directory, sweep.labs.values())
    told = PublishedRun(sweep, options.directory, on_progress, backend=Backend.FLOWS)
    runner = _FlowPoints(sweep, so_far, told, cores() if processes is None else processes)
    with told:
        return measure_and_keep(journal, lambda interrupt: run_points(so_far, runner, interrupt, journal))


class _FlowPoints:
    """Runs points one after the other, once the packets of its twin are done; those run side by side.

    Raises `SpecError` with what is wrong of all those that are left of a sweep, and `ScenarioError` for messages that
    only packets could tell of, and have no twin.
    """

    larger_k = None

    def __init__(self, sweep: Sweep, so_far: SweepSoFar, on_progress: ProgressListener, processes: int) -> None:
        prepared = sweep.prepare(so_far.left, lambda point: FlowPoint(point, sweep.lab_of(point)))
        self._points = {one.point.index: one for one in prepared}
        self._twins = {index: make_twin(sweep, one) for index, one in self._points.items()}
        for index, one in self._points.items():
            _check_calibrated(one, self._twins[index])
        self._of_all = len(sweep.points)
        self._on_progress = on_progress
        self._processes = processes
        self.cut_short = ""

    def outcomes(self, tries: Sequence[Try], interrupt: Interrupt) -> Iterator[PointOutcome]:
        wanted = [one.point.index for one in tries]
        twins = {index: twin.packets for index in wanted if (twin := self._twins[index]).packets is not None}
        jobs = [
            Job(point=index, run=run + 1) for index, one in twins.items() for run in range(one.scenario.repeat.runs)
        ]
        done: defaultdict[int, dict[int, RunOutcome]] = defaultdict(dict)
        left = list(wanted)
        for job, outcome in run_jobs(
            jobs, twins.__getitem__, interrupt, processes=self._processes, on_share=self._on_share
        ):
            done[job.point][job.run] = outcome
            while left and (left[0] not in twins or len(done[left[0]]) == twins[left[0]].scenario.repeat.runs):
                found = self._outcome(left.pop(0), done, interrupt)
                yield found
                if found.failure is not None or found.interrupted:
                    return
        for place, index in enumerate(left, start=len(wanted) - len(left)):
            if interrupt.requested:
                self.cut_short = f"interrupted after {place} of {len(wanted)} points"
                return
            found = self._outcome(index, done, interrupt)
            yield found
            if found.failure is not None or found.interrupted:
                return

    def _outcome(self, index: int, packets: dict[int, dict[int, RunOutcome]], interrupt: Interrupt) -> PointOutcome:
        point, runs = self._points[index], list[RunOutcome]()
        of_all = point.scenario.repeat.runs

        def watch(share: float) -> bool:
            self._tell(Phase.TRAFFIC, index, len(runs) + 1, of_all, share)
            return interrupt.requested

        for number in range(1, of_all + 1):
            runs.append(point.run(number, watch))
            self._tell(Phase.RUN, index, number, of_all, number)
            if not runs[-1].goes_on:
                break
        outcome = point.outcome(runs, point.approximations)
        mine = packets.get(index, {})
        twin = self._twins[index].told([mine[run] for run in sorted(mine)])
        return replace(outcome, result=replace(outcome.result, twin=twin))

    def _on_share(self, job: Job, share: float) -> None:
        self._tell(Phase.TRAFFIC, job.point, job.run, SEEDS, share)

    def _tell(self, phase: Phase, index: int, run: int, runs: int, done: float) -> None:
        """Tell of a run of so many `runs`: of the point as flows, or of its twin with packets."""
        point = self._points[index].point
        self._on_progress(
            Progress(
                phase=phase,
                run=run,
                runs=runs,
                done=done,
                total=1.0 if phase is Phase.TRAFFIC else runs,
                point=index,
                points=self._of_all,
                message=point.name,
            )
        )


def _check_calibrated(point: FlowPoint, twin: Twin) -> None:
    """Raise `ScenarioError` for short messages that no packets tell of."""
    if not twin.failure:
        return
    for traffic in point.traffic:
        bdp = bdp_bytes(point.lab, traffic.placement)
        smallest = smallest_message(traffic.workload)
        if 0 < smallest < SHORT_BDPS * bdp:
            raise refusal(
                point.point,
                f"--backend flows takes messages from {SHORT_BDPS} bandwidth-delay products on ({SHORT_BDPS * bdp:,}"
                f" bytes) where no packet-level twin tells how wrong it is, and these have {smallest:,}; a twin:"
                f" {twin.failure}",
                hint="--backend simulation",
            )
