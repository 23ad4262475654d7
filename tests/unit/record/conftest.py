"""A record with one point and nothing measured."""

import pytest
from run_rows import lab_summary

from testbed.record.record import Environment, Outcome, PointResult, Record, ScenarioAsRun, Verdict


@pytest.fixture
def record() -> Record:
    return Record(
        scenario=ScenarioAsRun(
            name="s",
            topology={"file": "x.yml", "set": {}},
            transport={},
            workload={},
            repeat={},
            expect=[],
            overrides=[],
        ),
        environment=Environment(
            testbed="0.1.0",
            python="3.11.2",
            kernel="6.12.0",
            distribution=None,
            cpu_model=None,
            cores=2,
            memory_bytes=None,
            iperf3="3.12",
            frr="8.4.4",
            git_commit=None,
            approximations=[],
        ),
        started="2026-11-21T00:00:00.000Z",
        finished="2026-11-21T00:00:05.000Z",
        incomplete="",
        points=[PointResult(name="", values={}, lab=lab_summary(), transport={}, workload={}, runs=[], metrics=[])],
        expectations=[],
        verdict=Verdict(outcome=Outcome.PASS, reasons=[]),
        command=[],
    )
