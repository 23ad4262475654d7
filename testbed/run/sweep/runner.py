"""A sweep: every point of a scenario's matrix is run on a backend, and judged in one record.

What ends a scenario early (Ctrl-C, a flow that fails, a lab that goes away) still leaves a record of what was measured,
marked incomplete; `previous` takes up such a record where it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from testbed.base.errors import ExitCode, ScenarioError, TestbedError
from testbed.base.interrupt import Interrupt
from testbed.lab.core.drivers.probing.machine_probe import clock
from testbed.record.journal import KeptRecord
from testbed.record.record import (
    SIMULATED_CLOCK,
    Backend,
    EarlierSession,
    Environment,
    MachinePart,
    PointResult,
    Record,
    ScenarioAsRun,
)
from testbed.record.store import RECORD_FILE, keep_record
from testbed.run.machine.environment import collect_environment
from testbed.run.measuring.measured import TimeLimitReached
from testbed.run.schema.model import Scenario
from testbed.run.schema.written import scenario_as_run
from testbed.run.sweep.point_runs import PointOutcome, stamp
from testbed.run.sweep.points import Point, judgeable
from testbed.run.sweep.retries import LargerK, Retry, plan_retries, reasons_of, taking_over, tries_told
from testbed.run.sweep.verdict import decide_verdict, evaluate_expectations


class ScenarioStopped(ScenarioError):
    """A scenario failed on the way. `record` has what was measured until then, marked incomplete."""

    exit_code = ExitCode.INVALID

    def __init__(self, cause: TestbedError, record: Record) -> None:
        super().__init__(cause.message, hint=cause.hint)
        self.record = record
        self.trace = cause.trace


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Options of the record: what is in it, and where it goes.

    `directory` is where `record.json` goes; None writes nothing. `previous` is a record to go on with: points that it
    has whole are not run again. `prove_scale` runs everything once more at twice the time scale, which needs labs that
    can be brought up anew. `command` is what repeats the run, for the report.
    """

    directory: Path | None = None
    previous: Record | None = None
    prove_scale: bool = False
    command: tuple[str, ...] = ()

    def journal(self, points: Sequence[Point]) -> KeptRecord | None:
        """Return what keeps the record of these points on disk; None where nothing is written."""
        if self.directory is None:
            return None
        return keep_record(self.directory / RECORD_FILE, [point.name for point in points])


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """A sweep's outcome: its record, the name of the lab that is still deployed ("" for none), and why it stopped."""

    record: Record
    kept: str = ""
    failure: ScenarioStopped | None = None


@dataclass(frozen=True, slots=True)
class Try:
    """A point that is to be run, and what whoever watches is told of it."""

    point: Point
    message: str


class PointsRunner(Protocol):
    """A backend, as far as a sweep needs it."""

    @property
    def cut_short(self) -> str:
        """Return why points were left out after an interrupt; "" where none were."""

    @property
    def larger_k(self) -> LargerK | None:
        """Return what tells the larger k of a further try; None where points are not run again."""

    def outcomes(self, tries: Sequence[Try], interrupt: Interrupt) -> Iterator[PointOutcome]:
        """Run these points, and yield what came of each.

        The next ones are left out after one that failed or was interrupted, once its outcome was taken in.
        """


