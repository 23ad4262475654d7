"""The laws of conservation: kept by what the data path counts, broken by a single packet too many."""

from collections.abc import Callable

import pytest
from fake_ports import BULK, CONTROL, RDMA, FakePorts
from memory_maps import queue_index

from testbed.lab.core.model.telemetry import DropCause
from testbed.lab.observe.reconcile import SETTLE_NS, Balance, Reconciliation, reconcile

UP = "p1-s1-rail1:uplink1"


class Clock:
    """Time passes only in pauses, and something may happen in each of them."""

    def __init__(self, then: Callable[[int], None] = lambda _: None) -> None:
        self.ns = 0
        self.pauses = 0
        self._then = then

    def now(self) -> int:
        return self.ns

    def rest(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)
        self.pauses += 1
        self._then(self.pauses)


@pytest.fixture
def ports() -> FakePorts:
    found = FakePorts()
    down, up = found.number("p1-s1-rail1:down1"), found.number(UP)
    found.carry(found.number("p1-s1-h1:rail1"), RDMA, 100, lost=4)
    dropped = {DropCause.BUFFER: 6, DropCause.TAIL: 1}
    found.offer(up, RDMA, 90, came_in_at=down, dropped=dropped)
    found.send(up, RDMA, 70, came_in_at=down)
    found.receive(int(found.table.peer[up]), RDMA, 70)
    found.purge(up, RDMA, 3, came_in_at=down)
    return found


def check(ports: FakePorts, clock: Clock | None = None) -> Reconciliation:
    clock = clock or Clock()
    return reconcile(ports.maps, ports.table, clock_ns=clock.now, rest=clock.rest)


def test_what_adds_up_is_found_so_at_once(ports: FakePorts) -> None:
    clock = Clock()
    result = check(ports, clock)
    assert result.balance is Balance.RECONCILED
    assert result.imbalances == ()
    assert result.checked == {"queues": 2, "links": 2, "buffers": 4, "switches": 2}
    assert clock.pauses == 0
    assert str(result) == "counters reconcile (queues 2, links 2, buffers 4, switches 2)"


@pytest.mark.parametrize(
    ("records", "place", "field", "law", "where"),
    [
        ("queues", UP, "in_packets", "in = enqueued + dropped", f"{UP} rdma"),
        ("queues", UP, "wred_bytes", "in = enqueued + dropped", f"{UP} rdma"),
        ("queues", UP, "purged_bytes", "enqueued = out + purged + queued", f"{UP} rdma"),
        ("queues", UP, "out_bytes", "enqueued = out + purged + queued", f"{UP} rdma"),
        ("ingress", "p1-spine1:down1", "in_packets", "out = in + dropped at the peer", f"{UP} -> p1-spine1:down1"),
        ("ingress", "p1-spine1:down1", "lost_bytes", "out = in + dropped at the peer", f"{UP} -> p1-spine1:down1"),
        ("ingress", "p1-s1-rail1:down1", "bytes", "buffer = queues >= held for ingress ports", "p1-s1-rail1"),
    ],
)
def test_one_too_many_is_found_and_named(
    ports: FakePorts, records: str, place: str, field: str, law: str, where: str
) -> None:
    unit = 1 if field.endswith("_packets") else 1500 * 17 + 1
    getattr(ports.maps, records)[queue_index(ports.number(place), RDMA)][field] += unit
    clock = Clock()
    result = check(ports, clock)
    assert result.balance is Balance.BROKEN
    found = {(item.law, item.place): item for item in result.imbalances}
    assert (law, where) in found
    assert found[law, where].state is Balance.BROKEN
    assert where in str(result) or "more places" in str(result)
    assert clock.ns >= SETTLE_NS


def test_packets_left_in_an_empty_queue_are_found(ports: FakePorts) -> None:
    up = ports.number(UP)
    ports.purge(up, RDMA, 10, came_in_at=ports.number("p1-s1-rail1:down1"))
    assert check(ports).balance is Balance.RECONCILED
    ports.maps.queues[queue_index(up, RDMA)]["purged_packets"] -= 1
    [item] = check(ports).imbalances
    assert (item.place, item.packets, item.bytes) == (f"{UP} rdma", 1, 0)


def test_a_shared_buffer_that_leaks_is_found(ports: FakePorts) -> None:
    ports.maps.buffers["used_bytes"][ports.table.buffer[ports.number(UP)]] += 1500
    [item] = check(ports).imbalances
    assert (item.place, item.bytes) == ("p1-s1-rail1", 1500)


@pytest.mark.parametrize("late", [3, 300])
def test_packets_between_two_places_may_take_their_time(ports: FakePorts, late: int) -> None:
    """More of it on a busy machine, which is long after what moves was given up."""
    up = ports.number(UP)
    ports.offer(up, RDMA, 5)
    ports.send(up, RDMA, 5)

    def arrive(pause: int) -> None:
        if pause == late:
            ports.receive(int(ports.table.peer[up]), RDMA, 5)

    clock = Clock(arrive)
    assert check(ports, clock).balance is Balance.RECONCILED
    assert clock.pauses == late
    assert (clock.ns > SETTLE_NS) is (late > 250)


