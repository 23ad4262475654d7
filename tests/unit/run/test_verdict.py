"""Pass, fail, invalid."""

from dataclasses import replace

import pytest
from run_rows import lab_summary, network_load, run_result

from testbed.record.catalogue import binding_limits
from testbed.record.record import (
    Backend,
    Check,
    ExpectationResult,
    MetricSummary,
    Outcome,
    PointResult,
    PredictedMetric,
    RunResult,
)
from testbed.run.machine.cpu import CpuUse
from testbed.run.schema.model import Expectation, Within
from testbed.run.sweep.verdict import decide_verdict, evaluate_expectations
from testbed.run.trust.machine import check_machine


def summary(name: str, median: float | None) -> MetricSummary:
    return MetricSummary(
        name=name,
        title=name,
        unit="share",
        definition="",
        headline=True,
        ideal=None,
        values=[median],
        median=median,
        minimum=median,
        maximum=median,
        cv=None,
    )


def run(*, ok: bool) -> RunResult:
    check = Check(name="cpu", title="CPU", value=0.95, limit=0.9, ok=ok, message="the machine was 95% busy")
    return run_result(check, complete=True)


def point(
    metric: str, measured: float | None, runs: list[RunResult] | None = None, oracle: float | None = None, **values: str
) -> PointResult:
    predictions = []
    if oracle is not None:
        predictions.append(
            PredictedMetric(metric=metric, oracle="", mean=oracle, stdev=0, minimum=oracle, maximum=oracle, seeds=1)
        )
    return PointResult(
        name=" ".join(f"{key}={value}" for key, value in values.items()),
        values={f"some.{key}": value for key, value in values.items()},
        lab=lab_summary(),
        transport={},
        workload={},
        runs=runs or [],
        metrics=[summary(metric, measured)],
        predictions=predictions,
    )


def judge(expectation: Expectation, measured: float | None, oracle: float | None = None) -> ExpectationResult:
    (result,) = evaluate_expectations([expectation], [point(expectation.metric, measured, oracle=oracle)])
    return result


@pytest.mark.parametrize(
    ("measured", "outcome"),
    [(0.5, Outcome.PASS), (0.4, Outcome.PASS), (0.6, Outcome.PASS), (0.39, Outcome.FAIL), (0.61, Outcome.FAIL)],
)
def test_bands_include_their_ends(measured: float, outcome: Outcome) -> None:
    assert judge(Expectation(metric="aggregate_share", minimum=0.4, maximum=0.6), measured).outcome is outcome


def test_missed_expectation_says_by_what() -> None:
    result = judge(Expectation(metric="mmr_uplinks", maximum=2.0, source="whole flows"), 3.2)
    verdict = decide_verdict([point("mmr_uplinks", 3.2, [run(ok=True)])], [result], incomplete="")
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reasons == ["mmr_uplinks is 3.200, expected at most 2.000"]


def test_an_overrun_machine_beats_a_missed_expectation() -> None:
    result = judge(Expectation(metric="aggregate_share", minimum=0.9), 0.5)
    verdict = decide_verdict([point("aggregate_share", 0.5, [run(ok=False)])], [result], incomplete="")
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reasons == ["run 1: the machine was 95% busy"]


def test_unmeasured_and_incomplete_are_invalid() -> None:
    result = judge(Expectation(metric="mmr_uplinks", maximum=2.0), None)
    assert (
        decide_verdict([point("mmr_uplinks", None, [run(ok=True)])], [result], incomplete="").outcome is Outcome.INVALID
    )
    assert decide_verdict([], [], incomplete="interrupted in run 1 of 1").outcome is Outcome.INVALID


def test_met() -> None:
    verdict = decide_verdict(
        [point("jain_flows", 1.0, [run(ok=True)])],
        [judge(Expectation(metric="jain_flows", minimum=0.9), 1.0)],
        incomplete="",
    )
    assert verdict.outcome is Outcome.PASS
    assert verdict.outcome.exit_code == 0
    assert (Outcome.FAIL.exit_code, Outcome.INVALID.exit_code) == (1, 2)


def test_cpu_check() -> None:
    cpu = next(check for check in check_machine(CpuUse(busy=0.91, steal=0.2, softirq=0.0)) if check.name == "cpu")
    assert not cpu.ok
    assert cpu.message == "the machine was 91% busy (limit 90%), 20% stolen by the hypervisor"
    assert all(check.ok for check in check_machine(CpuUse(busy=0.9, steal=0.0, softirq=0.0)))