def run_points(so_far: SweepSoFar, runner: PointsRunner, interrupt: Interrupt, journal: KeptRecord | None) -> Record:
    """Run every point that is left, and those that came out invalid once more where `repeat.retries` say so.

    `journal` gets every point but the last as it is done. An interrupt returns a record whose `incomplete` says so.
    Raises `ScenarioStopped` (with the record) when a run fails or a lab breaks.
    """
    for outcome in runner.outcomes([Try(point, point.name) for point in so_far.left], interrupt):
        so_far.add(outcome)
        so_far.keep(outcome.point, journal)
    so_far.incomplete = so_far.incomplete or runner.cut_short
    larger_k = runner.larger_k
    while larger_k is not None and not so_far.incomplete and (again := so_far.to_retry(larger_k)):
        if journal is not None:
            journal.write(so_far.record("points of it are run again"))
        for retry in again:
            so_far.retry = retry
            try:
                for outcome in runner.outcomes([Try(retry.again, retry.announcement)], interrupt):
                    so_far.add(outcome)
            except TestbedError as error:  # the lab could not be brought up once more
                so_far.failure, so_far.incomplete = error, error.message
            if interrupt.requested and not so_far.incomplete:
                so_far.incomplete = "interrupted before all invalid points were run again"
            if so_far.incomplete:
                break
    record = so_far.record(so_far.incomplete)
    if so_far.failure is not None:
        raise ScenarioStopped(so_far.failure, record) from so_far.failure
    return record


def measure_and_keep(journal: KeptRecord | None, measure: Callable[[Interrupt], Record]) -> SweepOutcome:
    """Have a sweep measured, and keep its record on disk, also that of one which was stopped on the way."""
    failure: ScenarioStopped | None = None
    try:
        with Interrupt() as interrupt:
            record = measure(interrupt)
    except ScenarioStopped as stopped:
        record, failure = stopped.record, stopped
    if journal is not None:
        journal.write(record)
    return SweepOutcome(record=record, failure=failure)


