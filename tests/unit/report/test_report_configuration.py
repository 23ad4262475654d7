"""What a report says of the probes that ran beside the traffic."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from testbed.report.scenario.configuration import facts
from testbed.results import Record, load_record

RECORDS = Path(__file__).parents[2] / "data" / "records"
COUNTED = {"probe_streams": 64.0, "probe_rate_pps": 20.0, "probes_sent": 9239.0, "probe_bytes": 572818.0}


def with_probes(asked: dict[str, object], counted: dict[str, float]) -> Record:
    record = load_record(RECORDS / "silent-failure.json")
    point = record.points[0]
    runs = [dataclasses.replace(run, counters=counted) for run in point.runs]
    scenario = dataclasses.replace(record.scenario, probes=asked)
    return dataclasses.replace(record, scenario=scenario, points=[dataclasses.replace(point, runs=runs)])


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
