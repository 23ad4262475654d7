"""Whatever packets do, the counters reconcile, differences add up, and one packet too many is noticed."""

import itertools

import numpy as np
from fake_ports import BULK, CONTROL, RDMA, FakePorts, fake_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.base.datapath.abi import CLASSES
from testbed.lab.core.model.telemetry import Amount, DropCause
from testbed.lab.observe.reconcile import SETTLE_NS, Balance, reconcile
from testbed.lab.observe.telemetry import Snapshot, queue_rows, take_snapshot

PLAN = fake_plan()
INSTEAD_OF_QUEUEING = (DropCause.TAIL, DropCause.BUFFER, DropCause.WRED, DropCause.HEADROOM)
SWITCHED = [number for number in range(1, 17) if FakePorts(PLAN).table.nodes[number].startswith("p1-spine")]


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, int, int, int, dict[str, int], int, int]:
    """What happens to a few packets: port, priority, how many, their size, drops by cause, purged, lost."""
    packets = draw(st.integers(1, 50))
    drops, left = {}, packets
    for cause in draw(st.lists(st.sampled_from(INSTEAD_OF_QUEUEING), unique=True)):
        drops[cause] = draw(st.integers(0, left))
        left -= drops[cause]
    purged = draw(st.integers(0, left))
    lost = draw(st.integers(0, left - purged))
    port, priority = draw(st.integers(1, 16)), draw(st.sampled_from([BULK, RDMA, CONTROL]))
    return port, priority, packets, draw(st.integers(60, 9000)), drops, purged, lost


def happen(ports: FakePorts, step: tuple[int, int, int, int, dict[str, int], int, int]) -> None:
    port, priority, packets, size, drops, purged, lost = step
    came_in_at = 0
    if port in SWITCHED:
        # the only way to a spine's port is another port of that spine
        node = ports.table.nodes[port]
        came_in_at = next(other for other in SWITCHED if other != port and ports.table.nodes[other] == node)
        ports.carry(int(ports.table.peer[came_in_at]), priority, packets, size=size)
    ports.offer(port, priority, packets, size=size, came_in_at=came_in_at, dropped=drops)
    stays = packets - sum(drops.values()) - purged
    ports.purge(port, priority, purged, size=size, came_in_at=came_in_at)
    ports.send(port, priority, stays, size=size, came_in_at=came_in_at)
    ports.receive(int(ports.table.peer[port]), priority, stays, size=size, lost=lost)


def verdict(ports: FakePorts) -> Balance:
    clock = itertools.count(0, SETTLE_NS)  # one look and the time is up
    return reconcile(ports.maps, ports.table, clock_ns=clock.__next__, rest=lambda _: None).balance


@settings(max_examples=60, deadline=None)
@given(st.lists(steps(), max_size=12))
def test_counters_reconcile(story: list[tuple[int, int, int, int, dict[str, int], int, int]]) -> None:
    ports = FakePorts(PLAN)
    for step in story:
        happen(ports, step)
    assert verdict(ports) is Balance.RECONCILED


@settings(max_examples=60, deadline=None)
@given(
    st.lists(steps(), min_size=1, max_size=6),
    st.sampled_from(["in", "enqueued", "out", "tail", "buffer", "wred", "headroom", "purged"]),
    st.sampled_from(["packets", "bytes"]),
    st.data(),
)
def test_one_too_many_is_noticed(
    story: list[tuple[int, int, int, int, dict[str, int], int, int]], counter: str, unit: str, data: st.DataObject
) -> None:
    ports = FakePorts(PLAN)
    for step in story:
        happen(ports, step)
    busy = np.flatnonzero(ports.maps.queues["in_packets"]).tolist()
    ports.maps.queues[data.draw(st.sampled_from(busy))][f"{counter}_{unit}"] += 1
    assert verdict(ports) is Balance.BROKEN


@settings(max_examples=40, deadline=None)
@given(st.lists(steps(), max_size=6), st.lists(steps(), max_size=6))
def test_what_was_before_and_what_came_since_are_the_whole(
    early: list[tuple[int, int, int, int, dict[str, int], int, int]],
    late: list[tuple[int, int, int, int, dict[str, int], int, int]],
) -> None:
    ports = FakePorts(PLAN)
    for step in early:
        happen(ports, step)
    before = take_snapshot(ports.maps, now_ns=1)
    for step in late:
        happen(ports, step)
    after = take_snapshot(ports.maps, now_ns=2)
    growth = after.since(before)

    def sent(snapshot: Snapshot) -> list[Amount]:
        everything = np.ones((ports.table.count + 1, CLASSES), bool)
        return [
            row.sent + row.offered + row.received + row.dropped for row in queue_rows(ports.table, snapshot, everything)
        ]

    assert [one + other for one, other in zip(sent(before), sent(growth), strict=True)] == sent(after)
    assert not (growth.active & ~after.active).any()
