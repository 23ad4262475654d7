"""What a report says of the probes that ran beside the traffic."""

from dataclasses import replace

import pytest
from recorded import load, screen, with_runs

from testbed.record.record import EarlierSession, Record
from testbed.record.report.scenario import render_report
from testbed.record.report.scenario.configuration import facts, machine, written

COUNTED = {"probe_streams": 64.0, "probe_rate_pps": 20.0, "probes_sent": 9239.0, "probe_bytes": 572818.0}


def test_earlier_sessions_are_said_with_what_differed() -> None:
    record = load("silent-failure")
    assert "Earlier session" not in dict(machine(record)), "a run that was not resumed"
    here = record.environment
    sessions = [
        EarlierSession(environment=replace(here, kernel="6.1.0-a", frr=None), started="A", points=[""]),
        EarlierSession(environment=here, started="B", points=[f"n={number}" for number in range(6)]),
    ]
    resumed = replace(record, earlier=sessions)
    said = [text for name, text in machine(resumed) if name == "Earlier session"]
    assert said == [
        "A: the only point, measured on kernel 6.1.0-a, frr None",
        "B: n=0; n=1; n=2; n=3 and 2 more, measured on the same machine and versions",
    ]
    assert f"resumed: {said[0]}" in screen(resumed)
    assert "kernel 6.1.0-a" in render_report(resumed)


def with_probes(asked: dict[str, object], counted: dict[str, float]) -> Record:
    record = with_runs(load("silent-failure"), lambda run: replace(run, counters=counted))
    return replace(record, scenario=replace(record.scenario, probes=asked))


@pytest.mark.parametrize(
    ("asked", "counted", "said"),
    [
        ({}, {}, []),
        ({"enabled": False}, {}, ["off"]),
        ({}, COUNTED, ["64 streams of 20 packets a second: 9,239 packets, 573 kB"]),
    ],
)
def test_probes(asked: dict[str, object], counted: dict[str, float], said: list[str]) -> None:
    record = with_probes(asked, counted)
    assert [text for name, text in facts(record, record.points[0]) if name == "Probes"] == said


def test_what_the_file_says_is_written_as_it_says_it() -> None:
    assert written({"ranks": {"pool": True, "planes": []}, "rate": 0.5}) == "ranks pool true, planes –, rate 0.5"
