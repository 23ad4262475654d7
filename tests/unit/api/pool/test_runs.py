"""Simulated runs on machines that are not there: records are the same, and whatever dies costs its own run alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_crew import FakeCrew

from testbed.api.pool.answers import RunAnswer, SeatAnswer, ToldError, encode_answer
from testbed.api.pool.crew import JobNews, MachineLost
from testbed.api.pool.parcel import SweepOrder
from testbed.api.pool.runs import PooledRuns
from testbed.api.pool.seat import simulate
from testbed.base.interrupt import Interrupt
from testbed.record.record import Outcome, Record
from testbed.record.store import encode_record, without_session
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.simulated.processes import Job
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.runner import RecordOptions, SweepOutcome
from testbed.run.sweeps import read_sweep

pytestmark = pytest.mark.process

SMALL = """name: small
topology:
  inline: {name: small, fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}}
transport: {kind: uet}
workload: {kind: permutation, bytes: 100kB}
repeat: {runs: 2, seed: 3}
matrix: {transport.paths: [oblivious, reps]}
expect: [{metric: jct, min: 0, source: a guess}]
"""
ORDER = SweepOrder(parcel="none", file="/small.yml")


def done(key: str, machine: str, request: Mapping[str, Any], text: str = SMALL) -> Sequence[JobNews]:
    """What a machine tells of a job that it does."""
    sweep = read_sweep(text)
    point = sweep.points[request["point"] - 1]
    answer = simulate(SimulatedPoint(point, sweep.lab_of(point)), request["run"], lambda share: False)
    told = [JobNews(key=key, began=machine), JobNews(key=key, share=0.5)]
    return [*told, JobNews(key=key, answer=encode_answer(answer)), JobNews(key=key, ended=True)]


def pooled(crew: FakeCrew, text: str = SMALL, directory: Path | None = None) -> SweepOutcome:
    return run_simulated(
        read_sweep(text),
        RecordOptions(command=("testbed", "run"), directory=directory),
        runner_of=lambda points, on_share: PooledRuns(crew, ORDER, points, on_share),
    )


def content(record: Record) -> bytes:
    return encode_record(without_session(record))


def here() -> Record:
    return run_simulated(read_sweep(SMALL), RecordOptions(command=("testbed", "run")), processes=1).record


def test_the_record_is_the_one_that_this_machine_makes() -> None:
    crew = FakeCrew(["a", "b"], done)
    record = pooled(crew).record
    assert content(record) == content(here())
    assert [machine for machine, _ in crew.submitted] == ["a", "b", "a", "b"]
    assert {part.name: part.points for part in record.machines} == {
        "a": ["paths=oblivious", "paths=reps"],
        "b": ["paths=oblivious", "paths=reps"],
    }


class Failing:
    """Replies of machines where the first tries of one run fail, in some way."""

    def __init__(self, how: Callable[[str, str], Sequence[JobNews | MachineLost]], times: int) -> None:
        self.how, self.left = how, times

    def __call__(self, key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if (request["point"], request["run"]) == (1, 2) and self.left:
            self.left -= 1
            return [JobNews(key=key, began=machine), *self.how(key, machine)]
        return done(key, machine, request)


def killed(key: str, machine: str) -> Sequence[JobNews]:
    return [JobNews(key=key, answer=encode_answer(SeatAnswer(died=-9))), JobNews(key=key, ended=True)]


def given_up(key: str, machine: str) -> Sequence[JobNews]:
    again = [JobNews(key=key, began="b")]
    return [*again, JobNews(key=key, ended=True, why="KilledWorker", given_up=True)]


def test_a_process_that_is_killed_once_costs_no_more_than_its_run() -> None:
    crew = FakeCrew(["a", "b"], Failing(killed, 1))
    assert content(pooled(crew).record) == content(here())
    assert len(crew.submitted) == 5


def broken(key: str, machine: str) -> Sequence[JobNews]:
    return [JobNews(key=key, ended=True, why="ValueError: no JSON")]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (broken, "there was no answer 2 times (ValueError: no JSON) on b and a"),
        (killed, "its process was ended 2 times by SIGKILL; is there memory enough? on b and a"),
        (given_up, "its worker died 2 times on b and a; is there memory enough?"),
    ],
)
def test_a_run_that_dies_twice_is_invalid_and_the_sweep_goes_on(how: Any, message: str) -> None:
    record = pooled(FakeCrew(["a", "b"], Failing(how, 2))).record
    assert record.incomplete == "" and record.verdict.outcome is Outcome.INVALID
    assert record.verdict.reasons[0] == f"paths=oblivious, run 2: {message}"
    assert [len(point.runs) for point in record.points] == [2, 2]


def lost_with_its_machine(key: str, machine: str) -> Sequence[JobNews | MachineLost]:
    """Both workers of a machine die, which the scheduler tells before it is known that the machine is gone."""
    again = [JobNews(key=key, began=machine), JobNews(key=key, ended=True, why="KilledWorker", given_up=True)]
    return [*again, MachineLost(name=machine, why="cut off")]


def test_a_machine_that_is_lost_has_died_once_however_many_of_its_workers_had_a_run() -> None:
    crew = FakeCrew(["a", "b"], Failing(lost_with_its_machine, 1))
    assert content(pooled(crew).record) == content(here())


def test_workers_of_a_machine_have_died_once_though_it_is_heard_late_that_it_is_lost() -> None:
    crew = FakeCrew(["a", "b"], Failing(given_up, 1))
    assert content(pooled(crew).record) == content(here())


def test_workers_of_a_machine_have_died_once_though_a_run_has_begun_on_none_of_them() -> None:
    """The scheduler gives runs to workers that it does not know to be dead yet."""
    died: list[str] = []

    def waited(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if died:
            return done(key, machine, request)
        died.append(machine)
        ended = JobNews(key=key, ended=True, why="KilledWorker", given_up=True)
        return [ended, MachineLost(name=machine, why="killed")]

    crew = FakeCrew(["a", "b"], waited)
    assert content(pooled(crew).record) == content(here())


def test_an_answer_that_comes_twice_counts_once_and_must_be_the_same() -> None:
    def twice(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews]:
        told = done(key, machine, request)
        return [*told[:3], *told[2:]]

    assert content(pooled(FakeCrew(["a"], twice)).record) == content(here())

    def differently(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews]:
        told = done(key, machine, request)
        other = JobNews(key=key, answer=encode_answer(RunAnswer(interrupted=True)))
        return [*told[:3], other, *told[3:]]

    with pytest.raises(Exception, match="came twice, and differently"):
        pooled(FakeCrew(["a"], differently))


def test_what_a_run_raises_ends_all() -> None:
    def raising(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews]:
        return [JobNews(key=key, answer=encode_answer(SeatAnswer(raised=ToldError(message="it broke", hint="mend"))))]

    with pytest.raises(Exception, match="it broke"):
        pooled(FakeCrew(["a"], raising))


def test_an_answer_that_is_none_is_refused_with_the_name_of_its_machine() -> None:
    def lying(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews]:
        return [JobNews(key=key, began=machine), JobNews(key=key, answer=b'{"result": {"index": "many"}}')]

    with pytest.raises(Exception, match="a gives no answer that can be read: result"):
        pooled(FakeCrew(["a"], lying))


def test_an_answer_that_says_nothing_is_no_run_and_what_goes_on_is_given_up() -> None:
    def empty(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews]:
        return [JobNews(key=key, began=machine), JobNews(key=key, answer=b"{}")]

    crew = FakeCrew(["a", "b"], empty)
    with pytest.raises(Exception, match="a has measured nothing in run 1 of point 1"):
        pooled(crew)
    assert crew.forgotten == ["job-2"]


class Comers(FakeCrew):
    """Machines whose workers come one after the other, each when it has been looked for some times."""

    def __init__(self, names: Sequence[str], reply: Any) -> None:
        super().__init__(names, reply)
        self.looked = self.held = 0
        self.seen: list[tuple[int, int]] = []
        """The workers that were there, and the jobs that they had, when each further job was given."""

    def workers(self) -> int:
        self.looked += 1
        return min(super().workers(), self.looked // 3)

    def submit(self, request: Mapping[str, Any], machine: str = "") -> str:
        self.seen.append((min(super().workers(), self.looked // 3), self.held))
        self.held += 1
        return super().submit(request, machine)

    def news(self, timeout_s: float) -> JobNews | MachineLost | None:
        news = super().news(timeout_s)
        self.held -= isinstance(news, JobNews) and news.ended
        return news


def test_workers_that_are_there_have_a_job_and_the_next_one_until_few_are_left() -> None:
    """A scheduler gives all jobs that wait for a worker to the first one that comes."""
    long = SMALL.replace("runs: 2", "runs: 4")
    crew = Comers(["a"], partial(done, text=long))
    assert pooled(crew, long).record.incomplete == ""
    assert crew.seen == [(1, 0), *[(1, 1)] * 5, (1, 0), (1, 0)]
    crew = Comers(["a", "b"], done)
    assert content(pooled(crew).record) == content(here())
    assert crew.seen == [(1, 0), (2, 1), (2, 1), (2, 1)]


def test_after_a_run_that_fails_none_begins_that_waits_for_a_worker() -> None:
    def failing(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews]:
        if request["run"] > 1:
            return []
        answer = encode_answer(RunAnswer(failure=ToldError(message="it broke")))
        return [JobNews(key=key, began=machine), JobNews(key=key, answer=answer), JobNews(key=key, ended=True)]

    crew = FakeCrew(["a"], failing)
    outcome = pooled(crew)
    assert outcome.failure is not None and outcome.failure.message == "it broke"
    assert (len(crew.submitted), crew.forgotten) == (2, ["job-2"])


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {"share": 0.5},
        {"key": 7, "share": 0.5},
        {"key": "job-1"},
        {"key": "job-1", "share": "half"},
        {"key": "job-1", "share": 2},
        {"key": "job-1", "share": float("nan")},
        {"key": "job-1", "answer": "{}"},
        {"key": "job-1", "began": 1},
    ],
)
def test_what_is_no_news_of_a_job_is_not_heard(told: object) -> None:
    assert JobNews.told(told) is None


def test_news_of_a_job_are_heard() -> None:
    assert JobNews.told({"key": "job-1", "began": "a"}) == JobNews(key="job-1", began="a")
    assert JobNews.told({"key": "job-1", "share": 1}) == JobNews(key="job-1", share=1.0)
    assert JobNews.told({"key": "job-1", "answer": b"{}"}) == JobNews(key="job-1", answer=b"{}")


def test_when_no_machine_is_left_the_record_keeps_what_there_is(tmp_path: Path) -> None:
    def dying(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["point"] == 1:
            return done(key, machine, request)
        return [JobNews(key=key, began=machine), MachineLost(name=machine, why="the connection broke")]

    outcome = pooled(FakeCrew(["a"], dying), directory=tmp_path)
    assert outcome.failure is not None and "no machine of the pool is left" in outcome.record.incomplete
    assert [point.name for point in outcome.record.points] == ["paths=oblivious"]


def test_an_interrupt_ends_what_the_machines_do() -> None:
    crew = FakeCrew(["a"], lambda key, machine, request: [JobNews(key=key, began=machine)])
    sweep = read_sweep(SMALL)
    points = {point.index: SimulatedPoint(point, sweep.lab_of(point)) for point in sweep.points}
    runner = PooledRuns(crew, ORDER, points.__getitem__, lambda job, share: None)
    with Interrupt() as interrupt:
        interrupt.request()
        assert list(runner.run([Job(point=1, run=1)], interrupt)) == []
    assert crew.halted and not crew.submitted
