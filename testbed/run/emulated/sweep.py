"""Whole scenarios on labs of this machine: each point on a lab of its own or one that is there already, one record.

Labs come from the caller, who also removes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from testbed.base.interrupt import Interrupt
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.record.journal import KeptRecord
from testbed.record.record import Record
from testbed.run.emulated.point import EmulatedPoint
from testbed.run.emulated.workers import SharedWorkers
from testbed.run.emulated.workload_runner import WorkloadRunner
from testbed.run.faults.kills import AgentKill
from testbed.run.machine.canary import Canary
from testbed.run.placed.lab import LiveLab, go_over_subnet
from testbed.run.programs.needs import check_needs
from testbed.run.schema.model import Scenario, TopologyRef
from testbed.run.sweep.beside_record import keep_labs
from testbed.run.sweep.jobs import JobRunner
from testbed.run.sweep.labs import LabOptions, ScenarioLabs
from testbed.run.sweep.point_runs import PointOutcome
from testbed.run.sweep.points import Point, Sweep
from testbed.run.sweep.progress import Phase, Progress, ProgressListener, ignore_progress
from testbed.run.sweep.published import PublishedRun
from testbed.run.sweep.retries import LargerK
from testbed.run.sweep.runner import RecordOptions, ScenarioStopped, SweepOutcome, SweepSoFar, Try, run_points
from testbed.run.sweep.scale_proof import at_twice_the_scale, compare_scales, with_proof


class LabFactory(Protocol):
    """A caller that brings labs up."""

    def __call__(self, topology: TopologyRef) -> LiveLab:
        """The lab of a topology, up and converged; the one asked for before may go, unless it is the same."""


@runtime_checkable
class RescalableLabs(Protocol):
    """Labs that can be brought up once more at another time scale."""

    def larger_k(self, topology: TopologyRef, k: float) -> float | None:
        """Return the k that the lab may have where one of `k` is wanted; None where its k stays as it is."""


def run_sweep(
    scenario: Scenario,
    points: Sequence[Point],
    labs: LabFactory,
    *,
    previous: Record | None = None,
    on_progress: ProgressListener = ignore_progress,
    journal: KeptRecord | None = None,
    command: Sequence[str] = (),
) -> Record:
    """Run every point and judge the whole, as `run_points` does. `command` is what repeats it, for the report.

    Samples of ports go beside the record that `journal` keeps.

    Points that came out invalid are run at a larger time scale where that was chosen and `labs` are `RescalableLabs`.
    Points that `previous` has whole are taken over. Raises `ScenarioError` when a lab cannot carry its workload at all.
    """
    so_far = SweepSoFar(scenario, points, previous, command)
    with Interrupt() as interrupt, Canary() as canary, _Runners() as runners:
        runners.warm_up(points)
        directory = None if journal is None else journal.directory
        in_turn = _LabsInTurn(len(points), labs, runners, canary, on_progress, directory)
        larger_k = labs.larger_k if isinstance(labs, RescalableLabs) else keep_k
        return run_points(so_far, EmulatedPoints(in_turn, len(points), larger_k), interrupt, journal)


def run_recorded(
    sweep: Sweep, labs: LabFactory, options: RecordOptions, on_progress: ProgressListener = ignore_progress
) -> Record:
    """Run every point on the labs that `labs` brings up, and keep the record of those done on disk.

    An interrupt returns a record whose `incomplete` says so. Raises `ScenarioStopped`, after writing what was measured,
    when a run fails or a lab breaks.
    """
    _check_needs(sweep)
    journal = options.journal(sweep.points)
    keep_labs(options.directory, sweep.labs.values())

    def write(record: Record) -> None:
        if journal is not None:
            journal.write(record)

    with PublishedRun(sweep, options.directory, on_progress) as told:
        try:
            record = run_sweep(
                sweep.scenario,
                sweep.points,
                labs,
                previous=options.previous,
                on_progress=told,
                journal=journal,
                command=options.command,
            )
            if options.prove_scale and not record.incomplete:
                write(record)
                twice = at_twice_the_scale(sweep.points, record)
                slower = run_sweep(sweep.scenario, twice, labs, on_progress=told, command=options.command)
                record = with_proof(record, compare_scales(record, slower))
        except ScenarioStopped as stopped:
            write(stopped.record)
            raise
        write(record)
    return record


def run_on_own_labs(
    sweep: Sweep,
    state: StateDirectory,
    lab_options: LabOptions,
    record_options: RecordOptions,
    on_progress: ProgressListener = ignore_progress,
) -> SweepOutcome:
    """Run every point on a lab that is deployed for it and removed afterwards.

    What stops the scenario on the way is handed back as `failure` beside the record, so that the caller can still show
    what was measured; errors before anything was measured are raised.
    """
    _check_needs(sweep)
    failure: ScenarioStopped | None = None
    with ScenarioLabs(sweep, state, lab_options) as labs:
        try:
            record = run_recorded(sweep, labs, record_options, on_progress)
        except ScenarioStopped as stopped:
            record, failure = stopped.record, stopped
    return SweepOutcome(record=record, kept=labs.kept, failure=failure)


def _check_needs(sweep: Sweep) -> None:
    """Refuse what no lab could carry, and what this machine lacks, before any lab is brought up.

    Raises `ScenarioError`, `CapabilityError`.
    """
    check_needs(sweep)
    for point in sweep.points:
        if go_over_subnet(point.scenario.transports):
            from testbed.run.emulated.subnet_point import check_subnet_faults  # most labs have none
            from testbed.run.placed.subnet_lab import require_wires

            check_subnet_faults(point.scenario, require_wires(sweep.lab_of(point)))


class EmulatedPoints:
    """The points of a sweep on labs (`PointsRunner`), of which `jobs` does the tries. There are `points` in all."""

    def __init__(self, jobs: JobRunner[Try, PointOutcome], points: int, larger_k: LargerK) -> None:
        self._jobs = jobs
        self._points = points
        self.larger_k = larger_k
        self.cut_short = ""

    def outcomes(self, tries: Sequence[Try], interrupt: Interrupt) -> Iterator[PointOutcome]:
        """Run these points, and yield what came of each."""
        left = len(tries)
        for one, outcome in self._jobs.run(tries, interrupt):
            left -= 1
            yield outcome
            if outcome.failure is not None or outcome.interrupted:
                return
            if interrupt.requested and left:
                self.cut_short = f"interrupted after point {one.point.index} of {self._points}"
        if interrupt.requested and left and not self.cut_short:
            self.cut_short = "interrupted before the first point was done"


class _LabsInTurn:
    """Runs one point after the other, each on the lab that its topology asks for (`JobRunner`)."""

    machines = ()

    def __init__(
        self,
        points: int,
        labs: LabFactory,
        runners: _Runners,
        canary: Canary,
        on_progress: ProgressListener,
        directory: Path | None,
    ) -> None:
        self._points = points
        self._labs = labs
        self._runners = runners
        self._canary = canary
        self._on_progress = on_progress
        self._directory = directory

    def run(self, jobs: Sequence[Try], interrupt: Interrupt) -> Iterator[tuple[Try, PointOutcome]]:
        for one in jobs:
            outcome = self._run(one, interrupt)
            yield one, outcome
            if outcome.failure is not None or outcome.interrupted or interrupt.requested:
                return

    def _run(self, one: Try, interrupt: Interrupt) -> PointOutcome:
        number, total = one.point.index, self._points
        self._on_progress(
            Progress(phase=Phase.LAB, run=0, runs=0, done=0, total=0, point=number, points=total, message=one.message)
        )
        lab = self._labs(one.point.scenario.topology)
        make: Callable[..., EmulatedPoint] = EmulatedPoint
        if go_over_subnet(one.point.scenario.transports) and isinstance(lab, RunningLab):
            from testbed.run.emulated.subnet_point import SubnetPoint

            make = SubnetPoint
        return make(
            one.point,
            lab,
            interrupt=interrupt,
            workload_runners=self._runners,
            canary=self._canary,
            on_progress=lambda event: self._on_progress(replace(event, points=total)),
            directory=self._directory,
        ).run()


def keep_k(topology: TopologyRef, k: float) -> float | None:
    """The answer of labs whose time scale stays as it is."""
    return None


class _Runners(contextlib.AbstractContextManager["_Runners"]):
    """The processes that move data: those of one lab and its transports at a time, kept from run to run."""

    def __init__(self) -> None:
        self._shared = SharedWorkers()
        self._stack = contextlib.ExitStack()
        self._key: tuple[str, int, Any, tuple[str, ...]] | None = None
        self._current: WorkloadRunner | None = None

    def warm_up(self, points: Sequence[Point]) -> None:
        """Start the processes that many hosts share, where a point needs them: they import while the lab comes up."""
        if any(not point.scenario.by_programs for point in points):
            self._shared.start()

    def __call__(self, lab: LiveLab, scenario: Scenario) -> WorkloadRunner:
        # To be killed alone, a worker needs a process of its own.
        alone = tuple(sorted(fault.target for fault in scenario.faults if fault.kind == AgentKill.kind))
        key = (lab.name, id(lab), (scenario.transport, scenario.tenant_transports), alone)
        if self._current is None or key != self._key:
            self._stack.close()
            runner = WorkloadRunner(
                lab, scenario.transport, shared=self._shared, alone=alone, of_tenants=scenario.tenant_transports
            )
            self._current = self._stack.enter_context(runner)
            self._key = key
        return self._current

    def __exit__(self, *_: object) -> None:
        with contextlib.closing(self._shared):
            self._stack.close()
