"""Running a scenario: every point of its matrix on a lab of its own or one that is there already, one record.

Labs come from the caller, who also removes them and writes the record. What ends a scenario early (Ctrl-C, a flow that
fails, a lab that goes away) still leaves a record of what was measured, marked incomplete; `previous` takes up such a
record where it ended.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

from testbed.base.errors import ScenarioError, TestbedError
from testbed.base.interrupt import Interrupt
from testbed.lab.core.drivers.probing.machine_probe import clock
from testbed.record.journal import RecordJournal
from testbed.record.record import SIMULATED_CLOCK, Backend, EarlierSession, Environment, PointResult, Record
from testbed.run.emulated.point import PointOutcome, PointRunner, stamp
from testbed.run.emulated.progress import Phase, Progress, ProgressListener, ignore_progress
from testbed.run.emulated.workers import SharedWorkers
from testbed.run.emulated.workload_runner import TimeLimitReached, WorkloadRunner
from testbed.run.faults.agent_kill import AgentKill
from testbed.run.machine.canary import Canary
from testbed.run.machine.environment import collect_environment
from testbed.run.placed.lab import LiveLab
from testbed.run.schema.model import Scenario, TopologyRef
from testbed.run.sweep.approximations import approximations
from testbed.run.sweep.as_run import scenario_as_run
from testbed.run.sweep.points import Point
from testbed.run.sweep.retries import Retry, plan_retries, reasons_of, taking_over, tries_told
from testbed.run.sweep.verdict import decide_verdict, evaluate_expectations


class ScenarioStopped(ScenarioError):
    """A scenario failed on the way. `record` has what was measured until then, marked incomplete."""

    exit_code = 2  # its verdict is invalid: it cannot say

    def __init__(self, cause: TestbedError, record: Record) -> None:
        super().__init__(cause.message, hint=cause.hint)
        self.record = record


class LabFactory(Protocol):
    """Whoever brings labs up."""

    def __call__(self, topology: TopologyRef) -> LiveLab:
        """The lab of a topology, up and converged; the one asked for before may go, unless it is the same."""
        ...


@runtime_checkable
class RescalableLabs(Protocol):
    """Labs that can be brought up once more at another time scale."""

    def larger_k(self, topology: TopologyRef, k: float) -> float | None:
        """Return the k that the lab may have where one of `k` is wanted; None where its k stays as it is."""
        ...


def run_sweep(
    scenario: Scenario,
    points: Sequence[Point],
    labs: LabFactory,
    *,
    previous: Record | None = None,
    on_progress: ProgressListener = ignore_progress,
    journal: RecordJournal | None = None,
    command: Sequence[str] = (),
) -> Record:
    """Run every point and judge the whole. `command` is what repeats it, for the report.

    Points that came out invalid are run once more where the scenario's `repeat.retries` say so, after all others: at a
    larger time scale where that was chosen and `labs` are `RescalableLabs`.

    `previous`: points that it has whole are taken over instead of run. `journal` gets every point but the last as it is
    done. An interrupt returns a record whose `incomplete` says so. Raises `ScenarioStopped` (with the record)
    when a run fails or a lab breaks, and `ScenarioError` when a lab cannot carry its workload at all.
    """
    sweep = SweepSoFar(scenario, points, previous, command)
    with Interrupt() as interrupt, Canary() as canary, _Runners() as runners:
        runners.warm_up(points)

        def run_point(point: Point, number: int, message: str) -> None:
            on_progress(_lab_step(message, number, len(points)))
            lab = labs(point.scenario.topology)
            runner = PointRunner(
                point=point,
                lab=lab.of_network(*point.scenario.workload.ranks.networks_in(lab.model)),
                whole=lab,
                interrupt=interrupt,
                workload_runners=runners,
                canary=canary,
                on_progress=lambda event: on_progress(replace(event, point=number, points=len(points))),
            )
            sweep.add(point, runner.run(), number, approximations(lab, point.scenario))

        for number, point in enumerate(points, start=1):
            if sweep.has(point):
                continue
            run_point(point, number, point.name)
            if sweep.incomplete:
                break
            if number < len(points):
                sweep.keep(point, journal)
            if interrupt.requested and number < len(points):
                sweep.incomplete = f"interrupted after point {number} of {len(points)}"
                break
        while not sweep.incomplete and (again := sweep.to_retry(labs)):
            if journal is not None:
                journal.write(sweep.record("points of it are run again"))
            for retry in again:
                sweep.retry = retry
                number = retry.point.index
                try:
                    run_point(retry.again, number, retry.announcement)
                except TestbedError as error:  # the lab could not be brought up once more
                    sweep.failure, sweep.incomplete = error, error.message
                if interrupt.requested and not sweep.incomplete:
                    sweep.incomplete = "interrupted before all invalid points were run again"
                if sweep.incomplete:
                    break
    record = sweep.record(sweep.incomplete)
    if sweep.failure is not None:
        raise ScenarioStopped(sweep.failure, record) from sweep.failure
    return record


class SweepSoFar:
    """This is what has been measured so far. `command` and `previous` as of `run_sweep`.

    A record of the simulator has the time of its own clock, which begins in 1970: `started` and `finished` are the
    machine's all the same, and are written beside it (`record.session`).
    """

    def __init__(
        self,
        scenario: Scenario,
        points: Sequence[Point],
        previous: Record | None,
        command: Sequence[str],
        backend: Backend = Backend.EMULATION,
    ) -> None:
        self.scenario = scenario
        self._backend = backend
        self.incomplete = ""
        self.failure: TestbedError | None = None
        self._points = points
        self._command = command
        self._begin = time.monotonic()
        self._started = datetime.now(UTC)
        self._environment: Environment | None = None
        self._earlier: list[EarlierSession] = []
        self._approximations: list[str] = []
        self._done: dict[str, PointResult] = {}
        self.retry: Retry | None = None
        """Why the point that is run now is run again; None in the first tries."""
        self._given_up: dict[str, str] = {}
        """The points whose further try took too long, and a sentence about it."""
        if previous is not None:
            self._take_over(previous)

    def _take_over(self, previous: Record) -> None:
        if _identity(previous.scenario) != _identity(scenario_as_run(self.scenario)):
            raise ScenarioError(
                "the results to go on with are those of another scenario or of other parameters",
                hint="run it anew, or with the file and the --set of the first time",
            )
        self._environment = self._collect()
        if self._environment.backend != previous.environment.backend:
            raise ScenarioError(
                f"the results to go on with are of another backend: {previous.environment.backend}",
                hint=f"--backend {previous.environment.backend}, or run it anew",
            )
        if self._environment.clock != previous.environment.clock:
            raise ScenarioError(
                f"the results to go on with were measured by the {previous.environment.clock} clock, "
                f"and this machine's is {self._environment.clock}",
                hint="go on where they were begun, or run it anew",
            )
        runs = self.scenario.repeat.runs
        for result in previous.points:
            if len(result.runs) == runs and all(run.complete for run in result.runs):
                self._done[result.name] = result
        self._earlier = _sessions_of(previous, self._done)
        self._approximations = list(previous.environment.approximations)

    def has(self, point: Point) -> bool:
        return point.name in self._done

    def _collect(self) -> Environment:
        environment = collect_environment([])
        if self._backend is Backend.EMULATION:
            return environment
        return replace(environment, backend=self._backend, clock=SIMULATED_CLOCK)

    def to_retry(self, labs: LabFactory) -> list[Retry]:
        """Return the points that are to be run again, after all have been run.

        Where time is counted in instructions, a point that has no other k would do the very same again.
        """
        larger_k = labs.larger_k if isinstance(labs, RescalableLabs) else _keep_k
        open_points = [point for point in self._points if point.name not in self._given_up]
        found = plan_retries(open_points, self._done, self.scenario.expect, larger_k)
        return [retry for retry in found if retry.k is not None] if clock() == "virtual" else found

    def add(self, point: Point, outcome: PointOutcome, number: int, approximations: Sequence[str]) -> None:
        """Take in what came of a point, and what it does not reproduce of the fabric it models."""
        ended = outcome.failure is None and not outcome.interrupted
        if self.retry is None:
            if outcome.result.runs:
                self._done[point.name] = outcome.result
            if _may_run_again(point, outcome):
                outcome.failure = None
        elif isinstance(outcome.failure, TimeLimitReached):
            outcome.failure = None
            said = f"{self.retry.announcement}: this try met its time limit and does not count"
            self._given_up[point.name] = said
            if not reasons_of(self._done[point.name]):
                self.incomplete = said  # it was run again for the comparison, which needs both at one k
        elif ended:  # of a try that did not end the one before it is kept
            self._done[point.name] = taking_over(outcome.result, self._done[point.name], self.retry.why)
        for sentence in approximations:
            if sentence not in self._approximations:
                self._approximations.append(sentence)
        at = f" of point {number} ({point.name})" if point.name else ""
        if outcome.failure is not None:
            self.failure, self.incomplete = outcome.failure, outcome.failure.message
        elif outcome.interrupted:
            self.incomplete = f"interrupted in run {len(outcome.result.runs)}{at} of {self.scenario.repeat.runs}"

    def keep(self, point: Point, journal: RecordJournal | None) -> None:
        """Have a point on disk that has been run, while others are."""
        if journal is not None and point.name in self._done:
            journal.add(self._done[point.name], lambda: self.record("it is still running"))

    def record(self, incomplete: str) -> Record:
        results = [self._done[point.name] for point in self._points if point.name in self._done]
        expectations = evaluate_expectations(self.scenario.expect, results)
        environment, earlier = self._ran_on()
        return Record(
            scenario=scenario_as_run(self.scenario),
            environment=replace(environment, approximations=list(self._approximations)),
            started=stamp(self._started),
            finished=stamp(datetime.now(UTC)),
            incomplete=incomplete,
            points=results,
            expectations=expectations,
            verdict=decide_verdict(
                results,
                expectations,
                incomplete=incomplete,
                tries=[*tries_told(results), *self._given_up.values()],
                backend=self._backend,
            ),
            command=list(self._command),
            wall_s=round(time.monotonic() - self._begin, 3),
            earlier=earlier,
            comparability=comparability(self.scenario, results, environment),
        )

    def _ran_on(self) -> tuple[Environment, list[EarlierSession]]:
        """Return what this session runs on, and the sessions before it.

        One that has measured nothing so far is none.
        """
        if self._environment is None:
            self._environment = self._collect()
        taken = {name for session in self._earlier for name in session.points}
        if self._earlier and taken.issuperset(self._done):
            return self._earlier[-1].environment, self._earlier[:-1]
        return self._environment, list(self._earlier)


def _sessions_of(previous: Record, kept: Container[str]) -> list[EarlierSession]:
    """The sessions that measured the points of `previous` that are kept; its own is the last."""
    before = {name for session in previous.earlier for name in session.points}
    own = [point.name for point in previous.points if point.name not in before]
    last = EarlierSession(environment=previous.environment, started=previous.started, points=own)
    sessions = [
        replace(session, points=[name for name in session.points if name in kept])
        for session in (*previous.earlier, last)
    ]
    return [session for session in sessions if session.points]


def _keep_k(topology: TopologyRef, k: float) -> float | None:
    """The answer of labs whose time scale stays as it is."""
    return None


def _may_run_again(point: Point, outcome: PointOutcome) -> bool:
    """Tell whether a run that reached its time limit did so on a machine that did not keep up, and may be repeated."""
    runs = outcome.result.runs
    overrun = any(not check.ok for run in runs for check in run.checks)
    return isinstance(outcome.failure, TimeLimitReached) and overrun and point.scenario.repeat.retries > 0


def _identity(scenario: Any) -> tuple[Any, ...]:
    """Return what must be the same for two sessions to be one run; how often it is retried is no part of it."""
    return (
        scenario.name,
        scenario.topology,
        scenario.transport,
        scenario.workload,
        {key: value for key, value in scenario.repeat.items() if key != "retries"},
        scenario.matrix,
        scenario.faults,
        scenario.probes,
    )


def comparability(scenario: Scenario, points: Sequence[PointResult], environment: Environment) -> dict[str, Any]:
    """Return what two records must share for their figures to be compared; another seed is a repetition of the same."""
    as_run = scenario_as_run(scenario)
    return {
        "topology": as_run.topology,
        "transport": as_run.transport,
        "workload": as_run.workload,
        "faults": as_run.faults,
        "clock": environment.clock,
        "k": sorted({point.lab.k for point in points}),
        "nic_real_bps": sorted({point.lab.nic_real_bps for point in points}),
        "mtu_bytes": sorted({point.lab.mtu_bytes for point in points}),
    }


def _lab_step(message: str, number: int, points: int) -> Progress:
    return Progress(phase=Phase.LAB, run=0, runs=0, done=0, total=0, point=number, points=points, message=message)


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
        try:
            self._stack.close()
        finally:
            self._shared.close()