def test_packets_that_never_arrive_are_named_with_their_number(ports: FakePorts) -> None:
    up = ports.number(UP)
    ports.offer(up, RDMA, 5)
    ports.send(up, RDMA, 5)
    ports.offer(up, RDMA, 100)

    def go_on(_: int) -> None:
        """More traffic, of which one packet is on its way at each look."""
        ports.send(up, RDMA, 1)
        ports.receive(int(ports.table.peer[up]), RDMA, 1)

    [item] = check(ports, Clock(lambda number: go_on(number) if number < 90 else None)).imbalances
    assert (item.packets, item.bytes) == (5, 7_500)
    assert str(item) == f"{UP} -> p1-spine1:down1: out = in + dropped at the peer: off by +5 packets, +7500 bytes"


def test_a_place_that_never_holds_still_is_neither_right_nor_wrong(
    ports: FakePorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from testbed.lab.observe import laws

    queue = ports.maps.queues[queue_index(ports.number(UP), RDMA)]
    read = laws.Admission.read

    def busy(self: laws.Admission, places: laws.Places) -> laws.Words:
        queue["in_packets"] += 1
        queue["enqueued_packets"] += 1
        queue["out_packets"] += 1
        ports.maps.ingress[queue_index(int(ports.table.peer[ports.number(UP)]), RDMA)]["in_packets"] += 1
        return read(self, places)

    monkeypatch.setattr(laws.Admission, "read", busy)
    result = check(ports)
    assert result.balance is Balance.MOVING
    assert [item.state for item in result.imbalances] == [Balance.MOVING]
    assert "1 places that never held still" in str(result)


def test_pause_frames_forged_through_a_queue_explain_what_did_not_arrive(ports: FakePorts) -> None:
    up = ports.number(UP)
    ports.offer(up, CONTROL, 3, size=64)
    ports.send(up, CONTROL, 3, size=64)
    peer = int(ports.table.peer[up])
    ports.maps.ingress[queue_index(peer, BULK)]["malformed_frames"] += 1
    assert check(ports).balance is Balance.BROKEN
    ports.maps.ingress[queue_index(peer, RDMA)]["pause_frames"] += 2
    assert check(ports).balance is Balance.RECONCILED
    ports.maps.pauses[queue_index(up, RDMA)]["xoff_sent"] += 2
    assert check(ports).balance is Balance.BROKEN, "those two came from the agent, which passes the queue by"


def test_the_rest_of_a_switch_is_what_came_in_and_did_not_go_on(ports: FakePorts) -> None:
    balances = {(item.node, item.class_name): item for item in check(ports).switches}
    rail = balances["p1-s1-rail1", "rdma"]
    assert (rail.in_packets, rail.forwarded_packets, rail.rest_packets) == (96, 90, 6)
    assert balances["p1-spine1", "rdma"].rest_packets == 70


def test_more_forwarded_than_received_is_impossible_without_a_bridge(ports: FakePorts) -> None:
    first, second = ports.number("p1-spine1:down1"), ports.number("p1-spine1:down2")
    ports.offer(second, RDMA, 80, came_in_at=first)
    result = check(ports)
    assert [(item.place, item.packets) for item in result.imbalances] == [("p1-spine1 rdma", 10)]
    assert result.balance is Balance.BROKEN


def test_a_bridge_may_flood(ports: FakePorts) -> None:
    assert "p1-s1-rail1" in ports.table.bridging
    down = ports.number("p1-s1-rail1:down1")
    ports.receive(down, CONTROL, 1)
    ports.receive(ports.number("p1-s1-h1:rail1"), CONTROL, 0)
    ports.carry(ports.number("p1-s1-h1:rail1"), CONTROL, 0)
    ports.offer(ports.number(UP), CONTROL, 1, came_in_at=down)
    ports.offer(ports.number("p1-s1-rail1:down2"), CONTROL, 1, came_in_at=down)
    host = ports.number("p1-s1-h1:rail1")
    ports.offer(host, CONTROL, 1)
    ports.send(host, CONTROL, 1)
    result = check(ports)
    assert result.balance is Balance.RECONCILED
    assert {item.rest_packets for item in result.switches if item.class_name == "control"} == {-1}


def test_trimmed_packets_change_their_class(ports: FakePorts) -> None:
    first, second = ports.number("p1-spine1:down1"), ports.number("p1-spine1:down2")
    for record in ports.maps.profiles:
        record["trimmed_class"] = CONTROL
    ports.maps.queues[queue_index(second, RDMA)]["trimmed_packets"] += 10
    ports.offer(second, RDMA, 60, came_in_at=first)
    ports.offer(second, CONTROL, 10, size=78, came_in_at=first)
    result = check(ports)
    assert result.balance is Balance.RECONCILED
    assert {item.class_name: item.rest_packets for item in result.switches if item.node == "p1-spine1"} == {
        "rdma": 0,
        "control": 0,
    }


def test_where_classes_differ_between_ports_only_their_sum_is_checked(ports: FakePorts) -> None:
    first, second = ports.number("p1-spine1:down1"), ports.number("p1-spine1:down2")
    ports.offer(second, BULK, 50, came_in_at=first)
    assert check(ports).balance is Balance.BROKEN
    ports.maps.ports[second]["profile"] = 0
    ports.maps.profiles[0]["class_of_dscp"] = BULK
    assert check(ports).balance is Balance.RECONCILED


def test_an_idle_lab_reconciles() -> None:
    result = check(FakePorts())
    assert result.balance is Balance.RECONCILED
    assert result.checked["queues"] == result.checked["links"] == 0
