"""Drops of lossless classes: which of them make a run invalid, and which a watchdog or a fault has to answer for."""

import pytest
from memory_maps import maps_in_memory, queue_index

from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.telemetry import take_snapshot
from testbed.record.record import Check
from testbed.run.measuring.observation import Observation
from testbed.run.trust.ports import check_lossless

LAB = load_topology_text(
    "name: free\nfabric: {design: rail-optimized, segments: 2, hosts: 1, gpus: 1, spines: 2}\nqos: {preset: dcqcn}\n",
    file="free.yml",
)
PLAN = plan_lab(LAB, k=1000.0)
TABLE = tabulate_ports(PLAN)
RDMA = next(p for p in range(8) if TABLE.class_name(PLAN.port_numbers["p1-s1-rail1:uplink1"], p) == "rdma")
UPLINK, DOWNLINK, OTHER_SPINE = "p1-s1-rail1:uplink1", "p1-spine1:down2", "p1-spine2:down2"


def judged(freed: str, *drops: tuple[str, str], priority: int = RDMA, disturbed: tuple[str, ...] = ()) -> Check:
    """What the check says where the watchdog freed the queue of a port, and queues of others dropped five packets."""
    maps = maps_in_memory(TABLE.count, profiles=2, buffers=8)
    if freed:
        maps.pauses[queue_index(PLAN.port_numbers[freed], priority)]["watchdog_events"] = 1
    for port, cause in drops:
        maps.queues[queue_index(PLAN.port_numbers[port], RDMA)][f"{cause}_packets"] = 5
    seen = Observation(growth=take_snapshot(maps, now_ns=1), table=TABLE)
    (found,) = check_lossless(PLAN, seen, disturbed)
    return found


def test_what_finds_no_headroom_behind_a_freed_queue_is_meant() -> None:
    found = judged(UPLINK, (DOWNLINK, "headroom"))
    assert found.ok and found.value == 0 and "5 more behind queues" in found.message
    assert judged("").ok


@pytest.mark.parametrize(
    ("freed", "drop"),
    [
        ("", (DOWNLINK, "headroom")),
        (UPLINK, (DOWNLINK, "tail")),
        (UPLINK, (DOWNLINK, "buffer")),
        (UPLINK, (OTHER_SPINE, "headroom")),
        (UPLINK, (UPLINK, "headroom")),
        (DOWNLINK, (DOWNLINK, "headroom")),
    ],
)
def test_a_watchdog_answers_for_nothing_else(freed: str, drop: tuple[str, str]) -> None:
    found = judged(freed, drop)
    assert not found.ok and found.value == 5


def test_nor_for_another_priority() -> None:
    assert not judged(UPLINK, (DOWNLINK, "headroom"), priority=(RDMA + 1) % 8).ok


def test_what_waited_at_a_link_that_a_fault_took_down_does_not_count() -> None:
    assert judged("", (UPLINK, "purged"), disturbed=(UPLINK,)).ok
    assert not judged("", (UPLINK, "purged")).ok
    assert not judged("", (DOWNLINK, "purged"), disturbed=(UPLINK,)).ok
    assert not judged("", (UPLINK, "headroom"), disturbed=(UPLINK,)).ok
