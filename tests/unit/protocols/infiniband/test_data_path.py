"""The data path of a subnet in virtual time, against what theory says of its tables."""

import dataclasses
import time

import pytest
from formula_subnets import RATE_BPS, fat_tree, hca, ring
from saturated import FRAME_BYTES, Arrived, Saturated, data_path, header
from virtual_domain import Closing

from testbed.protocols.errors import UsageError
from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.data_path import Congestion, PathLink, PathNode, SubnetDataPath
from testbed.protocols.infiniband.subnet import Subnet

LEAVES, HOSTS, SPINES = 8, 4, 4
ALL = [hca(leaf, number) for leaf in range(LEAVES) for number in range(HOSTS)]
HOT, VICTIM = hca(7, 0), (hca(0, 1), hca(4, 0))
INCAST = [(hca(leaf, 0), HOT) for leaf in range(4)]


def shift(by: int) -> list[tuple[str, str]]:
    return [(ALL[place], ALL[(place + by) % len(ALL)]) for place in range(len(ALL))]


def run(closing: Closing, subnet: Subnet, pairs: list[tuple[str, str]], frames: int = 200, **options: bool) -> Arrived:
    return Saturated(closing(data_path(subnet, **options)), subnet, pairs).run(frames)


@pytest.mark.parametrize("by", [1, 4, 5, 16])
def test_d_mod_k_has_no_contention_in_any_shift(closing: Closing, by: int) -> None:
    found = run(closing, fat_tree(LEAVES, HOSTS, SPINES), shift(by))
    assert [found.share(pair) for pair in shift(by)] == pytest.approx([1.0] * 32, abs=0.02)
    assert not found.lost


