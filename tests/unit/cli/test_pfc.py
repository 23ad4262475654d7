"""What `pfc show` and `pfc storm` make of the maps, and the event log behind both."""

import json
from pathlib import Path

import pytest
from memory_maps import maps_in_memory

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import LabMaps
from testbed.base.errors import TestbedError
from testbed.base.rows import row_json
from testbed.cli.counters.pfc import pause_rows, storm_priority
from testbed.daemons.kit.events import EventLog
from testbed.daemons.portd.client import LabStatus
from testbed.daemons.portd.histogram import Latency
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology
from testbed.lab.observe.port_table import NothingSelected, PortTable, tabulate_ports

TOPOLOGY = Path(__file__).parents[3] / "topologies" / "rail-qos.yml"


@pytest.fixture(scope="module")
def table() -> PortTable:
    """Of a pod with one lossless class, `rdma`, of priority 3."""
    return tabulate_ports(plan_lab(load_topology(TOPOLOGY), slot=0, k=5000.0))


def rows(table: PortTable, maps: LabMaps, *patterns: str, every: bool = False) -> list[dict[str, object]]:
    latency = Latency(count=9, p50_ns=200_400, p99_ns=401_000, max_ns=1_163_707)
    served = LabStatus(
        ports=table.count,
        pin_directory=Path("/"),
        reaction=latency,
        event_to_frame=latency,
        frame_to_gate=latency,
        queues=((2, 3, latency),),
    )
    return list(map(row_json, pause_rows(table, maps, served, patterns, every=every, now_ns=50_000_000)))


def test_rows_are_the_queues_that_paused(table: PortTable) -> None:
    maps = maps_in_memory(table.count)
    assert rows(table, maps) == []
    assert len(rows(table, maps, every=True)) == table.count, "one lossless class at each port"
    record = maps.pauses[2 * CLASSES + 3]
    record["xoff_received"], record["xon_received"], record["closed"] = 5, 4, 1
    record["paused_ns"], record["paused_since"] = 7_000_000, 40_000_000
    assert rows(table, maps) == [
        {
            "port": table.place(2),
            "class": "rdma",
            "state": "paused",
            "xoff_in": 5,
            "xon_in": 4,
            "paused_ms": 17.0,
            "xoff_out": 0,
            "xon_out": 0,
            "asked_ms": 0.0,
            "reaction_p50_us": 200,
            "reaction_p99_us": 401,
            "reaction_max_us": 1164,
            "watchdog": 0,
        }
    ]
    assert rows(table, maps, table.place(3)) == []
    assert len(rows(table, maps, table.place(2), every=True)) == 1
    with pytest.raises(NothingSelected):
        rows(table, maps, "no-such-node")


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"ignored": 1}, "freed"),
        ({"storm": 1, "asked_since": 9}, "storm"),
        ({"asked_since": 9, "closed": 1}, "paused, pausing its peer"),
        ({}, "-"),
    ],
)
def test_state_says_what_holds_now(table: PortTable, fields: dict[str, int], state: str) -> None:
    maps = maps_in_memory(table.count)
    for name, value in (fields | {"xoff_sent": 1}).items():
        maps.pauses[CLASSES + 3][name] = value
    assert [row["state"] for row in rows(table, maps)] == [state]


def test_storm_takes_a_class_a_priority_or_the_only_one(table: PortTable) -> None:
    assert storm_priority(table, 1, None, None) == 3
    assert storm_priority(table, 1, "rdma", None) == 3
    assert storm_priority(table, 1, None, 3) == 3
    for arguments, message in (
        (("bulk", None), "'bulk' of .* is not lossless"),
        ((None, 0), "priority 0 of .* is not lossless"),
        (("rdma", 3), "give one"),
    ):
        with pytest.raises(TestbedError, match=message):
            storm_priority(table, 1, *arguments)


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events", "lab")
    log.write("pfc-watchdog-freed", "leaf1", "down1 priority 3", "paused for 200 ms")
    log.write("portd-attached")
    first, second = (json.loads(line) for line in (tmp_path / "events").read_text().splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "lab": "lab",
        "kind": "pfc-watchdog-freed",
        "node": "leaf1",
        "subject": "down1 priority 3",
        "detail": "paused for 200 ms",
    }
    assert second["kind"] == "portd-attached"


def test_file_that_cannot_be_written_is_counted(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "none" / "events", "lab")
    log.write("portd-attached")
    assert log.lost == 1
