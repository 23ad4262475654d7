"""Pass, fail, invalid."""

from __future__ import annotations

import pytest

from testbed.collect.cpu import CpuUse
from testbed.model.scenario import Expectation
from testbed.results import Check, ExpectationResult, MetricSummary, Outcome, RunResult
from testbed.scenario.verdict import check_run, decide_verdict, evaluate_expectations


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
    return RunResult(
        index=1, seed=1, started="", elapsed_s=1.0, flows=[], uplinks=[], metrics={}, checks=[check], complete=True
    )


def judge(expectation: Expectation, measured: float | None) -> ExpectationResult:
    return evaluate_expectations([expectation], [summary(expectation.metric, measured)])[0]


@pytest.mark.parametrize(
    ("measured", "outcome"),
    [(0.5, Outcome.PASS), (0.4, Outcome.PASS), (0.6, Outcome.PASS), (0.39, Outcome.FAIL), (0.61, Outcome.FAIL)],
)
def test_bands_include_their_ends(measured: float, outcome: Outcome) -> None:
    assert judge(Expectation(metric="aggregate_share", minimum=0.4, maximum=0.6), measured).outcome is outcome


def test_missed_expectation_says_by_what() -> None:
    result = judge(Expectation(metric="mmr_uplinks", maximum=2.0, source="whole flows"), 3.2)
    verdict = decide_verdict([run(ok=True)], [result], incomplete="")
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reasons == ["mmr_uplinks is 3.200, expected at most 2.000"]


def test_an_overrun_machine_beats_a_missed_expectation() -> None:
    result = judge(Expectation(metric="aggregate_share", minimum=0.9), 0.5)
    verdict = decide_verdict([run(ok=False)], [result], incomplete="")
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reasons == ["run 1: the machine was 95% busy"]


def test_unmeasured_and_incomplete_are_invalid() -> None:
    result = judge(Expectation(metric="mmr_uplinks", maximum=2.0), None)
    assert decide_verdict([run(ok=True)], [result], incomplete="").outcome is Outcome.INVALID
    assert decide_verdict([], [], incomplete="interrupted in run 1 of 1").outcome is Outcome.INVALID


def test_met() -> None:
    verdict = decide_verdict([run(ok=True)], [judge(Expectation(metric="jain_flows", minimum=0.9), 1.0)], incomplete="")
    assert verdict.outcome is Outcome.PASS
    assert verdict.outcome.exit_code == 0
    assert (Outcome.FAIL.exit_code, Outcome.INVALID.exit_code) == (1, 2)


def test_cpu_check() -> None:
    cpu = next(check for check in check_run(CpuUse(busy=0.91, steal=0.2, softirq=0.0), []) if check.name == "cpu")
    assert not cpu.ok
    assert cpu.message == "the machine was 91% busy (limit 90%), 20% stolen by the hypervisor"
    assert all(check.ok for check in check_run(CpuUse(busy=0.9, steal=0.0, softirq=0.0), []))
