"""Emulated points on the machines of a pool: each machine has one lab at a time, and tries one point after the other.

All machines are asked which time scale they would choose for the labs whose scale is `auto`; the largest counts for
all.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from testbed.api.pool.about import kinds_of
from testbed.api.pool.answers import ScalesAnswer, ScaleTold, ToldError, TryAnswer, decode_answer
from testbed.api.pool.crew import Crew, JobNews, MachineLost, PoolLost
from testbed.api.pool.machines import named
from testbed.api.pool.parcel import SweepOrder
from testbed.api.pool.placing import allowed_machines, next_point
from testbed.base.errors import ScenarioError, TestbedError
from testbed.base.interrupt import Interrupt
from testbed.lab.core.deploy.lifecycle import DEFAULT_TIMEOUT_S
from testbed.lab.core.plan.lab import plan_lab
from testbed.record.port_samples import DIRECTORY as SAMPLES
from testbed.record.record import MachinePart, Record
from testbed.record.store import write_result
from testbed.run.emulated.sweep import EmulatedPoints
from testbed.run.measuring.measured import TimeLimitReached
from testbed.run.placed.lab import PlannedLab
from testbed.run.schema.model import TopologyRef
from testbed.run.sweep.beside_record import keep_labs
from testbed.run.sweep.point_runs import PointOutcome, PointRuns, stamp
from testbed.run.sweep.points import SCALE_KEY, Point, Sweep, topology_key
from testbed.run.sweep.progress import Phase, Progress, ProgressListener
from testbed.run.sweep.published import PublishedRun
from testbed.run.sweep.runner import RecordOptions, SweepOutcome, SweepSoFar, Try, measure_and_keep, run_points

LOOK_S = 0.2
TRIES = 2
"""The number of tries of a point whose machine is lost."""
_SAME_K = 1e-6
"""The relative difference below which two time scales are the same."""
_SAMPLE = re.compile(r"[0-9a-f]{12}-[0-9]{1,6}\.npz")


class TimeLimitReachedThere(TimeLimitReached):
    """A run on another machine met its time limit."""

    def __init__(self, told: ToldError) -> None:
        ScenarioError.__init__(self, told.message, hint=told.hint)
        self.trace = told.trace


def run_on_labs_of(
    crew: Crew,
    order: SweepOrder,
    sweep: Sweep,
    options: RecordOptions,
    on_progress: ProgressListener,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> SweepOutcome:
    """Run every point on labs of these machines, and judge the whole. `order` is the sweep as the machines read it.

    Routing of each lab has `timeout_s` of wall-clock time to converge.

    The outcome has the record; what stopped the scenario on the way is its `failure`. Raises `TestbedError` before
    anything was measured.
    """
    journal = options.journal(sweep.points)
    with PublishedRun(sweep, options.directory, on_progress) as told:

        def measure(interrupt: Interrupt) -> Record:
            tries = PooledTries(crew, order, sweep, told, options.directory, timeout_s=timeout_s)
            tries.ask_scales(interrupt)
            crew.seats()  # there is a machine
            about = next(iter(crew.machines().values()))
            so_far = SweepSoFar(
                sweep.scenario, sweep.points, options.previous, options.command, environment=about.environment
            )
            so_far.machines = tries.machines
            points = EmulatedPoints(tries, len(sweep.points), tries.larger_k)
            return run_points(so_far, points, interrupt, journal)

        return measure_and_keep(journal, measure)


@dataclass(frozen=True, slots=True)
class _Going:
    """A try that is under way on a machine."""

    one: Try
    machine: str


class PooledTries:
    """Tries points on labs of machines (`JobRunner`).

    A point whose machine is lost is tried once more, on another, and is invalid when that is lost, too.
    """

    def __init__(
        self,
        crew: Crew,
        order: SweepOrder,
        sweep: Sweep,
        on_progress: ProgressListener,
        directory: Path | None,
        *,
        timeout_s: float,
    ) -> None:
        self._crew = crew
        self._order = asdict(order)
        self._sweep = sweep
        self._on_progress = on_progress
        self._directory = directory
        self._timeout_s = timeout_s
        self._scales: dict[int, ScaleTold] = {}
        """By point whose lab's scale is chosen, the largest k that a machine asks for, and the smallest of the
        largest that they allow."""
        self._k = 0.0
        self._allowed = allowed_machines(sweep.points, sweep.scenario.expect, kinds_of(crew.machines()))
        self._up: dict[str, str] = {}
        self._going: dict[str, _Going] = {}
        self._lost_on: defaultdict[int, list[str]] = defaultdict(list)
        self._died: Counter[int] = Counter()

    @property
    def machines(self) -> Sequence[MachinePart]:
        """Return the machines, with the points that each has measured."""
        return self._crew.parts

    def ask_scales(self, interrupt: Interrupt) -> None:
        """Ask every machine for the k of the labs whose scale is chosen. The largest is that of all points, so that
        they compare. Raises `TestbedError` where a machine cannot tell.
        """
        if not self._chosen():
            return
        asked = {
            self._crew.submit({"what": "scales", "order": self._order}, name): name for name in self._crew.machines()
        }
        while asked and not interrupt.requested:
            self._crew.seats()
            news = self._crew.news(LOOK_S)
            if isinstance(news, MachineLost):
                asked = {key: name for key, name in asked.items() if name != news.name}
            elif news is not None and news.key in asked and (news.answer is not None or news.ended):
                self._take_scales(asked.pop(news.key), news)

    def _chosen(self) -> list[int]:
        """Return the numbers of the points whose lab's scale is chosen."""
        return [point.index for point in self._sweep.points if self._sweep.lab_of(point).scale.time is None]

    def _take_scales(self, machine: str, news: JobNews) -> None:
        if news.answer is None:
            raise ScenarioError(f"{machine} does not tell its time scale: {news.why}")
        answer = decode_answer(ScalesAnswer, news.answer, machine)
        if answer.raised is not None:
            raise answer.raised.error(machine)
        if answer.died is not None:
            raise ScenarioError(f"{machine} does not tell its time scale: its process ended with {answer.died}")
        if missing := {str(number) for number in self._chosen()} - answer.scales.keys():
            raise ScenarioError(f"{machine} does not tell the time scales of {len(missing)} points")
        for number, told in answer.scales.items():
            if not number.isdecimal():
                raise ScenarioError(f"{machine} tells the time scale of a point that there is not: {number!r}")
            before = self._scales.get(int(number), told)
            largest = min(before.largest, told.largest)
            self._scales[int(number)] = ScaleTold(k=max(before.k, told.k), largest=largest)
        self._k = max((one.k for one in self._scales.values()), default=0.0)

    def larger_k(self, topology: TopologyRef, k: float) -> float | None:
        """Return `k`, or the largest that every machine allows; None where the lab's scale is not chosen."""
        key = topology_key(topology)
        told = next(
            (self._scales.get(point.index) for point in self._sweep.points if topology_key(point.topology) == key), None
        )
        if told is None:
            return None
        most = min(k, told.largest)
        return most if most > self._k else None

    # --- trying ------------------------------------------------------------------------------------------

    def run(self, jobs: Sequence[Try], interrupt: Interrupt) -> Iterator[tuple[Try, PointOutcome]]:
        """Try all points, one at a time on each machine."""
        waiting = list(jobs)
        try:
            while (waiting or self._going) and not interrupt.requested:
                try:
                    self._crew.seats()
                except PoolLost as error:
                    one = next((going.one for going in self._going.values()), None) or waiting[0]
                    yield one, replace(self._planned(one.point).outcome([], []), failure=error)
                    return
                self._give(waiting)
                yield from self._without_machine(waiting)
                news = self._crew.news(LOOK_S)
                if isinstance(news, MachineLost):
                    yield from self._lost(waiting, news.name)
                elif news is not None and news.key in self._going:
                    yield from self._heard(waiting, news)
            if interrupt.requested:
                self._crew.halt()
        finally:
            for key in self._going:
                self._crew.forget(key)
            self._going.clear()

    def _give(self, waiting: list[Try]) -> None:
        """Give each machine that has nothing to do a point."""
        busy = {going.machine for going in self._going.values()}
        for machine in self._crew.machines():
            if machine in busy:
                continue
            point = next_point(machine, [one.point for one in waiting], self._allowed, self._up)
            if point is None:
                continue
            one = next(one for one in waiting if one.point is point)
            waiting.remove(one)
            request = {
                "what": "emulate",
                "order": self._order,
                "point": point.index,
                "k": self._far_k(point),
                "timeout_s": self._timeout_s,
            }
            self._going[self._crew.submit(request, machine)] = _Going(one, machine)
            self._up[machine] = topology_key(point.topology)
            self._tell(one, Phase.LAB, 0, 0, f"{one.message} on {machine}")

    def _far_k(self, point: Point) -> float | None:
        """Return the time scale that a machine is told; None where the file says it."""
        if point.index not in self._scales:
            return None
        own = point.overrides.get(SCALE_KEY)
        return float(own) if isinstance(own, int | float) else self._k

    def _heard(self, waiting: list[Try], news: JobNews) -> Iterator[tuple[Try, PointOutcome]]:
        going = self._going[news.key]
        if news.share is not None:
            self._tell(going.one, Phase.TRAFFIC, news.share, 1.0, "")
        elif news.answer is not None:
            del self._going[news.key]
            answer = decode_answer(TryAnswer, news.answer, going.machine)
            if answer.died is not None:
                yield from self._failed(waiting, going, f"its process ended with {answer.died}")
                return
            outcome = self._outcome(going, answer)
            self._crew.did(going.machine, going.one.point.name)
            runs = len(outcome.result.runs)
            self._tell(going.one, Phase.RUN, runs, runs, "")
            yield going.one, outcome
        elif news.ended:
            del self._going[news.key]
            if news.given_up:
                self._died[going.one.point.index] = TRIES
            broken = f"there was no answer ({news.why})" if news.why and not news.given_up else ""
            yield from self._failed(waiting, going, broken or "its worker died; is there memory enough?")

    def _outcome(self, going: _Going, answer: TryAnswer) -> PointOutcome:
        """Return what a machine says of a point. Raises what it raised there."""
        point = going.one.point
        if answer.raised is not None:
            raise answer.raised.error(going.machine)
        failure: TestbedError | None = None
        if answer.failure is not None:
            failure = answer.failure.error(going.machine)
            failure = TimeLimitReachedThere(answer.failure) if answer.out_of_time else failure
        if answer.result is None:
            raise failure or ScenarioError(f"{going.machine} has measured nothing of {point.name or 'the point'}")
        result = answer.result
        if result.name != point.name:
            raise ScenarioError(
                f"{going.machine} answers with the point {result.name!r} where {point.name!r} was asked"
            )
        if failure is None and not answer.interrupted and len(result.runs) != point.scenario.repeat.runs:
            raise ScenarioError(
                f"{going.machine} answers with {len(result.runs)} runs of {point.name or 'the point'},"
                f" which has {point.scenario.repeat.runs}"
            )
        wanted = self._far_k(point) or self._sweep.lab_of(point).scale.time
        if wanted is not None and not math.isclose(result.lab.k, wanted, rel_tol=_SAME_K):
            raise ScenarioError(
                f"{going.machine} has measured {point.name or 'the point'} at a time scale of {result.lab.k:g}, and"
                f" {wanted:g} is that of the others",
                hint=f"is a lab of that name up there? testbed --on ssh://{going.machine} destroy removes it",
            )
        if point.index in self._scales:
            result = replace(result, lab=replace(result.lab, k_auto=True))
        self._keep(point, answer)
        for said in answer.warnings:
            self._crew.warn(f"{going.machine}: {said}")
        return PointOutcome(
            point=point,
            result=result,
            failure=failure,
            interrupted=answer.interrupted,
            approximations=answer.approximations,
        )

    def _keep(self, point: Point, answer: TryAnswer) -> None:
        """Keep beside the record by what a run is played back: the lab, and samples of its ports."""
        if self._directory is None:
            return
        keep_labs(self._directory, [self._planned(point).whole.model])
        (self._directory / SAMPLES).mkdir(exist_ok=True)
        for name, content in answer.samples.items():
            if _SAMPLE.fullmatch(name):
                with suppress(binascii.Error):
                    write_result(base64.b64decode(content, validate=True), self._directory / SAMPLES / name)

    # --- machines that are lost --------------------------------------------------------------------------

    def _lost(self, waiting: list[Try], machine: str) -> Iterator[tuple[Try, PointOutcome]]:
        """Have what a machine was doing done elsewhere."""
        self._up.pop(machine, None)
        for key, going in list(self._going.items()):
            if going.machine == machine:
                del self._going[key]
                self._crew.forget(key)
                yield from self._failed(waiting, going, "its machine was lost")

    def _failed(self, waiting: list[Try], going: _Going, how: str) -> Iterator[tuple[Try, PointOutcome]]:
        """Have a point tried once more; yield that it is invalid where that was its last try."""
        number = going.one.point.index
        self._died[number] += 1
        self._lost_on[number].append(going.machine)
        if self._died[number] < TRIES:
            waiting.append(going.one)
            return
        why = f"{how}, {self._died[number]} times, on {named(self._lost_on[number])}"
        yield going.one, self._invalid(going.one.point, why)

    def _without_machine(self, waiting: list[Try]) -> Iterator[tuple[Try, PointOutcome]]:
        """Yield the points that no machine is left for: those of their kind have gone."""
        left = set(self._crew.machines())
        for one in [one for one in waiting if not left & self._allowed[one.point.index]]:
            waiting.remove(one)
            gone = named(sorted(self._allowed[one.point.index]))
            why = f"no machine is left of the kind that it is compared on: {gone}"
            yield one, self._invalid(one.point, why)

    def _invalid(self, point: Point, why: str) -> PointOutcome:
        planned = self._planned(point)
        return planned.outcome([planned.lost(1, why, started=stamp(datetime.now(UTC)))], [])

    def _planned(self, point: Point) -> PointRuns:
        """Return a point on its lab as it would be there."""
        k = self._far_k(point)
        topology = point.topology
        if k is not None:
            topology = replace(topology, set={**topology.set, SCALE_KEY: k})
        model = self._sweep.reader.load_topology(topology)
        return PointRuns(point, PlannedLab(model=model, plan=plan_lab(model, k=k or model.scale.time or 1.0)))

    def _tell(self, one: Try, phase: Phase, done: float, total: float, message: str) -> None:
        runs = one.point.scenario.repeat.runs
        self._on_progress(
            Progress(
                phase=phase,
                run=max(1, min(runs, 1 + int(done * runs))) if phase is Phase.TRAFFIC else runs,
                runs=runs,
                done=done,
                total=total,
                point=one.point.index,
                points=len(self._sweep.points),
                message=message,
            )
        )
