"""Simulated runs on the machines of a pool: each run is a job of its own, and its result comes back as JSON."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from testbed.api.pool.answers import RunAnswer, decode_answer
from testbed.api.pool.crew import Crew, JobNews, PoolLost
from testbed.api.pool.machines import named
from testbed.api.pool.parcel import SweepOrder
from testbed.base.errors import ScenarioError
from testbed.base.interrupt import Interrupt
from testbed.record.record import MachinePart
from testbed.run.simulated.processes import LOOK_S, TRIES, Job, OnShare, PointOf, how_it_died
from testbed.run.sweep.point_runs import RunOutcome

_WORKER_DIED = f"its worker died {TRIES} times"
_MEMORY = "; is there memory enough?"
DOUBT_S = 2.0
"""For so long a run whose workers died is not begun again: its machine may be lost, of which the news takes another
way."""


class PooledRuns:
    """Runs simulated jobs on machines (`JobRunner`). `order` is the sweep as the machines read it.

    The run of a process or a worker that dies is done once more, and lost when that dies, too; the workers of a machine
    have died once, however many of them had it, whether it began there or waited: the news that the machine is lost may
    be late. A run that comes twice,
    as from a machine whose connection was cut, counts once.
    """

    def __init__(self, crew: Crew, order: SweepOrder, points: PointOf, on_share: OnShare) -> None:
        self._crew = crew
        self._order = asdict(order)
        self._points = points
        self._on_share = on_share
        self._going: dict[str, Job] = {}
        self._held: set[str] = set()
        """The keys of the jobs that workers have: their end comes after their answer."""
        self._waiting: deque[Job] = deque()
        self._died: Counter[Job] = Counter()
        self._places: defaultdict[Job, list[str]] = defaultdict(list)
        """The machines that have begun each job."""
        self._doubted: dict[Job, float] = {}
        """Runs whose workers died on one machine, and until when (CLOCK_MONOTONIC) it may prove to be lost."""
        self._answers: dict[str, tuple[Job, str]] = {}
        """The digest of the answer that counts, by the job's key."""

    @property
    def machines(self) -> Sequence[MachinePart]:
        """Return the machines, with the points that each has had a run of."""
        return self._crew.parts

    def run(self, jobs: Sequence[Job], interrupt: Interrupt) -> Iterator[tuple[Job, RunOutcome]]:
        """Do all jobs, as many at once as there are seats."""
        self._waiting.extend(jobs)
        try:
            yield from self._run(interrupt)
        except (Exception, GeneratorExit):
            self._forget(list(self._going))
            raise

    def _run(self, interrupt: Interrupt) -> Iterator[tuple[Job, RunOutcome]]:
        while (self._waiting or self._going or self._doubted) and not interrupt.requested:
            try:
                seats = self._crew.seats()
            except PoolLost as error:
                yield (
                    next(iter((*self._going.values(), *self._waiting, *self._doubted))),
                    RunOutcome(result=None, failure=error),
                )
                return
            workers = self._crew.workers()
            while self._waiting and len(self._held) < workers + self._ahead(workers, seats):
                self._submit(self._waiting.popleft())
            news = self._crew.news(LOOK_S)
            for job, outcome in (*self._settled(), *(self._heard(news) if isinstance(news, JobNews) else ())):
                yield job, outcome
                if not outcome.goes_on:
                    self._waiting.clear()
                    self._forget([key for key, job in self._going.items() if not self._places.get(job)])
        if interrupt.requested:
            self._crew.halt()

    def _ahead(self, workers: int, seats: int) -> int:
        """Return how many jobs are to wait for workers that have one, so that these go on at once: none before all
        workers are there, and none when few are left, which go to whoever is free first."""
        return workers if workers >= seats and len(self._waiting) > 2 * seats else 0

    def _forget(self, keys: Sequence[str]) -> None:
        """Give up jobs that nobody waits for any more: the pool may have another sweep."""
        for key in keys:
            self._crew.forget(key)
            del self._going[key]
            self._held.discard(key)

    def _submit(self, job: Job) -> None:
        request = {"what": "simulate", "order": self._order, "point": job.point, "run": job.run}
        key = self._crew.submit(request)
        self._going[key] = job
        self._held.add(key)

    def _heard(self, news: JobNews) -> Iterator[tuple[Job, RunOutcome]]:
        """Take in what is told of a job, and yield its outcome where that is known now."""
        if news.ended:
            self._held.discard(news.key)
        if news.answer is not None and news.key in self._answers:
            self._compare(news)
            return
        job = self._going.get(news.key)
        if job is None:
            return
        if news.began:
            self._places[job].append(news.began)
        elif news.share is not None:
            self._on_share(job, news.share)
        elif news.answer is not None:
            del self._going[news.key]
            self._answers[news.key] = job, _digest(news.answer)
            yield from self._answered(job, news.answer)
        elif news.ended:
            del self._going[news.key]
            if news.given_up and len(set(self._places[job])) <= 1:
                self._doubted[job] = time.monotonic() + DOUBT_S
            elif news.given_up:
                yield from self._lost(job)
            elif news.why:
                yield from self._dead(job, f"there was no answer {TRIES} times ({news.why})")
            else:
                yield from self._dead(job, _WORKER_DIED, _MEMORY)

    def _settled(self) -> Iterator[tuple[Job, RunOutcome]]:
        """Have runs done once more whose machine is lost, or has not been heard to be: such news may be late."""
        there = self._crew.machines() if self._doubted else {}
        for job, until in list(self._doubted.items()):
            if not set(self._places[job]) & there.keys() or time.monotonic() > until:
                del self._doubted[job]
                yield from self._dead(job, _WORKER_DIED, _MEMORY)

    def _lost(self, job: Job) -> Iterator[tuple[Job, RunOutcome]]:
        self._died[job] = TRIES
        return self._dead(job, _WORKER_DIED, _MEMORY)

    def _answered(self, job: Job, content: bytes) -> Iterator[tuple[Job, RunOutcome]]:
        where = self._places[job][-1] if self._places[job] else "a machine"
        answer = decode_answer(RunAnswer, content, where)
        if answer.raised is not None:
            raise answer.raised.error()
        if answer.died is not None:
            yield from self._dead(job, how_it_died(answer.died))
            return
        if answer.result is not None and answer.result.index != job.run:
            raise ScenarioError(f"{where} answers with run {answer.result.index} where run {job.run} was asked for")
        if answer.result is None and answer.failure is None and not answer.interrupted:
            raise ScenarioError(f"{where} has measured nothing in run {job.run} of point {job.point}")
        self._crew.did(where, self._points(job.point).point.name)
        failure = None if answer.failure is None else answer.failure.error()
        yield job, RunOutcome(result=answer.result, failure=failure, interrupted=answer.interrupted)

    def _dead(self, job: Job, how: str, doubt: str = "") -> Iterator[tuple[Job, RunOutcome]]:
        """Have a job done once more, after all others; yield that it is lost where that was its last try."""
        self._died[job] += 1
        if self._died[job] < TRIES:
            self._waiting.append(job)
            return
        places = f" on {named(self._places[job])}" if self._places[job] else ""
        yield job, self._points(job.point).lost(job.run, f"{how}{places}{doubt}")

    def _compare(self, news: JobNews) -> None:
        """Refuse a second answer that differs from the first. Raises `ScenarioError`."""
        job, digest = self._answers[news.key]
        if news.answer is not None and _digest(news.answer) != digest:
            raise ScenarioError(
                f"run {job.run} of point {job.point} came twice, and differently, from {named(self._places[job])}",
                hint="a simulation is the same everywhere: one of these machines does not compute as it should",
            )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