@pytest.mark.parametrize(("by", "expected"), [(4, 1 / 4), (5, 1 / 6)])
def test_one_uplink_for_all_of_a_leaf_is_shared(closing: Closing, by: int, expected: float) -> None:
    """What dor and lash make of a fat tree: the uplink follows from the leaf that a frame is for. Four flows share one
    link; of a shift by five three of them come by one input of the spine, and the fourth by another, and the two
    inputs take turns."""
    subnet = fat_tree(LEAVES, HOSTS, SPINES, lambda leaf, destination: destination // HOSTS % SPINES)
    found = run(closing, subnet, shift(by), frames=400)
    slowest = min(found.share(pair) for pair in shift(by))
    assert slowest == pytest.approx(expected, abs=0.02)


def to_one_spine(leaf: int, destination: int) -> int:
    """Leaf 0's incast and its victim share an uplink."""
    return 0 if leaf == 0 else destination % SPINES


def test_a_victim_on_the_lane_of_an_incast_has_its_share(closing: Closing) -> None:
    found = run(closing, fat_tree(LEAVES, HOSTS, SPINES, to_one_spine), [*INCAST, VICTIM], frames=1000)
    assert found.share(VICTIM) == pytest.approx(0.25, abs=0.02)
    assert sum(found.share(pair) for pair in INCAST) == pytest.approx(1.0, abs=0.02)


def test_a_victim_on_a_lane_of_its_own_has_what_the_incast_leaves(closing: Closing) -> None:
    subnet = dataclasses.replace(
        fat_tree(LEAVES, HOSTS, SPINES, to_one_spine), vls=2, sl2vl=tuple(sl % 2 for sl in range(16))
    )
    found = Saturated(closing(data_path(subnet)), subnet, [*INCAST, VICTIM], {VICTIM: 1}).run(1000)
    assert found.share(VICTIM) == pytest.approx(0.75, abs=0.02)
    assert sum(found.share(pair) for pair in INCAST) == pytest.approx(1.0, abs=0.02)


def test_virtual_output_queues_do_not_help_where_credits_are_by_lane(closing: Closing) -> None:
    found = run(closing, fat_tree(LEAVES, HOSTS, SPINES, to_one_spine), [*INCAST, VICTIM], frames=1000, voq=True)
    assert found.share(VICTIM) == pytest.approx(0.25, abs=0.03)


def ring_pairs(pattern: str) -> list[tuple[str, str]]:
    names = [(place, number) for place in range(6) for number in range(2)]
    if pattern == "shift":
        return [(hca(*one), hca((one[0] + 2) % 6, one[1])) for one in names]
    return [(hca(*a), hca(*b)) for a in names for b in names if a != b]


@pytest.mark.parametrize("pattern", ["shift", "all-to-all"])
def test_a_ring_on_one_lane_comes_to_a_stop(closing: Closing, pattern: str) -> None:
    subnet = ring(6, 2, layers=1)
    found = Saturated(closing(data_path(subnet, frames=2)), subnet, ring_pairs(pattern)).run(1000)
    assert found.is_stuck
    assert not found.by_pair


@pytest.mark.parametrize("pattern", ["shift", "all-to-all"])
def test_a_ring_whose_waiting_goes_in_no_circle_goes_on(closing: Closing, pattern: str) -> None:
    subnet = ring(6, 2, layers=2)
    found = Saturated(closing(data_path(subnet, frames=2, delay_ns=0)), subnet, ring_pairs(pattern)).run(1000)
    assert not found.is_stuck
    assert set(found.by_pair) == set(ring_pairs(pattern))
    # A shift by two takes two of the six clockwise links for each flow: 6 / 2 at most, and less where flows wait behind
    # each other.
    if pattern == "shift":
        assert 1.9 < found.total <= 3.0
    else:
        assert found.total > 5.0


@pytest.mark.parametrize(("high", "low", "limit", "expected"), [
    ((), ((0, 192), (1, 64)), 255, 3.0),
    ((), ((0, 64), (1, 192)), 255, 1 / 3),
    (((1, 64),), ((0, 64),), 0, 1.0),
    (((1, 64),), ((0, 64),), 2, 1 / 2),
])  # fmt: skip
def test_weights_of_lanes(
    closing: Closing, high: tuple[tuple[int, int], ...], low: tuple[tuple[int, int], ...], limit: int, expected: float
) -> None:
    """Two flows of one uplink on two lanes: 3:1 by weights; of a high lane as much as its limit says before a low one
    has a frame: of 0 a frame, of 2 (8 KiB) two of 4,122 bytes."""
    subnet = dataclasses.replace(
        fat_tree(2, 2, 1), vls=2, sl2vl=tuple(sl % 2 for sl in range(16)), vl_high=high, vl_low=low, vl_high_limit=limit
    )
    pairs = [(hca(0, 0), hca(1, 0)), (hca(0, 1), hca(1, 1))]
    found = Saturated(closing(data_path(subnet, arbitration=True)), subnet, pairs, {pairs[1]: 1}).run(800)
    assert found.by_pair[pairs[0]] / found.by_pair[pairs[1]] == pytest.approx(expected, rel=0.02)
    assert found.total == pytest.approx(1.0, abs=0.01)


def test_a_thousand_hosts_cost_seconds(closing: Closing) -> None:
    """The largest fabric of the shipped topologies, a shift for 30 frame times: in 3 s of CPU."""
    leaves, hosts = 32, 32
    subnet = fat_tree(leaves, hosts, 32)
    names = [hca(leaf, number) for leaf in range(leaves) for number in range(hosts)]
    pairs = [(name, names[(place + 33) % len(names)]) for place, name in enumerate(names)]
    begin = time.process_time()
    found = Saturated(closing(data_path(subnet)), subnet, pairs).run(60)
    taken_s = time.process_time() - begin
    assert min(found.share(pair) for pair in pairs) == pytest.approx(1.0, abs=0.04)
    assert taken_s < 3 * 2, "twice as many frame times as promised"


def test_partitions_let_nothing_else_pass(closing: Closing) -> None:
    subnet = fat_tree(2, 2, 1)
    path = closing(data_path(subnet))
    red, blue = 0x8001, 0x8002
    for name, keys in ((hca(0, 0), [red]), (hca(1, 0), [red]), (hca(1, 1), [blue, 0x0001])):
        path.set_partitions(name, keys)
    pairs = [(hca(0, 0), hca(1, 0)), (hca(0, 0), hca(1, 1))]
    for token, (pair, key) in enumerate([(pairs[0], red), (pairs[1], blue), (pairs[1], red), (pairs[1], 0x0001)]):
        path.offer(pair[0], header(subnet, *pair, pkey=key), FRAME_BYTES, token, 0)
    path.run(10**6, stops=False)
    fate = {one.token: (one.kind, one.cause) for one in path.notices() if one.kind != binding.SENT}
    assert fate == {
        0: (binding.DELIVERED, ""),
        1: (binding.DELIVERED, ""),
        2: (binding.DELIVERED, ""),
        3: (binding.LOST, "bad_pkey"),
    }, "of two limited members neither reaches the other, and a full one reaches both"


def test_a_switch_stops_a_partition_at_its_edge(closing: Closing) -> None:
    subnet = fat_tree(2, 2, 1)
    path = closing(data_path(subnet))
    path.set_partitions("leaf0", [0x8001], port=1)
    path.set_partitions("leaf1", [0x8001], port=1)
    for token, source in enumerate((hca(0, 0), hca(0, 1))):
        path.offer(source, header(subnet, source, hca(1, 0), pkey=0x8002), FRAME_BYTES, token, 0)
    path.run(10**6, stops=False)
    assert path.counters("leaf0", 1)["rcv_constraint_errors"] == 1
    assert path.counters("leaf1", 1)["xmit_constraint_errors"] == 1
    assert path.lost() | {"rcv_constraint_errors": 1, "xmit_constraint_errors": 1} == path.lost()
    assert path.in_flight == 0


def test_management_passes_where_data_waits(closing: Closing) -> None:
    """A frame of VL15 takes no credits, and goes before all data; what an input has no room for is dropped."""
    subnet = ring(6, 2, layers=1)
    path = closing(data_path(subnet, frames=2))
    found = Saturated(path, subnet, ring_pairs("all-to-all"))
    assert found.run(1000).is_stuck
    now = 10**7
    for token in range(4):
        path.offer(hca(0, 0), header(subnet, hca(0, 0), hca(3, 0)), FRAME_BYTES, 10**9 + token, now, management=True)
    path.run(now + 10**6, stops=False)
    arrived = [one.token for one in path.notices() if one.kind == binding.DELIVERED]
    assert arrived == [10**9 + token for token in range(4)]
    for token in range(40):
        path.inject("leaf0", 1, bytes([0xF0]) + header(subnet, hca(0, 0), hca(3, 0))[1:], FRAME_BYTES, token, now)
    path.run(now + 10**6, stops=False)
    assert path.lost()["vl15_dropped"] > 0


def test_marks_are_made_where_congestion_has_its_root(closing: Closing) -> None:
    """Where the four flows of the incast meet, at the spine's port to their leaf, and not at an uplink whose frames
    wait for credits."""
    subnet = fat_tree(LEAVES, HOSTS, SPINES, to_one_spine)
    path = closing(data_path(subnet))
    for switch in subnet.switches:
        path.set_congestion(switch.name, Congestion(threshold=15))
    found = Saturated(path, subnet, [*INCAST, VICTIM]).run(1000)
    assert sum(found.marked[pair] for pair in INCAST) > 0
    assert path.lane("spine0", 8, 0)["marked"] > 300
    assert path.lane("leaf0", HOSTS + 1, 0)["marked"] < 30


def test_frames_take_the_least_loaded_way_up(closing: Closing) -> None:
    """All to one spine by the tables: a quarter each; by the least loaded port almost all of it."""
    subnet = fat_tree(LEAVES, HOSTS, SPINES, lambda leaf, destination: destination // HOSTS % SPINES)
    path = closing(data_path(subnet))
    for leaf in range(LEAVES):
        path.set_up_ports(f"leaf{leaf}", range(HOSTS + 1, HOSTS + SPINES + 1))
    found = Saturated(path, subnet, shift(4)).run(400)
    assert found.total / len(shift(4)) > 0.8


def test_a_link_that_is_down_loses_until_there_are_other_tables(closing: Closing) -> None:
    subnet = fat_tree(LEAVES, HOSTS, SPINES)
    path = closing(data_path(subnet))
    saturated = Saturated(path, subnet, shift(4))
    assert not saturated.run(100).lost
    path.set_link("leaf0", HOSTS + 1, False)
    broken = saturated.run(200)
    assert broken.lost["xmit_discards"] > 0
    around = fat_tree(LEAVES, HOSTS, SPINES, lambda leaf, destination: destination % SPINES or 1)
    for name, table in around.lfts.items():
        path.set_forwarding(name, table)
    saturated.run(220)  # what is on its way to the link still is
    assert not saturated.run(400).lost, "no frame is lost once the tables are in force"
    path.set_link("leaf0", HOSTS + 1, True)
    for name, table in subnet.lfts.items():
        path.set_forwarding(name, table)
    saturated.run(450)
    again = saturated.run(800)
    assert not again.lost
    assert path.counters("leaf0", HOSTS + 1)["link_downed"] == 1


def test_every_frame_is_accounted_for(closing: Closing) -> None:
    subnet = fat_tree(LEAVES, HOSTS, SPINES)
    path = closing(data_path(subnet))
    saturated = Saturated(path, subnet, shift(5))
    saturated.run(50)
    path.set_link("spine0", 1, False)
    saturated.run(120)
    sent = sum(path.counters(name, 1)["xmit_pkts"] for name in ALL)
    got = sum(path.counters(name, 1)["rcv_pkts"] for name in ALL)
    assert sum(path.lost().values()) > 0
    assert saturated.offered == got + sum(path.lost().values()) + path.in_flight
    assert sum(path.counters(name, 1)["xmit_data"] for name in ALL) == sent * (FRAME_BYTES - 2) // 4


def test_waits_for_credits_are_counted(closing: Closing) -> None:
    subnet = fat_tree(LEAVES, HOSTS, SPINES, to_one_spine)
    path = closing(data_path(subnet))
    found = Saturated(path, subnet, INCAST)
    found.run(1000)
    waited = path.counters(hca(1, 0), 1)["xmit_wait_ns"]
    whole = 1000 * FRAME_BYTES * 8_000_000_000 // RATE_BPS
    assert waited / whole == pytest.approx(0.75, abs=0.06), "it sends a quarter of the time"
    assert path.lane(hca(1, 0), 1, 0)["xmit_wait_ns"] == pytest.approx(waited, rel=0.1)
    assert path.counters(HOT, 1)["xmit_wait_ns"] == 0


def test_a_wait_that_ends_with_its_link_is_counted(closing: Closing) -> None:
    """A ring that has come to a stop, and one of its links goes down 10 ms later."""
    subnet = ring(6, 2, layers=1)
    path = closing(data_path(subnet, frames=2))
    assert Saturated(path, subnet, ring_pairs("shift")).run(1000).is_stuck
    near = hca(1, 0), hca(1, 1)
    path.offer(near[0], header(subnet, *near), FRAME_BYTES, 10**9, 10**7, management=True)
    path.set_link("leaf0", 3, False)
    assert path.counters("leaf0", 3)["xmit_wait_ns"] > 9 * 10**6
    assert path.lane("leaf0", 3, 0)["xmit_wait_ns"] > 9 * 10**6


def test_a_fabric_without_frames_has_nothing_to_do(closing: Closing) -> None:
    path = closing(data_path(fat_tree(2, 2, 1)))
    assert path.run(binding.NEVER) == binding.NEVER
    assert path.run(10**9, stops=False) == binding.NEVER


def test_a_closed_fabric_is_asked_nothing(closing: Closing) -> None:
    path = closing(data_path(fat_tree(2, 2, 1)))
    path.close()
    for ask in (lambda: path.in_flight, lambda: path.run(0), lambda: path.counters("leaf0", 1)):
        with pytest.raises(AttributeError):
            ask()


@pytest.mark.parametrize(
    ("nodes", "links"),
    [
        ([PathNode(name="a", ports=1, lid=1, is_switch=False)] * 2, []),
        ([PathNode(name="a", ports=1, lid=0xC000, is_switch=False)], []),
        ([PathNode(name="a", ports=2, lid=1, is_switch=False)], []),
        ([PathNode(name="a", ports=255, lid=1, is_switch=True)], []),
        (
            [PathNode(name="a", ports=1, lid=1, is_switch=False)],
            [PathLink(a="a", a_port=1, b="a", b_port=1, rate_bps=1, delay_ns=0)],
        ),
        (
            [PathNode(name="a", ports=1, lid=1, is_switch=False), PathNode(name="b", ports=1, lid=2, is_switch=False)],
            [PathLink(a="a", a_port=1, b="b", b_port=2, rate_bps=10**9, delay_ns=0)],
        ),
        (
            [PathNode(name="a", ports=1, lid=1, is_switch=False), PathNode(name="b", ports=1, lid=2, is_switch=False)],
            [PathLink(a="a", a_port=1, b="b", b_port=1, rate_bps=0, delay_ns=0)],
        ),
    ],
)
def test_what_no_subnet_can_be_is_refused(closing: Closing, nodes: list[PathNode], links: list[PathLink]) -> None:
    with pytest.raises(UsageError):
        closing(SubnetDataPath(nodes, links))


def test_tables_that_do_not_fit_are_refused(closing: Closing) -> None:
    subnet = fat_tree(2, 2, 1)
    path = closing(data_path(subnet))
    for wrong in (
        lambda: path.set_forwarding(hca(0, 0), bytes(4)),
        lambda: path.set_lanes("leaf0", [16] * 16),
        lambda: path.set_lanes("leaf0", [0] * 15),
        lambda: path.set_lanes("leaf0", [0] * 16, input_port=9),
        lambda: path.set_arbitration("leaf0", low=[(15, 1)]),
        lambda: path.set_arbitration("leaf0", low=[(0, 1)] * 65),
        lambda: path.set_partitions("leaf0", [1 << 16]),
        lambda: path.set_partitions("leaf0", [1], port=9),
        lambda: path.set_congestion("leaf0", Congestion(threshold=16)),
        lambda: path.set_link("leaf0", 0, False),
        lambda: path.offer("leaf0", bytes(20), 26, 1, 0),
        lambda: path.offer("nobody", bytes(20), 26, 1, 0),
    ):
        with pytest.raises(UsageError):
            wrong()