@pytest.mark.parametrize(
    ("measured", "outcome"),
    [(0.76, Outcome.PASS), (0.60, Outcome.PASS), (0.59, Outcome.FAIL), (0.77, Outcome.FAIL), (None, Outcome.INVALID)],
)
def test_within_the_oracle(measured: float | None, outcome: Outcome) -> None:
    expectation = Expectation(metric="aggregate_share", within=Within.ORACLE, tolerance=0.0801)
    assert judge(expectation, measured, oracle=0.68).outcome is outcome


def test_an_oracle_that_is_silent_is_invalid() -> None:
    expectation = Expectation(metric="aggregate_share", within=Within.ORACLE, tolerance=0.08)
    assert judge(expectation, 0.68).outcome is Outcome.INVALID


def test_a_relative_tolerance() -> None:
    expectation = Expectation(metric="tail_fct_ratio", within=Within.ORACLE, tolerance=0.1, relative=True)
    result = judge(expectation, 2.19, oracle=2.0)
    assert result.outcome is Outcome.PASS
    assert (result.minimum, result.maximum) == (pytest.approx(1.8), pytest.approx(2.2))


POINTS = [
    point("tail_fct_ratio", 2.6, paths="oblivious", rate="50%"),
    point("tail_fct_ratio", 1.3, paths="reps", rate="50%"),
    point("tail_fct_ratio", 1.2, paths="oblivious", rate="100%"),
    point("tail_fct_ratio", 1.2, paths="reps", rate="100%"),
]


def test_where_chooses_points() -> None:
    expectation = Expectation(metric="tail_fct_ratio", where={"paths": "reps"}, maximum=1.25)
    results = evaluate_expectations([expectation], POINTS)
    assert [(item.point, item.outcome) for item in results] == [
        ("paths=reps rate=50%", Outcome.FAIL),
        ("paths=reps rate=100%", Outcome.PASS),
    ]


def test_over_divides_by_the_point_that_differs_in_nothing_else() -> None:
    expectation = Expectation(
        metric="tail_fct_ratio", where={"paths": "oblivious"}, over={"paths": "reps"}, minimum=1.3
    )
    results = evaluate_expectations([expectation], POINTS)
    assert [(item.measured, item.outcome) for item in results] == [
        (pytest.approx(2.0), Outcome.PASS),
        (pytest.approx(1.0), Outcome.FAIL),
    ]
    assert results[0].metric == "tail_fct_ratio over that of paths=reps"


def test_an_expectation_of_one_network_or_tenant_is_about_its_own_figure() -> None:
    one = point("network_drops[network=storage tenant=red]", 7.0, load="low")
    other = point("network_drops[network=storage tenant=red]", 14.0, load="high")
    none = Expectation(metric="network_drops", network="storage", tenant="red", where={"load": "low"}, maximum=0)
    (result,) = evaluate_expectations([none], [one, other])
    assert (result.metric, result.measured, result.outcome) == (
        "network_drops[network=storage tenant=red]",
        7.0,
        Outcome.FAIL,
    )
    assert "is 7, expected at most 0" in decide_verdict([], [result], incomplete="").reasons[0], "a count"
    ratio = Expectation(
        metric="network_drops", network="storage", tenant="red", where={"load": "high"}, over={"load": "low"}, maximum=3
    )
    assert evaluate_expectations([ratio], [one, other])[0].measured == pytest.approx(2.0)
    (missing,) = evaluate_expectations([Expectation(metric="network_drops", network="backend", maximum=0)], [one])
    assert missing.outcome is Outcome.INVALID


def test_a_doubt_names_its_point() -> None:
    verdict = decide_verdict([point("x", 1.0, [run(ok=False)], mode="spray")], [], incomplete="")
    assert verdict.reasons == ["mode=spray, run 1: the machine was 95% busy"]


@pytest.mark.parametrize(
    ("metric", "band", "measured", "outcome"),
    [
        ("tail_fct_ratio", (1.0, 1.15), 0.9999, Outcome.PASS),
        ("tail_fct_ratio", (1.0, 1.15), 1.2, Outcome.FAIL),
        ("tail_fct_ratio", (1.05, 1.15), 0.9999, Outcome.FAIL),
        ("aggregate_share", (0.9, 1.0), 1.001, Outcome.PASS),
        ("aggregate_share", (0.9, 1.0), 0.8, Outcome.FAIL),
        ("drops", (None, 0.0), 1.0, Outcome.FAIL),
    ],
)
def test_a_limit_at_the_ideal_is_not_missed_by_being_better(
    metric: str, band: tuple[float | None, float], measured: float, outcome: Outcome
) -> None:
    """What is beyond its ideal by more than the emulation is allowed has made the run invalid."""
    expected = Expectation(metric=metric, minimum=band[0], maximum=band[1], source="")
    [one] = evaluate_expectations([expected], [point(metric, measured)])
    assert one.outcome is outcome and (one.minimum, one.maximum) == band


