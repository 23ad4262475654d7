"""Snapshots of the maps, their differences, and what is derived from both."""

import numpy as np
import pytest
from fake_ports import BULK, CONTROL, RDMA, FakePorts, fake_plan
from memory_maps import queue_index

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import INGRESS, PAUSE, QUEUE
from testbed.lab.core.model.telemetry import Amount, DropCause, QueueTelemetry
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.observe.port_table import NothingSelected
from testbed.lab.observe.telemetry import (
    buffer_rows,
    link_rows,
    queue_rows,
    reset_maxima,
    silent_uplinks,
    spray_rows,
    take_snapshot,
    utilisation,
)

UP = "p1-s1-rail1:uplink1"


@pytest.fixture
def ports() -> FakePorts:
    return FakePorts()


def one_row(ports: FakePorts, place: str, priority: int, now_ns: int = 1) -> QueueTelemetry:
    chosen = np.zeros((ports.table.count + 1, CLASSES), bool)
    chosen[ports.number(place), priority] = True
    return queue_rows(ports.table, take_snapshot(ports.maps, now_ns=now_ns), chosen)[0]


def test_the_table_knows_names_rates_peers_and_classes(ports: FakePorts) -> None:
    table, number = ports.table, ports.number(UP)
    assert table.place(number) == UP
    assert table.place(int(table.peer[number])) == "p1-spine1:down1"
    assert table.rate_bps[number] == 400_000_000
    assert [table.class_name(number, priority) for priority in (BULK, RDMA, 5, CONTROL)] == [
        "bulk",
        "rdma",
        "priority 5",
        "control",
    ]
    assert table.lossless[number].tolist() == [False] * 3 + [True] + [False] * 4
    assert not table.present[0].any()


def test_a_plan_without_qos_has_no_table() -> None:
    from testbed.lab.core.fabric import FabricParams, generate_fabric
    from testbed.lab.observe.port_table import tabulate_ports

    plain = plan_lab(generate_fabric(FabricParams(design="single-switch", hosts=2, gpus=1), name="plain"), k=1000)
    with pytest.raises(ValueError, match="no QoS"):
        tabulate_ports(plain)


def test_uplinks_are_the_equal_ports_to_the_tier_above(ports: FakePorts) -> None:
    groups = {group.node: [ports.table.interfaces[port] for port in group.ports] for group in ports.table.uplinks}
    assert groups == {"p1-s1-rail1": ["uplink1", "uplink2"], "p1-s1-rail2": ["uplink1", "uplink2"]}


def test_patterns_choose_nodes_and_ports(ports: FakePorts) -> None:
    def chosen(*patterns: str, class_name: str | None = None) -> set[str]:
        mask = ports.table.select(patterns, class_name)
        return {ports.table.place(port) for port in np.flatnonzero(mask.any(axis=1)).tolist()}

    assert chosen("p1-spine1") == {"p1-spine1:down1", "p1-spine1:down2"}
    assert chosen("p1-s1-h*:rail2", UP) == {"p1-s1-h1:rail2", "p1-s1-h2:rail2", UP}
    assert len(chosen()) == ports.table.count
    mask = ports.table.select((), "rdma")
    assert set(np.flatnonzero(mask.any(axis=0)).tolist()) == {RDMA}
    with pytest.raises(NothingSelected, match="did you mean p1-spine1"):
        chosen("p1-spin1")
    with pytest.raises(NothingSelected, match="did you mean rdma"):
        chosen(class_name="rmda")


