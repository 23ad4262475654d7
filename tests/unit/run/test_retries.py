"""Which points run again because the machine did not keep up, at which time scale, and what the record says of it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_lab import FakeLab, small_lab
from run_rows import LISTENING, lab_summary, run_result, timed_scenario

from testbed.record.record import Check, Outcome, PointResult
from testbed.record.store import decode_record, encode_record
from testbed.run.emulated.point import EmulatedPoint
from testbed.run.emulated.sweep import run_sweep
from testbed.run.measuring.measured import TimeLimitReached
from testbed.run.placed.lab import LiveLab
from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.model import Expectation, Repeat, TopologyRef
from testbed.run.sweep.point_runs import PointOutcome
from testbed.run.sweep.points import Point, plan_points
from testbed.run.sweep.progress import Progress
from testbed.run.sweep.retries import asked_factor, plan_retries, tries_told
from testbed.run.sweep.runner import SweepSoFar

DATA = Path(__file__).parents[2] / "data" / "iperf3"
RETRIED = Repeat(runs=1, retries=1)
SWEEP = """name: sweep
topology: {file: pod.yml}
workload: {kind: permutation, bytes: 1MB}
matrix:
  transport.kind: [tcp, uet]
  qos.load_balancing.mode: [flow, spray]
repeat: {runs: 1, retries: 1}
"""


def points_of(text: str = SWEEP) -> tuple[Point, ...]:
    return plan_points(load_scenario_text(text, file="s.yml").scenario)


def result(point: Point, busy: float, *, k: float = 2000, chosen: bool = True, name: str = "cpu") -> PointResult:
    check = Check(
        name=name, title="CPU", value=busy, limit=0.9, ok=busy <= 0.9, message=f"the machine was {busy:.0%} busy"
    )
    return PointResult(
        name=point.name,
        values=dict(point.values),
        lab=lab_summary(k=k, k_auto=chosen),
        transport={},
        workload={},
        runs=[run_result(check)],
        metrics=[],
    )


def any_k(topology: TopologyRef, k: float) -> float | None:
    return k


def results_of(points: tuple[Point, ...], *busy: float) -> dict[str, PointResult]:
    return {point.name: result(point, one) for point, one in zip(points, busy, strict=True)}


@pytest.mark.parametrize(("busy", "factor"), [(0.91, 1.5), (0.965, 1.5), (0.99, 2.5)])
def test_an_overrun_cpu_says_how_much_slower(busy: float, factor: float) -> None:
    assert asked_factor(result(points_of()[0], busy)) == pytest.approx(factor)


def test_other_broken_checks_ask_for_the_least() -> None:
    assert asked_factor(result(points_of()[0], 9.0, name="canary")) == 1.5


def test_only_invalid_points_run_again() -> None:
    points = points_of()
    assert plan_retries(points, results_of(points, 0.5, 0.5, 0.5, 0.5), (), any_k) == []
    [retry] = plan_retries(points, results_of(points, 0.5, 0.95, 0.5, 0.5), (), any_k)
    assert (retry.point, retry.k) == (points[1], 3000)
    assert dict(retry.again.topology.set)["scale.time"] == 3000
    assert retry.announcement == f"{points[1].name} again at k = 3000: run 1: the machine was 95% busy"


def test_points_that_run_again_share_a_k() -> None:
    points = points_of()
    retries = plan_retries(points, results_of(points, 0.95, 0.5, 0.99, 0.5), (), any_k)
    assert [(retry.point.index, retry.k) for retry in retries] == [(1, 5000), (3, 5000)]


def test_points_that_are_compared_stay_at_one_k() -> None:
    points = points_of()
    ratio = Expectation(metric="jct", where={"mode": "flow"}, over={"mode": "spray"}, maximum=1.0)
    retries = plan_retries(points, results_of(points, 0.95, 0.5, 0.5, 0.5), [ratio], any_k)
    assert [retry.k for retry in retries] == [3000, 3000]
    values = [retry.point.values["transport.kind"] for retry in retries]
    assert values == ["tcp", "tcp"]
    assert retries[1].why == "it is compared with a point that is run at another k"


def test_a_slower_try_must_end_in_its_time_limit() -> None:
    points = points_of(SWEEP.replace("bytes: 1MB", "bytes: 1MB, time_limit: 10s"))
    results = results_of(points, 0.99, 0.5, 0.5, 0.5)
    name = points[0].name

    def lasting(seconds: float) -> dict[str, PointResult]:
        runs = [replace(run, elapsed_s=seconds) for run in results[name].runs]
        return results | {name: replace(results[name], runs=runs)}

    assert [retry.k for retry in plan_retries(points, lasting(2.0), (), any_k)] == [5000]
    assert [retry.k for retry in plan_retries(points, lasting(5.0), (), any_k)] == [3000]
    assert [retry.k for retry in plan_retries(points, lasting(9.0), (), any_k)] == [None]


def test_a_k_of_the_file_stays() -> None:
    [point] = points_of(SWEEP.replace("matrix", "probes: off\n_").partition("_")[0] + "repeat: {retries: 1}\n")
    [retry] = plan_retries([point], {"": result(point, 0.99, chosen=False)}, (), any_k)
    assert retry.k is None
    assert retry.again is point


def test_a_lab_that_was_there_keeps_its_k() -> None:
    points = points_of()
    [retry] = plan_retries(points, results_of(points, 0.99, 0.5, 0.5, 0.5), (), lambda topology, k: None)
    assert retry.k is None


def test_without_retries_nothing_runs_again() -> None:
    points = points_of(SWEEP.replace(", retries: 1", ""))
    assert plan_retries(points, results_of(points, 0.99, 0.99, 0.99, 0.99), (), any_k) == []


class Labs:
    """Brings up a lab that is not there; `larger_k` says whether its time scale can be changed."""

    def __init__(self, *, rescales: bool = True) -> None:
        self.asked: list[dict[str, object]] = []
        self._rescales = rescales

    def __call__(self, topology: TopologyRef) -> LiveLab:
        self.asked.append(dict(topology.set))
        k = int(topology.set.get("scale.time", 4000))
        model, plan = small_lab(hosts=2, rails=1, spines=2, k=k)
        model = replace(model, scale=replace(model.scale, time=None))
        return FakeLab(model, plan, lambda node, argv: _commands(argv, k))

    def larger_k(self, topology: TopologyRef, k: float) -> float | None:
        return k if self._rescales else None


def _commands(argv: object, k: int) -> tuple[str, ...]:
    if "-s" in str(argv):
        return LISTENING
    measured = (DATA / "timed.json").read_text()  # on links of 100 Mbit/s, those of k = 4000
    return (
        "printf",
        "%s",
        re.sub(r'("bytes":\s*)(\d+)', lambda found: found[1] + str(int(found[2]) * 4000 // k), measured),
    )


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the machine be so busy in one run after the other."""
    from testbed.run.machine.cpu import CpuTimes

    def script(*shares: float) -> None:
        readings = [CpuTimes(total=0, idle=0, steal=0, softirq=0)]
        for share in shares:
            last = readings[-1]
            after = CpuTimes(total=last.total + 1000, idle=last.idle + round(1000 * (1 - share)), steal=0, softirq=0)
            readings += [after, after]
        given = iter(readings)
        monkeypatch.setattr("testbed.run.measuring.observation.read_cpu_times", lambda: next(given))
        monkeypatch.setattr("testbed.run.trust.machine.MAX_START_SKEW", 100.0)
        monkeypatch.setattr("testbed.run.trust.machine.MAX_WAKE_NS", 10**12)

    return script