class SweepSoFar:
    """The measurements so far. `command` repeats the sweep, and points that `previous` has whole are taken over.

    A record of the simulator has the time of its own clock, which begins in 1970: `started` and `finished` are the
    machine's all the same, and are written beside it (`record.store`).
    """

    def __init__(
        self,
        scenario: Scenario,
        points: Sequence[Point],
        previous: Record | None,
        command: Sequence[str],
        backend: Backend = Backend.EMULATION,
        environment: Environment | None = None,
    ) -> None:
        """`environment` is what this session runs on, where that is known, or is not this machine."""
        self.scenario = scenario
        self._backend = backend
        self.incomplete = ""
        self.failure: TestbedError | None = None
        self._points = points
        self._command = command
        self._begin = time.monotonic()
        self._started = datetime.now(UTC)
        self._environment = None if environment is None else self._of_backend(environment)
        self.machines: Sequence[MachinePart] = ()
        """The machines of a pool that have measured points, and which."""
        self._earlier_machines: list[MachinePart] = []
        self._earlier: list[EarlierSession] = []
        self._approximations: dict[str | None, list[str]] = {}
        """Approximations of each point; those that an earlier session told stand under None."""
        self._done: dict[str, PointResult] = {}
        self.retry: Retry | None = None
        """Why the point that is run now is run again; None in the first tries."""
        self._given_up: dict[str, str] = {}
        """The points whose further try took too long, and a sentence about it."""
        if previous is not None:
            self._take_over(previous)

    def _take_over(self, previous: Record) -> None:
        if identity(previous.scenario) != identity(scenario_as_run(self.scenario)):
            raise ScenarioError(
                "the results to go on with are those of another scenario or of other parameters",
                hint="run it anew, or with the file and the --set of the first time",
            )
        self._environment = self._environment or self._of_backend(collect_environment([]))
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
        self._earlier_machines = [
            replace(machine, points=[name for name in machine.points if name in self._done])
            for machine in previous.machines
        ]
        self._approximations[None] = previous.environment.approximations

    @property
    def left(self) -> list[Point]:
        """Return the points of which there is nothing."""
        return [point for point in self._points if point.name not in self._done]

    def _of_backend(self, environment: Environment) -> Environment:
        if self._backend is Backend.EMULATION:
            return environment
        return replace(environment, backend=self._backend, clock=SIMULATED_CLOCK)

    def to_retry(self, larger_k: LargerK) -> list[Retry]:
        """Return the points that are to be run again, after all have been run.

        Where time is counted in instructions, a point that has no other k would do the very same again.
        """
        open_points = [point for point in self._points if point.name not in self._given_up]
        found = plan_retries(open_points, self._done, self.scenario.expect, larger_k)
        return [retry for retry in found if retry.k is not None] if clock() == "virtual" else found

    def add(self, outcome: PointOutcome) -> None:
        """Take in what came of a point."""
        point = outcome.point
        ended = outcome.failure is None and not outcome.interrupted
        if self.retry is None:
            if outcome.result.runs:
                self._done[point.name] = outcome.result
            if _may_run_again(outcome):
                outcome.failure = None
        elif isinstance(outcome.failure, TimeLimitReached):
            outcome.failure = None
            said = f"{self.retry.announcement}: this try met its time limit and does not count"
            self._given_up[point.name] = said
            if not reasons_of(self._done[point.name]):
                self.incomplete = said  # it was run again for the comparison, which needs both at one k
        elif ended:  # of a try that did not end the one before it is kept
            self._done[point.name] = taking_over(outcome.result, self._done[point.name], self.retry.why)
        self._approximations.setdefault(point.name, []).extend(outcome.approximations)
        at = f" of point {point.index} ({point.name})" if point.name else ""
        if outcome.failure is not None:
            self.failure, self.incomplete = outcome.failure, outcome.failure.message
        elif outcome.interrupted:
            self.incomplete = f"interrupted in run {len(outcome.result.runs)}{at} of {self.scenario.repeat.runs}"

    def keep(self, point: Point, journal: KeptRecord | None) -> None:
        """Have a point on disk that has been run, while others are."""
        if journal is not None and point.name in self._done and self.left and not self.incomplete:
            journal.add(self._done[point.name], lambda: self.record("it is still running"))

    def record(self, incomplete: str) -> Record:
        results = [self._done[point.name] for point in self._points if point.name in self._done]
        expectations = evaluate_expectations(judgeable(self.scenario.expect, self._points), results)
        environment, earlier = self._ran_on()
        measured_by = _once_each((*self._earlier_machines, *self.machines))
        # In the order of the points, whichever of them ended first.
        order = (None, *(point.name for point in self._points))
        said = chain.from_iterable(self._approximations.get(name, []) for name in order)
        return Record(
            scenario=scenario_as_run(self.scenario),
            environment=replace(environment, approximations=list(dict.fromkeys(said))),
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
            machines=measured_by if len(measured_by) > 1 else [],
            comparability=comparability(scenario_as_run(self.scenario), results, environment),
        )

    def _ran_on(self) -> tuple[Environment, list[EarlierSession]]:
        """Return what this session runs on, and the sessions before it.

        One that has measured nothing so far is none.
        """
        if self._environment is None:
            self._environment = self._of_backend(collect_environment([]))
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


def _once_each(machines: Iterable[MachinePart]) -> list[MachinePart]:
    """Return the machines that have measured something; one that did so in several sessions, and was the same, once."""
    found: list[MachinePart] = []
    for machine in machines:
        if not machine.points:
            continue
        same = [place for place, one in enumerate(found) if replace(machine, points=one.points) == one]
        for place in same:
            found[place] = replace(machine, points=list(dict.fromkeys([*found[place].points, *machine.points])))
        if not same:
            found.append(replace(machine, points=list(machine.points)))
    return found


def _may_run_again(outcome: PointOutcome) -> bool:
    """Tell whether a run that reached its time limit did so on a machine that did not keep up, and may be repeated."""
    runs = outcome.result.runs
    overrun = any(not check.ok for run in runs for check in run.checks)
    return isinstance(outcome.failure, TimeLimitReached) and overrun and outcome.point.scenario.repeat.retries > 0


def identity(scenario: ScenarioAsRun) -> tuple[Any, ...]:
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


def comparability(as_run: ScenarioAsRun, points: Sequence[PointResult], environment: Environment) -> dict[str, Any]:
    """Return what two records must share for their figures to be compared; another seed is a repetition of the same."""
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