def test_a_row_has_what_the_maps_say(ports: FakePorts) -> None:
    up, down = ports.number(UP), ports.number("p1-s1-rail1:down1")
    dropped = {DropCause.TAIL: 2, DropCause.BUFFER: 1, DropCause.WRED: 3, DropCause.HEADROOM: 4}
    ports.receive(down, BULK, 100)
    ports.offer(up, BULK, 100, came_in_at=down, dropped=dropped, marked=7)
    ports.send(up, BULK, 50, came_in_at=down)
    ports.purge(up, BULK, 5, came_in_at=down)
    row = one_row(ports, UP, BULK)
    assert row.offered == row.forwarded == Amount(packets=100, bytes=150_000)
    assert row.enqueued == Amount(packets=90, bytes=135_000)
    assert row.sent == Amount(packets=50, bytes=75_000)
    assert {cause: amount.packets for cause, amount in row.drops.items()} == {
        **dropped,
        DropCause.PURGED: 5,
        DropCause.WIRE: 0,
        DropCause.CAP: 0,
    }
    assert row.dropped == Amount(packets=15, bytes=22_500)
    assert (row.queue_bytes, row.queue_max_bytes) == (35 * 1500, 135_000)
    assert (row.ce_packets, row.ect_packets) == (7, 90)
    assert row.class_name == "bulk"
    assert not row.lossless
    source = one_row(ports, "p1-s1-rail1:down1", BULK)
    assert source.received == Amount(packets=100, bytes=150_000)
    assert source.held_bytes == 35 * 1500
    used = {row.node: row.used_bytes for row in buffer_rows(ports.table, take_snapshot(ports.maps))}
    assert used["p1-s1-rail1"] == 35 * 1500


def test_wire_loss_counts_where_the_packet_would_have_arrived(ports: FakePorts) -> None:
    ports.carry(ports.number(UP), RDMA, 10, lost=3)
    assert one_row(ports, UP, RDMA).drops[DropCause.WIRE] == Amount()
    assert one_row(ports, "p1-spine1:down1", RDMA).drops[DropCause.WIRE] == Amount(packets=3, bytes=4_500)


def test_a_pause_that_lasts_is_counted_up_to_now(ports: FakePorts) -> None:
    pause = ports.maps.pauses[queue_index(ports.number(UP), RDMA)]
    pause["paused_ns"], pause["paused_since"] = 5_000, 1_000_000
    pause["asked_ns"], pause["xoff_sent"], pause["xon_sent"] = 7_000, 3, 2
    row = one_row(ports, UP, RDMA, now_ns=1_250_000)
    assert row.paused
    assert row.paused_us == 255
    assert (row.peer_paused_us, row.pause_frames_sent) == (7, 5)
    assert one_row(ports, UP, RDMA, now_ns=900_000).paused_us == 5, "a pause that began after the reading"


def test_a_queue_below_zero_is_not_a_huge_one(ports: FakePorts) -> None:
    ports.maps.queues[queue_index(ports.number(UP), RDMA)]["bytes"] = 2**64 - 1500
    assert one_row(ports, UP, RDMA).queue_bytes == -1500


def test_only_queues_that_saw_something_are_active(ports: FakePorts) -> None:
    assert not take_snapshot(ports.maps, now_ns=1).active.any()
    ports.carry(ports.number(UP), RDMA, 1)
    found = {tuple(place) for place in np.argwhere(take_snapshot(ports.maps, now_ns=1).active).tolist()}
    assert found == {(ports.number(UP), RDMA), (ports.number("p1-spine1:down1"), RDMA)}


def test_a_difference_subtracts_counters_and_keeps_what_is_of_the_moment(ports: FakePorts) -> None:
    up = ports.number(UP)
    ports.offer(up, BULK, 10)
    before = take_snapshot(ports.maps, now_ns=1_000_000_000)
    ports.offer(up, BULK, 4)
    ports.send(up, BULK, 6)
    ports.maps.ports["profile"][up] = 1
    growth = take_snapshot(ports.maps, now_ns=3_000_000_000).since(before)
    queue = growth.queues[up, BULK]
    assert growth.seconds == 2
    assert (queue["in_packets"], queue["out_packets"]) == (4, 6)
    assert (queue["bytes"], queue["max_bytes"]) == (8 * 1500, 14 * 1500)
    assert queue["depth"].sum() == 4


