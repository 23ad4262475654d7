"""Emulated points on machines that are not there: one k for all, lost machines, and what is refused of answers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_crew import FakeCrew

from testbed.api.pool.answers import ScalesAnswer, ScaleTold, ToldError, TryAnswer, encode_answer
from testbed.api.pool.crew import JobNews, MachineLost
from testbed.api.pool.emulating import at_scale
from testbed.api.pool.labs import run_on_labs_of
from testbed.api.pool.parcel import SweepOrder
from testbed.record.record import Check, Outcome, PointResult
from testbed.record.store import load_record
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.sweep.points import SCALE_KEY, Sweep
from testbed.run.sweep.progress import ignore_progress
from testbed.run.sweep.runner import RecordOptions, SweepOutcome
from testbed.run.sweeps import read_sweep

pytestmark = pytest.mark.process

TEXT = """name: small
topology:
  inline: {name: small, fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}}
transport: {kind: uet}
workload: {kind: permutation, bytes: 100kB}
repeat: {runs: 1, seed: 3}
matrix: {transport.paths: [oblivious, reps, single]}
expect: [{metric: jct, min: 0, source: a guess}]
"""
ORDER = SweepOrder(parcel="none", file="/small.yml")
K = {"a": 1000.0, "b": 3000.0}


def result(request: Mapping[str, Any], text: str = TEXT) -> PointResult:
    """What a machine would have measured, as the simulator does."""
    sweep = read_sweep(text)
    point = SimulatedPoint(sweep.points[request["point"] - 1], sweep.lab_of(sweep.points[0]))
    found = point.outcome([point.run(1, lambda share: False)], []).result
    return replace(found, lab=replace(found.lab, k=request["k"], k_auto=False))


def told(key: str, answer: TryAnswer | ScalesAnswer) -> Sequence[JobNews]:
    return [JobNews(key=key, answer=encode_answer(answer)), JobNews(key=key, ended=True)]


def scales(key: str, machine: str) -> Sequence[JobNews]:
    return told(key, ScalesAnswer(scales={str(n): ScaleTold(k=K[machine], largest=20_000) for n in (1, 2, 3)}))


def works(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
    if request["what"] == "scales":
        return scales(key, machine)
    share = [JobNews(key=key, began=machine), JobNews(key=key, share=0.5)]
    return [*share, *told(key, TryAnswer(result=result(request), approximations=[f"{machine} is small"]))]


def run(crew: FakeCrew, text: str = TEXT, directory: Path | None = None) -> SweepOutcome:
    return run_on_labs_of(crew, ORDER, read_sweep(text), RecordOptions(directory=directory), ignore_progress)


def test_the_largest_k_counts_for_all_points_and_each_machine_has_a_part(tmp_path: Path) -> None:
    crew = FakeCrew(["a", "b"], works)
    record = run(crew, directory=tmp_path).record
    tries = [(machine, request) for machine, request in crew.submitted if request["what"] == "emulate"]
    assert {request["k"] for _, request in tries} == {3000.0}
    assert [point.name for point in record.points] == ["paths=oblivious", "paths=reps", "paths=single"]
    assert {point.lab.k for point in record.points} == {3000.0}
    assert all(point.lab.k_auto for point in record.points), "the machines chose it"
    assert {part.name: len(part.points) for part in record.machines} == {"a": 2, "b": 1}
    assert sorted(record.environment.approximations) == ["a is small", "b is small"]
    assert load_record(tmp_path).machines == record.machines
    assert list((tmp_path / "labs").glob("*.json"))


def test_machines_of_an_earlier_session_stay_named_and_none_twice() -> None:
    first = run(FakeCrew(["a", "b"], works)).record
    previous = replace(first, points=first.points[:2], incomplete="interrupted")
    options = RecordOptions(previous=previous)
    record = run_on_labs_of(FakeCrew(["b"], works), ORDER, read_sweep(TEXT), options, ignore_progress).record
    assert len(record.points) == 3
    assert {part.name: part.points for part in record.machines} == {
        "a": ["paths=oblivious"],
        "b": ["paths=reps", "paths=single"],
    }


def test_what_a_machine_warns_of_is_told() -> None:
    def warning(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["what"] == "scales":
            return scales(key, machine)
        return told(key, TryAnswer(result=result(request), warnings=["it is slow"]))

    crew = FakeCrew(["a"], warning)
    run(crew)
    assert crew.warned == ["a: it is slow"] * 3


def test_one_machine_is_no_list_of_machines() -> None:
    assert run(FakeCrew(["a"], works)).record.machines == []


def test_a_lost_machine_costs_its_point_alone_which_another_does() -> None:
    lost: list[str] = []

    def losing(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["what"] == "emulate" and machine == "b":
            lost.append(key)
            return [JobNews(key=key, began="b"), MachineLost(name="b", why="the connection broke")]
        return works(key, machine, request)

    crew = FakeCrew(["a", "b"], losing)
    record = run(crew).record
    assert len(record.points) == 3 and record.incomplete == "" and crew.forgotten == lost
    assert record.verdict.outcome is not Outcome.INVALID


def test_a_point_that_loses_two_machines_is_invalid_and_names_both() -> None:
    def losing(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["what"] == "emulate" and request["point"] == 1:
            return [MachineLost(name=machine, why="the connection broke")]
        return works(key, machine, request)

    K["c"] = 500.0
    record = run(FakeCrew(["a", "b", "c"], losing)).record
    [reason] = [one for one in record.verdict.reasons if one.startswith("paths=oblivious, run 1")]
    assert "its machine was lost, 2 times, on a and " in reason
    assert len(record.points) == 3 and record.incomplete == ""


def test_what_a_machine_raises_and_what_it_answers_wrongly_ends_all() -> None:
    def raising(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["what"] == "emulate":
            return told(key, TryAnswer(raised=ToldError(message="no lab", hint="mend it")))
        return works(key, machine, request)

    with pytest.raises(Exception, match="a: no lab"):
        run(FakeCrew(["a"], raising))

    def another(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["what"] == "emulate":
            return told(key, TryAnswer(result=result({"point": 3, "k": 1.0})))
        return works(key, machine, request)

    with pytest.raises(Exception, match="a answers with the point 'paths=single'"):
        run(FakeCrew(["a"], another))


def test_an_answer_with_fewer_runs_than_were_asked_for_is_none() -> None:
    def short(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["what"] == "scales":
            return scales(key, machine)
        return told(key, TryAnswer(result=replace(result(request), runs=[])))

    with pytest.raises(Exception, match="a answers with 0 runs of paths=oblivious, which has 1"):
        run(FakeCrew(["a"], short))


def test_invalid_points_are_tried_again_at_a_larger_k_for_all() -> None:
    def overrun(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["what"] == "scales":
            return scales(key, machine)
        found = result(request, text)
        if request["k"] < 4000:
            check = Check(name="cpu", title="CPU", value=0.95, limit=0.9, ok=False, message="95% busy")
            found = replace(found, runs=[replace(found.runs[0], checks=[check])])
        return told(key, TryAnswer(result=found))

    text = TEXT.replace("runs: 1, seed: 3", "runs: 1, seed: 3, retries: 1")
    record = run(FakeCrew(["a", "b"], overrun), text).record
    assert [len(point.earlier_tries) for point in record.points] == [1, 1, 1]
    assert len({point.lab.k for point in record.points}) == 1 and record.points[0].lab.k > 4000


def test_samples_go_beside_the_record_and_nowhere_else(tmp_path: Path) -> None:
    content = base64.b64encode(b"columns").decode()

    def sampling(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["what"] == "scales":
            return scales(key, machine)
        samples = {"0123456789ab-1.npz": content, "../../escape.npz": content, "0123456789ab-2.npz": "no base64!"}
        return told(key, TryAnswer(result=result(request), samples=samples))

    directory = tmp_path / "results"
    directory.mkdir()
    run(FakeCrew(["a"], sampling), directory=directory)
    assert [path.name for path in (directory / "samples").iterdir()] == ["0123456789ab-1.npz"]
    assert {path.name for path in tmp_path.iterdir()} == {"results"}


def test_a_point_is_tried_once_there_at_the_scale_that_is_told() -> None:
    sweep: Sweep = read_sweep(TEXT.replace("runs: 1, seed: 3", "runs: 1, seed: 3, retries: 2"))
    alone = at_scale(sweep, 2, 5000.0)
    [point] = alone.points
    assert (point.index, point.name) == (2, "paths=reps")
    assert point.scenario.repeat.retries == alone.scenario.repeat.retries == 0
    assert point.topology.set[SCALE_KEY] == 5000.0
    assert alone.lab_of(point).scale.time == 5000.0
    assert at_scale(sweep, 2, None).lab_of(at_scale(sweep, 2, None).points[0]).scale.time is None


@pytest.mark.parametrize(
    ("scales_told", "message"),
    [
        ({"1": ScaleTold(k=1000.0, largest=20_000)}, "a does not tell the time scales of 2 points"),
        (
            {n: ScaleTold(k=1000.0, largest=20_000) for n in ("1", "2", "3", "all")},
            "a tells the time scale of a point that there is not: 'all'",
        ),
    ],
)
def test_time_scales_are_told_of_all_points_and_no_others(scales_told: dict[str, ScaleTold], message: str) -> None:
    def telling(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        return told(key, ScalesAnswer(scales=scales_told))

    with pytest.raises(Exception, match=message):
        run(FakeCrew(["a"], telling))


def test_a_time_scale_is_a_number() -> None:
    def telling(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        content = b'{"scales": {"1": {"k": NaN, "largest": 1}}}'
        return [JobNews(key=key, answer=content), JobNews(key=key, ended=True)]

    with pytest.raises(Exception, match="a gives no answer that can be read"):
        run(FakeCrew(["a"], telling))


def test_a_pool_that_was_lost_before_the_first_point_is_told() -> None:
    text = TEXT.replace("spines: 2}}", "spines: 2}, scale: {time: 100}}")
    with pytest.raises(Exception, match="no machine of the pool is left"):
        run(FakeCrew([], works), text)


def test_a_machine_that_measured_at_another_time_scale_is_refused() -> None:
    """A lab of that name that was up there before keeps its own."""

    def other(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        if request["what"] == "scales":
            return scales(key, machine)
        return told(key, TryAnswer(result=result({"point": request["point"], "k": 2999.0})))

    with pytest.raises(Exception, match=r"b has measured paths=.* at a time scale of 2999, and 3000 is that of the"):
        run(FakeCrew(["b"], other))
    text = TEXT.replace("spines: 2}}", "spines: 2}, scale: {time: 100}}")

    def fixed(key: str, machine: str, request: Mapping[str, Any]) -> Sequence[JobNews | MachineLost]:
        k = 200.0 if request["point"] == 2 else 100.0
        return told(key, TryAnswer(result=result({"point": request["point"], "k": k})))

    with pytest.raises(Exception, match="at a time scale of 200, and 100 is"):
        run(FakeCrew(["a", "b"], fixed), text)


def test_the_time_that_routing_has_to_converge_is_told() -> None:
    crew = FakeCrew(["a"], works)
    run_on_labs_of(crew, ORDER, read_sweep(TEXT), RecordOptions(), ignore_progress, timeout_s=7.0)
    assert {request["timeout_s"] for _, request in crew.submitted if request["what"] == "emulate"} == {7.0}