def test_a_ratio_of_two_points_has_no_ideal() -> None:
    assert binding_limits("tail_fct_ratio", 1.0, 2.0) == (None, 2.0)
    assert binding_limits("tail_fct_ratio[tenant=red]", 1.0, 2.0) == (None, 2.0)
    assert binding_limits("tail_fct_ratio over that of mode=spray", 1.0, 2.0) == (1.0, 2.0)
    assert binding_limits("mmr_uplinks", 1.0, 2.0) == (1.0, 2.0)


def program_point(*codes: float, unmeasured: bool = False) -> PointResult:
    """A point whose runs ended with these exit codes."""
    exits = MetricSummary(
        name="program_exit", title="", unit="count", definition="", headline=True, ideal=0.0, values=list(codes),
        median=sorted(codes)[len(codes) // 2], minimum=min(codes), maximum=max(codes), cv=None,
    )  # fmt: skip
    found = point("program_ratio", None if unmeasured else 1.1)
    return replace(found, metrics=[*found.metrics, exits])


SUCCEEDS = Expectation(metric="program_exit", maximum=0.0, source="")
FAST = Expectation(metric="program_ratio", maximum=1.2, source="")


def test_one_run_of_a_program_that_fails_is_enough() -> None:
    (exits,) = evaluate_expectations([SUCCEEDS], [program_point(0, 0, 3)])
    assert (exits.outcome, exits.measured) == (Outcome.FAIL, 3.0), "the median would be 0"
    assert evaluate_expectations([SUCCEEDS], [program_point(0, 0, 0)])[0].outcome is Outcome.PASS


def test_a_program_that_fails_is_a_fail_though_it_left_figures_out() -> None:
    failed = [program_point(3, unmeasured=True)]
    verdict = decide_verdict(failed, evaluate_expectations([SUCCEEDS, FAST], failed), incomplete="")
    assert verdict.outcome is Outcome.FAIL
    whole = [program_point(0, unmeasured=True)]
    verdict = decide_verdict(whole, evaluate_expectations([SUCCEEDS, FAST], whole), incomplete="")
    assert verdict.outcome is Outcome.INVALID, "it succeeded, and told of no step"
    wanted = Expectation(metric="program_exit", minimum=3.0, source="it is to fail")
    verdict = decide_verdict(failed, evaluate_expectations([wanted, FAST], failed), incomplete="")
    assert verdict.outcome is Outcome.INVALID, "failing is what was expected, and says nothing of figures"


def watched(measured: float | None, *networks: str) -> PointResult:
    """A point with a figure of the network of management, and the networks that its run watched."""
    loads = [network_load(name) for name in networks]
    return point("network_delivered[network=management]", measured, [replace(run(ok=True), networks=loads)])


MANAGEMENT = Expectation(metric="network_delivered", network="management", minimum=400.0)


def test_what_is_not_simulated_is_said_by_name_and_left_out_of_the_verdict() -> None:
    one = watched(None, "backend", "storage")
    [result] = evaluate_expectations([MANAGEMENT], [one])
    assert result.outcome is Outcome.INVALID and result.left_out
    met = judge(Expectation(metric="jain_flows", minimum=0.9), 1.0)
    verdict = decide_verdict([one], [met, result], incomplete="", backend=Backend.SIMULATION)
    assert verdict.outcome is Outcome.PASS
    assert verdict.reasons == [
        "1 of 2 expectations met, and every packet is accounted for",
        "network_delivered[network=management] is not simulated: no rank is in the network management, whose traffic is"
        " that of real programs",
    ]
    missed = judge(Expectation(metric="jain_flows", minimum=0.9), 0.5)
    assert decide_verdict([one], [missed, result], incomplete="").outcome is Outcome.FAIL


def test_with_nothing_else_expected_it_is_invalid() -> None:
    one = watched(None, "backend")
    verdict = decide_verdict([one], evaluate_expectations([MANAGEMENT], [one]), incomplete="")
    assert verdict.outcome is Outcome.INVALID and "is not simulated" in verdict.reasons[0]


def test_a_network_that_was_watched_and_has_no_figure_could_not_be_measured() -> None:
    one = watched(None, "backend", "management")
    [result] = evaluate_expectations([MANAGEMENT], [one])
    assert not result.left_out
    assert decide_verdict([one], [result], incomplete="").outcome is Outcome.INVALID