def test_every_field_is_a_counter_or_of_the_moment(ports: FakePorts) -> None:
    """A field added to the maps must be sorted into one of the two."""
    for name, kind in (("queues", QUEUE), ("ingress", INGRESS), ("pauses", PAUSE)):
        records = getattr(ports.maps, name)
        for field in kind.names or ():
            records[field] = 7
        same = take_snapshot(ports.maps, now_ns=1)
        growth = same.since(same)
        kept = {field for field in kind.names or () if getattr(growth, name)[field].any()}
        moment = "bytes max_bytes xoff xoff_bytes xon_bytes limit_bytes xoff_ns paused_since asked_since closed storm"
        assert kept <= {*moment.split(), "ignored", "pad"}, name
        assert ("bytes" in kept) == (name != "pauses")


def test_a_counter_that_went_back_counts_nothing(ports: FakePorts) -> None:
    up = ports.number(UP)
    ports.offer(up, BULK, 10)
    before = take_snapshot(ports.maps, now_ns=1)
    ports.maps.queues["in_packets"] = 3
    assert take_snapshot(ports.maps, now_ns=2).since(before).queues[up, BULK]["in_packets"] == 0


def test_utilisation_is_of_the_lab_rate(ports: FakePorts) -> None:
    up = ports.number(UP)
    before = take_snapshot(ports.maps, now_ns=0)
    ports.carry(up, RDMA, 10_000, size=1000)
    ports.carry(up, BULK, 2_500, size=1000)
    growth = take_snapshot(ports.maps, now_ns=500_000_000).since(before)
    shares = utilisation(ports.table, growth)
    assert shares[up] == pytest.approx(12.5e6 * 8 / 0.5 / 400e6)
    assert shares.sum() == shares[up]
    row = link_rows(ports.table, growth, ports.table.select([UP]))[0]
    assert (row.peer, row.sent_bytes, row.utilisation) == ("p1-spine1:down1", 12_500_000, pytest.approx(0.5))
    assert not utilisation(ports.table, take_snapshot(ports.maps, now_ns=0)).any(), "no span, no rate"


def test_spread_is_the_most_loaded_uplink_over_the_mean(ports: FakePorts) -> None:
    first, second = ports.number(UP), ports.number("p1-s1-rail1:uplink2")
    ports.carry(first, RDMA, 30)
    ports.carry(second, RDMA, 10)
    ports.carry(ports.number("p1-s1-rail1:down1"), RDMA, 500)
    rows = spray_rows(ports.table, take_snapshot(ports.maps, now_ns=1))
    assert [(row.node, row.class_name, row.interfaces) for row in rows] == [
        ("p1-s1-rail1", "rdma", ("uplink1", "uplink2"))
    ]
    assert rows[0].max_over_mean_bytes == rows[0].max_over_mean_packets == 1.5


def test_an_uplink_that_is_down_does_not_count(ports: FakePorts) -> None:
    ports = FakePorts(fake_plan(spines=3))
    places = [ports.number(f"p1-s1-rail1:uplink{number}") for number in (1, 2, 3)]
    ports.carry(places[0], RDMA, 10)
    ports.carry(places[1], RDMA, 10)
    counters = take_snapshot(ports.maps, now_ns=1)
    assert silent_uplinks(ports.table, counters) == {places[2]}
    assert spray_rows(ports.table, counters)[0].max_over_mean_bytes == 1.5
    assert spray_rows(ports.table, counters, down={places[2]})[0].max_over_mean_bytes == 1.0
    assert spray_rows(ports.table, counters, down=set(places[1:])) == [], "one port has nothing to spread over"


def test_maxima_start_anew_from_what_is_queued(ports: FakePorts) -> None:
    up = ports.number(UP)
    ports.offer(up, BULK, 10)
    ports.send(up, BULK, 7)
    reset_maxima(ports.maps)
    row = one_row(ports, UP, BULK)
    assert (row.queue_bytes, row.queue_max_bytes) == (4_500, 4_500)
    assert ports.maps.buffers["max_bytes"].tolist() == ports.maps.buffers["used_bytes"].tolist()