@pytest.mark.process
def test_the_second_try_counts_and_both_are_kept(busy: Callable[..., None]) -> None:
    busy(0.95, 0.5)
    labs, told = Labs(), []
    asked = timed_scenario(repeat=RETRIED)

    def hear(event: Progress) -> None:
        told.append(event.message)

    record = run_sweep(asked, plan_points(asked), labs, on_progress=hear)
    assert labs.asked == [{}, {"scale.time": 6000}]
    assert record.verdict.outcome is Outcome.PASS
    assert record.verdict.reasons[-1].startswith(
        "try 2 at k = 6000 counts: try 1 at k = 4000 did not, run 1: the machine was 95%"
    )
    [point] = record.points
    assert (point.lab.k, point.lab.k_auto) == (6000, True)
    [earlier] = point.earlier_tries
    assert earlier.lab.k == 4000
    assert earlier.runs[0].seed == point.runs[0].seed
    assert any("again at k = 6000: run 1: the machine was 95% busy" in message for message in told)
    assert decode_record(encode_record(record)) == record


@pytest.mark.process
def test_what_is_not_reproduced_stands_in_the_order_of_the_points_whichever_ends_first() -> None:
    points = points_of()
    scenario = load_scenario_text(SWEEP, file="s.yml").scenario
    so_far = SweepSoFar(scenario, points, None, [])
    for point in reversed(points):
        said = ["of every point", f"of point {point.index}"]
        so_far.add(PointOutcome(point=point, result=result(point, 0.5), approximations=said))
    told = so_far.record("").environment.approximations
    assert told == ["of every point", *(f"of point {point.index}" for point in points)]


@pytest.mark.process
def test_a_second_try_that_is_invalid_too_is_the_last(busy: Callable[..., None]) -> None:
    busy(0.95, 0.99)
    labs = Labs(rescales=False)
    asked = timed_scenario(repeat=RETRIED)
    record = run_sweep(asked, plan_points(asked), labs)
    assert labs.asked == [{}, {}]
    assert record.verdict.outcome is Outcome.INVALID
    assert tries_told(record.points)[0].startswith("try 2 at k = 4000 counts: try 1 did not, run 1")


@pytest.mark.process
def test_a_try_that_meets_its_time_limit_leaves_the_one_before(
    busy: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(0.95, 0.5)
    ran = EmulatedPoint.run
    tries: list[float] = []

    def run(self: EmulatedPoint) -> PointOutcome:
        outcome = ran(self)
        tries.append(self.lab.plan.k)
        if len(tries) > 1:
            outcome.failure = TimeLimitReached(60.0, {"h1": 3})
        return outcome

    monkeypatch.setattr(EmulatedPoint, "run", run)
    asked = timed_scenario(repeat=RETRIED)
    record = run_sweep(asked, plan_points(asked), Labs())
    assert tries == [4000, 6000]
    assert record.verdict.outcome is Outcome.INVALID and not record.incomplete
    assert "this try met its time limit" in record.verdict.reasons[-1]
    assert (record.points[0].lab.k, record.points[0].earlier_tries) == (4000, [])


@pytest.mark.process
def test_a_try_that_ends_early_leaves_the_one_before(busy: Callable[..., None]) -> None:
    busy(0.95, 0.5)
    asked = timed_scenario(repeat=RETRIED)

    def labs(topology: TopologyRef) -> LiveLab:
        from testbed.base.errors import DriverError

        if seen:
            raise DriverError("no more", operation="deploy")
        seen.append(topology)
        return Labs()(topology)

    seen: list[TopologyRef] = []
    with pytest.raises(Exception, match="no more") as stopped:
        run_sweep(asked, plan_points(asked), labs)
    record = stopped.value.record  # type: ignore[attr-defined]
    assert record.incomplete.startswith("no more") or "no more" in record.incomplete
    assert record.points[0].earlier_tries == []
